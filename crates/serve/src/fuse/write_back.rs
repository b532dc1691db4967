//! Write-back on request: has the kernel send the dirty pages of a mount.

use super::connections;
use rustix::fs::{Mode, OFlags, fstat, fstatfs, major, minor, open, openat, syncfs};
use rustix::io::{Errno, read};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Type of a FUSE file system in the result of `statfs`.
const FUSE: i64 = 0x6573_5546;
/// Requests that were under way when the write-back ended are answered within this time, unless the pool
/// hangs, even if programs make further requests all the time.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Has the kernel write back all dirty pages and times of the FUSE mount on this directory, and waits until
/// the requests for that were answered. Must not be called by a thread that answers requests.
///
/// # Errors
/// There is no FUSE mount, or a page could not be written; the program that wrote the page gets an error too.
/// A page that the file system refuses (a quota, an immutable file) is no error here: the write counts as
/// never made.
pub fn write_back(at: &Path) -> io::Result<()> {
    write_back_beside(at, 0)
}

/// [`write_back`] for a caller that is itself answering `own` requests of the mount.
pub(crate) fn write_back_beside(at: &Path, own: u64) -> io::Result<()> {
    let dir = open(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    #[allow(clippy::useless_conversion)] // Of another type on other machines.
    let kind = i64::try_from(fstatfs(&dir)?.f_type);
    if kind != Ok(FUSE) {
        return Err(io::ErrorKind::NotFound.into());
    }
    match syncfs(&dir) {
        Err(error) if !is_refusal(error) => return Err(error.into()),
        // All other pages were written: a program whose writes are refused stops no other.
        _ => {}
    }
    // Depending on its version the kernel has waited for the replies, or not.
    let device = fstat(&dir)?.st_dev;
    if major(device) == 0 {
        wait_until_answered(minor(device), own);
    }
    Ok(())
}

/// Whether the server would have refused the same write of a program with this error.
fn is_refusal(error: Errno) -> bool {
    matches!(
        error,
        Errno::DQUOT | Errno::NOSPC | Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::FBIG | Errno::TXTBSY
    )
}

thread_local! {
    /// Whether this thread is answering a request, and waits for others meanwhile.
    static ANSWERING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `act`, which may need the kernel to write back, on a thread that answers a request.
pub(crate) fn while_answering<R>(act: impl FnOnce() -> R) -> R {
    let before = ANSWERING.replace(true);
    let result = act();
    ANSWERING.set(before);
    result
}

/// Whether the calling thread is within [`while_answering`].
pub(crate) fn is_answering() -> bool {
    ANSWERING.get()
}

/// Number of requests that the kernel waits for, from the control files of its connection. `None`: unknown.
fn waiting(files: &OwnedFd) -> Option<u64> {
    let file = openat(files, "waiting", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 24];
    let len = read(file, &mut text).ok()?;
    std::str::from_utf8(text.get(..len)?).ok()?.trim().parse().ok()
}

/// Waits until only the caller's own requests are under way, for a bounded time.
fn wait_until_answered(connection: u32, own: u64) {
    let Ok(files) = connections::files(connection.into()) else { return };
    let begun = Instant::now();
    while waiting(&files).is_some_and(|count| count > own) && begun.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_AGAIN);
    }
}
