//! The client of a running command: its output is sent there, and its input comes from there.
//!
//! # What always holds
//! - No function here waits on a descriptor of the client: there is one socket, which this process made.
//! - Of what a client sends, only as much is kept as was asked for.

use super::descriptors::Socket;
use super::frame::{self, Came, DATA_MAX, Message, Piece, Reply};
use admin::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The connection of a command.
#[derive(Debug)]
pub struct Link {
    socket: Arc<Socket>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Bytes of input that were asked for and have not arrived; `None`: none were asked for.
    wanted: Option<usize>,
    input: Vec<u8>,
    is_at_end: bool,
    /// A question to the user is open.
    is_asked: bool,
    answer: Option<Option<Vec<u8>>>,
    /// Error numbers of standard output and standard error; `None`: the stream can be written.
    closed: [Option<i32>; 2],
    /// A report of progress is wanted.
    wants_report: bool,
}

impl Link {
    pub(super) fn new(socket: &Arc<Socket>) -> Link {
        Link { socket: Arc::clone(socket), inbox: Mutex::default(), changed: Condvar::new() }
    }

    /// Sends as many bytes as the socket takes at once; returns how many. The caller keeps frames whole.
    ///
    /// # Errors
    /// The client has disconnected.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::io::Errno;
        match rustix::net::send(&*self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the socket can take bytes within a time.
    pub fn has_room(&self, within: Duration) -> bool {
        let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        poll(&mut [PollFd::new(&*self.socket, PollFlags::OUT)], Some(&within)).is_ok_and(|ready| ready > 0)
    }

    /// Error number with which standard output (1) or standard error (2) failed; `None` if it can be written.
    pub fn closed(&self, stream: u8) -> Option<i32> {
        self.inbox().closed.get(usize::from(stream).checked_sub(1)?).copied().flatten()
    }

    /// Whether the client has asked for a report of progress since the last call.
    pub fn takes_report(&self) -> bool {
        std::mem::take(&mut self.inbox().wants_report)
    }

    /// The frame that asks the client for at most `most` bytes of input. `None`: input is there, or was asked
    /// for.
    pub fn want(&self, most: usize) -> Option<Vec<u8>> {
        let mut inbox = self.inbox();
        if inbox.wanted.is_some() || !inbox.input.is_empty() || inbox.is_at_end || most == 0 {
            return None;
        }
        let most = most.min(DATA_MAX);
        inbox.wanted = Some(most);
        Some(frame::word(&Reply::Want(u32::try_from(most).unwrap_or(u32::MAX))))
    }

    /// Whether input, or its end, arrives within a time.
    pub fn has_input(&self, within: Duration) -> bool {
        self.wait(within, |inbox| (!inbox.input.is_empty() || inbox.is_at_end).then_some(())).is_some()
    }

    /// Moves input that has arrived to `buffer`; returns the number of bytes, 0 at the end or if there is
    /// none.
    pub fn take_input(&self, buffer: &mut [u8]) -> usize {
        let mut inbox = self.inbox();
        let count = buffer.len().min(inbox.input.len());
        buffer[..count].copy_from_slice(&inbox.input[..count]);
        inbox.input.drain(..count);
        count
    }

    /// The frame that has the client set the title of its process.
    pub fn title(&self, title: &str) -> Vec<u8> {
        frame::word(&Reply::Title(title.to_owned()))
    }

    /// The frame that has the client ask its user.
    pub fn ask(&self, question: &str) -> Vec<u8> {
        let mut inbox = self.inbox();
        (inbox.is_asked, inbox.answer) = (true, None);
        frame::word(&Reply::Ask(question.to_owned()))
    }

    /// The user's answer: `None` if it does not arrive within a time, `Some(None)` if the user gives none.
    pub fn answer(&self, within: Duration) -> Option<Option<Vec<u8>>> {
        self.wait(within, |inbox| inbox.answer.take())
    }

    /// Stores a message or piece from the client. `false`: the client may not send that now.
    pub(super) fn deliver(&self, came: Came<Message>) -> bool {
        let mut inbox = self.inbox();
        match came {
            Came::Piece(Piece::Input, bytes) => match inbox.wanted.take() {
                Some(wanted) if bytes.len() <= wanted => {
                    inbox.is_at_end = bytes.is_empty();
                    inbox.input = bytes;
                }
                _ => return false,
            },
            Came::Piece(kind @ (Piece::Answer | Piece::NoAnswer), bytes) if inbox.is_asked => {
                inbox.is_asked = false;
                inbox.answer = Some((kind == Piece::Answer).then_some(bytes));
            }
            Came::Word(Message::Closed { stream: stream @ 1..=2, errno }) => {
                inbox.closed[usize::from(stream) - 1] = Some(errno);
            }
            Came::Word(Message::Report) => inbox.wants_report = true,
            _ => return false,
        }
        drop(inbox);
        self.changed.notify_all();
        true
    }

    fn wait<T>(&self, time: Duration, mut found: impl FnMut(&mut Inbox) -> Option<T>) -> Option<T> {
        let until = Instant::now() + time;
        let mut inbox = self.inbox();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match found(&mut inbox) {
                Some(found) => return Some(found),
                None if left.is_zero() => return None,
                None => {}
            }
            inbox = self.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // The data is consistent between any two statements.
        lock(&self.inbox)
    }
}
