//! The load of a mount: whether it is busy enough for rings.

use super::ring;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests of a mount that are counted together.
const WINDOW: u32 = 10_000;
/// Time within which a busy mount gets so many requests.
const WINDOW_TIME: Duration = Duration::from_secs(5);
/// Load of a mount, measured as long as it may get rings.
#[derive(Debug, Default)]
pub(super) struct Load {
    requests: AtomicU32,
    /// When the window began, in milliseconds.
    began: AtomicU64,
    /// Windows in a row in which it was busy.
    busy: AtomicUsize,
    /// A thread is giving it rings at the moment.
    is_asked: AtomicBool,
}

fn now_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Load {
    /// A request came. Whether the mount is to get rings: it is said once, until [`Load::refused`].
    pub(super) fn note(&self) -> bool {
        let count = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        count.is_multiple_of(WINDOW) && self.note_window(now_ms(), ring::Share::count())
    }

    /// A window ends; so many mounts have rings.
    fn note_window(&self, now: u64, taken: usize) -> bool {
        let began = self.began.swap(now, Ordering::AcqRel);
        if u128::from(now.saturating_sub(began)) > WINDOW_TIME.as_millis() {
            self.busy.store(0, Ordering::Release);
            return false;
        }
        // The first window has begun with the first request, whose time is not known.
        self.busy.fetch_add(1, Ordering::AcqRel) + 1 > taken && !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Notes that it got no rings: they are asked for again when it was busy for as long again.
    pub(super) fn refused(&self) {
        self.busy.store(0, Ordering::Release);
        self.is_asked.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_busy_when_much_is_asked_for_long_and_longer_where_others_have_rings() {
        let millis = u64::try_from(WINDOW_TIME.as_millis()).unwrap();
        let load = Load::default();
        assert!(!load.note_window(10 * millis, 0), "nobody knows how long that took");
        assert!(!load.note_window(12 * millis, 0), "few requests");
        assert!(load.note_window(12 * millis + 1, 0));
        assert!(!load.note_window(12 * millis + 2, 0), "it is asked for once");
        load.refused();
        assert!(!load.note_window(12 * millis + 3, 2) && !load.note_window(12 * millis + 4, 2));
        assert!(load.note_window(12 * millis + 5, 2));
        load.refused();
        assert!(!load.note_window(13 * millis, 1) && !load.note_window(15 * millis, 1), "it has paused");
        assert!(!load.note_window(15 * millis, 1) && load.note_window(15 * millis, 1));
    }
}
