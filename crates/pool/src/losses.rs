//! Writes that leaves missed and that no DTL on disk records yet, and the decision when to write a txg for
//! them.

/// Whether leaves have missed writes that no DTL on disk records.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Leaves missed writes in the last txg.
    had_some: bool,
    /// The missed writes are recorded once the pool is idle.
    pub(crate) are_waiting: bool,
}

impl Losses {
    /// Notes whether leaves missed writes in a txg. Returns true if another txg must record them at once.
    pub(crate) fn note(&mut self, has_lost: bool) -> bool {
        let had_some = std::mem::replace(&mut self.had_some, has_lost);
        self.are_waiting = has_lost && had_some;
        has_lost && !had_some
    }
}

#[cfg(test)]
mod tests {
    use super::Losses;

    #[test]
    fn losses_of_every_txg_do_not_make_one_follow_the_other() {
        let mut losses = Losses::default();
        assert!(!losses.note(false));
        // The first is written down at once.
        assert!(losses.note(true) && !losses.are_waiting);
        for _ in 0..3 {
            assert!(!losses.note(true) && losses.are_waiting);
        }
        assert!(!losses.note(false) && !losses.are_waiting);
        assert!(losses.note(true));
    }
}
