//! Reading a stream record by record.

use crate::checksum::Running;
use crate::error::StreamError;
use format::stream::{CHECKSUM_AT, HEADER_SIZE, Header, MAGIC, Record, RecordKind, order_of};
use format::{DecodeError, Endian};
use std::io::{ErrorKind, Read};

/// Largest block in bytes.
pub(crate) const BLOCK_MAX: u64 = 16 << 20;
/// Largest list at the start of a package in bytes.
const LIST_MAX: u64 = 64 << 20;
/// Largest bonus in bytes: that of a dnode of 32 slots, and padding.
const BONUS_MAX: u64 = 16 << 10;
/// Largest block that is embedded in its pointer in bytes.
const EMBEDDED_MAX: u64 = 112;
/// Bytes of a payload for which memory is allocated before any of it is read.
const FIRST: u64 = 128 << 10;

/// A record with its payload.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The bytes of the header.
    pub bytes: [u8; HEADER_SIZE],
    /// The decoded header.
    pub header: Header,
    /// The payload.
    pub payload: Vec<u8>,
    /// Byte of the stream at which the record starts.
    pub at: u64,
}

impl Frame {
    /// Puts changed fields of the record into the bytes of the header.
    pub fn put_record(&mut self, order: Endian) {
        self.header.record.put(&mut self.bytes, order);
    }
}

/// Reads the records of a stream and verifies their checksums.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// Byte order of the sender, known from the first record on.
    order: Option<Endian>,
    running: Running,
    at: u64,
    verifies: bool,
    /// Largest list at the start of a package in bytes.
    list_max: u64,
}

impl<R: Read> Reader<R> {
    /// Reads a stream from here. Headers are read one by one: a source that is buffered by
    /// some KiB is faster, and large payloads pass such a buffer by.
    pub fn new(source: R) -> Reader<R> {
        Reader { source, order: None, running: Running::default(), at: 0, verifies: true, list_max: LIST_MAX }
    }

    /// Reads from the record at byte `at` of a stream in this byte order, without computing checksums.
    pub(crate) fn within(source: R, order: Endian, at: u64) -> Reader<R> {
        Reader { order: Some(order), at, verifies: false, ..Reader::new(source) }
    }

    /// Reads without computing checksums.
    #[must_use]
    pub fn unverified(self) -> Reader<R> {
        Reader { verifies: false, ..self }
    }

    /// Reads lists at the start of a package of at most `max` bytes; 64 MiB unless this is called.
    #[must_use]
    pub fn with_list_max(self, max: u64) -> Reader<R> {
        Reader { list_max: max.min(LIST_MAX), ..self }
    }

    /// Byte order of the sender; little-endian until the first record is read.
    pub fn order(&self) -> Endian {
        self.order.unwrap_or_default()
    }

    /// Number of bytes read so far, of whole records.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next record; `None` at the end of the source.
    ///
    /// # Errors
    /// [`StreamError`]. After an error nothing more can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, StreamError> {
        let at = self.at;
        let mut bytes = [0; HEADER_SIZE];
        match self.fill(&mut bytes)? {
            0 => return Ok(None),
            HEADER_SIZE => {}
            len if self.order.is_none() && !may_begin(&bytes, len) => return Err(StreamError::TooShort),
            _ => return Err(StreamError::Cut { at }),
        }
        if self.order.is_none() {
            self.order = Some(order_of(&bytes).ok_or(StreamError::NotAStream)?);
        }
        let order = self.order();
        let header = Header::decode(&bytes, order).map_err(|cause| StreamError::Record { at, cause })?;
        if let Record::Begin(begin) = &header.record
            && begin.magic != MAGIC
        {
            let cause = DecodeError::Magic { what: "start of a stream", found: begin.magic, expected: MAGIC };
            return Err(StreamError::Record { at, cause });
        }
        self.verify_header(&bytes, &header)?;
        let payload = self.read_payload(&header)?;
        if self.verifies {
            self.running.add(&payload, order);
        }
        self.at = at + (HEADER_SIZE + payload.len()) as u64;
        Ok(Some(Frame { bytes, header, payload, at }))
    }

    /// Adds a header to the running checksum, and compares what it stores.
    fn verify_header(&mut self, bytes: &[u8; HEADER_SIZE], header: &Header) -> Result<(), StreamError> {
        if !self.verifies {
            return Ok(());
        }
        let (at, order) = (self.at, self.order());
        let compare = |stored: [u64; 4], actual: [u64; 4]| {
            if stored == actual { Ok(()) } else { Err(StreamError::Checksum { at, stored, actual }) }
        };
        match &header.record {
            Record::Begin(_) => self.running = Running::default(),
            Record::End(end) => compare(end.checksum, self.running.words())?,
            _ => {}
        }
        let (body, checksum) = bytes.split_at(CHECKSUM_AT);
        self.running.add(body, order);
        // Old senders store none, except in the end.
        if header.checksum != [0; 4] {
            compare(header.checksum, self.running.words())?;
        }
        self.running.add(checksum, order);
        if matches!(header.record, Record::End(_)) {
            // What follows in a package has a checksum of its own.
            self.running = Running::default();
        }
        Ok(())
    }

    fn read_payload(&mut self, header: &Header) -> Result<Vec<u8>, StreamError> {
        let (at, len) = (self.at, header.payload());
        let max = match header.record.kind() {
            RecordKind::Begin => self.list_max,
            RecordKind::Object => BONUS_MAX,
            RecordKind::WriteEmbedded => EMBEDDED_MAX,
            _ => BLOCK_MAX,
        };
        if len > max {
            return Err(StreamError::TooLong { at, len, max });
        }
        let mut payload = Vec::with_capacity(len.min(FIRST) as usize);
        let read = self.source.by_ref().take(len).read_to_end(&mut payload);
        match read.map_err(|cause| StreamError::Read { at, cause })? {
            read if read as u64 == len => Ok(payload),
            _ => Err(StreamError::Cut { at }),
        }
    }

    /// Reads until the buffer is full or the source ends; returns the number of bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, StreamError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(StreamError::Read { at: self.at, cause }),
            }
        }
        Ok(filled)
    }
}

/// Whether the first `len` bytes of a record, with zeros behind them, may be those of the start of a stream: its kind is 0.
fn may_begin(bytes: &[u8; HEADER_SIZE], len: usize) -> bool {
    const MAGIC_END: usize = 16;
    match len < MAGIC_END {
        true => bytes.iter().take(4).all(|byte| *byte == 0),
        false => order_of(bytes).is_some(),
    }
}
