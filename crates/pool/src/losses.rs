//! Losses of leaves that no DTL on disk tells of yet, and the txg that writes them down.

/// Whether leaves have lost something that no DTL on disk tells of.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The last txg had some.
    had_some: bool,
    /// They wait until nothing else is to be done.
    pub(crate) are_waiting: bool,
}

impl Losses {
    /// Notes whether a txg had some. True: another txg is to write them down at once.
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
