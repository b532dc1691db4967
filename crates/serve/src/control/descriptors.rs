//! The server's end of a connection, and the treatment of descriptors that a client sends along.
//!
//! The last process to close a file may wait without bound: for a socket that lingers, or for a locked file
//! of a file system whose server does not answer. From Linux 6.16 on the kernel refuses to send descriptors
//! to these sockets ([`peer::refuse_descriptors`]). With older kernels they wait in the socket together with
//! their bytes, and are closed by the thread that reads these bytes or closes the socket.
//!
//! # What always holds
//! - Bytes are read only after a look without taking them (`MSG_PEEK`): bytes that bring descriptors are
//!   never taken.
//! - This process closes a connection itself only if nothing more can arrive and no bytes with descriptors
//!   are left in it. It hands every other connection to a process that ends at once, and so closes it. A user
//!   has few such processes at a time; further connections of that user wait for them, open, in few
//!   descriptors of this process ([`Parked`]). The kernel bounds how many may wait: it counts the descriptors
//!   in them for the user that sent them.
//!
//! Tests: `tests::descriptors_that_linger_hold_no_thread`,
//! `tests::connections_that_wait_to_be_closed_take_few_descriptors`.

use super::peer;
use admin::sync::lock;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

/// Most processes that close connections of one user at a time.
const CLOSERS_MAX: usize = 8;

/// The server's end of a connection.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` after it was handed to another process.
    stream: Option<UnixStream>,
    /// The kernel refuses descriptors that a client sends here.
    refuses: bool,
}

impl Socket {
    /// The server's end of `stream`. `refuses`: the kernel refuses descriptors that are sent here.
    pub(super) fn new(stream: UnixStream, refuses: bool) -> Socket {
        if !refuses {
            // Without it, urgent bytes are skipped, and descriptors that came with them are closed unseen.
            // Systems without this option for such sockets have no urgent bytes either.
            let _ = rustix::net::sockopt::set_socket_oobinline(&stream, true);
        }
        Socket { stream: Some(stream), refuses }
    }

    /// Whether bytes that arrive may bring descriptors.
    pub(super) fn may_bring_descriptors(&self) -> bool {
        !self.refuses
    }

    /// Ends the connection in one direction or both.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // An error means that the connection has ended already.
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
        // No bytes arrive from here on.
        self.shutdown(Shutdown::Read);
        if !is_drained(self.as_fd())
            && let Some(stream) = self.stream.take()
        {
            send_away(stream.into());
        }
    }
}

/// Copies bytes that bring no descriptors to the buffer without taking them from the socket; returns how
/// many.
///
/// # Errors
/// `InvalidData`: the bytes bring descriptors. `WouldBlock`: there are none.
pub(super) fn look(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive(socket, buffer, RecvFlags::PEEK)
}

/// Reads the bytes that have arrived, without space for descriptors.
///
/// # Errors
/// `InvalidData`: there were descriptors, and they are closed. `WouldBlock`: no bytes have arrived.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let mut none = RecvAncillaryBuffer::default();
    let mut into = [IoSliceMut::new(buffer)];
    let got = retry_on_intr(|| recvmsg(socket, &mut into, &mut none, flags | RecvFlags::DONTWAIT))?;
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are not taken"));
    }
    Ok(got.bytes)
}

/// Takes all bytes out of a socket to which no more arrive. `false`: some bring descriptors, and stay there.
fn is_drained(socket: BorrowedFd<'_>) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match look(socket, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return false,
            // The kernel reports errors of the connection only when no bytes are left.
            Ok(0) | Err(_) => return true,
            Ok(count) => {
                let _ = receive(socket, &mut buffer[..count], RecvFlags::empty());
            }
        }
    }
}

/// A queue of sockets that is kept in the buffer of a socket pair: two descriptors of this process hold
/// hundreds of sockets.
struct Lot {
    into: OwnedFd,
    out: OwnedFd,
}

impl Lot {
    fn new() -> Result<Lot, Errno> {
        let (into, out) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(Lot { into, out })
    }

    /// Adds a socket at the end. `false`: the buffer is full.
    fn put(&self, socket: BorrowedFd<'_>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut control, sockets) = (SendAncillaryBuffer::new(&mut space), [socket]);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        control.push(SendAncillaryMessage::ScmRights(&sockets))
            && sendmsg(&self.into, &[IoSlice::new(b"x")], &mut control, flags).is_ok()
    }

