//! Having the kernel write back what programs have written.

use super::connections;
use rustix::fs::{Mode, OFlags, fstat, fstatfs, major, minor, open, openat, syncfs};
use rustix::io::{Errno, read};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Type of a FUSE file system in the answer of `statfs`.
const FUSE: i64 = 0x6573_5546;
/// Where programs ask for something all the time, what was on its way is answered after this, unless the pool
/// hangs.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Has the kernel write back all dirty pages and times of the FUSE mount at this directory, and waits until
/// what it sent was answered. Not to be called by a thread that answers requests.
///
/// # Errors
/// There is no FUSE mount; or a page could not be written, which its writer is told, too. That a page was
/// refused (a quota, an immutable file) is no error: it is as if it had never been written.
pub fn write_back(at: &Path) -> io::Result<()> {
    write_back_beside(at, 0)
}

/// [`write_back`], while `own` requests of the mount wait for the caller, which answers them later.
pub(crate) fn write_back_beside(at: &Path, own: u64) -> io::Result<()> {
    let dir = open(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    #[allow(clippy::useless_conversion)] // Of another type on other machines.
    let kind = i64::try_from(fstatfs(&dir)?.f_type);
    if kind != Ok(FUSE) {
        return Err(io::ErrorKind::NotFound.into());
    }
    match syncfs(&dir) {
        Err(error) if !is_refusal(error) => return Err(error.into()),
        // Everything else was written: one program that may write no more stops no other.
        _ => {}
    }
    // Depending on its version the kernel waited for the answers, or not.
    let device = fstat(&dir)?.st_dev;
    if major(device) == 0 {
        wait_until_answered(minor(device), own);
    }
    Ok(())
}

/// The server would not have taken it from a program either.
fn is_refusal(error: Errno) -> bool {
    matches!(
        error,
        Errno::DQUOT | Errno::NOSPC | Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::FBIG | Errno::TXTBSY
    )
}

thread_local! {
    /// This thread answers a request, and waits for others meanwhile.
    static ANSWERING: Cell<bool> = const { Cell::new(false) };
}

/// Does something that may need the kernel to write back, in a thread that answers a request.
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

/// Requests that the kernel waits for, as the files of a connection say. `None`: they do not.
fn waiting(files: &OwnedFd) -> Option<u64> {
    let file = openat(files, "waiting", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 24];
    let len = read(file, &mut text).ok()?;
    std::str::from_utf8(text.get(..len)?).ok()?.trim().parse().ok()
}

/// Waits until nothing but the caller's own is on its way, or for a while.
fn wait_until_answered(connection: u32, own: u64) {
    let Ok(files) = connections::files(connection.into()) else { return };
    let begun = Instant::now();
    while waiting(&files).is_some_and(|count| count > own) && begun.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_AGAIN);
    }
}
