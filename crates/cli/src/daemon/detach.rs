//! Starts a daemon in the background, where it survives the process that started it.

use super::error::{DaemonError, RUNNING};
use serve::clean_start;
use std::io::{self, Read, Write};
use std::process::Stdio;

/// What the background process writes when it accepts requests.
const READY: &[u8] = b"ready\n";

/// Starts this program again as a child that serves, and waits until the child reports that it does. This
/// process then ends, and the child has no parent to wait for it.
pub(super) fn start(unless_running: bool) -> Result<u8, DaemonError> {
    clean_start::clean().map_err(DaemonError::Limited)?;
    let mut child = crate::this_program()?;
    child.env_clear().envs(clean_start::environment(std::env::vars_os()));
    child.args(["daemon", "--detached"]).args(unless_running.then_some("--unless-running"));
    child.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = child.spawn()?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(READY.len() as u64).read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(0);
    }
    // The child has printed the reason.
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|code| *code == RUNNING).unwrap_or(1))
}

/// In the child: reports that it accepts requests, and leaves the session and the streams of the parent.
pub(super) fn ready() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    // The child may already be the leader of its session.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    let mut stdout = io::stdout();
    // The waiting process may be gone.
    let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}
