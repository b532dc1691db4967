//! The encoding of messages.
//!
//! A word is JSON of one of the shapes below, at most `WORD_MAX` bytes. A command line and the pieces of the
//! standard streams are bytes behind a header: decoding them takes no more memory than has arrived.

use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Version of the protocol. A request of another version is refused; [`Message::Ping`] and [`Message::Stop`]
/// are answered in any version.
pub const VERSION: u32 = 4;
/// Most bytes of a command line. Linux allows about 2 MiB of arguments and variables.
pub(super) const REQUEST_MAX: u32 = 4 << 20;
/// Most bytes of a command line of users other than root and the daemon's own.
pub(super) const OTHERS_REQUEST_MAX: u32 = 64 << 10;
/// Most arguments of a command line of users other than root and the daemon's own: what one request may cost is bounded
/// by what it names.
pub(super) const OTHERS_ARGS_MAX: u32 = 1024;
/// Most bytes of a word.
pub(super) const WORD_MAX: usize = 64 << 10;
/// Most bytes of a piece of a stream.
pub const DATA_MAX: usize = 64 << 10;
/// Magic at the beginning of words, and of pieces of streams.
const WORD: [u8; 4] = *b"CntC";
const DATA: [u8; 4] = *b"CntD";
/// Bytes before a word or a piece: what it is, and its length.
pub(super) const HEADER: usize = 8;
/// Most arguments and variables together.
const WORDS_MAX: usize = 128 << 10;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// Run a command, whose command line follows.
    Request(Head),
    /// End the command that runs.
    Cancel,
    /// Ask whether a daemon runs; the answer is [`Reply::Pong`].
    Ping {
        /// [`VERSION`] of the client.
        version: u32,
    },
    /// End the daemon, as SIGTERM does.
    Stop {
        /// [`VERSION`] of the client.
        version: u32,
    },
    /// The user wants to know how far the command is.
    Report,
    /// An output stream of the client can no longer be written.
    Closed {
        /// 1: standard output, 2: standard error.
        stream: u8,
        /// Error number (`errno`) of the failed write.
        errno: i32,
    },
}

/// The head of a request, which precedes its command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`VERSION`] of the client.
    pub version: u32,
    /// Name of the program: `zpool`, `zfs`, …
    pub program: String,
    /// Number of arguments.
    pub args: u32,
    /// Length of the command line in bytes.
    pub bytes: u32,
    /// File mode creation mask of the client.
    pub umask: u32,
    /// The client's standard streams and terminal.
    pub screen: Screen,
}

/// What a command needs to know about a client's standard streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Screen {
    /// Whether standard input, standard output and standard error are terminals.
    pub terminals: [bool; 3],
    /// Whether there is a terminal at which the user can be asked for a passphrase.
    pub can_ask: bool,
    /// Columns and lines of the terminal at standard error; `None` if it is no terminal.
    pub size: Option<(u16, u16)>,
}

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Name of the program: `zpool`, `zfs`, …
    pub program: String,
    /// Arguments, without the name of the program.
    pub args: Vec<OsString>,
    /// Environment variables that commands read.
    pub env: Vec<(OsString, OsString)>,
    /// Working folder of the client, an absolute path.
    pub folder: OsString,
    /// File mode creation mask of the client.
    pub umask: u32,
    /// The client's standard streams and terminal.
    pub screen: Screen,
}

/// A reply of the daemon. To a request that it runs: [`Reply::Begins`] and at the end [`Reply::Exit`], with
/// the command's [`Reply::Want`], [`Reply::Ask`] and [`Reply::Title`] between them. To every other message: one reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The command begins. A client that never gets this may send its request again: nothing was done.
    Begins,
    /// The command has ended with this exit code.
    Exit(u8),
    /// The request is not run because this daemon is about to end; the next daemon will run it.
    Ending,
    /// The request is not run, for this reason.
    Refused(String),
    /// The request concerns no pool of this daemon: the client runs it itself.
    Elsewhere,
    /// A daemon runs.
    Pong {
        /// [`VERSION`] of the daemon.
        version: u32,
        /// Version of the daemon's program.
        program: String,
        /// Process id of the daemon.
        pid: u32,
    },
    /// The daemon will end, after [`Message::Stop`].
    Stopping,
    /// The command reads at most this many bytes of standard input; an empty piece marks the end of input.
    Want(u32),
    /// Ask the user this question, without showing the answer.
    Ask(String),
    /// Set the title of the client's process.
    Title(String),
}

