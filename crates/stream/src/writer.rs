//! Writing a stream record by record.

use crate::checksum::Running;
use crate::error::StreamError;
use crate::reader::Frame;
use format::Endian;
use format::stream::{CHECKSUM_AT, HEADER_SIZE, Record};
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
        let stores = frame.header.checksum != [0; 4];
        self.put(frame.bytes, &frame.header.record, &frame.payload, stores, order)
    }

    /// Writes a record with its payload in little-endian order.
    ///
    /// # Errors
    /// [`StreamError::Write`].
    pub fn write_record(&mut self, record: &Record, payload: &[u8]) -> Result<(), StreamError> {
        let order = Endian::Little;
        let mut bytes = [0; HEADER_SIZE];
        record.put(&mut bytes, order);
        if let (Record::Begin(_), Some(place)) = (record, bytes.get_mut(4..8)) {
            place.copy_from_slice(&order.put_u32(payload.len() as u32));
        }
        self.put(bytes, record, payload, true, order)
    }

    /// Writes a record that has these bytes; its header stores the checksum if `stores`.
    fn put(
        &mut self,
        mut bytes: [u8; HEADER_SIZE],
        record: &Record,
        payload: &[u8],
        stores: bool,
        order: Endian,
    ) -> Result<(), StreamError> {
        let is_begin = matches!(record, Record::Begin(_));
        if is_begin {
            self.running = Running::default();
        }
        if let Record::End(end) = record {
            let end = format::stream::End { checksum: self.running.words(), ..end.clone() };
            Record::End(end).put(&mut bytes, order);
        }
        let (body, checksum) = bytes.split_at_mut(CHECKSUM_AT);
        self.running.add(body, order);
        if !is_begin && stores {
            for (place, word) in checksum.as_chunks_mut::<8>().0.iter_mut().zip(self.running.words()) {
                *place = order.put_u64(word);
            }
        }
        self.running.add(checksum, order);
        self.running.add(payload, order);
        if matches!(record, Record::End(_)) {
            self.running = Running::default();
        }
        self.target.write_all(&bytes).map_err(StreamError::Write)?;
        self.target.write_all(payload).map_err(StreamError::Write)
    }

    /// Flushes the target.
    ///
    /// # Errors
    /// [`StreamError::Write`].
    pub fn finish(mut self) -> Result<(), StreamError> {
        self.target.flush().map_err(StreamError::Write)
    }
}
