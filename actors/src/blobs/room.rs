//! Which of the blobs that a request names go into it.

use crate::journal::StoreError;

/// How many blobs go into one request: each is a read of the store.
const MOST: usize = 100;

/// What is encoded where it is: less than a tenth of a millisecond. More would hold up others.
const INLINE: u64 = 256 << 10;

/// From which on blobs of these sizes, oldest first, are shown.
///
/// All of them as long as they fit. When one does not, only the newest that fill half of the room
/// are, and that one in any case if it fits by itself: so what was shown stays shown, and a
/// provider's cache holds, until half of the room is filled anew. It goes by nothing but the sizes,
/// so every node shows the same.
pub(super) fn first_shown(sizes: &[u64], most: u64) -> usize {
    let (mut first, mut sum) = (0, 0_u64);
    for (at, size) in sizes.iter().enumerate() {
        sum = sum.saturating_add(*size);
        if sum <= most && at - first < MOST {
            continue;
        }
        while first < at && (sum > most / 2 || at - first >= MOST / 2) {
            sum = sum.saturating_sub(sizes[first]);
            first += 1;
        }
        if sum > most {
            (first, sum) = (at + 1, 0);
        }
    }
    first
}

/// Does what takes the longer, the more bytes there are.
pub(super) async fn worked<T: Send + 'static>(
    bytes: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    match bytes > INLINE {
        true => tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| StoreError::Unavailable(error.to_string())),
        false => Ok(work()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_the_room_is_made_when_it_is_full() {
        for (sizes, first) in [
            (&[][..], 0),
            (&[10], 0),
            (&[11], 1),
            (&[5, 5], 0),
            (&[5, 5, 1], 2),
            (&[2, 2, 2, 2, 2, 1], 3),
            (&[5, 5, 1, 9], 2),
            (&[1, 9, 9], 2),
            (&[5, 11], 2),
            (&[5, 11, 1], 2),
            (&[0, 11, 0], 2),
        ] {
            assert_eq!(first_shown(sizes, 10), first, "{sizes:?}");
        }
        assert_eq!(first_shown(&[0; MOST], 10), 0);
        assert_eq!(first_shown(&[0; MOST + 1], 10), MOST / 2 + 1);
    }

    proptest! {
        #[test]
        fn what_is_shown_fits_and_is_changed_once_in_half_of_the_room(
            sizes in prop::collection::vec(0_u64..=10, 1..400),
        ) {
            let mut since = 0;
            for upto in 1..=sizes.len() {
                let shown = |upto: usize| first_shown(&sizes[..upto], 100);
                let sum: u64 = sizes[shown(upto)..upto].iter().sum();
                prop_assert!(sum <= 100 && upto - shown(upto) <= MOST);
                if shown(upto) != shown(upto - 1) {
                    let new: u64 = sizes[since..upto].iter().sum();
                    prop_assert!(new > 50 || upto - since >= MOST / 2, "{new}");
                    since = upto;
                }
            }
        }
    }
}
