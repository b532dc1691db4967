//! A checksum of the contents of a snapshot, computed from a full stream of it.
//!
//! Two copies of a snapshot give different streams: blocks may be split differently, holes may be told or not, names
//! differ. The checksum is of what they have in common: the objects with their bonuses, and the bytes of each object
//! that are not zero.
//!
//! # What always holds
//! - The stream is read whole, with its own checksums; one that is cut or damaged has no checksum.
//! - Memory is bounded by the largest block.

use super::side::{Done, SideError};
use format::stream::Record;
use sha2::{Digest, Sha256};
use std::io::{self, BufReader, PipeReader, Write};
use stream::Reader;

/// Bytes that are zero or not together: a divisor of all block sizes.
const GRAIN: usize = 512;
/// Buffer of the reader in bytes.
const BUFFER: usize = 64 << 10;

/// The checksum of the stream that `send` writes.
pub(super) fn of_stream(send: impl FnOnce(&mut dyn Write) -> Done + Send) -> Done<[u8; 32]> {
    let piped = |source| SideError::Io { what: "pipe".to_owned(), source };
    let (reader, mut writer) = io::pipe().map_err(piped)?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let sent = send(&mut writer);
            drop(writer);
            sent
        });
        let digest = digest(reader);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and(digest)
    })
}

fn digest(input: PipeReader) -> Done<[u8; 32]> {
    let mut reader = Reader::new(BufReader::with_capacity(BUFFER, input));
    let mut sum = Sum { hash: Sha256::new(), next: None };
    let mut has_ended = false;
    let broken = |problem: String| SideError::Stream { problem };
    while let Some(frame) = reader.next_frame().map_err(|error| broken(cenote::error::chain(&error)))? {
        has_ended = sum.add(&frame.header.record, &frame.payload);
    }
    if has_ended { Ok(sum.hash.finalize().into()) } else { Err(broken("it ends too early".to_owned())) }
}

struct Sum {
    hash: Sha256,
    /// Object and offset at which the bytes that were added last end.
    next: Option<(u64, u64)>,
}

impl Sum {
    /// Adds a record; whether it ends the stream.
    fn add(&mut self, record: &Record, payload: &[u8]) -> bool {
        match record {
            Record::End(_) => return true,
            Record::Object(object) => {
                self.next = None;
                self.hash.update(b"object");
                for word in [u64::from(object.object), object.kind.into(), object.bonus_kind.into()] {
                    self.hash.update(word.to_le_bytes());
                }
                self.hash.update(payload);
            }
            Record::Write(write) => {
                // Ciphertext and compressed blocks are whole blocks, and alike at both sides.
                self.add_bytes(write.object.into(), write.offset, payload);
            }
            Record::WriteEmbedded(write) => self.add_bytes(write.object.into(), write.offset, payload),
            Record::Spill(spill) => {
                self.next = None;
                self.hash.update(b"spill");
                self.hash.update(u64::from(spill.object).to_le_bytes());
                self.hash.update(payload);
            }
            _ => {}
        }
        false
    }

    fn add_bytes(&mut self, object: u64, offset: u64, payload: &[u8]) {
        for (number, grain) in payload.chunks(GRAIN).enumerate() {
            let at = offset.wrapping_add((number * GRAIN) as u64);
            if grain.iter().all(|byte| *byte == 0) {
                continue;
            }
            if self.next != Some((object, at)) {
                self.hash.update(b"data");
                self.hash.update(object.to_le_bytes());
                self.hash.update(at.to_le_bytes());
            }
            self.hash.update(grain);
            self.next = Some((object, at.wrapping_add(GRAIN as u64)));
        }
    }
}
