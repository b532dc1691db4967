//! Send streams: reading, verifying, writing and changing them, without a pool
//! (docs/on-disk/30-send-streams.md).
//!
//! A stream is read record by record ([`Reader`]) and written record by record ([`Writer`]); [`change`] has the
//! changes that `zstream` makes on the way, and [`survey`] tells what a stream contains. [`ResumeToken`] is what a receiver gives to a sender to go on where an
//! interrupted receive stopped.
//!
//! # What always holds
//! - Every byte of a stream is untrusted until its checksum is verified, and its lengths afterwards too: memory is
//!   allocated only for a payload whose length is permitted for its type of record, and grows as its bytes arrive.
//! - The reader verifies the checksum that each record stores, and reports where it differs. It does not judge what
//!   the records mean.
//! - A record that is read and written again has the same bytes, except for its checksums.
#![forbid(unsafe_code)]

pub mod change;
mod checksum;
mod error;
mod reader;
pub mod receive;
pub mod send;
mod survey;
mod token;
mod writer;

pub use dsl::resume::TokenError;
pub use error::StreamError;
pub use reader::{Frame, Reader};
pub use survey::{Substream, Survey, survey};
pub use token::ResumeToken;
pub use writer::Writer;
