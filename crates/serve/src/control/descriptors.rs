//! Messages with descriptors, and reading that ends in time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most descriptors that a message brings: the standard three, a folder, a terminal.
pub(super) const MAX: usize = 5;

/// Sends all of it, the descriptors with its first bytes.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let first = IoSlice::new(bytes);
    let mut sent = retry_on_intr(|| sendmsg(socket, &[first], &mut control, SendFlags::NOSIGNAL))?;
    while sent < bytes.len() {
        sent += retry_on_intr(|| rustix::net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

/// Reads from a socket until a moment.
pub(super) struct Reader<'s> {
    socket: BorrowedFd<'s>,
    until: Option<Instant>,
    /// Descriptors that have come.
    pub(super) fds: Vec<OwnedFd>,
}

impl<'s> Reader<'s> {
    /// `time`: how long all of the reading may take; `None`: as long as it does.
    pub(super) fn new(socket: BorrowedFd<'s>, time: Option<Duration>) -> Reader<'s> {
        Reader { socket, until: time.map(|time| Instant::now() + time), fds: Vec::new() }
    }

    /// Fills the buffer. `false`: the other side has ended before its first byte.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.wait()?;
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

    fn wait(&self) -> io::Result<()> {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let left =
                left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Room for one more than is allowed, so that too many are seen.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut into = [IoSliceMut::new(buffer)];
        let got = retry_on_intr(|| recvmsg(self.socket, &mut into, &mut control, flags))?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > MAX {
            let why = format!("more than {MAX} descriptors");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(got.bytes)
    }
}
