//! Sending and receiving that ends in time, and that takes no descriptors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, recvmsg, send as send_some};
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Sends all of it, within a time.
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

/// Waits until a socket is ready.
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

/// Reads from a socket until a moment.
pub(super) struct Reader<'s> {
    socket: BorrowedFd<'s>,
    until: Option<Instant>,
}

impl<'s> Reader<'s> {
    /// `time`: how long all of the reading may take; `None`: as long as it does.
    pub(super) fn new(socket: BorrowedFd<'s>, time: Option<Duration>) -> Reader<'s> {
        Reader { socket, until: time.map(|time| Instant::now() + time) }
    }

    /// Fills the buffer. `false`: the other side has ended before its first byte.
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
        // No room for control messages: descriptors that are sent along never become ours, not even to be closed,
        // which for files of some file systems waits for whoever serves them.
        let mut none = rustix::net::RecvAncillaryBuffer::default();
        let mut into = [IoSliceMut::new(buffer)];
        let got = retry_on_intr(|| recvmsg(self.socket, &mut into, &mut none, RecvFlags::DONTWAIT))?;
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are not taken"));
        }
        Ok(got.bytes)
    }
}
