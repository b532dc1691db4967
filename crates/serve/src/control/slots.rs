//! Slots for connections, and each user's share of them.
//!
//! # What always holds
//! - A user other than root and the daemon's own may hold few of all slots, and all such users together half
//!   of them.
//! - A connection that has not sent a request yet makes way for a new one, the oldest first: a connection of
//!   the same user if that user has too many, else of any user.

use super::cancel::Cancelled;
use super::descriptors::Socket;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Arc;

/// Most connections at a time, if the system gives enough descriptors.
const CONNECTIONS_MAX: usize = 256;
/// Fewest connections at a time, however few descriptors the process may have.
const CONNECTIONS_MIN: usize = 16;
/// Connections may take one in this many of all descriptors.
const DESCRIPTORS_PART: usize = 4;
/// One of the other users may hold one in this many of all slots; and the fewest slots of a user.
const USER_PART: usize = 16;
const USER_MIN: usize = 4;

/// The slots, and the users that hold them.
pub(super) struct Slots {
    /// Greatest number of slots that are taken at a time.
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

/// Whether a user is neither root nor the daemon's own.
pub(super) fn is_other(uid: u32) -> bool {
    uid != 0 && uid != rustix::process::geteuid().as_raw()
}

impl Slots {
    /// As many slots as this many descriptors allow.
    pub(super) fn new(descriptors: Option<u64>) -> Slots {
        let descriptors = descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let max = (descriptors / DESCRIPTORS_PART).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        Slots { max, next: 0, taken: BTreeMap::new() }
    }

    /// Takes a slot. `None`: all are held by connections with a request.
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

    /// Makes room for one more of a kind: if there are `max`, ends the oldest of them without a request.
    /// `None`: all have one.
    fn make_room(&mut self, max: usize, is_of_kind: impl Fn(&Slot) -> bool) -> Option<()> {
        if self.taken.values().filter(|slot| is_of_kind(slot)).count() < max {
            return Some(());
        }
        let idle = |(_, slot): &(&u64, &Slot)| is_of_kind(slot) && !slot.has_asked;
        let id = *self.taken.iter().find(idle)?.0;
        let slot = self.taken.remove(&id)?;
        // The thread of the connection sees its end, and closes it.
        slot.socket.shutdown(Shutdown::Both);
        Some(())
    }

    /// Notes that a connection has sent a request. `false`: it had lost its slot before.
    pub(super) fn asked(&mut self, id: u64) -> bool {
        self.taken.get_mut(&id).map(|slot| slot.has_asked = true).is_some()
    }

    /// Ends the connections without a request: no command runs for them.
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
        // Idle connections of a user make way for newer ones of that user.
        let all = fill(&mut slots, one, 1000);
        assert!(all.iter().all(Option::is_some));
        assert_eq!(slots.len(), CONNECTIONS_MAX / USER_PART);
        // Connections with a request stay; then that user gets no slot, but all others do.
        assert!(all[984..].iter().flatten().all(|id| slots.asked(*id)));
        assert_eq!(fill(&mut slots, one, 1), [None]);
        let other = fill(&mut slots, two, 1);
        assert!(other[0].is_some() && slots.asked(other[0].expect("a place")));
        assert!(fill(&mut slots, own, 1000).iter().all(Option::is_some));
        assert_eq!(slots.len(), CONNECTIONS_MAX);
        // Connections without a request delay the end of no other.
        slots.end_idle();
        assert_eq!(slots.len(), CONNECTIONS_MAX / USER_PART + 1);
        // A slot is given back.
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
