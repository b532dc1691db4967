//! Communication with a service manager (systemd): a listening socket that it has made, and messages about
//! the state of the daemon. See sd_listen_fds(3) and sd_notify(3).

use rustix::net::{SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Number of the first descriptor that a service manager passes.
const FIRST: i32 = 3;

/// The listening socket that this process was started with, if any. Must be called once, before any
/// descriptor is opened.
///
/// # Errors
/// The process was started with a descriptor that is no listening socket.
pub fn inherited_socket() -> io::Result<Option<OwnedFd>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS").unwrap_or(0) == 0 {
        return Ok(None);
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(third()?, FIRST)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let kind = rustix::net::sockopt::socket_type(&socket)?;
    if kind != SocketType::STREAM || !rustix::net::sockopt::socket_acceptconn(&socket)? {
        return Err(wrong("the descriptor that the service manager hands over is no listening socket"));
    }
    Ok(Some(socket))
}

#[allow(unsafe_code)]
fn third() -> io::Result<BorrowedFd<'static>> {
    // SAFETY: the process that set LISTEN_FDS for this very process has left the descriptor open; no other
    // code here knows it, so none closes it.
    let fd = unsafe { BorrowedFd::borrow_raw(FIRST) };
    rustix::io::fcntl_getfd(fd)?;
    Ok(fd)
}

/// Sends a message such as `READY=1` to the service manager, if there is one.
///
/// # Errors
/// The socket of the service manager cannot be written.
pub fn notify(text: &str) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(OsStr::new(&name))?,
    };
    let (family, flags) = (rustix::net::AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    rustix::net::sendto(socket.as_fd(), text.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// Longest interval between two `WATCHDOG=1` messages that the service manager accepts; `None`: it expects
/// none.
pub fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0).map(Duration::from_micros)
}
