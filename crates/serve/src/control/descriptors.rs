//! The server's end of a connection, and what happens to descriptors that a client sends along.
//!
//! Whoever is the last to close a file waits as long as that file likes: a socket that lingers, a locked file of a file
//! system whose server does not answer. From Linux 6.16 on the kernel refuses to send descriptors to these sockets
//! ([`peer::refuse_descriptors`]). Before, they wait in the socket with the bytes that they came with, and are closed by
//! the thread that reads these bytes or closes the socket.
//!
//! # What always holds
//! - Bytes are read only after they were looked at without being taken: none that bring descriptors are taken.
//! - A connection is closed when nothing more can come and nothing that brings descriptors is left in it. All others are
//!   handed to a process that ends at once, and closes them. A user has few such processes at a time; further connections of
//!   that user wait for them, open.
//!
//! Tests: `tests::descriptors_that_linger_hold_no_thread`.

use super::peer;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes that close connections of one user, at a time.
const CLOSERS_MAX: usize = 8;

/// The server's end of a connection.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None`: it was given to another process.
    stream: Option<UnixStream>,
    /// The kernel refuses descriptors.
    refuses: bool,
}

impl Socket {
    /// `refuses`: the kernel refuses descriptors that are sent here.
    pub(super) fn new(stream: UnixStream, refuses: bool) -> Socket {
        if !refuses {
            // Urgent bytes are skipped otherwise, and what came with them is closed unseen. Systems that do not know
            // this for such sockets know no urgent bytes either.
            let _ = rustix::net::sockopt::set_socket_oobinline(&stream, true);
        }
        Socket { stream: Some(stream), refuses }
    }

    /// Whether what comes may bring descriptors.
    pub(super) fn may_bring_descriptors(&self) -> bool {
        !self.refuses
    }

    /// Ends it in one direction or both.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // One that has ended already is what was wanted.
        let _ = self.stream().shutdown(how);
    }

    fn stream(&self) -> &UnixStream {
        self.stream.as_ref().expect("it is given away at its end only")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.refuses {
            return;
        }
        // Nothing comes from now on.
        self.shutdown(Shutdown::Read);
        if !is_drained(self.as_fd())
            && let Some(stream) = self.stream.take()
        {
            send_away(stream.into());
        }
    }
}

/// How many bytes can be read that bring no descriptors; they come to lie in the buffer, and stay where they are.
///
/// # Errors
/// `InvalidData`: some bring descriptors. `WouldBlock`: there are none.
pub(super) fn look(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive(socket, buffer, RecvFlags::PEEK)
}

/// Reads what there is, without room for descriptors.
///
/// # Errors
/// `InvalidData`: there were descriptors, and they are closed. `WouldBlock`: there is nothing.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let mut none = RecvAncillaryBuffer::default();
    let mut into = [IoSliceMut::new(buffer)];
    let got = retry_on_intr(|| recvmsg(socket, &mut into, &mut none, flags | RecvFlags::DONTWAIT))?;
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are not taken"));
    }
    Ok(got.bytes)
}

/// Takes all bytes out of a socket into which no more come. False: some bring descriptors, and stay there.
fn is_drained(socket: BorrowedFd<'_>) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match look(socket, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return false,
            // Errors of the connection are told when nothing is left to be read.
            Ok(0) | Err(_) => return true,
            Ok(count) => {
                let _ = receive(socket, &mut buffer[..count], RecvFlags::empty());
            }
        }
    }
}

/// Connections of a user that are to be closed elsewhere.
#[derive(Default)]
struct Leaving {
    waiting: VecDeque<OwnedFd>,
    closers: usize,
}

static LEAVING: Mutex<BTreeMap<u32, Leaving>> = Mutex::new(BTreeMap::new());

fn leaving() -> MutexGuard<'static, BTreeMap<u32, Leaving>> {
    // Whole between any two statements.
    LEAVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has another process close a connection.
fn send_away(socket: OwnedFd) {
    let uid = peer::other(socket.as_fd()).unwrap_or(u32::MAX);
    {
        let mut users = leaving();
        let user = users.entry(uid).or_default();
        user.waiting.push_back(socket);
        if user.closers == CLOSERS_MAX {
            return;
        }
        user.closers += 1;
    }
    let close = move || {
        while let Some(socket) = next_of(uid) {
            if let Err(error) = close_elsewhere(socket) {
                tracing::warn!(%error, "no process to close a connection with descriptors of a client");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("closing-client".to_owned()).spawn(close) {
        tracing::warn!(%error, "no thread to close a connection with descriptors of a client");
        if let Some(user) = leaving().get_mut(&uid) {
            user.closers -= 1;
        }
    }
}

/// The next connection of a user, for one who closes them; `None`: there is none, and it ends.
fn next_of(uid: u32) -> Option<OwnedFd> {
    let mut users = leaving();
    let user = users.get_mut(&uid)?;
    let next = user.waiting.pop_front();
    if next.is_none() {
        user.closers -= 1;
        if user.closers == 0 {
            users.remove(&uid);
        }
    }
    next
}

/// Starts a process that has the connection, and waits until it has ended.
fn close_elsewhere(socket: OwnedFd) -> Result<(), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut command = Command::new("/bin/sh");
    // It ends when this process has closed its own descriptor of the connection: the other one is then the last.
    command.args(["-c", "read until_the_end"]).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(socket).stderr(Stdio::null());
    let mut child = command.spawn().map_err(errno)?;
    drop(command);
    drop(child.stdin.take());
    child.wait().map_err(errno)?;
    Ok(())
}
