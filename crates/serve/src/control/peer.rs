//! The peer of a socket: the user and the process that the kernel noted when it was connected.

use nix::libc;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Most supplementary groups of a process that are asked for (Linux: NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;
/// `SO_PASSRIGHTS` of Linux 6.16: whether a socket takes descriptors.
const PASS_RIGHTS: libc::c_int = 83;

/// A client of the control socket, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// User id that the kernel reports.
    pub uid: u32,
    /// Group id that the kernel reports.
    pub gid: u32,
    /// Ids of the supplementary groups.
    pub groups: Vec<u32>,
    /// Process id; 0 if the process is in another namespace.
    pub pid: i32,
}

impl Peer {
    /// The process that connected this socket.
    ///
    /// # Errors
    /// The system does not report it.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = credentials(socket)?;
        Ok(Peer { uid: credentials.uid, gid: credentials.gid, groups: groups(socket)?, pid: credentials.pid })
    }
}

/// Id of the user at the other end: the one that connected, or the one that listens.
///
/// # Errors
/// The system does not report it.
pub(super) fn other(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(credentials(socket)?.uid)
}

/// `SO_PEERCRED` as numbers. A process of another namespace is 0, which rustix does not accept as a process
/// id.
#[allow(unsafe_code)]
fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the buffer is as long as `length` says, and any bytes are numbers.
    let done = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        let into = (&raw mut found).cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length)
    };
    if done == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel refuse descriptors that are sent to this socket, or to sockets that it accepts. `false`:
/// the kernel cannot.
pub(super) fn refuse_descriptors(socket: BorrowedFd<'_>) -> bool {
    pass_rights(socket, false)
}

/// Whether the kernel passes descriptors on to this socket; `false` if that cannot be set.
#[allow(unsafe_code)]
pub(super) fn pass_rights(socket: BorrowedFd<'_>, passes: bool) -> bool {
    let passes = libc::c_int::from(passes);
    let length = libc::socklen_t::try_from(size_of_val(&passes)).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of a number that lives until it has.
    let done = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        libc::setsockopt(socket, libc::SOL_SOCKET, PASS_RIGHTS, (&raw const passes).cast(), length)
    };
    done == 0
}

/// Supplementary groups of the peer (`SO_PEERGROUPS`, which no crate here offers).
#[allow(unsafe_code)]
fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    use libc::{SO_PEERGROUPS, SOL_SOCKET, getsockopt, socklen_t};
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
            // The kernel has returned the number of groups.
            (_, e) if e.raw_os_error() == Some(libc::ERANGE) && count <= GROUPS_MAX => {
                groups.resize(count.max(groups.len() + 1), 0);
            }
            (_, e) => return Err(e),
        }
    }
}
