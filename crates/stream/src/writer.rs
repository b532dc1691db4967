//! Writing a stream record by record.

use crate::checksum::Running;
use crate::error::StreamError;
use crate::reader::Frame;
use format::Endian;
use format::stream::{CHECKSUM_AT, Record};
use std::io::Write;

/// Writes records with the checksums that fit them.
#[derive(Debug)]
pub struct Writer<W> {
    target: W,
    running: Running,
}

impl<W: Write> Writer<W> {
    /// Writes a stream to this target.
    pub fn new(target: W) -> Writer<W> {
        Writer { target, running: Running::default() }
    }

    /// Writes a record, whose bytes are in `order`. Checksums of headers that are zeros stay zeros: the ends of
    /// packages and old senders have none.
    ///
    /// # Errors
    /// [`StreamError::Write`].
    pub fn write(&mut self, frame: &Frame, order: Endian) -> Result<(), StreamError> {
        let mut bytes = frame.bytes;
        let is_begin = matches!(frame.header.record, Record::Begin(_));
        if is_begin {
            self.running = Running::default();
        }
        if let Record::End(end) = &frame.header.record {
            let end = format::stream::End { checksum: self.running.words(), ..end.clone() };
            Record::End(end).put(&mut bytes, order);
        }
        let (body, checksum) = bytes.split_at_mut(CHECKSUM_AT);
        self.running.add(body, order);
        if !is_begin && frame.header.checksum != [0; 4] {
            for (place, word) in checksum.as_chunks_mut::<8>().0.iter_mut().zip(self.running.words()) {
                *place = order.put_u64(word);
            }
        }
        self.running.add(checksum, order);
        self.running.add(&frame.payload, order);
        if matches!(frame.header.record, Record::End(_)) {
            self.running = Running::default();
        }
        self.target.write_all(&bytes).map_err(StreamError::Write)?;
        self.target.write_all(&frame.payload).map_err(StreamError::Write)
    }

    /// Flushes the target.
    ///
    /// # Errors
    /// [`StreamError::Write`].
    pub fn finish(mut self) -> Result<(), StreamError> {
        self.target.flush().map_err(StreamError::Write)
    }
}
