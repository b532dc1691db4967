//! Requests read from descriptors of `/dev/fuse`, replies written to them.
//!
//! # What always holds
//! - A thread has one request at a time: it reads it, answers it, reads the next.
//! - Readers end when the mount is gone; before that, only those that nobody needs.
//! - What waits for a request has memory for the largest, of which it takes only what was ever used; long replies are
//!   made in memory that all mounts share.
//! - As few threads wait for requests as suffice, see [`Turns`].
//! - Where only the rest of the requests comes this way, nobody waits for it, and it is read a few hundred times a
//!   second at most: many files are then forgotten at once.

use super::dispatch::{self, Request};
use super::pages::{Large, Pages};
use super::proto::input::{Bytes, Header, fixed_len};
use super::proto::{IN_HEADER, OUT_HEADER, op};
use super::service::Service;
use super::turns::{Turn, Turns};
use super::{MAX_WRITE, clone, guard};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a request may have besides what is written: its header and fixed part.
pub(super) const REQUEST_EXTRA: usize = 4096;

/// Bytes of a reply that is made in a thread's own memory: all but what is read, and lists of directories.
const SHORT: usize = OUT_HEADER + (64 << 10) + 4096;

/// How long what need not be answered waits for more of its kind.
const REST: Duration = Duration::from_millis(2);

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Readers {
    /// At most so many threads: all requests come this way.
    OfAll(usize),
    /// One: what is answered comes another way.
    OfRest,
}

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

/// The threads of a mount.
pub(super) struct Crew {
    service: Arc<dyn Service>,
    device: OwnedFd,
    turns: Turns,
    rest: bool,
}

impl Crew {
    /// Starts serving, with a few threads where there may be many.
    pub(super) fn start(
        service: &Arc<dyn Service>,
        device: OwnedFd,
        readers: Readers,
    ) -> io::Result<Arc<Crew>> {
        let (threads, rest) = match readers {
            Readers::OfAll(threads) => (threads, false),
            Readers::OfRest => (1, true),
        };
        let crew = Arc::new(Crew { service: Arc::clone(service), device, turns: Turns::new(threads), rest });
        for n in 0..crew.turns.first() {
            if let Err(error) = crew.start_one(Turns::take) {
                // Those that there are end with the mount.
                for _ in n..crew.turns.first() {
                    crew.turns.leave(Ok(()), false);
                }
                return Err(error);
            }
        }
        Ok(crew)
    }

    /// Returns when the mount is gone.
    pub(super) fn wait(&self) -> io::Result<()> {
        self.turns.wait()
    }

    fn start_one(self: &Arc<Self>, first: fn(&Turns) -> Option<Turn<'_>>) -> io::Result<()> {
        let crew = Arc::clone(self);
        let (device, room) = (clone::clone(&self.device)?, request_room()?);
        let run = move || {
            let serve = AssertUnwindSafe(|| crew.serve(&device, room, first));
            let died = || Err(io::Error::other("the server of the mount died"));
            let result = std::panic::catch_unwind(serve).unwrap_or_else(|_| died());
            crew.turns.leave(result, true);
        };
        std::thread::Builder::new().name("fuse".into()).spawn(run).map(drop)
    }

    /// Serves as one of those who take turns, until the mount is gone or the thread is not needed.
    fn serve(
        self: &Arc<Self>,
        device: &OwnedFd,
        mut room: Pages,
        first: fn(&Turns) -> Option<Turn<'_>>,
    ) -> io::Result<()> {
        let mut short = vec![0; SHORT];
        let mut turn = first(&self.turns);
        while let Some(held) = turn {
            let Some(bytes) = next(device, &mut room)? else {
                self.turns.end();
                break;
            };
            if held.pass() && self.start_one(Turns::join).is_err() {
                // Those that there are do it, as long as it takes.
                self.turns.leave(Ok(()), false);
            }
            if let Some(request) = split(bytes) {
                match reply_room(&request) {
                    len if len <= SHORT => self.answer(device, &request, &mut short)?,
                    _ => self.answer(device, &request, Large::take(OUT_HEADER + MAX_WRITE)?.bytes())?,
                }
            }
            if self.rest {
                std::thread::sleep(REST);
            }
            turn = self.turns.take();
        }
        Ok(())
    }

    /// Answers a request, with a reply that is made in `room`.
    fn answer(&self, device: &OwnedFd, request: &Request<'_>, room: &mut [u8]) -> io::Result<()> {
        let body = room.get_mut(OUT_HEADER..).unwrap_or_default();
        let Some(answer) = guard(|| dispatch::answer(&*self.service, request, body)) else { return Ok(()) };
        let (error, len) = match answer {
            Ok(len) => (None, len),
            Err(e) => (Some(e), 0),
        };
        let taken = send(device, request.header.unique, error, room, len)?;
        if !taken && error.is_none() {
            dispatch::undo(
                &*self.service,
                request,
                room.get(OUT_HEADER..OUT_HEADER + len).unwrap_or_default(),
            );
        }
        Ok(())
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crew({:?})", self.turns)
    }
}
