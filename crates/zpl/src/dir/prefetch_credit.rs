//! Credit of the directory prefetch for reading file contents: grows if listed files are read.

use std::sync::atomic::{AtomicI32, Ordering};

/// Initial credit, in files.
const CREDIT: i32 = 64;
/// Largest credit, in files.
const CREDIT_MAX: i32 = 512;
/// Credit earned by a file that is read.
const EARNED: i32 = 2;

/// Number of files whose contents may be read ahead.
#[derive(Debug)]
pub(crate) struct PrefetchCredit(AtomicI32);

impl Default for PrefetchCredit {
    fn default() -> PrefetchCredit {
        PrefetchCredit(AtomicI32::new(CREDIT))
    }
}

impl PrefetchCredit {
    /// Adds credit: a file is read for the first time since it came into memory.
    pub(crate) fn earn(&self) {
        if self.0.load(Ordering::Relaxed) < CREDIT_MAX {
            self.0.fetch_add(EARNED, Ordering::Relaxed);
        }
    }

    /// Takes one file off the credit. Returns false if there is none.
    pub(crate) fn spend(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 && self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_lists_pays_for_few_files() {
        let credit = PrefetchCredit::default();
        let ahead = (0..1000).filter(|_| credit.spend()).count();
        assert_eq!(ahead, CREDIT as usize);
        credit.earn();
        assert_eq!((0..10).filter(|_| credit.spend()).count(), EARNED as usize);
        (0..10_000).for_each(|_| credit.earn());
        assert!(credit.0.load(Ordering::Relaxed) <= CREDIT_MAX + EARNED);
    }
}
