//! Places of connections, and how many of them anybody has.
//!
//! # What always holds
//! - A user other than root and the daemon's own has few of all places, and all such users together half of
//!   them.
//! - A connection that has not asked for anything yet gives way to a new one, the oldest first: of its own
//!   user where that one has too many, else of anybody.

use super::cancel::Cancelled;
use super::descriptors::Socket;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Arc;

/// Most connections at a time, where the system gives enough descriptors.
const CONNECTIONS_MAX: usize = 256;
/// Connections that there may be at least, however few descriptors the process has.
const CONNECTIONS_MIN: usize = 16;
/// The part of all descriptors that connections may take.
const DESCRIPTORS_PART: usize = 4;
/// The part of all places that one of the other users may take, and the fewest.
const USER_PART: usize = 16;
const USER_MIN: usize = 4;

/// The places, and the users that have them.
pub(super) struct Slots {
    /// Bound of the places that are taken at a time.
    max: usize,
    next: u64,
    taken: BTreeMap<u64, Slot>,
}

struct Slot {
    uid: u32,
    socket: Arc<Socket>,
    cancelled: Cancelled,
    has_asked: bool,
}

/// A user other than root and the daemon's own.
pub(super) fn is_other(uid: u32) -> bool {
    uid != 0 && uid != rustix::process::geteuid().as_raw()
}

impl Slots {
    /// As many places as this many descriptors allow.
    pub(super) fn new(descriptors: Option<u64>) -> Slots {
        let descriptors = descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let max = (descriptors / DESCRIPTORS_PART).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        Slots { max, next: 0, taken: BTreeMap::new() }
    }

    /// Takes a place; `None`: all are used by those that have asked for something.
    pub(super) fn enter(&mut self, uid: u32, socket: &Arc<Socket>) -> Option<(u64, Cancelled)> {
        if is_other(uid) {
            self.make_room((self.max / USER_PART).max(USER_MIN), |slot| slot.uid == uid)?;
            self.make_room(self.max / 2, |slot| is_other(slot.uid))?;
        }
        self.make_room(self.max, |_| true)?;
        let (id, cancelled) = (self.next, Cancelled::default());
        self.next += 1;
        let slot = Slot { uid, socket: Arc::clone(socket), cancelled: cancelled.clone(), has_asked: false };
        self.taken.insert(id, slot);
        Some((id, cancelled))
    }

    /// Sees to it that there are fewer than `max` of a kind.
    fn make_room(&mut self, max: usize, is_of_kind: impl Fn(&Slot) -> bool) -> Option<()> {
        if self.taken.values().filter(|slot| is_of_kind(slot)).count() < max {
            return Some(());
        }
        let idle = |(_, slot): &(&u64, &Slot)| is_of_kind(slot) && !slot.has_asked;
        let id = *self.taken.iter().find(idle)?.0;
        let slot = self.taken.remove(&id)?;
        // Its thread sees the end, and closes it.
        slot.socket.shutdown(Shutdown::Both);
        Some(())
    }

    /// A connection has asked for something. False: it has lost its place before.
    pub(super) fn asked(&mut self, id: u64) -> bool {
        self.taken.get_mut(&id).map(|slot| slot.has_asked = true).is_some()
    }

    /// Ends the connections that have not asked for anything: no command waits for them.
    pub(super) fn end_idle(&mut self) {
        self.taken.retain(|_, slot| {
            if !slot.has_asked {
                slot.socket.shutdown(Shutdown::Both);
            }
            slot.has_asked
        });
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.taken.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn cancelled(&self) -> Vec<Cancelled> {
        self.taken.values().map(|slot| slot.cancelled.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn fill(slots: &mut Slots, uid: u32, count: usize) -> Vec<Option<u64>> {
        let enter = |slots: &mut Slots| {
            let socket = Arc::new(Socket::new(UnixStream::pair().expect("a pair").0, true));
            slots.enter(uid, &socket).map(|(id, _)| id)
        };
        (0..count).map(|_| enter(slots)).collect()
    }

    #[test]
    fn idle_connections_give_way_and_nobody_takes_the_places_of_others() {
        let mut slots = Slots::new(Some(1 << 20));
        let own = rustix::process::geteuid().as_raw();
        let (one, two) = (own + 1000, own + 1001);
        // Idle ones of a user give way to newer ones of that user.
        let all = fill(&mut slots, one, 1000);
        assert!(all.iter().all(Option::is_some));
        assert_eq!(slots.len(), CONNECTIONS_MAX / USER_PART);
        // Those that have asked stay, and then there is no place for that user, but for all others.
        assert!(all[984..].iter().flatten().all(|id| slots.asked(*id)));
        assert_eq!(fill(&mut slots, one, 1), [None]);
        let other = fill(&mut slots, two, 1);
        assert!(other[0].is_some() && slots.asked(other[0].expect("a place")));
        assert!(fill(&mut slots, own, 1000).iter().all(Option::is_some));
        assert_eq!(slots.len(), CONNECTIONS_MAX);
        // Connections that run nothing delay the end of no other.
        slots.end_idle();
        assert_eq!(slots.len(), CONNECTIONS_MAX / USER_PART + 1);
        // A place comes back.
        slots.leave(*all[999].as_ref().expect("a place"));
        assert!(fill(&mut slots, one, 1)[0].is_some());
    }

    #[test]
    fn few_descriptors_are_not_all_for_connections() {
        let mut slots = Slots::new(Some(200));
        let own = rustix::process::geteuid().as_raw();
        assert!(fill(&mut slots, own, 300).iter().all(Option::is_some));
        assert_eq!(slots.len(), 50);
    }
}
