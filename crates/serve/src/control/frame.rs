//! What is said, as bytes.

use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Version of the protocol: a request of another one is refused. Whether somebody is there can be asked, and the end
/// be asked for, in any.
pub const VERSION: u32 = 2;
/// Most bytes of a request. Linux allows about 2 MiB of arguments and variables.
pub(super) const REQUEST_MAX: usize = 4 << 20;
/// Most bytes of what is said while a request runs, and of a reply.
pub(super) const WORD_MAX: usize = 64 << 10;
/// What a frame begins with.
const MAGIC: [u8; 4] = *b"CntC";
/// Bytes before the JSON.
pub(super) const HEADER: usize = 8;
/// Most arguments, and most variables.
const WORDS_MAX: usize = 128 << 10;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// Run this.
    Request(Request),
    /// End what runs.
    Cancel,
    /// Nothing: is somebody there?
    Ping {
        /// [`VERSION`].
        version: u32,
    },
    /// The daemon is to end, as by SIGTERM.
    Stop {
        /// [`VERSION`].
        version: u32,
    },
}

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// `zpool`, `zfs`, …
    pub program: String,
    /// Arguments, without the name of the program.
    pub args: Vec<Name>,
    /// Variables that commands look at.
    pub env: Vec<(Name, Name)>,
    /// Permissions that are not given to new files.
    pub umask: u32,
    /// A terminal comes as the fifth descriptor.
    pub terminal: bool,
}

/// What the daemon answers: to a request that it runs [`Reply::Begins`] and [`Reply::Exit`], to all else one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The command begins now. If there is no answer, nothing has been done: it can be asked for again.
    Begins,
    /// The command has ended.
    Exit(u8),
    /// The request is not run, because this daemon is about to end: the next one will run it.
    Ending,
    /// The request is not run.
    Refused(String),
    /// The request is about nothing that is here: the client runs it itself.
    Elsewhere,
    /// Somebody is there.
    Pong {
        /// [`VERSION`] there.
        version: u32,
        /// Version of the program.
        program: String,
        /// Its process.
        pid: u32,
    },
    /// It will end.
    Stopping,
}

/// Bytes that are text nearly always: arguments, variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// Text.
    Text(String),
    /// What is not UTF-8.
    Bytes(Vec<u8>),
}

impl From<&OsStr> for Name {
    fn from(name: &OsStr) -> Name {
        match name.to_str() {
            Some(text) => Name::Text(text.to_owned()),
            None => Name::Bytes(name.as_bytes().to_vec()),
        }
    }
}

impl From<Name> for OsString {
    fn from(name: Name) -> OsString {
        match name {
            Name::Text(text) => text.into(),
            Name::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Something else speaks.
    #[error("this is not Cenote's protocol")]
    Magic,
    /// Longer than any message is.
    #[error("a message of {length} bytes: at most {max} are allowed")]
    TooLong {
        /// Announced.
        length: usize,
        /// Allowed.
        max: usize,
    },
    /// It says nothing that is known.
    #[error("malformed message: {0}")]
    Malformed(#[source] serde_json::Error),
    /// Another version of the protocol.
    #[error(
        "version {version} of the protocol is not spoken here: this is version {VERSION}; \
         'cenote daemon --stop' ends this daemon, and the next command starts another one"
    )]
    Version {
        /// What was said.
        version: u32,
    },
    /// Arguments or variables that no command line can have.
    #[error("malformed message: {0}")]
    Invalid(&'static str),
}

/// A message as it is sent.
pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = [MAGIC, [0; 4]].concat();
    // Strings, numbers and lists of them always have a JSON form.
    if serde_json::to_writer(&mut bytes, message).is_err() {
        bytes.truncate(HEADER);
    }
    let length = u32::try_from(bytes.len() - HEADER).unwrap_or(u32::MAX);
    bytes[4..HEADER].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Bytes behind a header.
pub(super) fn length(header: [u8; HEADER], max: usize) -> Result<usize, FrameError> {
    let [m0, m1, m2, m3, l0, l1, l2, l3] = header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(FrameError::Magic);
    }
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    if length > max { Err(FrameError::TooLong { length, max }) } else { Ok(length) }
}

/// What a client said.
pub(super) fn decode(body: &[u8]) -> Result<Message, FrameError> {
    // Of a request of another version only the number must be understood.
    if let Some(version) = announced(body).filter(|version| *version != VERSION) {
        return Err(FrameError::Version { version });
    }
    let message: Message = serde_json::from_slice(body).map_err(FrameError::Malformed)?;
    if let Message::Request(request) = &message {
        check(request)?;
    }
    Ok(message)
}

/// What the daemon said.
pub(super) fn decode_reply(body: &[u8]) -> Result<Reply, FrameError> {
    serde_json::from_slice(body).map_err(FrameError::Malformed)
}

/// The version that a request of any version names.
fn announced(body: &[u8]) -> Option<u32> {
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

fn check(request: &Request) -> Result<(), FrameError> {
    if request.args.len() > WORDS_MAX || request.env.len() > WORDS_MAX {
        return Err(FrameError::Invalid("too many arguments or variables"));
    }
    let env = request.env.iter().flat_map(|(name, value)| [name, value]);
    if request.args.iter().chain(env).any(|name| name.bytes().contains(&0)) {
        return Err(FrameError::Invalid("a zero byte in an argument or a variable"));
    }
    if request.umask > 0o777 {
        return Err(FrameError::Invalid("umask"));
    }
    Ok(())
}

impl Name {
    fn bytes(&self) -> &[u8] {
        match self {
            Name::Text(text) => text.as_bytes(),
            Name::Bytes(bytes) => bytes,
        }
    }
}
