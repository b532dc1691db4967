//! The side that asks.

use super::descriptors::{Reader, send};
use super::frame::{self, FrameError, HEADER, Message, Reply, VERSION, WORD_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a daemon may take to say that it is there.
const PING: Duration = Duration::from_secs(10);

impl CallError {
    /// Nobody is at the other end any more.
    pub fn is_gone(&self) -> bool {
        !matches!(self, CallError::Frame(_))
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nothing can be sent, or the answer cannot be read.
    #[error("connection to cenoted lost: {0}")]
    Io(#[from] io::Error),
    /// The daemon ended without an answer.
    #[error("connection to cenoted lost")]
    Lost,
    /// What it said is no answer.
    #[error("cenoted: {0}")]
    Frame(#[from] FrameError),
}

/// A connection to a daemon, for one request.
#[derive(Debug)]
pub struct Connection(UnixStream);

impl Connection {
    /// Connects to a daemon.
    ///
    /// # Errors
    /// Nobody is there, or who is there may not be asked.
    pub fn open(socket: &Path) -> io::Result<Connection> {
        Ok(Connection(UnixStream::connect(socket)?))
    }

    /// Says something, with descriptors.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.0.as_fd(), &frame::encode(message), fds)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn reply(&self) -> Result<Reply, CallError> {
        self.reply_within(None)
    }

    /// Whether an answer, or the end, comes within a time.
    ///
    /// # Errors
    /// The system refuses.
    pub fn is_answered(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&within)))? > 0)
    }

    /// Is a daemon there, and which?
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ping(&self) -> Result<Reply, CallError> {
        self.say(&Message::Ping { version: VERSION }, &[])?;
        self.reply_within(Some(PING))
    }

    fn reply_within(&self, time: Option<Duration>) -> Result<Reply, CallError> {
        let mut reader = Reader::new(self.0.as_fd(), time);
        let mut header = [0; HEADER];
        match reader.fill(&mut header) {
            Ok(true) => {}
            Ok(false) => return Err(CallError::Lost),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(CallError::Lost),
            Err(e) => return Err(e.into()),
        }
        let mut body = vec![0; frame::length(header, WORD_MAX)?];
        if !reader.fill(&mut body)? && !body.is_empty() {
            return Err(CallError::Lost);
        }
        Ok(frame::decode_reply(&body)?)
    }
}
