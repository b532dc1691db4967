//! How commands reach a daemon: requests over a Unix socket.
//!
//! A request is a command line: a client sends what it was called with, its environment and its descriptors
//! (standard input, output and error, its working folder, its terminal); the daemon runs the same code that would
//! have run in the client, with these descriptors, and answers with an exit code. So output is written by whoever
//! runs the command straight to where the client's output goes.
//!
//! # Order
//! connect -> `Request` and the descriptors, in one message -> `Begins` -> while it runs: `Cancel`, any number ->
//! `Exit` -> end of the connection. A client that goes away cancels.
//!
//! # What always holds
//! - A frame is four bytes of magic, four of length (little-endian, `frame::REQUEST_MAX` at most), and JSON.
//! - What is malformed, too long, too slow or brings too many descriptors ends that connection and nothing else;
//!   no memory is taken for what has not come.
//! - A command begins after its client has been told so: one that hears nothing may ask again, here or elsewhere.
//! - Who is at the other end is what the kernel says, never what the message says.
//! - A connection has a thread for the request and one that listens for its end; there are at most
//!   `listen::CONNECTIONS_MAX`, and `listen::OTHERS_MAX` of users that are neither root nor the daemon's own.
//!
//! Tests: here, `cli/tests/daemon.rs`; fuzz: `tests::any_bytes`.

mod client;
mod descriptors;
mod frame;
mod listen;
mod peer;

pub use client::{CallError, Connection};
pub use frame::{FrameError, Message, Name, Reply, Request, VERSION};
pub use listen::{Call, Handler, Listener, Server};
pub use peer::Peer;

#[cfg(test)]
mod tests;
