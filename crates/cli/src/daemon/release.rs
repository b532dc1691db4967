//! A process beside the daemon that ends the connections of its mounts when it was killed.
//!
//! A thread of the daemon may wait in the kernel for a mount of the daemon's own: mount points lie in mounts, and pages are
//! written back before a snapshot. When all others were killed nobody answers it, and nothing kills it; and as
//! long as it is there the daemon keeps its connections, with everybody who waits for an answer, its lock and its socket.
//!
//! # What always holds
//! - The process is told by the kernel when the first thread of the daemon has ended, and looks itself whether it was before.
//! - It ends connections only while that daemon is dying, and goes with it.

use super::lock::is_dying;
use super::paths::mount_record;
use nix::sys::signal::{SigSet, Signal};
use std::process::Stdio;
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Starts it. To be called by the first thread.
pub(super) fn start() {
    let start = || {
        let mut command = crate::this_program()?;
        command.args(["daemon", "--release", &std::process::id().to_string()]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
    };
    if let Err(error) = start() {
        tracing::warn!(%error, "if this daemon is killed, its mounts may hang until the next command");
    }
}

/// Does its work for the daemon with this number, whose child it is.
pub(super) fn run(daemon: u32) -> u8 {
    let told = [Signal::SIGUSR1, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let told: SigSet = told.into_iter().collect();
    let parent = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    let signal = Some(rustix::process::Signal::USR1);
    if told.thread_block().is_err() || rustix::process::set_parent_process_death_signal(signal).is_err() {
        return 1;
    }
    while parent() == Some(daemon) {
        if is_dying(daemon) {
            // Where it cannot be done, time may do it.
            let _ = mount_record().end_connections(|| is_dying(daemon));
            std::thread::sleep(LOOK_AGAIN);
        } else if told.wait().is_err() {
            return 1;
        }
    }
    0
}