/// Kind of a piece of a stream: a client sends standard input and answers, the daemon sends the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Piece {
    /// Standard input; an empty piece is its end.
    Input = 0,
    /// Bytes of standard output.
    Out = 1,
    /// Bytes of standard error.
    Errors = 2,
    /// A number (little-endian) of zero bytes of standard output, which the client may write as a hole if
    /// standard output is a file.
    Hole = 3,
    /// The answer to [`Reply::Ask`].
    Answer = 4,
    /// The user gives no answer to [`Reply::Ask`].
    NoAnswer = 5,
}

impl Piece {
    fn of(byte: u8) -> Option<Piece> {
        use Piece::{Answer, Errors, Hole, Input, NoAnswer, Out};
        [Input, Out, Errors, Hole, Answer, NoAnswer].into_iter().find(|piece| *piece as u8 == byte)
    }
}

/// A decoded frame: a word, or a piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came<W> {
    /// A message as a word of JSON.
    Word(W),
    /// A piece of a stream.
    Piece(Piece, Vec<u8>),
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The magic is wrong: the other side speaks another protocol.
    #[error("this is not Cenote's protocol")]
    Magic,
    /// The frame is longer than the longest message.
    #[error("a message of {length} bytes: at most {max} are allowed")]
    TooLong {
        /// Length that the header announces, in bytes.
        length: usize,
        /// Greatest length that is allowed, in bytes.
        max: usize,
    },
    /// The JSON is malformed or describes no known message.
    #[error("malformed message: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The client speaks another version of the protocol.
    #[error(
        "version {version} of the protocol is not spoken here: this is version {VERSION}; \
         'cenote daemon --stop' ends this daemon, and the next command starts another one"
    )]
    Version {
        /// Version that the client named.
        version: u32,
    },
    /// Arguments or variables that no command line can have, for this reason.
    #[error("malformed message: {0}")]
    Invalid(&'static str),
}

/// The kind of frame that a header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Piece,
}

/// Encodes a word as a frame.
pub fn word<T: Serialize>(word: &T) -> Vec<u8> {
    let mut bytes = [WORD, [0; 4]].concat();
    // Strings, numbers and lists of them always have a JSON form.
    if serde_json::to_writer(&mut bytes, word).is_err() {
        bytes.truncate(HEADER);
    }
    set_length(&mut bytes);
    bytes
}

/// Encodes a piece of a stream, at most [`DATA_MAX`] bytes, as a frame.
pub fn piece(piece: Piece, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 1 + data.len());
    bytes.extend_from_slice(&DATA);
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(piece as u8);
    bytes.extend_from_slice(data);
    set_length(&mut bytes);
    bytes
}

fn set_length(bytes: &mut [u8]) {
    let length = u32::try_from(bytes.len() - HEADER).unwrap_or(u32::MAX);
    bytes[4..HEADER].copy_from_slice(&length.to_le_bytes());
}

/// Encodes a request: its head as a frame, then its command line.
pub(super) fn request(request: &Request) -> Vec<u8> {
    let mut line = Vec::new();
    let mut put = |parts: &[&OsStr]| {
        for (index, part) in parts.iter().enumerate() {
            line.extend_from_slice(if index > 0 { b"=" } else { b"" });
            line.extend_from_slice(part.as_bytes());
        }
        line.push(0);
    };
    put(&[&request.folder]);
    request.args.iter().for_each(|arg| put(&[arg]));
    request.env.iter().for_each(|(name, value)| put(&[name, value]));
    let head = Head {
        version: VERSION,
        program: request.program.clone(),
        args: u32::try_from(request.args.len()).unwrap_or(u32::MAX),
        bytes: u32::try_from(line.len()).unwrap_or(u32::MAX),
        umask: request.umask,
        screen: request.screen,
    };
    let mut bytes = word(&Message::Request(head));
    bytes.append(&mut line);
    bytes
}

