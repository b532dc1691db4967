//! Rate limit of the log lines about misbehaving clients: a few for each user and time.

use admin::sync::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most lines about one user within [`EVERY`].
const LINES: u32 = 8;
const EVERY: Duration = Duration::from_secs(60);
/// Most users that are counted; beyond it all counts start again.
const USERS: usize = 1024;
/// Most characters of a reason, which may quote what the client sent.
const LENGTH: usize = 200;

/// Number of lines that were logged for each user, and since when.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<BTreeMap<u32, (Instant, u32)>>);

impl Complaints {
    /// Logs a complaint about a user, unless that user's lines are used up.
    pub(super) fn tell(&self, uid: u32, pid: i32, what: &str, why: &str) {
        let why: String = why.chars().take(LENGTH).collect();
        match self.count(uid, Instant::now()) {
            count if count < LINES => tracing::warn!(uid, pid, why, "{what}"),
            LINES => tracing::warn!(uid, "more of this user is not told for a while"),
            _ => {}
        }
    }

    /// Number of lines that were logged for a user before this one.
    fn count(&self, uid: u32, now: Instant) -> u32 {
        let mut users = lock(&self.0);
        if users.len() >= USERS && !users.contains_key(&uid) {
            users.clear();
        }
        let (since, count) = users.entry(uid).or_insert((now, 0));
        if now.saturating_duration_since(*since) > EVERY {
            (*since, *count) = (now, 0);
        }
        let before = *count;
        *count = count.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_few_lines_and_gets_them_back() {
        let complaints = Complaints::default();
        let now = Instant::now();
        let told = |uid, at| (0..100).filter(|_| complaints.count(uid, at) <= LINES).count();
        assert_eq!((told(7, now), told(8, now)), (9, 9));
        assert_eq!((told(7, now), told(7, now + EVERY * 2)), (0, 9));
    }
}
