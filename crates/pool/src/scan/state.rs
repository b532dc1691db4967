//! Scans in the MOS.

use crate::directory;
use crate::error::PoolError;
use crate::error_log::LoggedError;
use crate::scan::{Position, Run};
use dmu::traverse::{Bookmark, WalkPosition};
use dmu::zap::ZapValue;
use dsl::DslError;
use dsl::MosTx;
use format::errlog::ErrorKey;
use format::names;
use format::scan::{ErrorScrubPhys, ScanFunc, ScanPhys, ScanState};
use format::{BlockId, ObjType, ObjectId, Txg, VdevGuid};
use std::collections::BTreeMap;

/// First word of a stored position: its format.
const FORM: u64 = 1;
/// Words of a position before the guids of leaves.
const FIXED: usize = 10;
/// The scan first visits the dedup tables of the classes up to this one: blocks with two or more references.
const DDT_CLASS_DUPLICATE: u64 = 1;

/// A block that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Head of the dataset in which it was found; 0: the MOS.
    pub(crate) head: ObjectId,
    pub(crate) at: Bookmark,
    pub(crate) birth: Txg,
}

/// The position of a scan, which other implementations do not store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) position: Position,
    pub(crate) issued: u64,
    pub(crate) is_incomplete: bool,
    pub(crate) served: Vec<VdevGuid>,
}

/// The position in the object directory, if it belongs to this scan.
pub(crate) fn position_of(words: &[u64], phys: &ScanPhys) -> Option<Saved> {
    let (fixed, served) = words.split_at_checked(FIXED)?;
    let [form, start, func, pass, txg, id, object, blkid, issued, incomplete] = *fixed else { return None };
    // Another implementation, or another scan, may have continued since.
    let is_same = form == FORM && start == phys.start_time && func == phys.func as u64;
    if !is_same || phys.bookmark != [0; 4] {
        return None;
    }
    let place = WalkPosition { object: ObjectId(object), blkid };
    Some(Saved {
        position: Position { pass, at: (Txg(txg), ObjectId(id)), place },
        issued,
        is_incomplete: incomplete != 0,
        served: served.iter().copied().map(VdevGuid).collect(),
    })
}

fn position_words(run: &Run) -> Vec<u64> {
    let Position { pass, at: (txg, id), place } = run.position;
    let (start, func, incomplete) = (run.phys.start_time, run.phys.func as u64, u64::from(run.is_incomplete));
    let mut words =
        vec![FORM, start, func, pass, txg.0, id.0, place.object.0, place.blkid, run.issued, incomplete];
    let mut served: Vec<u64> = run.served.keys().map(|leaf| leaf.0).collect();
    served.sort_unstable();
    words.extend(served);
    words
}

pub(crate) fn put(m: MosTx<'_>, phys: &ScanPhys) -> Result<(), DslError> {
    let directory = m.zap(directory::OBJECT)?;
    Ok(directory.upsert(names::directory::SCAN.as_bytes(), ZapValue::U64s(&phys.to_words()))?)
}

/// Creates the records of a new scan.
pub(crate) fn begin(m: MosTx<'_>, phys: &mut ScanPhys) -> Result<(), DslError> {
    if phys.func == ScanFunc::Scrub {
        drop_log(m, names::directory::ERRLOG_SCRUB)?;
    }
    phys.queue = m.create_plain_zap(ObjType::SCAN_QUEUE)?;
    phys.ddt_class_max = if phys.func == ScanFunc::Scrub { DDT_CLASS_DUPLICATE } else { 0 };
    put(m, phys)
}

/// Adopts a scan that the pool's last user has not ended: removes the names of datasets from it, because
/// these may change meanwhile. A scan of another implementation begins again.
pub(crate) fn adopt(m: MosTx<'_>, phys: ScanPhys, is_ours: bool) -> Result<ScanPhys, DslError> {
    let is_fresh = phys.bookmark == [0; 4] && phys.ddt_bookmark == [0; 4] && phys.queue != ObjectId(0);
    if is_ours && is_fresh {
        return Ok(phys);
    }
    if phys.queue != ObjectId(0) {
        m.free(phys.queue)?;
    }
    let queue = m.create_plain_zap(ObjType::SCAN_QUEUE)?;
    let (current_min_txg, current_max_txg) = (phys.min_txg, phys.max_txg);
    let phys =
        ScanPhys { queue, bookmark: [0; 4], ddt_bookmark: [0; 4], current_min_txg, current_max_txg, ..phys };
    let phys = ScanPhys { examined: 0, skipped: 0, ..phys };
    put(m, &phys)?;
    Ok(phys)
}

/// Saves the position of a scan.
pub(crate) fn save(
    m: MosTx<'_>,
    phys: &ScanPhys,
    words: &[u64],
    by_head: bool,
    errors: &[Failed],
) -> Result<(), DslError> {
    put(m, phys)?;
    m.zap(directory::OBJECT)?.upsert(names::directory::SCAN_POSITION.as_bytes(), ZapValue::U64s(words))?;
    log_errors(m, log_of(phys), by_head, errors)
}

pub(crate) fn words(run: &Run) -> Vec<u64> {
    position_words(run)
}

