//! Writing the pool's history (docs/on-disk/22-mos-dsl.md, section 10).
//!
//! # What always holds
//! - The records of the pool's creation, up to the first command, are never overwritten.
//! - The oldest of the others make room, whole records at a time.

use crate::config::Host;
use crate::error::{PoolError, chain};
use crate::live::{LivePool, PoolTask, Task};
use dmu::{LiveObject, NewObject};
use dsl::{HistoryNote, MosTx, TaskCtx};
use format::history::{HistoryPhys, RECORD_MAX, encode_record};
use format::names;
use format::nvlist::{NvList, NvValue};
use format::{Endian, ObjType, Txg};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vdev::sync::lock;
use zio::AllocTx;

/// Block size of the history object, in bytes.
const BLOCK: u64 = 128 << 10;
/// Divisor of the pool's size for the size of the ring,
const SHARE: u64 = 1000;
/// but at least this many bytes,
const SIZE_MIN: u64 = 128 << 10;
/// and at most this many.
const SIZE_MAX: u64 = 1 << 30;
/// Bytes of the length before each record.
const LENGTH: u64 = 8;

/// A command and its user, as `zpool history` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command line.
    pub text: String,
    /// Number of the user (uid).
    pub user: u64,
    /// Host name of the machine.
    pub hostname: String,
}

/// An operation of a command, with its arguments: an ioctl in `zpool history -i`.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Name of the operation: `snapshot`, `destroy_snaps`, …
    pub name: String,
    /// Arguments of the operation.
    pub input: NvList,
    /// Result of the operation, if it has one.
    pub output: Option<NvList>,
    /// Duration of the operation.
    pub elapsed: Duration,
    /// Number of the user (uid).
    pub user: u64,
    /// Host name of the machine.
    pub hostname: String,
}

impl LivePool {
    /// Records that the pool was imported.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg cannot be written.
    pub fn note_import(&self) -> Result<(), PoolError> {
        self.run_on_pool(|ctx, pool| {
            let text = software_text(pool.state.uberblock.version, &pool.pool.host);
            ctx.note("open", None, text.clone());
            ctx.note("import", None, text);
            Ok(())
        })
    }
}

impl LivePool {
    /// Adds a command to the history in the open txg, without waiting for that txg ([`LivePool::settle`]
    /// waits). The changes of the command are on disk already, so a crash can only lose history entries of
    /// the last seconds. Releases a pool whose writes are still held back.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the pool is suspended, has stopped or is closed.
    pub fn record(&self, command: Command) -> Result<(), PoolError> {
        self.append_soon(move |m| write_command(m, &command))
    }

    /// Like [`LivePool::record`], for an operation that succeeded; the record of its command follows.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the pool is suspended, has stopped or is closed.
    pub fn record_operation(&self, operation: Operation) -> Result<(), PoolError> {
        self.append_soon(move |m| write_operation(m, &operation))
    }

