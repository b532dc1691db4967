//! Sending and receiving within a time limit, and without taking descriptors.

use super::descriptors::{Socket, look, receive};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, send as send_some};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Sends all of `bytes`, within a time.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], time: Option<Duration>) -> io::Result<()> {
    let until = time.map(|time| Instant::now() + time);
    let mut sent = 0;
    while sent < bytes.len() {
        match send_some(socket, &bytes[sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, until)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Waits until a socket is ready, at most until a moment.
fn wait(socket: BorrowedFd<'_>, what: PollFlags, until: Option<Instant>) -> io::Result<()> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        match poll(&mut [PollFd::new(&socket, what)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reads from a socket, at most until a moment.
pub(super) struct Reader<'s> {
    socket: BorrowedFd<'s>,
    until: Option<Instant>,
    /// The sender is not trusted, and may send descriptors.
    is_wary: bool,
}

impl<'s> Reader<'s> {
    /// A reader from a trusted sender. `time`: limit for all of the reading; `None`: no limit.
    pub(super) fn new(socket: BorrowedFd<'s>, time: Option<Duration>) -> Reader<'s> {
        Reader { socket, until: time.map(|time| Instant::now() + time), is_wary: false }
    }

    /// A reader from a client, which may send descriptors. `time` as for [`Reader::new`].
    pub(super) fn of_client(socket: &'s Socket, time: Option<Duration>) -> Reader<'s> {
        Reader { is_wary: socket.may_bring_descriptors(), ..Reader::new(socket.as_fd(), time) }
    }

    /// Fills the buffer. `false`: the other side has closed the connection before the first byte.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            wait(self.socket, PollFlags::IN, self.until)?;
            match self.receive(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = if self.is_wary { look(self.socket, buffer)? } else { buffer.len() };
        receive(self.socket, &mut buffer[..most], RecvFlags::empty())
    }
}
