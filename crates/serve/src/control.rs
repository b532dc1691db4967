//! The control socket: commands reach a daemon as requests over a Unix socket.
//!
//! A request is a command line: a client sends its arguments, its environment, its working folder and a
//! description of its standard streams. The daemon runs the same code that would have run in the client, and
//! answers with an exit code. The daemon sends the output of the command through the socket to the client,
//! which writes it to its streams; it asks the client for the input that the command reads.
//!
//! # Order
//! connect -> `Request` and the command line -> `Begins` -> while the command runs, any number of messages:
//! to the client, pieces of standard output and standard error, `Want` (input), `Ask` (the user); from the
//! client, input, answers, `Closed` (a stream takes no more), `Cancel` -> `Exit` -> end of the connection. A
//! client that disconnects cancels its command.
//!
//! # What always holds
//! - The daemon never receives or closes a descriptor of a client (`descriptors`), so no thread of the daemon
//!   waits here for something that cannot be ended.
//! - A frame is four bytes of magic, four of length (little-endian), and either a word of JSON (at most
//!   `frame::WORD_MAX` bytes) or a piece of a stream. A command line follows its head, as words that end with
//!   a zero byte.
//! - A frame that is malformed, too long, too slow or accompanied by descriptors ends its own connection
//!   only. Memory is allocated only for bytes that have arrived, never for a length that a client announces.
//! - A command begins after its client was told so. A client that was not told may send the request again,
//!   here or elsewhere.
//! - The user of a connection is the one that the kernel reports, never one that a message names. A client
//!   connects only to the daemon of its own user or of root.
//! - A connection has one thread for the request and one that listens to the client. The numbers of
//!   connections (`slots`) and of log lines (`complaints`) are bounded for each user.
//!
//! Tests: here, `cli/tests/commands/daemon.rs`; fuzz: `tests::any_bytes`.

mod cancel;
mod client;
mod complaints;
mod descriptors;
mod frame;
mod link;
mod listen;
mod peer;
mod slots;
mod wire;

pub use cancel::{Cancelled, Ends};
pub use client::{CallError, Connection};
pub use frame::{
    Came, DATA_MAX, FrameError, Head, Message, Piece, Reply, Request, Screen, VERSION, piece, word,
};
pub use link::Link;
pub use listen::{Call, Handler, Listener, Server};
pub use peer::Peer;

#[cfg(test)]
mod tests;