fn log_of(phys: &ScanPhys) -> &'static str {
    if phys.func == ScanFunc::Scrub { names::directory::ERRLOG_SCRUB } else { names::directory::ERRLOG_LAST }
}

/// Ends a scan. The errors of a finished one become the known errors.
pub(crate) fn end(
    m: MosTx<'_>,
    phys: &mut ScanPhys,
    by_head: bool,
    errors: &[Failed],
) -> Result<(), DslError> {
    if phys.queue != ObjectId(0) {
        m.free(phys.queue)?;
        phys.queue = ObjectId(0);
    }
    (phys.bookmark, phys.ddt_bookmark) = ([0; 4], [0; 4]);
    put(m, phys)?;
    m.remove_entry_words(names::directory::SCAN_POSITION)?;
    log_errors(m, log_of(phys), by_head, errors)?;
    if phys.func == ScanFunc::Scrub && phys.state == ScanState::Finished {
        drop_log(m, names::directory::ERRLOG_LAST)?;
        if let Some(log) = m.entry(names::directory::ERRLOG_SCRUB)? {
            m.set_entry(names::directory::ERRLOG_LAST, log.0)?;
            m.remove_entry(names::directory::ERRLOG_SCRUB)?;
        }
        m.set_entry(names::directory::LAST_SCRUBBED_TXG, phys.max_txg.0)?;
    }
    Ok(())
}

trait RemoveWords {
    fn remove_entry_words(&self, name: &str) -> Result<(), DslError>;
}

impl RemoveWords for MosTx<'_> {
    fn remove_entry_words(&self, name: &str) -> Result<(), DslError> {
        self.zap(directory::OBJECT)?.remove_if_present(name.as_bytes())?;
        Ok(())
    }
}

/// Frees an error log with its objects.
fn drop_log(m: MosTx<'_>, name: &str) -> Result<(), DslError> {
    let Some(log) = m.entry(name)? else { return Ok(()) };
    if m.features.is_active("head_errlog") {
        for head in m.object(log)?.zap_entries(0, usize::MAX)? {
            if let Some(list) = head.u64() {
                m.free(ObjectId(list))?;
            }
        }
    }
    m.free(log)?;
    m.remove_entry(name)?;
    Ok(())
}

/// Adds blocks to an error log.
pub(crate) fn log_errors(m: MosTx<'_>, name: &str, by_head: bool, errors: &[Failed]) -> Result<(), DslError> {
    if errors.is_empty() {
        return Ok(());
    }
    let log = match m.entry(name)? {
        Some(log) => log,
        None => {
            let log = m.create_plain_zap(ObjType::ERROR_LOG)?;
            m.set_entry(name, log.0)?;
            log
        }
    };
    let mut by_dataset: BTreeMap<ObjectId, Vec<&Failed>> = BTreeMap::new();
    errors.iter().for_each(|failed| by_dataset.entry(failed.head).or_default().push(failed));
    for (head, failed) in by_dataset {
        let list = if by_head { list_of_head(m, log, head)? } else { log };
        let list = m.zap(list)?;
        for failed in failed {
            list.upsert(key_of(failed, by_head).as_bytes(), ZapValue::Str(b""))?;
        }
    }
    Ok(())
}

/// Removes entries from the logs by head.
pub(crate) fn forget_errors(m: MosTx<'_>, errors: &[LoggedError]) -> Result<(), DslError> {
    for name in [names::directory::ERRLOG_LAST, names::directory::ERRLOG_SCRUB] {
        let Some(log) = m.entry(name)? else { continue };
        for error in errors {
            let head = format!("{:x}", error.dataset.0);
            if let Some(list) = m.zap(log)?.lookup(head.as_bytes())?.and_then(|entry| entry.u64()) {
                m.zap(ObjectId(list))?.remove_if_present(error.key.to_key().as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Writes the result of a scrub of the error log.
pub(crate) fn put_error_scrub(m: MosTx<'_>, phys: &ErrorScrubPhys) -> Result<(), DslError> {
    let words = phys.to_words();
    Ok(m.zap(directory::OBJECT)?.upsert(names::directory::ERROR_SCRUB.as_bytes(), ZapValue::U64s(&words))?)
}

fn list_of_head(m: MosTx<'_>, log: ObjectId, head: ObjectId) -> Result<ObjectId, DslError> {
    let key = format!("{:x}", head.0);
    let known = m.zap(log)?.lookup(key.as_bytes())?.and_then(|entry| entry.u64());
    if let Some(list) = known {
        return Ok(ObjectId(list));
    }
    let list = m.create_plain_zap(ObjType::ERROR_LOG)?;
    m.zap(log)?.upsert(key.as_bytes(), list.0)?;
    Ok(list)
}

fn key_of(failed: &Failed, by_head: bool) -> String {
    let at = &failed.at;
    let objset = (!by_head).then_some(ObjectId(at.objset));
    let birth = by_head.then_some(failed.birth);
    ErrorKey { objset, object: at.object, level: at.level, block: BlockId(at.blkid), birth }.to_key()
}

/// Converts an error of the dataset layer.
pub(crate) fn failed(error: DslError) -> PoolError {
    error.into()
}
