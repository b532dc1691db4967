//! Opens the pool that a power cut has left, as its next user does, and reads all of its contents.
//!
//! # Order
//! Import, which claims the logs -> one of `Before`, or none: txgs in which no dataset is opened, and an
//! export, after which the space is checked; writes to the other dataset, of which some files are removed
//! again; the end of a dataset with its log; or a second power cut -> every dataset is opened, which replays
//! its log -> all contents are read -> the pool is exported, and space maps, blocks and counts of references
//! are compared.
//!
//! An error in a log is reported only if it did no damage: the damage says more.

use super::Failure;
use super::found_state::{FoundDir, FoundFile, State};
use super::history::History;
use super::images::{Ranges, Reads};
use super::world::{COPIES, DATASETS};
use crate::check::check_space;
use crate::disks::Disks;
use crate::run::{POOL, RECORD, env, host};
use cenote::error::chain;
use dmu::log::walk_chain;
use dsl::DslError;
use dsl::destroy::{destroy, destroy_snapshots};
use format::zil::{RawRecord, RecordKind};
use pool::LivePool;
use pool::Which;
use pool::{ImportOptions, Leave};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::device::sim::Fate;
use vdev::env::Random;
use zpl::{FileKind, Filesystem};
use zpl::{FsOptions, HeadFs, NewFile, WriteHow};

/// Number of files that are written while a log waits.
const EXTRA_FILES: usize = 16;

/// What is done between the import and opening the datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The datasets are opened at once.
    Nothing,
    /// Some txgs without an open dataset; then the pool is exported, and imported again.
    NoMount,
    /// One dataset is opened and written to, the other is not.
    OtherDataset,
    /// The second dataset is destroyed without a replay of its log.
    Destroyed,
    /// The power is cut a second time.
    SecondCut,
}

impl Before {
    fn of_seed(seed: u64) -> Before {
        match seed % 8 {
            0 | 4 => Before::Nothing,
            1 | 5 => Before::OtherDataset,
            2 => Before::NoMount,
            6 => Before::Destroyed,
            _ => Before::SecondCut,
        }
    }
}

fn import(disks: &Disks, seed: u64) -> Result<Arc<LivePool>, Failure> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    Ok(LivePool::import(&disks.found(), &Which::Name(POOL.to_owned()), &options, env(seed))?)
}

fn open(pool: &Arc<LivePool>, dataset: &str, seed: u64) -> Result<Arc<HeadFs>, Failure> {
    let head = pool.heads().open_by_name(dataset)?;
    let options = FsOptions { record_size: RECORD, clones: true, ..FsOptions::default() };
    Ok(HeadFs::open(&head, options, &env(seed))?)
}

/// Opens the pool on these disks and reads its contents. Returns the contents, or why they could not be read,
/// and the ranges of the disks that were read.
pub(crate) fn examine(
    history: &History,
    mut disks: Disks,
    seed: u64,
) -> (Result<State, String>, Vec<Ranges>) {
    let mut reads = Reads::of(&mut disks);
    let found = look(history, &mut disks, &mut reads, seed);
    (found.map_err(|error| chain(&*error)), reads.ranges())
}

fn look(history: &History, disks: &mut Disks, reads: &mut Reads, seed: u64) -> Result<State, Failure> {
    let pool = import(disks, seed)?;
    let logs = check_logs(&pool);
    let state = look_on(history, disks, reads, pool, seed)?;
    logs.map(|()| state)
}

/// [`examine`] from the import on.
fn look_on(
    history: &History,
    disks: &mut Disks,
    reads: &mut Reads,
    mut pool: Arc<LivePool>,
    seed: u64,
) -> Result<State, Failure> {
    let mut state = State::default();
    match Before::of_seed(seed) {
        Before::Nothing => {}
        Before::NoMount => {
            for _ in 0..3 {
                pool.sync()?;
            }
            pool.export(Leave::Exported)?;
            check_space(disks).map_err(|why| format!("claimed and not replayed: {why}"))?;
            pool = import(disks, seed)?;
        }
        Before::OtherDataset => write_elsewhere(&pool, DATASETS[(seed / 8 % 2) as usize], seed)?,
        Before::Destroyed => {
            destroy_second(&pool, history).map_err(|why| format!("destroying {}: {why}", DATASETS[1]))?;
            state.is_second_gone = true;
        }
        Before::SecondCut => {
            pool.sync()?;
            drop(pool);
            let mut again = disks.after_cut(Fate::Kept, seed);
            *reads = reads.go_on(&mut again);
            *disks = again;
            pool = import(disks, seed)?;
        }
    }
    {
        let there = &DATASETS[..if state.is_second_gone { 1 } else { 2 }];
        let all: Vec<Arc<HeadFs>> =
            there.iter().map(|dataset| open(&pool, dataset, seed)).collect::<Result<_, _>>()?;
        for (i, work_dir) in history.work_dirs.iter().enumerate() {
            if let Some(fs) = all.get(work_dir.dataset) {
                state.work_dirs.insert(i, read_work_dir(fs.fs.reader(), &work_dir.dir)?);
            }
        }
        if let Some(second) = all.get(1) {
            state.copies = read_copies(second.fs.reader())?;
        }
        let view = pool.view()?;
        for (i, snapshot) in history.snapshots.iter().enumerate() {
            if snapshot.dataset == 1 && state.is_second_gone {
                continue;
            }
            let name = format!("{}@{}", DATASETS[snapshot.dataset], snapshot.name);
            let dataset = match view.dsl().dataset(&name) {
                Err(DslError::NotFound { .. }) => continue,
                found => found?,
            };
            let fs = Filesystem::open(dataset.open_objset()?)?;
            let work_dirs = history
                .work_dirs
                .iter()
                .enumerate()
                .filter(|(_, work_dir)| work_dir.dataset == snapshot.dataset);
            let mut found = BTreeMap::new();
            for (n, work_dir) in work_dirs {
                found.insert(n, read_work_dir(&fs, &work_dir.dir).map_err(|why| format!("{name}: {why}"))?);
            }
            state.snapshots.insert(i, found);
        }
    }
    pool.export(Leave::Exported)?;
    check_space(disks)?;
    Ok(state)
}