    fn append_soon(
        &self,
        write: impl FnOnce(MosTx<'_>) -> Result<(), PoolError> + Send + 'static,
    ) -> Result<(), PoolError> {
        if self.is_held() {
            return self.run_on_pool(move |ctx, _| write(ctx.m()));
        }
        let run = Box::new(move |ctx: &mut TaskCtx<'_>, _: &mut PoolTask<'_>| {
            write(ctx.m()).map_err(|error| chain(&error))
        });
        // Keeps the txg open until the task is in the queue.
        let tx = self.txgs.begin_now()?;
        lock(&self.tasks).push(Task { txg: tx.txg(), is_alone: false, run });
        self.txgs.meter().add(tx.txg(), 0);
        self.recorded.fetch_max(tx.txg().0, Ordering::AcqRel);
        Ok(())
    }
}

/// Text of the history about the software that opened a pool.
pub(crate) fn software_text(version: u64, host: &Host) -> String {
    let software = env!("CARGO_PKG_VERSION");
    let uts = if host.uts.is_empty() { String::new() } else { format!("; uts {}", host.uts) };
    format!("pool version {version}; software version cenote-{software}{uts}")
}

/// Creates the history of a new pool of `size` bytes.
pub(crate) fn create(m: MosTx<'_>, size: u64) -> Result<(), PoolError> {
    let end_of_ring = (size / SHARE).clamp(SIZE_MIN, SIZE_MAX);
    let phys = HistoryPhys { create_len: 0, end_of_ring, begin: 0, end: 0, records_lost: 0 };
    let offsets = ObjType::from_id_unchecked(30);
    let new = NewObject::of(ObjType::SPA_HISTORY).with_block_size(BLOCK);
    let object = m.allocate(&new.with_bonus(offsets, phys.encode(Endian::Little)))?;
    Ok(m.set_entry(names::directory::HISTORY, object.id().0)?)
}

/// Appends the records of this txg's tasks.
pub(crate) fn write_notes(m: MosTx<'_>, notes: &[HistoryNote], hostname: &str) -> Result<(), PoolError> {
    for note in notes {
        let mut record = NvList::new();
        record.push("history time", now(m));
        if let Some((name, id)) = &note.dataset {
            record.push("dsname", name.as_str());
            record.push("dsid", id.0);
        }
        record.push("internal_name", note.name.as_str());
        record.push("history internal str", note.text.as_str());
        record.push("history txg", m.txg().0);
        record.push("history hostname", hostname);
        append(m, &record)?;
    }
    Ok(())
}

/// Posts the event of a history record.
pub(crate) fn announce(pool: &LivePool, note: &HistoryNote, txg: Txg) {
    let mut extra = NvList::new();
    extra.push("history_hostname", pool.host.name.as_str());
    if let Some((name, _)) = &note.dataset {
        extra.push("history_dsname", name.as_str());
    }
    extra.push("history_internal_str", note.text.as_str());
    extra.push("history_internal_name", note.name.as_str());
    if let Some((_, id)) = &note.dataset {
        extra.push("history_dsid", id.0);
    }
    extra.push("history_txg", txg.0);
    extra.push("history_time", pool.env.clock().wall().as_secs());
    pool.events().sysevent("history_event", extra);
}

/// Appends a command to the history, in syncing context.
pub(crate) fn write_command(m: MosTx<'_>, command: &Command) -> Result<(), PoolError> {
    let mut record = NvList::new();
    record.push("history time", now(m));
    record.push("history command", command.text.as_str());
    push_who(&mut record, command.user, &command.hostname);
    append(m, &record)
}

fn write_operation(m: MosTx<'_>, operation: &Operation) -> Result<(), PoolError> {
    let mut record = NvList::new();
    record.push("history time", now(m));
    record.push("ioctl", operation.name.as_str());
    record.push("in_nvl", operation.input.clone());
    if let Some(output) = &operation.output {
        record.push("out_nvl", output.clone());
    }
    let elapsed = i64::try_from(operation.elapsed.as_nanos()).unwrap_or(i64::MAX);
    record.push("elapsed_ns", NvValue::Int64(elapsed));
    push_who(&mut record, operation.user, &operation.hostname);
    append(m, &record)
}

fn push_who(record: &mut NvList, user: u64, hostname: &str) {
    record.push("history who", user);
    record.push("history zone", "linux");
    record.push("history hostname", hostname);
}

fn now(m: MosTx<'_>) -> u64 {
    m.env.clock().wall().as_secs()
}

fn append(m: MosTx<'_>, record: &NvList) -> Result<(), PoolError> {
    // A pool of a version before histories has none.
    let Some(id) = m.entry(names::directory::HISTORY)? else { return Ok(()) };
    let object = m.object(id)?;
    let order = object.read().order();
    let mut phys =
        object.with_bonus(|bonus| HistoryPhys::decode(bonus, order)).map_err(PoolError::decode(id))?;
    let bytes = encode_record(record);
    let len = bytes.len() as u64;
    if len > RECORD_MAX.min((phys.end_of_ring - phys.create_len) / 2) {
        return Ok(()); // Longer than any command line; better no record than no history.
    }
    make_room(&object, &mut phys, len)?;
    let mut rest = &bytes[..];
    for piece in phys.pieces(phys.end..phys.end + len) {
        let (part, after) = rest.split_at((piece.end - piece.start) as usize);
        object.write_at(piece.start, part, m.tx)?;
        rest = after;
    }
    phys.end += len;
    if phys.create_len == 0 && record.has("history command") {
        (phys.create_len, phys.begin) = (phys.end, phys.end);
    }
    object.set_bonus(&phys.encode(Endian::Little), m.tx);
    Ok(())
}

/// Drops the oldest records until there is room for `len` bytes.
fn make_room(object: &LiveObject, phys: &mut HistoryPhys, len: u64) -> Result<(), PoolError> {
    let ring = phys.end_of_ring - phys.create_len;
    phys.begin = phys.begin.max(phys.create_len);
    while phys.end - phys.begin + len > ring {
        let mut length = [0; LENGTH as usize];
        read(object, phys, phys.begin..phys.begin + LENGTH, &mut length)?;
        let next = phys.begin + LENGTH + u64::from_le_bytes(length).min(RECORD_MAX);
        // A damaged length leads nowhere: drop all records then.
        phys.begin = if next > phys.end || next == phys.begin + LENGTH { phys.end } else { next };
        phys.records_lost += 1;
    }
    Ok(())
}

fn read(object: &LiveObject, phys: &HistoryPhys, at: Range<u64>, bytes: &mut [u8]) -> Result<(), PoolError> {
    let mut rest = bytes;
    for piece in phys.pieces(at) {
        let (part, after) = rest.split_at_mut((piece.end - piece.start) as usize);
        object.read_at(piece.start, part)?;
        rest = after;
    }
    Ok(())
}
