//! Requests read from descriptors of `/dev/fuse`, replies written to them.
//!
//! `thread_pool` has the threads.
//!
//! # What always holds
//! - A thread has one request at a time: it reads it, answers it, reads the next.
//! - A thread has memory for the largest request, of which it takes only what was ever used; long replies are
//!   made in memory that all share.

use super::dispatch;
use super::pages::{Large, Pages};
use super::proto::input::{Bytes, Header, Request, fixed_len};
use super::proto::{IN_HEADER, MAX_WRITE, OUT_HEADER, op};
use super::service::Service;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Bytes that a request may have besides what is written: its header and fixed part.
pub(super) const REQUEST_EXTRA: usize = 4096;

/// Bytes of a reply that is made in a thread's own memory: all but what is read, and lists of directories.
const SHORT: usize = OUT_HEADER + (64 << 10) + 4096;

/// Room for the longest request.
pub(super) fn request_room() -> io::Result<Pages> {
    Pages::new(MAX_WRITE + REQUEST_EXTRA)
}

/// Bytes of the longest reply that a request may get.
fn reply_room(request: &Request<'_>) -> usize {
    let asked = match request.header.opcode {
        // Behind the handle and the offset.
        op::READ | op::READDIR | op::READDIRPLUS => {
            request.fixed.get(16..).and_then(|rest| Bytes::new(rest).u32())
        }
        _ => None,
    };
    OUT_HEADER + (asked.unwrap_or(0) as usize).min(MAX_WRITE)
}

/// Outcome of reading a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing for now, from a descriptor that does not block.
    Nothing,
    /// The mount is gone.
    Gone,
}

/// Reads the next request.
pub(super) fn next(device: &OwnedFd, room: &mut [u8]) -> Result<Next, Errno> {
    loop {
        match rustix::io::read(device, &mut *room) {
            Ok(count) => return Ok(Next::Request(count)),
            Err(Errno::AGAIN) => return Ok(Next::Nothing),
            // NOENT: the request was taken back while it was handed over.
            Err(Errno::INTR | Errno::NOENT) => {}
            // CONNABORTED: the connection was ended by force.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Next::Gone),
            Err(e) => return Err(e),
        }
    }
}

/// Splits a request into header, fixed part and rest.
pub(super) fn split(bytes: &[u8]) -> Option<Request<'_>> {
    let header = Header::decode(bytes)?;
    let body = bytes.get(IN_HEADER..(header.len as usize).checked_sub(header.extensions)?)?;
    let (fixed, rest) = body.split_at_checked(fixed_len(header.opcode)).unwrap_or((body, &[]));
    Some(Request { header, fixed, rest })
}

/// Sends a reply whose body stands behind room for its header. `Ok(false)`: no program waits for it any more.
pub(super) fn send(
    device: &OwnedFd,
    unique: u64,
    error: Option<Errno>,
    reply: &mut [u8],
    body: usize,
) -> Result<bool, Errno> {
    let len = OUT_HEADER + if error.is_some() { 0 } else { body };
    let code = error.map_or(0, |e| -e.raw_os_error());
    let Some(message) = reply.get_mut(..len) else { return Err(Errno::INVAL) };
    let words = [u32::try_from(len).unwrap_or(0).to_ne_bytes(), code.to_ne_bytes()];
    for (to, from) in message.iter_mut().zip(words.into_iter().flatten().chain(unique.to_ne_bytes())) {
        *to = from;
    }
    match rustix::io::write(device, message) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Buffers of a thread that answers requests.
pub(super) struct Buffers {
    room: Pages,
    short: Pages,
}

impl Buffers {
    pub(super) fn new() -> io::Result<Buffers> {
        Ok(Buffers { room: request_room()?, short: Pages::new(SHORT)? })
    }

    /// Reads the next request into the buffer.
    pub(super) fn next(&mut self, device: &OwnedFd) -> io::Result<Next> {
        Ok(next(device, &mut self.room)?)
    }

    /// Whether the request in the buffer is one that gets an answer.
    pub(super) fn is_answered(&self, len: usize) -> bool {
        let request = self.room.get(..len).and_then(Header::decode);
        request.is_some_and(|header| !matches!(header.opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT))
    }

    /// Answers the request in the buffer.
    pub(super) fn answer(&mut self, service: &dyn Service, device: &OwnedFd, len: usize) -> io::Result<()> {
        let Some(request) = self.room.get(..len).and_then(split) else { return Ok(()) };
        match reply_room(&request) {
            len if len <= SHORT => answer(service, device, &request, &mut self.short),
            _ => answer(service, device, &request, Large::take(OUT_HEADER + MAX_WRITE)?.bytes()),
        }
    }
}

/// Answers a request, with a reply that is made in `room`.
fn answer(service: &dyn Service, device: &OwnedFd, request: &Request<'_>, room: &mut [u8]) -> io::Result<()> {
    let body = room.get_mut(OUT_HEADER..).unwrap_or_default();
    let Some(answer) = dispatch::answer(service, request, body) else { return Ok(()) };
    let (error, len) = match answer {
        Ok(len) => (None, len),
        Err(e) => (Some(e), 0),
    };
    let taken = send(device, request.header.unique, error, room, len)?;
    if !taken && error.is_none() {
        dispatch::undo(service, request, room.get(OUT_HEADER..OUT_HEADER + len).unwrap_or_default());
    }
    Ok(())
}
