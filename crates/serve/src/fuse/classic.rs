//! The classic transport: requests are read from descriptors of `/dev/fuse`, and replies written to them. The
//! threads that do this are in `thread_pool`.
//!
//! # What always holds
//! - A thread handles one request at a time: it reads the request, answers it, and reads the next.
//! - A thread has address space for the largest request, of which only pages that were ever written take
//!   memory; long replies are made in shared buffers.

use super::dispatch;
use super::pages::{Large, Pages};
use super::proto::input::{Bytes, Header, Request, fixed_len};
use super::proto::{IN_HEADER, MAX_WRITE, OUT_HEADER, op};
use super::service::Service;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a request besides the data to write: its header and fixed part, rounded up.
pub(super) const REQUEST_EXTRA: usize = 4096;

/// Greatest length of a reply that is made in a thread's own buffer; replies to reads and directory listings
/// are longer.
const SHORT: usize = OUT_HEADER + (64 << 10) + 4096;

/// A buffer for the longest request.
pub(super) fn request_room() -> io::Result<Pages> {
    Pages::new(MAX_WRITE + REQUEST_EXTRA)
}

/// Bytes of the longest reply that a request may get.
fn reply_room(request: &Request<'_>) -> usize {
    let asked = match request.header.opcode {
        // The size follows the handle and the offset.
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
    /// A request of this many bytes.
    Request(usize),
    /// The descriptor does not block, and no request is there.
    Nothing,
    /// The mount has ended.
    Gone,
}

/// Reads the next request.
pub(super) fn next(device: &OwnedFd, room: &mut [u8]) -> Result<Next, Errno> {
    loop {
        match rustix::io::read(device, &mut *room) {
            Ok(count) => return Ok(Next::Request(count)),
            Err(Errno::AGAIN) => return Ok(Next::Nothing),
            // NOENT: the kernel withdrew the request while it was being read.
            Err(Errno::INTR | Errno::NOENT) => {}
            // CONNABORTED: the connection was aborted.
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

/// Sends a reply whose body follows space for its header. `Ok(false)`: the program no longer waits for it.
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

    /// Whether the request in the buffer gets a reply.
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

/// Answers a request; the reply is made in `room`.
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
