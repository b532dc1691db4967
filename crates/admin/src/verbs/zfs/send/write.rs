//! Writing a planned stream.

use super::plan::{Header, Plan, Planned};
use super::{Answer, Event, Refusal, refusal};
use crate::edit::EditError;
use crate::{OpenPool, Session};
use cenote::SnapshotHold;
use cenote::stream::send::{self, Options, SendError};
use cenote::stream::{Frame, StreamError, Writer};
use dsl::Dataset;
use format::Endian;
use format::stream::{Begin, End, HEADER_SIZE, Header as RecordHeader, MAGIC, Record, feature};
use std::io::Write;
use std::ops::ControlFlow;
use vdev::tunable::Tunable;

/// Blocks that cannot be read are sent filled with the pattern of docs/on-disk/30-send-streams.md, section 4, instead of
/// ending the stream: so what can be read of a damaged dataset is saved.
pub static SEND_CORRUPT_DATA: Tunable = Tunable::new("zfs_send_corrupt_data", 0, 0, 1);

/// Number of the kind of a package's header.
const PACKAGE: u64 = 2;
/// Bit of the first feature flag beside the kind of the header.
const FEATURES_AT: u32 = 2;

/// Writes a stream: holds its snapshots, and tells what happens.
pub(super) fn write(
    plan: &Plan,
    pools: &[OpenPool],
    session: &Session<'_>,
    estimate: bool,
    out: &mut dyn Write,
    on: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Answer, Refusal> {
    let _held = hold(plan, pools, session)?;
    let mut answer = plan.answer(session, estimate)?;
    let name = plan.header.as_ref().map(|header| header.name.as_str());
    let name = name.or_else(|| plan.parts.first().map(|part| part.to.name())).unwrap_or_default();
    tell(on, Event::Planned(answer.clone()), name)?;
    let failed = |error| refusal::of_engine(name, error);
    if let Some(header) = &plan.header {
        start(header, out).map_err(|error| failed(written(error)))?;
    }
    for (number, (part, told)) in plan.parts.iter().zip(&mut answer.parts).enumerate() {
        tell(on, Event::Begins(number), part.to.name())?;
        told.bytes = Some(send_part(part, out, on)?);
    }
    if plan.header.is_some() {
        end(&mut Writer::new(&mut *out)).map_err(|error| failed(written(error)))?;
    }
    out.flush().map_err(|error| failed(SendError::Write(error)))?;
    Ok(answer)
}

fn tell(on: &mut dyn FnMut(Event) -> ControlFlow<()>, event: Event, name: &str) -> Result<(), Refusal> {
    match on(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Refusal::Cancelled { name: name.to_owned() }),
    }
}

/// Keeps the snapshots of a plan from being destroyed. Where nobody has the pool open for writing, nobody destroys
/// them.
fn hold(plan: &Plan, pools: &[OpenPool], session: &Session<'_>) -> Result<Vec<SnapshotHold>, Refusal> {
    let Some(writer) = pools.first().and_then(|pool| session.open_writer(pool.name())) else {
        return Ok(Vec::new());
    };
    let starts = plan.parts.iter().filter_map(|part| part.start.as_ref()?.snapshot.as_ref());
    let snapshots = plan.parts.iter().map(|part| &part.to).chain(starts).filter(|one| one.is_snapshot());
    let hold = |one: &Dataset| {
        let hold = writer.live().heads().hold_snapshot(one.id(), &one.phys().bp);
        hold.map_err(|error| match EditError::from(error) {
            EditError::NoDataset { .. } => refusal::no_dataset(one.name()),
            error => refusal::not_sent(one.name(), error),
        })
    };
    snapshots.map(hold).collect()
}

fn send_part(
    part: &Planned,
    out: &mut dyn Write,
    on: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<u64, Refusal> {
    let source = part.source()?;
    let options = Options { fill_unreadable: SEND_CORRUPT_DATA.is_on(), ..part.options.clone() };
    let sent = send::send(&source, &options, out, &mut |bytes| on(Event::Bytes(bytes)));
    Ok(sent.map_err(|error| refusal::of_engine(part.to.name(), error))?.bytes)
}

/// The error of the engine for an error of a writer, which only fails to write.
fn written(error: StreamError) -> SendError {
    match error {
        StreamError::Write(cause) => SendError::Write(cause),
        other => SendError::Write(std::io::Error::other(other)),
    }
}

/// Writes the header of a package, and its end.
fn start(header: &Header, out: &mut dyn Write) -> Result<(), StreamError> {
    let mut to_name = [0; 256];
    // The last byte stays zero.
    let name = header.name.as_bytes().iter().take(to_name.len() - 1);
    to_name.iter_mut().zip(name).for_each(|(place, byte)| *place = *byte);
    let features = if header.holds { feature::HOLDS } else { 0 };
    let begin = Begin {
        magic: MAGIC,
        version_info: PACKAGE | features << FEATURES_AT,
        creation_time: 0,
        objset_type: 0,
        flags: 0,
        to_guid: 0,
        from_guid: 0,
        to_name,
    };
    let payload = header.list.as_ref().map(format::NvList::encode_xdr).unwrap_or_default();
    let mut writer = Writer::new(out);
    writer.write(&frame(Record::Begin(begin), payload), Endian::Little)?;
    end(&mut writer)
}

/// Writes an end without a guid: that of the header of a package, or of the package.
fn end(writer: &mut Writer<impl Write>) -> Result<(), StreamError> {
    writer.write(&frame(Record::End(End { checksum: [0; 4], to_guid: 0 }), Vec::new()), Endian::Little)
}

fn frame(record: Record, payload: Vec<u8>) -> Frame {
    let mut bytes = [0; HEADER_SIZE];
    record.put(&mut bytes, Endian::Little);
    let payload_len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    if let Some(place) = bytes.get_mut(4..8) {
        place.copy_from_slice(&Endian::Little.put_u32(payload_len));
    }
    Frame { bytes, header: RecordHeader { record, payload_len, checksum: [0; 4] }, payload, at: 0 }
}
