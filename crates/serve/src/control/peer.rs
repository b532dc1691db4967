//! Who is at the other end of a socket: what the kernel noted when it was connected.

use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Most groups of a process that are asked for (Linux: NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its further groups.
    pub groups: Vec<u32>,
    /// Its process, 0 if that is in another namespace.
    pub pid: i32,
}

impl Peer {
    /// Who connected this socket.
    ///
    /// # Errors
    /// The system does not say.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = socket_peercred(socket)?;
        Ok(Peer {
            uid: credentials.uid.as_raw(),
            gid: credentials.gid.as_raw(),
            groups: groups(socket)?,
            pid: credentials.pid.as_raw_nonzero().get(),
        })
    }
}

/// SO_PEERGROUPS, which no crate here has.
#[allow(unsafe_code)]
fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    use nix::libc::{SO_PEERGROUPS, SOL_SOCKET, getsockopt, socklen_t};
    let mut groups = vec![0u32; 32];
    loop {
        let mut length = socklen_t::try_from(size_of_val(&groups[..])).unwrap_or(0);
        // SAFETY: the buffer is as long as `length` says, and any bytes are numbers.
        let done = unsafe {
            let socket = socket.as_fd().as_raw_fd();
            getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.as_mut_ptr().cast(), &raw mut length)
        };
        let count = usize::try_from(length).unwrap_or(0) / size_of::<u32>();
        match (done, io::Error::last_os_error()) {
            (0, _) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // It said how many there are.
            (_, e) if e.raw_os_error() == Some(nix::libc::ERANGE) && count <= GROUPS_MAX => {
                groups.resize(count.max(groups.len() + 1), 0);
            }
            (_, e) => return Err(e),
        }
    }
}
