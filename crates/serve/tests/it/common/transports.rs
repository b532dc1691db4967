//! The transports over which tests mount.

use cenote_serve::fuse::Transport;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The transports that this kernel offers; a missing one was reported.
pub(crate) fn transports() -> Vec<Transport> {
    let is_enabled = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if is_enabled.is_ok_and(|text| text.trim() == "Y") {
        return vec![Transport::Classic, Transport::Ring];
    }
    testkit::skip("FUSE over io_uring is not enabled: tested over /dev/fuse only");
    vec![Transport::Classic]
}

/// The right to use rings: a process has few sets of them, and one only on machines with many processors.
pub(crate) type Turn = MutexGuard<'static, ()>;

/// Waits until the other tests of this program have no rings.
pub(crate) fn turn() -> Turn {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The number of sets is computed once, from this limit.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    turn
}

/// [`turn`] for a mount over this transport, if it needs rings.
pub(crate) fn turn_for(transport: Transport) -> Option<Turn> {
    (transport == Transport::Ring).then(turn)
}
