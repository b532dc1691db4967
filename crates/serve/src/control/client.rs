//! The client side of the control socket.
//!
//! # What always holds
//! - A client sends nothing to a socket before it has checked the owner of the socket's folder and the user
//!   that listens: it trusts the replies of its daemon, and sends it its arguments and environment.

use super::frame::{self, Came, FrameError, HEADER, Message, Piece, Reply, Request, VERSION};
use super::peer;
use super::wire::{Reader, send};
use admin::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Longest wait for the reply to a ping.
const PING: Duration = Duration::from_secs(10);

impl CallError {
    /// Whether the error means that no daemon listens any more.
    pub fn is_gone(&self) -> bool {
        !matches!(self, CallError::Frame(_))
    }
}

/// Why a call got no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request could not be sent, or the reply could not be read.
    #[error("connection to cenoted lost: {0}")]
    Io(#[from] io::Error),
    /// The daemon closed the connection without a reply.
    #[error("connection to cenoted lost")]
    Lost,
    /// The daemon sent bytes that are no reply.
    #[error("cenoted: {0}")]
    Frame(#[from] FrameError),
}

/// A connection to a daemon, for one request.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    /// Id of the user that listens.
    uid: u32,
    /// Held while a message is sent: several threads may send.
    speaking: Mutex<()>,
}

impl Connection {
    /// Connects to a daemon of this user or of root.
    ///
    /// # Errors
    /// No daemon listens, it may not be asked, or it, or the folder of the socket, is another user's
    /// (`PermissionDenied`).
    pub fn open(path: &Path) -> io::Result<Connection> {
        check_folder(path)?;
        let socket = UnixStream::connect(path)?;
        let uid = peer::other(socket.as_fd())?;
        if !is_trusted(uid) {
            let why = format!("it is a socket of user {uid}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Connection { socket, uid, speaking: Mutex::default() })
    }

    /// Id of the user that listens.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The socket cannot be written.
    pub fn say(&self, message: &Message) -> io::Result<()> {
        self.send(&frame::word(message))
    }

    /// Sends a request for a command.
    ///
    /// # Errors
    /// The socket cannot be written.
    pub fn request(&self, request: &Request) -> io::Result<()> {
        self.send(&frame::request(request))
    }

    /// Sends a piece of a stream that the command has asked for, at most `DATA_MAX` bytes.
    ///
    /// # Errors
    /// The socket cannot be written.
    pub fn give(&self, piece: Piece, bytes: &[u8]) -> io::Result<()> {
        self.send(&frame::piece(piece, bytes))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _speaking = lock(&self.speaking);
        send(self.socket.as_fd(), bytes, None)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// [`CallError::Io`] if the socket cannot be read, [`CallError::Lost`] if the daemon has closed the
    /// connection, [`CallError::Frame`] if it sent bytes that are no reply.
    pub fn reply(&self) -> Result<Reply, CallError> {
        match self.next(None)? {
            Came::Word(reply) => Ok(reply),
            Came::Piece(..) => {
                Err(FrameError::Invalid("a piece of a stream before the command begins").into())
            }
        }
    }

    /// Waits for the next reply or piece of a stream from a command that runs.
    ///
    /// # Errors
    /// As [`Connection::reply`].
    pub fn came(&self) -> Result<Came<Reply>, CallError> {
        self.next(None)
    }

    /// Whether a reply, or the end of the connection, arrives within a time.
    ///
    /// # Errors
    /// The system cannot wait for the socket.
    pub fn is_answered(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(retry_on_intr(|| poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&within)))? > 0)
    }

    /// Asks whether a daemon runs, and for its version and process id ([`Reply::Pong`]). Waits 10 seconds.
    ///
    /// # Errors
    /// As [`Connection::reply`]; [`CallError::Io`] also if no reply arrives in time.
    pub fn ping(&self) -> Result<Reply, CallError> {
        self.say(&Message::Ping { version: VERSION })?;
        match self.next(Some(PING))? {
            Came::Word(reply) => Ok(reply),
            Came::Piece(..) => Err(CallError::Lost),
        }
    }

    fn next(&self, time: Option<Duration>) -> Result<Came<Reply>, CallError> {
        let mut reader = Reader::new(self.socket.as_fd(), time);
        let mut header = [0; HEADER];
        match reader.fill(&mut header) {
            Ok(true) => {}
            Ok(false) => return Err(CallError::Lost),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(CallError::Lost),
            Err(e) => return Err(e.into()),
        }
        let (kind, length) = frame::announced(header)?;
        let mut body = vec![0; length];
        if !reader.fill(&mut body)? && !body.is_empty() {
            return Err(CallError::Lost);
        }
        Ok(frame::decode_reply(kind, body)?)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Checks that no other user could have made the socket: its folder belongs to this user or to root, is no
/// symbolic link, and other users cannot write to it or at least cannot replace files in it.
fn check_folder(socket: &Path) -> io::Result<()> {
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let found = std::fs::symlink_metadata(folder)?;
    let denied = |why: String| {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", folder.display())))
    };
    if !found.is_dir() {
        return denied("is no folder".to_owned());
    }
    if !is_trusted(found.uid()) {
        return denied(format!("belongs to user {}", found.uid()));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        return denied("can be written by others".to_owned());
    }
    Ok(())
}
