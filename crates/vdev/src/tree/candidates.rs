//! The limit of candidates tried for a block, and the enumeration of suspected columns.

/// Most candidates that are tried for one block.
pub const ATTEMPTS_MAX: usize = 5000;
/// Most bytes of candidates that are tried for one block.
pub(crate) const ATTEMPT_BYTES_MAX: u64 = 16 << 30;

/// Number of candidates that may still be tried for one block.
pub(super) struct Budget(usize);

impl Budget {
    /// The budget for a block of this size.
    pub(super) fn new(psize: usize) -> Budget {
        let by_bytes = ATTEMPT_BYTES_MAX / (psize as u64).max(1);
        Budget(ATTEMPTS_MAX.min(usize::try_from(by_bytes).unwrap_or(usize::MAX)))
    }

    /// Takes one attempt from the budget. Returns false if it is used up.
    pub(super) fn take(&mut self) -> bool {
        let allowed = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        allowed
    }

    /// Number of candidates that may still be tried.
    pub(super) fn left(&self) -> usize {
        self.0
    }
}

/// Advances to the next set of the same size in lexical order. Returns false after the last.
pub(super) fn next_set(set: &mut [usize], limit: usize) -> bool {
    let size = set.len();
    for i in (0..size).rev() {
        if set[i] + (size - i) < limit {
            set[i] += 1;
            for j in i + 1..size {
                set[j] = set[j - 1] + 1;
            }
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sets_once() {
        for (size, limit, count) in [(0, 5, 1), (1, 5, 5), (2, 5, 10), (3, 5, 10), (3, 20, 1140)] {
            let mut set: Vec<usize> = (0..size).collect();
            let mut all = vec![set.clone()];
            while next_set(&mut set, limit) {
                all.push(set.clone());
            }
            assert_eq!(all.len(), count);
            all.dedup();
            assert_eq!(all.len(), count);
            assert!(all.iter().flatten().all(|i| *i < limit));
        }
    }
}
