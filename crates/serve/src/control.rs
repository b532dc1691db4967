//! The control socket: commands reach a daemon as requests over a Unix socket.
//!
//! A request is a command line: a client sends what it was called with, its environment, its working folder
//! and what is at the ends of its streams; the daemon runs the same code that would have run in the client,
//! and answers with an exit code. What the command writes goes through the socket to the client, which writes
//! it to its streams; what it wants to read it asks the client for.
//!
//! # Order
//! connect -> `Request` and the command line -> `Begins` -> while it runs, to the client: pieces of standard
//! output and standard error, `Want` (input), `Ask` (the user), and from it: input, answers, `Closed` (a
//! stream takes no more), `Cancel`, any number -> `Exit` -> end of the connection. A client that goes away
//! cancels.
//!
//! # What always holds
//! - No descriptor of a client's is ever taken, or closed (`descriptors`): whatever a thread of the daemon
//!   waits for here can be ended.
//! - A frame is four bytes of magic, four of length (little-endian), and a word of JSON (`frame::WORD_MAX`
//!   bytes at most) or a piece of a stream. A command line comes behind its head, words ended by zero bytes.
//! - What is malformed, too long, too slow or brings descriptors ends that connection and nothing else; no
//!   memory is taken for what has not come, and none in proportion to what it says but for its own bytes.
//! - A command begins after its client has been told so: one that hears nothing may ask again, here or
//!   elsewhere.
//! - The user at the other end is the one that the kernel reports, never what the message says; a client asks
//!   its own user's daemon or root's only.
//! - A connection has a thread for the request and one that listens to its client. How many there are is
//!   bounded for each user (`slots`), as are lines of the log (`complaints`).
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
