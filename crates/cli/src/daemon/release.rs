//! A process beside the daemon that aborts the connections of the daemon's mounts when the daemon was killed.
//!
//! A thread of the daemon may wait in the kernel for a mount of the daemon's own: mount points lie in mounts,
//! and pages are written back before a snapshot. After all other threads were killed, no thread answers it,
//! and no signal ends it. While it exists, the daemon keeps its connections (with all programs that wait for
//! replies), its lock and its socket.
//!
//! # What always holds
//! - The kernel signals this process when the first thread of the daemon ends; the process itself checks
//!   whether that had happened before.
//! - It aborts connections only while that daemon is dying, and ends with it.

use super::lock::is_dying;
use super::paths::mount_record;
use nix::sys::signal::{SigSet, Signal};
use std::process::Stdio;
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Starts the process. Must be called by the first thread of the daemon.
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

/// Works for the daemon with this process id, which is the parent.
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
            // If connections cannot be aborted, the daemon may still end in time.
            let _ = mount_record().end_connections(|| is_dying(daemon));
            std::thread::sleep(LOOK_AGAIN);
        } else if told.wait().is_err() {
            return 1;
        }
    }
    0
}
