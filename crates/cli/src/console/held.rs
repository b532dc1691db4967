//! Output that a client has not taken yet. A command that a daemon runs uses pools while it writes, and its
//! reader may take hours. So output that the client does not take at once is held here, and the command
//! continues.
//!
//! # What always holds
//! - Output is sent in the order in which the command wrote it, over both streams, and in whole frames.
//! - Held output is bounded, for each command and for all together, with separate bounds for trusted users
//!   and others. Beyond a bound a command waits for its reader.
//! - A command that waits for its reader while it uses pools ends when another command wants one of them.

use super::{Console, LOOK_EVERY, Stream};
use admin::sync::lock;
use serve::control::{DATA_MAX, Link, Piece, piece};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Most held bytes of a command and of all commands, for trusted users.
const TRUSTED: Bounds = Bounds { command: 8 << 20, all: 64 << 20 };
/// The bounds for users who are neither root nor the daemon's own.
const OTHERS: Bounds = Bounds { command: 1 << 20, all: 32 << 20 };
/// Longest time for which a cancelled command waits for its client to take the rest of a frame.
const REST: Duration = Duration::from_secs(5);

/// Most bytes of messages from a command that gave way to another one.
const LAST_WORDS: usize = 64 << 10;

/// Number of times that a command wanted a pool in use.
static WANTED: AtomicU64 = AtomicU64::new(0);

/// Ends the commands that wait for their readers while they use pools.
pub(crate) fn give_way() {
    WANTED.fetch_add(1, Ordering::AcqRel);
}

/// Held bytes of all commands: of trusted users, and of others.
static ALL: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

#[derive(Debug, Clone, Copy)]
struct Bounds {
    command: usize,
    all: usize,
}

/// Output that a client has not taken yet.
#[derive(Debug)]
pub(crate) struct Held {
    waiting: Mutex<Waiting>,
    bounds: Bounds,
}

#[derive(Debug)]
struct Waiting {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that were sent.
    sent: usize,
    /// Held bytes of this command.
    bytes: usize,
    /// The command ends because its pool was wanted: bytes of messages that it may still write.
    last_words: Option<usize>,
    all: &'static AtomicUsize,
}

impl Held {
    /// An empty queue, for a trusted user or another.
    pub(crate) fn new(is_trusted: bool) -> Held {
        let (bounds, all) = if is_trusted { (TRUSTED, &ALL[0]) } else { (OTHERS, &ALL[1]) };
        Held {
            waiting: Mutex::new(Waiting {
                frames: VecDeque::new(),
                sent: 0,
                bytes: 0,
                last_words: None,
                all,
            }),
            bounds,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // The data is consistent between any two statements.
        lock(&self.waiting)
    }
}

impl Console {
    /// Writes all of `bytes`: sends them now, or holds them.
    pub(super) fn write(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let kind = stream.piece();
        if stream == Stream::Out && self.held.waiting().last_words.is_some() {
            return Err(has_given_way());
        }
        if let Some(errno) = self.link.closed(kind as u8) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        bytes.chunks(DATA_MAX).try_for_each(|part| self.queue(piece(kind, part)))
    }

    /// Has the client leave out `bytes` zero bytes of standard output.
    pub(super) fn hole(&self, bytes: u64) -> io::Result<()> {
        self.queue(piece(Piece::Hole, &bytes.to_le_bytes()))
    }

    /// Sends a frame now, or holds it.
    pub(super) fn queue(&self, frame: Vec<u8>) -> io::Result<()> {
        self.check_wanted()?;
        let mut waiting = self.held.waiting();
        if let Some(left) = &mut waiting.last_words {
            *left = left.checked_sub(frame.len()).ok_or_else(has_given_way)?;
            waiting.put(frame);
            return waiting.send(&self.link);
        }
        waiting.put(frame);
        waiting.send(&self.link)?;
        let wanted = WANTED.load(Ordering::Acquire);
        while waiting.is_over(self.held.bounds) {
            if WANTED.load(Ordering::Acquire) != wanted {
                waiting.last_words = Some(LAST_WORDS);
                return Err(has_given_way());
            }
            self.wait(&mut waiting)?;
        }
        Ok(())
    }

    /// Whether standard output has no reader any more.
    pub(super) fn has_no_reader(&self) -> bool {
        self.link.closed(Piece::Out as u8) == Some(rustix::io::Errno::PIPE.raw_os_error())
    }

    /// Sends as much held output as the client takes at once.
    pub(crate) fn send_ready(&self) -> io::Result<()> {
        self.held.waiting().send(&self.link)
    }

    /// Sends all held output, however long the reader takes, unless the command is cancelled. In either case
    /// only whole frames were sent.
    pub(crate) fn send_all(&self) -> io::Result<()> {
        let mut waiting = self.held.waiting();
        while waiting.bytes > 0 {
            self.wait(&mut waiting)?;
        }
        Ok(())
    }

    /// Waits until the client takes bytes, and sends them.
    fn wait(&self, waiting: &mut Waiting) -> io::Result<()> {
        if let Err(error) = self.check_wanted() {
            waiting.end(&self.link);
            return Err(error);
        }
        if self.link.has_room(LOOK_EVERY) { waiting.send(&self.link) } else { Ok(()) }
    }
}

fn has_given_way() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "its reader does not read, and the pool is wanted")
}

impl Waiting {
    fn put(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len();
        self.all.fetch_add(frame.len(), Ordering::Relaxed);
        self.frames.push_back(frame);
    }

    fn is_over(&self, bounds: Bounds) -> bool {
        self.bytes > 0 && (self.bytes > bounds.command || self.all.load(Ordering::Relaxed) > bounds.all)
    }

    /// Sends as many bytes as the client takes at once.
    fn send(&mut self, link: &Link) -> io::Result<()> {
        while let Some(frame) = self.frames.front() {
            let sent = link.send(&frame[self.sent..])?;
            if sent == 0 {
                break;
            }
            self.sent += sent;
            if self.sent == frame.len() {
                self.frames.pop_front();
                self.sent = 0;
            }
            self.let_go(sent);
        }
        Ok(())
    }

    /// Drops all held output except the rest of a frame whose beginning was sent, and sends that.
    fn end(&mut self, link: &Link) {
        let has_begun = self.sent > 0;
        let rest = self.frames.pop_front().filter(|_| has_begun);
        self.frames.clear();
        self.let_go(self.bytes);
        let Some(rest) = rest else { return };
        let left = rest.len() - self.sent;
        self.frames.push_back(rest);
        self.bytes = left;
        self.all.fetch_add(left, Ordering::Relaxed);
        let until = std::time::Instant::now() + REST;
        while self.bytes > 0 && std::time::Instant::now() < until {
            let _ = link.has_room(LOOK_EVERY);
            if self.send(link).is_err() {
                return;
            }
        }
    }

    fn let_go(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.let_go(self.bytes);
    }
}
