//! `zpool status`.

use super::diagnosis::{self, Facts};
use super::{
    AdminError, Checkpoint, Dedup, DedupBucket, ErrorScrub, Expansion, OpenPool, PoolStatus, Removal, Scan,
    ScanPass, Search, pool_facts, tree,
};
use ::pool::{FeatureState, LoggedError};
use cenote::Error;
use dsl::Dataset;
use format::ObjectId;
use format::config::VdevKind;
use format::scan::{ScanFunc, ScanState};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use zpl::Filesystem;

/// Datasets that are looked at for blocks of the error log: of what is beyond that, only the place in the log is told.
const LOOKS_MAX: usize = 100_000;
/// Bytes of one mapping of a removed vdev in memory.
const MAPPING_SIZE: u64 = 24;

fn failed(error: impl Into<Error>) -> AdminError {
    AdminError::from(error.into())
}

fn state(state: ScanState) -> u64 {
    match state {
        ScanState::None => 0,
        ScanState::Scanning | ScanState::ErrorScrubbing => 1,
        ScanState::Finished => 2,
        ScanState::Canceled => 3,
    }
}

/// How long is waited for what was noted of the past.
const SETTLE: Duration = Duration::from_secs(2);

/// Waits a little until these pools (all, if none is named) show what has happened until now: commands in the
/// history, and files that could not be read. For what is open here; nothing else has anything to wait for.
pub fn settle(search: &Search, names: &[String]) {
    let Some(namespace) = &search.namespace else { return };
    let all = if names.is_empty() { namespace.names() } else { names.to_vec() };
    for live in all.iter().filter_map(|name| namespace.live(name)) {
        live.settle(SETTLE);
    }
}

/// Everything that `zpool status` shows of a pool.
pub(crate) fn pool_status(pool: &OpenPool) -> Result<PoolStatus, AdminError> {
    let spa = pool.pool.spa();
    let vdevs = tree::vdevs(pool)?;
    let damage = damaged(pool, &spa.error_log().map_err(failed)?);
    let facts = pool_facts(pool)?;
    let enabled: Vec<&str> = spa
        .features()
        .iter()
        .filter(|(_, state)| *state != FeatureState::Disabled)
        .map(|(feature, _)| feature.name)
        .collect();
    let compatibility = super::pool_property(pool, "compatibility")?;
    let diagnosis = diagnosis::of_pool(&Facts {
        root: &vdevs.root,
        resilvering: tree::is_resilvering(pool)?,
        errors: damage.blocks,
        version: facts.version,
        unsupported_for_write: spa.features().unsupported(true),
        suspended: spa.suspended(),
        stopped: spa.stopped(),
        compatibility: compatibility.as_ref().and_then(|p| p.value.text()).unwrap_or_default(),
        enabled: &enabled,
    });
    Ok(PoolStatus {
        facts,
        diagnosis,
        scan: scan(pool)?,
        error_scrub: error_scrub(pool)?,
        removal: removal(pool)?,
        expansion: expansion(pool, &vdevs.root)?,
        checkpoint: checkpoint(pool, vdevs.root.checkpoint)?,
        error_count: damage.blocks,
        errors: damage.places,
        dedup: dedup(pool)?,
        vdevs,
    })
}

fn scan(pool: &OpenPool) -> Result<Option<Scan>, AdminError> {
    let live = pool.pool.spa().scan_progress();
    let scan = match live {
        Some(live) => live.phys,
        None => match pool.pool.spa().scan().map_err(failed)? {
            Some(scan) => scan,
            None => return Ok(None),
        },
    };
    let function = match scan.func {
        ScanFunc::Scrub => 1,
        ScanFunc::Resilver => 2,
        ScanFunc::None | ScanFunc::ErrorScrub => return Ok(None),
    };
    Ok(Some(Scan {
        function,
        state: state(scan.state),
        start: scan.start_time,
        end: scan.end_time,
        to_examine: scan.to_examine,
        examined: scan.examined,
        skipped: scan.skipped,
        processed: scan.processed,
        errors: scan.errors,
        paused: scan.is_paused(),
        pass: live.map(|live| ScanPass {
            start: live.pass_start,
            issued: live.issued,
            pass_examined: live.pass_examined,
            pass_issued: live.pass_issued,
            paused_since: live.paused_since,
            spent_paused: live.spent_paused,
        }),
    }))
}

fn error_scrub(pool: &OpenPool) -> Result<Option<ErrorScrub>, AdminError> {
    let scrub = pool.pool.spa().error_scrub().map_err(failed)?;
    let started = scrub.filter(|scrub| scrub.state != ScanState::None);
    Ok(started.map(|scrub| ErrorScrub {
        state: state(scrub.state),
        start: scrub.start_time,
        end: scrub.end_time,
        to_examine: scrub.to_examine,
        examined: scrub.examined,
        errors: scrub.errors,
        paused: scrub.paused_flags != 0,
    }))
}

