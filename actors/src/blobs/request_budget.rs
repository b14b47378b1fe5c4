//! Selects the blobs that fit into a model request.

use crate::journal::StoreError;

/// Blobs in one request; each is a read of the store.
const MAX_BLOBS: usize = 100;

/// Up to this size work runs on the caller's thread: it takes less than a tenth of a millisecond.
const MAX_INLINE_WORK_BYTES: u64 = 256 << 10;

/// The index of the first blob to include, of blobs with these sizes, oldest first.
///
/// All are included while they fit. When one does not fit, only the newest that fill half of the
/// room are included, and the last one in any case if it fits by itself. So the selection stays the
/// same, and a provider's cache valid, until half of the room is filled again. It depends only on
/// the sizes, so every node selects the same blobs.
pub(super) fn first_included(sizes: &[u64], max_bytes: u64) -> usize {
    let (mut first, mut sum) = (0, 0_u64);
    for (at, size) in sizes.iter().enumerate() {
        sum = sum.saturating_add(*size);
        if sum <= max_bytes && at - first < MAX_BLOBS {
            continue;
        }
        while first < at && (sum > max_bytes / 2 || at - first >= MAX_BLOBS / 2) {
            sum = sum.saturating_sub(sizes[first]);
            first += 1;
        }
        if sum > max_bytes {
            (first, sum) = (at + 1, 0);
        }
    }
    first
}

/// Runs work whose duration grows with `bytes`, on a blocking thread if they are many.
pub(super) async fn run_sized<T: Send + 'static>(
    bytes: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    if bytes > MAX_INLINE_WORK_BYTES {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| StoreError::Unavailable(error.to_string()))
    } else {
        Ok(work())
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
            assert_eq!(first_included(sizes, 10), first, "{sizes:?}");
        }
        assert_eq!(first_included(&[0; MAX_BLOBS], 10), 0);
        assert_eq!(first_included(&[0; MAX_BLOBS + 1], 10), MAX_BLOBS / 2 + 1);
    }

    proptest! {
        #[test]
        fn what_is_shown_fits_and_is_changed_once_in_half_of_the_room(
            sizes in prop::collection::vec(0_u64..=10, 1..400),
        ) {
            let mut since = 0;
            for upto in 1..=sizes.len() {
                let shown = |upto: usize| first_included(&sizes[..upto], 100);
                let sum: u64 = sizes[shown(upto)..upto].iter().sum();
                prop_assert!(sum <= 100 && upto - shown(upto) <= MAX_BLOBS);
                if shown(upto) != shown(upto - 1) {
                    let new: u64 = sizes[since..upto].iter().sum();
                    prop_assert!(new > 50 || upto - since >= MAX_BLOBS / 2, "{new}");
                    since = upto;
                }
            }
        }
    }
}