/// Decodes the command line behind a head: words that end with a zero byte. First the folder, then the
/// arguments, then the variables.
pub(super) fn command_line(head: Head, bytes: &[u8]) -> Result<Request, FrameError> {
    if head.umask > 0o777 {
        return Err(FrameError::Invalid("umask"));
    }
    let Some((0, bytes)) = bytes.split_last() else {
        return Err(FrameError::Invalid("a command line without an end"));
    };
    if bytes.iter().filter(|byte| **byte == 0).count() > WORDS_MAX {
        return Err(FrameError::Invalid("too many arguments or variables"));
    }
    let text = |word: &[u8]| OsString::from_vec(word.to_vec());
    let mut words = bytes.split(|byte| *byte == 0);
    let folder = words.next().map(text).unwrap_or_default();
    let wanted = usize::try_from(head.args).unwrap_or(usize::MAX);
    let args: Vec<OsString> = words.by_ref().take(wanted).map(text).collect();
    if args.len() != wanted {
        return Err(FrameError::Invalid("fewer arguments than announced"));
    }
    let variable = |word: &[u8]| {
        let at = word.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
        let (name, value) = word.split_at(at.ok_or(FrameError::Invalid("a variable without a name"))?);
        Ok((text(name), text(&value[1..])))
    };
    let env = words.map(variable).collect::<Result<_, FrameError>>()?;
    Ok(Request { program: head.program, args, env, folder, umask: head.umask, screen: head.screen })
}

/// The kind of frame that a header announces, and its length in bytes.
pub(super) fn announced(header: [u8; HEADER]) -> Result<(Kind, usize), FrameError> {
    let [m0, m1, m2, m3, l0, l1, l2, l3] = header;
    let (kind, max) = match [m0, m1, m2, m3] {
        WORD => (Kind::Word, WORD_MAX),
        DATA => (Kind::Piece, DATA_MAX + 1),
        _ => return Err(FrameError::Magic),
    };
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    if length > max { Err(FrameError::TooLong { length, max }) } else { Ok((kind, length)) }
}

/// Decodes a frame of a client.
pub(super) fn decode(kind: Kind, body: Vec<u8>) -> Result<Came<Message>, FrameError> {
    if kind == Kind::Piece {
        return decode_piece(body);
    }
    // A request of another version is decoded no further than its version.
    if let Some(version) = version(&body).filter(|version| *version != VERSION) {
        return Err(FrameError::Version { version });
    }
    serde_json::from_slice(&body).map(Came::Word).map_err(FrameError::Malformed)
}

/// Decodes a frame of the daemon.
pub(super) fn decode_reply(kind: Kind, body: Vec<u8>) -> Result<Came<Reply>, FrameError> {
    if kind == Kind::Piece {
        return decode_piece(body);
    }
    serde_json::from_slice(&body).map(Came::Word).map_err(FrameError::Malformed)
}

fn decode_piece<W>(mut body: Vec<u8>) -> Result<Came<W>, FrameError> {
    let piece = body.first().copied().and_then(Piece::of);
    let piece = piece.ok_or(FrameError::Invalid("a piece of no stream"))?;
    body.remove(0);
    Ok(Came::Piece(piece, body))
}

/// The version that a request of any version names; `None` if it names none.
fn version(body: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    #[derive(Deserialize)]
    struct Kinds {
        request: Versioned,
    }
    let kinds: Kinds = serde_json::from_slice(body).ok()?;
    Some(kinds.request.version)
}