fn removal(pool: &OpenPool) -> Result<Option<Removal>, AdminError> {
    let Some(removal) = pool.pool.spa().removal().map_err(failed)? else { return Ok(None) };
    if removal.state == ScanState::None {
        return Ok(None);
    }
    let tree = pool.pool.spa().tree();
    let removed = tree.tops().filter(|(_, node)| node.kind == VdevKind::Indirect);
    let mappings = removed.filter_map(|(id, _)| tree.indirect(id)).map(|m| m.entries().len() as u64);
    Ok(Some(Removal {
        state: state(removal.state),
        vdev: removal.vdev.map_or(0, |v| u64::from(v.0)),
        start: removal.start_time,
        end: removal.end_time,
        to_copy: removal.to_copy,
        copied: removal.copied,
        mapping_memory: mappings.sum::<u64>().saturating_mul(MAPPING_SIZE),
    }))
}

/// The newest expansion; of several vdevs only one can be expanded at a time.
fn expansion(pool: &OpenPool, root: &super::Vdev) -> Result<Option<Expansion>, AdminError> {
    let all = pool.pool.spa().expansions().map_err(failed)?;
    let newest = all.into_iter().max_by_key(|e| (e.state == 1, e.start_time));
    Ok(newest.map(|e| Expansion {
        state: e.state,
        vdev: u64::from(e.vdev.0),
        start: e.start_time,
        end: e.end_time,
        to_copy: root.children.iter().find(|v| v.id == u64::from(e.vdev.0)).map_or(0, |v| v.alloc),
        copied: e.copied,
    }))
}

fn checkpoint(pool: &OpenPool, space: u64) -> Result<Option<Checkpoint>, AdminError> {
    let spa = pool.pool.spa();
    if let Some(uberblock) = spa.checkpoint().map_err(failed)? {
        return Ok(Some(Checkpoint { time: uberblock.timestamp, space, discarding: false }));
    }
    // The feature stays in use until everything that the checkpoint held is free.
    let discarding = spa.features().is_active("zpool_checkpoint") && space > 0;
    Ok(discarding.then_some(Checkpoint { time: 0, space, discarding }))
}

fn dedup(pool: &OpenPool) -> Result<Option<Dedup>, AdminError> {
    let spa = pool.pool.spa();
    let tables = spa.dedup_tables().map_err(failed)?;
    if tables.is_empty() {
        return Ok(None);
    }
    let histogram = spa.dedup_histogram().map_err(failed)?;
    let mut in_core = 0u64;
    for (_, id) in tables.iter().flat_map(|table| &table.classes) {
        in_core = in_core.saturating_add(pool.pool.spa().mos().object(*id).map_err(failed)?.logical_end());
    }
    Ok(Some(Dedup {
        entries: histogram.total().blocks,
        on_disk: spa.dedup_table_size().map_err(failed)?,
        in_core,
        cached: 0,
        histogram: histogram.buckets.iter().map(DedupBucket::from).collect(),
    }))
}

/// Data that cannot be read.
struct Damage {
    /// Blocks; those that no dataset has any more do not count.
    blocks: u64,
    /// The files that have them, in heads and snapshots.
    places: Vec<String>,
}

/// What the error log tells of.
fn damaged(pool: &OpenPool, log: &[LoggedError]) -> Damage {
    let spa = pool.pool.spa();
    let mut files: HashMap<ObjectId, Option<Opened>> = HashMap::new();
    let (mut places, mut known) = (Vec::new(), HashSet::new());
    let (mut blocks, mut left) = (0, LOOKS_MAX);
    for error in log {
        let object = error.key.object;
        let carriers: Vec<ObjectId> = match spa.carriers(error, &mut left) {
            _ if error.dataset == ObjectId(0) => vec![error.dataset],
            Some(datasets) => datasets.iter().map(Dataset::id).collect(),
            None => vec![error.dataset],
        };
        blocks += u64::from(!carriers.is_empty());
        for dataset in carriers.into_iter().filter(|dataset| known.insert((*dataset, object))) {
            let opened = files.entry(dataset).or_insert_with(|| Opened::of(pool, dataset));
            places.push(match opened {
                _ if dataset == ObjectId(0) => format!("<metadata>:<{:#x}>", object.0),
                None => format!("<{:#x}>:<{:#x}>", dataset.0, object.0),
                Some(Opened { name, files, at }) => match (path(files.as_ref(), object), at) {
                    (Some(path), Some(at)) => format!("{}{path}", at.trim_end_matches('/')),
                    (Some(path), None) => format!("{name}:{path}"),
                    (None, _) => format!("{name}:<{:#x}>", object.0),
                },
            });
        }
    }
    Damage { blocks, places }
}

/// A dataset with damage.
struct Opened {
    name: String,
    files: Option<Arc<Filesystem>>,
    /// Where it is mounted.
    at: Option<String>,
}

impl Opened {
    /// `None`: the dataset is gone.
    fn of(pool: &OpenPool, id: ObjectId) -> Option<Opened> {
        let dataset = pool.pool.dsl().dataset_by_object(id).ok()?;
        let objset = dataset.open_objset().ok().filter(|objset| !objset.is_locked());
        let files = objset.and_then(|objset| Filesystem::open(objset).ok());
        let mounted = pool.mounted.as_ref().and_then(|all| all.get(dataset.name()));
        let at = mounted.map(|mounted| mounted.at.to_string_lossy().into_owned());
        Some(Opened { name: dataset.name().to_owned(), files, at })
    }
}

fn path(files: Option<&Arc<Filesystem>>, object: ObjectId) -> Option<String> {
    let path = files?.path_of(object).ok()??;
    Some(String::from_utf8_lossy(&path).into_owned())
}
