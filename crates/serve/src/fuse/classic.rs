//! Requests read from descriptors of `/dev/fuse`, replies written to them.
//!
//! # What always holds
//! - A thread has one request at a time: it reads it, answers it, reads the next.
//! - The reader ends when the mount is gone, and then only.
//! - As few threads wait for requests as suffice, see [`Turns`].

use super::dispatch::{self, Request};
use super::guard;
use super::proto::input::{Header, fixed_len};
use super::proto::{IN_HEADER, OUT_HEADER};
use super::service::Service;
use super::turns::Turns;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Bytes that a request may have besides what is written: its header and fixed part.
pub(super) const REQUEST_EXTRA: usize = 4096;

/// The buffers of a thread.
pub(super) struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Buffers {
    pub(super) fn new(max_write: usize) -> Buffers {
        let room = max_write + REQUEST_EXTRA;
        Buffers { request: vec![0; room], reply: vec![0; room] }
    }

    pub(super) fn request(&mut self) -> &mut [u8] {
        &mut self.request
    }
}

/// The next request: its bytes. `None`: the mount is gone.
pub(super) fn next<'b>(device: &OwnedFd, room: &'b mut [u8]) -> Result<Option<&'b [u8]>, Errno> {
    loop {
        match rustix::io::read(device, &mut *room) {
            Ok(count) => return Ok(room.get(..count)),
            // NOENT: the request was taken back while it was handed over.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            // CONNABORTED: somebody ended the connection by force.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// Takes a request apart.
pub(super) fn split(bytes: &[u8]) -> Option<Request<'_>> {
    let header = Header::decode(bytes)?;
    let body = bytes.get(IN_HEADER..(header.len as usize).checked_sub(header.extensions)?)?;
    let (fixed, rest) = body.split_at_checked(fixed_len(header.opcode)).unwrap_or((body, &[]));
    Some(Request { header, fixed, rest })
}

/// Sends a reply whose body stands behind room for its header. `Ok(false)`: nobody waits for it any more.
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

/// Serves until the mount is gone, as one of those who take turns.
pub(super) fn serve(
    service: &dyn Service,
    device: &OwnedFd,
    max_write: usize,
    turns: &Turns,
) -> Result<(), Errno> {
    let mut buffers = Buffers::new(max_write);
    while let Some(turn) = turns.take() {
        let Some(bytes) = next(device, &mut buffers.request)? else {
            turns.end();
            break;
        };
        drop(turn);
        let Some(request) = split(bytes) else { continue };
        let room = buffers.reply.get_mut(OUT_HEADER..).unwrap_or_default();
        let Some(answer) = guard(|| dispatch::answer(service, &request, room)) else { continue };
        let (error, body) = match answer {
            Ok(body) => (None, body),
            Err(e) => (Some(e), 0),
        };
        let taken = send(device, request.header.unique, error, &mut buffers.reply, body)?;
        if !taken && error.is_none() {
            let body = buffers.reply.get(OUT_HEADER..OUT_HEADER + body).unwrap_or_default();
            dispatch::undo(service, &request, body);
        }
    }
    Ok(())
}
