//! A sorted set: members by score, then by their bytes.

use std::cmp::Ordering;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedSet(Vec<(f64, Vec<u8>)>);

impl SortedSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.0.iter().find(|(_, it)| it == member).map(|(score, _)| *score)
    }

    /// Adds a member or moves it. Returns what it did, if anything.
    pub fn add(&mut self, score: f64, member: &[u8]) -> Added {
        let added = match self.score(member) {
            Some(former) if former == score => return Added::Nothing,
            Some(_) => {
                self.remove(member);
                Added::Moved
            }
            None => Added::New,
        };
        let at = self.0.partition_point(|(other, it)| {
            other.total_cmp(&score).then_with(|| it.as_slice().cmp(member)) == Ordering::Less
        });
        self.0.insert(at, (score, member.to_vec()));
        added
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, it)| it != member);
        self.0.len() < before
    }

    /// Removes the members of these ranks.
    pub fn remove_ranks(&mut self, ranks: std::ops::Range<usize>) {
        self.0.drain(ranks);
    }

    pub fn rows(&self) -> &[(f64, Vec<u8>)] {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    New,
    Moved,
    Nothing,
}

/// A score as Redis writes it. The store's scores are whole numbers and infinity.
pub fn score_text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    whole(score)
}

/// A number that a script or a score contains, as `%.17g` writes whole numbers.
pub fn whole(number: f64) -> String {
    assert!(number.fract() == 0.0 && number.abs() < 1e17, "{number} is not a whole number");
    format!("{number:.0}")
}