    /// Takes the first socket. `None`: the queue is empty.
    fn take(&self) -> Option<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut control, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(&self.out, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
        control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        })
    }
}

/// Connections of one user that wait to be closed, in any order.
#[derive(Default)]
struct Parked {
    lots: VecDeque<Lot>,
    /// Connections for which the system gave no further [`Lot`].
    open: Vec<OwnedFd>,
}

impl Parked {
    fn put(&mut self, socket: OwnedFd) {
        if self.lots.back().is_some_and(|lot| lot.put(socket.as_fd())) {
            return;
        }
        match Lot::new() {
            Ok(lot) if lot.put(socket.as_fd()) => self.lots.push_back(lot),
            _ => self.open.push(socket),
        }
    }

    fn take(&mut self) -> Option<OwnedFd> {
        if let Some(socket) = self.open.pop() {
            return Some(socket);
        }
        loop {
            if let Some(socket) = self.lots.front()?.take() {
                return Some(socket);
            }
            self.lots.pop_front();
        }
    }
}

/// Connections of one user that another process is to close.
#[derive(Default)]
struct Leaving {
    waiting: Parked,
    closers: usize,
}

static LEAVING: Mutex<BTreeMap<u32, Leaving>> = Mutex::new(BTreeMap::new());

fn leaving() -> MutexGuard<'static, BTreeMap<u32, Leaving>> {
    // The data is consistent between any two statements.
    lock(&LEAVING)
}

/// Has another process close a connection.
fn send_away(socket: OwnedFd) {
    let uid = peer::other(socket.as_fd()).unwrap_or(u32::MAX);
    {
        let mut users = leaving();
        let user = users.entry(uid).or_default();
        user.waiting.put(socket);
        if user.closers >= CLOSERS_MAX {
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

/// The next connection of a user for the thread that has them closed. `None`: there is none, and the thread
/// ends.
fn next_of(uid: u32) -> Option<OwnedFd> {
    let mut users = leaving();
    let user = users.get_mut(&uid)?;
    let next = user.waiting.take();
    if next.is_none() {
        user.closers -= 1;
        if user.closers == 0 {
            users.remove(&uid);
        }
    }
    next
}

/// Starts a process that inherits the connection, and waits until it has ended.
fn close_elsewhere(socket: OwnedFd) -> Result<(), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut command = Command::new("/bin/sh");
    // The process ends when this one has closed its own descriptor of the connection, so that the process has
    // the last one.
    command.args(["-c", "read until_the_end"]).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(socket).stderr(Stdio::null());
    let mut child = command.spawn().map_err(errno)?;
    drop(command);
    drop(child.stdin.take());
    child.wait().map_err(errno)?;
    Ok(())
}

/// Keeps all closing processes of a user busy until the value is dropped and a further connection is to be
/// closed.
#[cfg(test)]
pub(super) struct AllBusy(u32);

#[cfg(test)]
impl AllBusy {
    pub(super) fn of(uid: u32) -> AllBusy {
        leaving().entry(uid).or_default().closers += CLOSERS_MAX;
        AllBusy(uid)
    }
}

#[cfg(test)]
impl Drop for AllBusy {
    fn drop(&mut self) {
        leaving().get_mut(&self.0).expect("it has places").closers -= CLOSERS_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn sockets_that_were_put_away_are_taken_out() {
        let mut parked = Parked::default();
        let pair = || UnixStream::pair().expect("a pair");
        let mut others: Vec<UnixStream> = (0..1000)
            .map(|_| {
                let (one, other) = pair();
                parked.put(one.into());
                other
            })
            .collect();
        assert!(parked.open.is_empty() && parked.lots.len() < 50, "{}", parked.lots.len());
        let mut taken = 0;
        while let Some(socket) = parked.take() {
            drop(socket);
            taken += 1;
        }
        assert_eq!(taken, 1000);
        assert!(others.iter_mut().all(|other| other.read(&mut [0]).expect("the end") == 0));
        assert!(parked.lots.is_empty());
        let (one, _other) = pair();
        parked.put(one.into());
        assert!(parked.take().is_some() && parked.take().is_none());
    }
}
