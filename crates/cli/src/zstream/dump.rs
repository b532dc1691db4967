//! `zstream dump`: the start of a stream, its records on request, and how many there are of each type.

use super::{BUFFER, Failure, flags, list, open, output};
use ::cenote::stream::{Frame, Reader, StreamError};
use format::NvList;
use format::stream::{Begin, HEADER_SIZE, Record, RecordKind, WriteByRef};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufReader, IsTerminal, Read, Write};

/// Types of records in the summary, in its order.
const SUMMARY: [(RecordKind, &str); 9] = [
    (RecordKind::Begin, "BEGIN"),
    (RecordKind::End, "END"),
    (RecordKind::Object, "OBJECT"),
    (RecordKind::FreeObjects, "FREEOBJECTS"),
    (RecordKind::Write, "WRITE"),
    (RecordKind::WriteByRef, "WRITE_BYREF"),
    (RecordKind::WriteEmbedded, "WRITE_EMBEDDED"),
    (RecordKind::Free, "FREE"),
    (RecordKind::Spill, "SPILL"),
];
/// Bytes in a line of hexadecimal digits.
const LINE: usize = 16;
/// Column of the line's bytes as characters.
const CHARACTERS: usize = 54;

/// How much is printed.
struct Depth {
    has_records: bool,
    has_checksums: bool,
    has_data: bool,
}

/// Runs `zstream dump`.
pub(super) fn main(args: Vec<OsString>) -> Result<u8, Failure> {
    let (given, operands) = flags(args, "vCd")?;
    let has = |letter| given.contains(&letter);
    let is_twice = given.iter().filter(|letter| **letter == 'v').count() > 1;
    let depth =
        Depth { has_records: has('v') || has('d'), has_checksums: is_twice || has('d'), has_data: has('d') };
    let source: Box<dyn Read> = match operands.first() {
        Some(path) => Box::new(open(path)?),
        None if io::stdin().is_terminal() => {
            return Err(Failure::Usage(Some(
                "Error: The send stream is a binary format and can not be read from a\n\
                 terminal.  Standard input must be redirected, or a file must be\n\
                 specified as a command-line argument."
                    .to_owned(),
            )));
        }
        None => Box::new(io::stdin().lock()),
    };
    let reader = Reader::new(BufReader::with_capacity(BUFFER, source));
    let mut reader = if has('C') { reader.unverified() } else { reader };
    let mut out = output();
    let mut counts = BTreeMap::new();
    let end = dump(&mut reader, &depth, &mut counts, &mut out)?;
    if let Err(StreamError::Checksum { actual, .. }) = &end {
        writeln!(out, "Incorrect checksum in record header.\nExpected checksum = {}", words(*actual))?;
    }
    let header = if matches!(end, Err(StreamError::Checksum { .. })) { HEADER_SIZE as u64 } else { 0 };
    summary(&mut out, &counts, reader.position() + header)?;
    out.flush()?;
    end.map(|()| 0).map_err(Failure::from)
}

/// Number of records and bytes of payload by type.
type Counts = BTreeMap<RecordKind, (u64, u64)>;

/// Prints records until the stream ends or is not readable.
fn dump(
    reader: &mut Reader<impl Read>,
    depth: &Depth,
    counts: &mut Counts,
    out: &mut dyn Write,
) -> io::Result<Result<(), StreamError>> {
    loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        let (records, bytes) = counts.entry(frame.header.record.kind()).or_default();
        *records += 1;
        *bytes += frame.payload.len() as u64;
        match &frame.header.record {
            Record::Begin(begin) => {
                print_begin(out, begin, frame.payload.len(), depth)?;
                if !frame.payload.is_empty() {
                    match NvList::decode(&frame.payload) {
                        Ok(properties) => list::print(out, &properties)?,
                        Err(cause) => {
                            return Ok(Err(StreamError::Record { at: frame.at, cause }));
                        }
                    }
                }
            }
            Record::End(end) => writeln!(out, "END checksum = {}", words(end.checksum))?,
            _ if depth.has_records => print_record(out, &frame)?,
            _ => {}
        }
        if depth.has_data && !matches!(frame.header.record, Record::Begin(_)) {
            print_bytes(out, &frame.payload)?;
        }
        if depth.has_checksums && !matches!(frame.header.record, Record::Begin(_)) {
            writeln!(out, "    checksum = {}", words(frame.header.checksum))?;
        }
    }
}

fn print_begin(out: &mut dyn Write, begin: &Begin, payload: usize, depth: &Depth) -> io::Result<()> {
    writeln!(out, "BEGIN record")?;
    writeln!(out, "\thdrtype = {}", begin.header_kind())?;
    writeln!(out, "\tfeatures = {:x}", begin.features())?;
    writeln!(out, "\tmagic = {:x}", begin.magic)?;
    writeln!(out, "\tcreation_time = {:x}", begin.creation_time)?;
    writeln!(out, "\ttype = {}", begin.objset_type)?;
    writeln!(out, "\tflags = {:#x}", begin.flags)?;
    writeln!(out, "\ttoguid = {:x}", begin.to_guid)?;
    writeln!(out, "\tfromguid = {:x}", begin.from_guid)?;
    out.write_all(b"\ttoname = ")?;
    out.write_all(begin.name())?;
    writeln!(out)?;
    writeln!(out, "\tpayloadlen = {payload}")?;
    if depth.has_records { writeln!(out) } else { Ok(()) }
}

