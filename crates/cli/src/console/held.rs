//! Output that a client has not taken yet. A command that a daemon runs uses pools while it writes, and who reads its
//! output may take hours: so what does not fit into a pipe waits here, and the command goes on.
//!
//! # What always holds
//! - Everything is written in the order in which the command wrote it, to whichever stream.
//! - It has bounds, for a command and for all together. Beyond them a command waits for its reader.

use super::{Console, Stream};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of a command.
const COMMAND_MAX: usize = 8 << 20;
/// Most bytes of all commands.
const ALL_MAX: usize = 64 << 20;

/// Bytes of all commands.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// What waits for a client.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    parts: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
}

impl Console {
    /// Writes all of it, now or later.
    pub(super) fn write(&self, stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
        let mut waiting = self.held.waiting();
        self.send_waiting(&mut waiting, false)?;
        if waiting.parts.is_empty() {
            let sent = self.send(stream, bytes, false)?;
            bytes = &bytes[sent..];
        }
        if bytes.is_empty() || waiting.keep(stream, bytes) {
            return Ok(());
        }
        self.send_waiting(&mut waiting, true)?;
        self.send(stream, bytes, true).map(drop)
    }

    /// Writes what waits and can be written at once.
    pub(crate) fn send_ready(&self) -> io::Result<()> {
        self.send_waiting(&mut self.held.waiting(), false)
    }

    /// Writes all that waits, however long its reader takes, unless the command is to end.
    pub(crate) fn send_all(&self) -> io::Result<()> {
        self.send_waiting(&mut self.held.waiting(), true)
    }

    fn send_waiting(&self, waiting: &mut Waiting, wait: bool) -> io::Result<()> {
        while let Some((stream, bytes)) = waiting.parts.front_mut() {
            let sent = self.send(*stream, bytes, wait)?;
            bytes.drain(..sent);
            let is_done = bytes.is_empty();
            waiting.let_go(sent);
            if !is_done {
                break;
            }
            waiting.parts.pop_front();
        }
        Ok(())
    }
}

impl Held {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// False: there is no room.
    fn keep(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        if self.bytes + bytes.len() > COMMAND_MAX {
            return false;
        }
        if ALL.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len() > ALL_MAX {
            ALL.fetch_sub(bytes.len(), Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes.len();
        match self.parts.back_mut() {
            Some((last, kept)) if *last == stream => kept.extend_from_slice(bytes),
            _ => self.parts.push_back((stream, bytes.to_vec())),
        }
        true
    }

    fn let_go(&mut self, bytes: usize) {
        self.bytes -= bytes;
        ALL.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.let_go(self.bytes);
    }
}
