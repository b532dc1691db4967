//! The lock on the state folder: one daemon at a time has it.

use super::error::DaemonError;
use super::paths::mount_record;
use admin::change::state_folder;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Its name in the state folder.
const LOCK_NAME: &str = "cenoted.lock";

/// How long a daemon that was killed is waited for, while threads of it end one after the other.
const DYING: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process that was killed and is still there: a thread of it has not ended.
pub(super) fn is_dying(pid: u32) -> bool {
    const KILL: u64 = 1 << 8;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_killed = |name: &str| {
        field(name).is_some_and(|mask| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & KILL != 0))
    };
    field("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
        || is_killed("SigPnd:")
        || is_killed("ShdPnd:")
}

/// That this process is the one that has the state folder. Held until it ends, however it ends. While it is held, and
/// after an end that was not in order, the file names the process.
#[derive(Debug)]
pub(super) struct Lock {
    file: OwnedFd,
    before_has_died: bool,
}

impl Lock {
    /// # Errors
    /// [`DaemonError::Running`] if another process has it.
    pub(super) fn take() -> Result<Lock, DaemonError> {
        let path = state_folder().join(LOCK_NAME);
        let failed = |e: rustix::io::Errno| DaemonError::Folder { path: path.clone(), source: e.into() };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(&path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(e) => return Err(failed(e)),
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let pid = text.trim().parse().ok();
            if !pid.is_some_and(is_dying) || begun.elapsed() > DYING {
                return Err(DaemonError::Running { pid, state: state_folder() });
            }
            // Where that cannot be done, time may do it.
            let _ = mount_record().end_connections(|| pid.is_some_and(is_dying));
            std::thread::sleep(LOOK_AGAIN);
        }
        let before_has_died = rustix::fs::fstat(&file).map_err(failed)?.st_size > 0;
        rustix::fs::ftruncate(&file, 0).map_err(failed)?;
        rustix::io::write(&file, format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Lock { file, before_has_died })
    }

    /// The daemon before this one has not ended in order. The kernel may still be letting go of what it had.
    pub(super) fn before_has_died(&self) -> bool {
        self.before_has_died
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // At worst the next daemon waits for nothing.
        let _ = rustix::fs::ftruncate(&self.file, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    #[test]
    fn a_process_that_was_killed_and_is_there_is_dying() {
        assert!(!is_dying(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        assert!(!is_dying(child.id()));
        child.kill().expect("killed");
        let (which, ended) =
            (WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        waitid(which, ended).expect("a child");
        // It has ended, and its parent has not been told.
        assert!(is_dying(child.id()));
        child.wait().expect("it ends");
        assert!(!is_dying(child.id()));
    }
}