/// Checks that no log holds a clone that is on disk: an import of the pool would count its references again,
/// to blocks that may be free.
fn check_logs(pool: &Arc<LivePool>) -> Result<(), Failure> {
    for dataset in DATASETS {
        let set = &pool.heads().open_by_name(dataset)?.set;
        let header = set.zil_header();
        let mut on_disk = None;
        let mut look = |record: &RawRecord<'_>| {
            if record.txtype == RecordKind::CloneRange as u64 && record.txg < header.claim_txg {
                on_disk.get_or_insert(record.txg);
            }
            true
        };
        walk_chain(set.store().zio(), set.number(), &header, &mut |_| true, &mut look)?;
        if let Some(txg) = on_disk {
            let claimed = header.claim_txg;
            return Err(
                format!("the log of {dataset}, claimed in txg {claimed}, has a clone of txg {txg}").into()
            );
        }
    }
    Ok(())
}

/// Writes to one dataset while the log of the other waits to be replayed: files of many sizes, half of which
/// are removed, so that space that was free when the log was claimed is allocated in other pieces.
fn write_elsewhere(pool: &Arc<LivePool>, dataset: &str, seed: u64) -> Result<(), Failure> {
    let fs = open(pool, dataset, seed)?;
    let mut random = Random::from_seed(seed);
    let mut names = Vec::new();
    for i in 0..EXTRA_FILES {
        let name = format!("extra{i}");
        let made = fs.fs.create(fs.fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
        let most = if random.one_in(4) { 60_000 } else { 3_000 };
        let mut bytes = vec![0; 1 + random.below(most) as usize];
        random.fill(&mut bytes);
        fs.fs.write(made.id, 0, &bytes, &WriteHow::default())?;
        names.push(name);
        if random.one_in(4) {
            pool.sync()?;
        }
    }
    pool.sync()?;
    for name in names.iter().filter(|_| random.one_in(2)) {
        fs.fs.unlink(fs.fs.root(), name.as_bytes())?;
    }
    fs.fs.drain(EXTRA_FILES)?;
    for _ in 0..3 {
        pool.sync()?;
    }
    Ok(())
}

/// Destroys the second dataset and its snapshots without opening it.
fn destroy_second(pool: &Arc<LivePool>, history: &History) -> Result<(), Failure> {
    let of_second = history.snapshots.iter().filter(|snapshot| snapshot.dataset == 1);
    let names: Vec<String> = of_second.map(|snapshot| format!("{}@{}", DATASETS[1], snapshot.name)).collect();
    pool.run(move |ctx| destroy_snapshots(ctx, &names, false).map(drop))?;
    pool.run(move |ctx| destroy(ctx, DATASETS[1]))?;
    for _ in 0..3 {
        pool.sync()?;
    }
    Ok(())
}

fn read_work_dir(fs: &Arc<Filesystem>, dir: &str) -> Result<FoundDir, Failure> {
    let mut work_dir = FoundDir::default();
    let Some(dir) = fs.resolve(dir.as_bytes())? else { return Err(format!("{dir} is missing").into()) };
    for entry in dir.entries()? {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        work_dir.names.insert(name.clone(), entry.id);
        if work_dir.files.contains_key(&entry.id) {
            continue;
        }
        let node = fs.node(entry.id).map_err(|why| format!("{name}: {}", chain(&why)))?;
        let mut bytes = vec![0; node.attrs().size as usize];
        let read = node.read_at(0, &mut bytes).map_err(|why| format!("{name}: {}", chain(&why)))?;
        bytes.truncate(read);
        let mode = node.attrs().mode & 0o7777;
        work_dir.files.insert(entry.id, FoundFile { kind: node.kind(), mode, bytes });
    }
    Ok(work_dir)
}

fn read_copies(fs: &Arc<Filesystem>) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let work_dir = read_work_dir(fs, COPIES)?;
    let mut copies = BTreeMap::new();
    for (name, id) in work_dir.names {
        copies.insert(name, work_dir.files[&id].bytes.clone());
    }
    Ok(copies)
}