fn print_record(out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
    let payload = frame.payload.len();
    match &frame.header.record {
        Record::Begin(_) | Record::End(_) => Ok(()),
        Record::Object(object) => writeln!(
            out,
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} raw_bonuslen = {} \
             flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
            object.object,
            object.kind,
            object.bonus_kind,
            object.block_size,
            object.bonus_len,
            object.slots,
            object.raw_bonus_len,
            object.flags,
            object.max_block,
            object.indirect_shift,
            object.levels,
            object.block_pointers
        ),
        Record::FreeObjects(free) => {
            writeln!(out, "FREEOBJECTS firstobj = {} numobjs = {}", free.first, free.count)
        }
        Record::Write(write) => writeln!(
            out,
            "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
             logical_size = {} compressed_size = {} payload_size = {payload} props = {:x} {}",
            write.object,
            write.kind,
            write.checksum_type,
            write.compression,
            write.flags,
            write.offset,
            write.logical_size,
            write.compressed_size,
            write.key[4],
            Encryption(&write.salt, &write.iv, &write.mac)
        ),
        Record::Free(free) => writeln!(
            out,
            "FREE object = {} offset = {} length = {}",
            free.object, free.offset, free.length as i64
        ),
        Record::Redact(range) => writeln!(
            out,
            "REDACT object = {} offset = {} length = {}",
            range.object, range.offset, range.length
        ),
        Record::WriteByRef(reference) => print_reference(out, reference),
        Record::Spill(spill) => writeln!(
            out,
            "SPILL block for object = {} length = {} flags = {} compression type = {} compressed_size = {} \
             payload_size = {payload} {}",
            spill.object,
            spill.length,
            spill.flags,
            spill.compression,
            spill.compressed_size,
            Encryption(&spill.salt, &spill.iv, &spill.mac)
        ),
        Record::WriteEmbedded(embedded) => writeln!(
            out,
            "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} lsize = {} \
             psize = {}",
            embedded.object,
            embedded.offset,
            embedded.length,
            embedded.to_guid,
            embedded.compression,
            embedded.embedded_kind,
            embedded.lsize,
            embedded.psize
        ),
        Record::ObjectRange(range) => writeln!(
            out,
            "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
            range.first,
            range.slots,
            range.flags,
            Encryption(&range.salt, &range.iv, &range.mac)
        ),
    }
}

fn print_reference(out: &mut dyn Write, reference: &WriteByRef) -> io::Result<()> {
    writeln!(
        out,
        "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} toguid = {:x} \
             refguid = {:x} refobject = {} refoffset = {}",
        reference.object,
        reference.checksum_type,
        reference.key[4],
        reference.offset,
        reference.length,
        reference.to_guid,
        reference.ref_guid,
        reference.ref_object,
        reference.ref_offset
    )
}

fn words([a, b, c, d]: [u64; 4]) -> String {
    format!("{a:x}/{b:x}/{c:x}/{d:x}")
}

/// Salt, initialization vector and authentication code of a record.
struct Encryption<'a>(&'a [u8], &'a [u8], &'a [u8]);

impl std::fmt::Display for Encryption<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "salt = {} iv = {} mac = {}", Hex(self.0), Hex(self.1), Hex(self.2))
    }
}

/// Bytes as hexadecimal digits without spaces.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prints bytes in lines of hexadecimal digits and characters.
fn print_bytes(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut text = Vec::new();
    for line in bytes.chunks(LINE) {
        text.clear();
        for (i, byte) in line.iter().enumerate() {
            let gap: &[u8] = if i > 0 && i.is_multiple_of(4) { b"  " } else { b" " };
            text.extend_from_slice(gap);
            text.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
        text.resize(CHARACTERS, b' ');
        for (i, byte) in line.iter().enumerate() {
            if i > 0 && i.is_multiple_of(4) {
                text.push(b' ');
            }
            text.push(if matches!(byte, b' '..=b'~') { *byte } else { b'.' });
        }
        text.push(b'\n');
        out.write_all(&text)?;
    }
    Ok(())
}

fn summary(out: &mut dyn Write, counts: &Counts, length: u64) -> io::Result<()> {
    writeln!(out, "SUMMARY:")?;
    for (kind, name) in SUMMARY {
        let (records, bytes) = counts.get(&kind).copied().unwrap_or_default();
        writeln!(out, "\tTotal DRR_{name} records = {records} ({bytes} bytes)")?;
    }
    let (records, bytes) = counts
        .values()
        .fold((0, 0), |(records, bytes), (more_records, more)| (records + more_records, bytes + more));
    let headers = records * HEADER_SIZE as u64;
    writeln!(out, "\tTotal records = {records}")?;
    writeln!(out, "\tTotal payload size = {bytes} ({bytes:#x})")?;
    writeln!(out, "\tTotal header overhead = {headers} ({headers:#x})")?;
    writeln!(out, "\tTotal stream length = {length} ({length:#x})")
}
