//! Checks that the pool after a power cut is in a permitted state.
//!
//! # Requirements
//! - The pool can be imported, and its log replayed to the end.
//! - The names are one of the versions from the last durable one to the last one begun.
//! - Each file, sector by sector, is one of its versions in that range; so are its size, its permissions and
//!   each of its extended attributes. (Each sector, because a log record may hold newer bytes than those of
//!   its own write.)
//! - A promised snapshot exists, and holds exactly the contents at the time it was taken.
//! - Exported again, every copy of every block is good, and the space maps are exact.

use crate::disks::Disks;
use crate::model::{Entry, FileId, FileState, Names, Version, possible};
use crate::run::{Failure, POOL, Run, env, host, open_fs};
use cenote::inspect::{Check, blocks};
use dsl::DslError;
use format::ObjectId;
use pool::LivePool;
use pool::{ImportOptions, Leave};
use pool::{OpenOptions, Which};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::scan::Found as FoundDevices;
use zpl::{FileKind, Filesystem, Node};

const SECTOR: usize = 512;

/// A deviation from a permitted state.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

fn wrong<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Box::new(Wrong(text.into())))
}

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Names and files.
    Contents,
    /// Names, files, space maps and every copy of every block.
    Everything,
}

/// A file found in the pool.
struct Found {
    object: ObjectId,
    kind: FileKind,
}

/// Opens the pool that a power cut has left and checks it.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check(
    run: &Run,
    disks: &Disks,
    operation: u64,
    seed: u64,
    depth: Depth,
) -> Result<(), Failure> {
    let (durable, begun) = run.at(operation);
    let pool = check_contents(run, disks, durable, begun, seed)?;
    if depth == Depth::Contents {
        return Ok(());
    }
    pool.export(Leave::Exported)?;
    check_space(disks)
}

/// Checks the pool after completing a scan that was in progress: every disk is then complete.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check_scanned(run: &Run, disks: &Disks, operation: u64, seed: u64) -> Result<(), Failure> {
    let (durable, begun) = run.at(operation);
    let pool = check_contents(run, disks, durable, begun, seed)?;
    let tree = pool.tree();
    for leaf in tree.leaf_guids() {
        pool.bring_online(leaf, None)?;
    }
    pool.scan_to_end()?;
    pool.resilver_if_needed()?;
    pool.scan_to_end()?;
    let tree = pool.tree();
    if let Some(leaf) = tree.leaf_guids().into_iter().find(|leaf| !tree.dtl(*leaf).is_empty()) {
        return wrong(format!("leaf {leaf} still lacks {:?}", tree.dtl(leaf)));
    }
    pool.export(Leave::Exported)?;
    check_space(disks)
}

/// Checks the pool, ends a removal that was running, and checks the pool again.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check_removed(run: &Run, disks: &Disks, operation: u64, seed: u64) -> Result<(), Failure> {
    let (durable, begun) = run.at(operation);
    let pool = check_contents(run, disks, durable, begun, seed)?;
    pool.remove_to_end()?;
    pool.export(Leave::Exported)?;
    check_space(disks)?;
    check_contents(run, disks, durable, begun, seed).map(drop)
}

/// Opens the pool on these disks and checks that its state is between these two steps.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check_state(
    run: &Run,
    disks: &Disks,
    durable: u64,
    begun: u64,
    seed: u64,
) -> Result<(), Failure> {
    check_contents(run, disks, durable, begun, seed).map(drop)
}

/// Opens the pool without some disks, which it must be able to do without, and checks its state.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check_contents_without(
    run: &Run,
    disks: &Disks,
    missing: &[usize],
    (durable, begun): (u64, u64),
    seed: u64,
) -> Result<(), Failure> {
    check_found(run, &disks.found_without(missing), durable, begun, seed).map(drop)
}

pub(crate) fn check_contents(
    run: &Run,
    disks: &Disks,
    durable: u64,
    begun: u64,
    seed: u64,
) -> Result<Arc<LivePool>, Failure> {
    check_found(run, &disks.found(), durable, begun, seed)
}

fn check_found(
    run: &Run,
    found: &FoundDevices,
    durable: u64,
    begun: u64,
    seed: u64,
) -> Result<Arc<LivePool>, Failure> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    let pool = LivePool::import(found, &Which::Name(POOL.to_owned()), &options, env(seed))?;
    {
        let fs = open_fs(&pool, seed)?;
        check_head(run, fs.fs.reader(), durable, begun)?;
        check_snapshots(run, &pool, durable, begun)?;
    }
    Ok(pool)
}

/// Checks that the space maps agree with the blocks, and that every copy of every block is good.
///
/// # Errors
/// The first deviation.
pub fn check_space(disks: &Disks) -> Result<(), Failure> {
    let which = Which::Name(POOL.to_owned());
    let pool = cenote::Pool::from(pool::Pool::open(disks.found(), &which, &OpenOptions::default())?);
    let report = blocks(&pool, Check::Everything, true)?;
    if let Some(bad) = report.damaged.first() {
        return wrong(format!(
            "{} damaged blocks, the first: {:?} {}",
            report.damaged.len(),
            bad.at,
            bad.cause
        ));
    }
    if let Some(problem) = report.problems.first() {
        return wrong(problem.to_string());
    }
    match report.space {
        Some(space) if space.matches() => Ok(()),
        Some(space) => wrong(space.to_string()),
        None => wrong("the space could not be counted"),
    }
}

/// Checks that the state of a file system is between these two steps.
pub(crate) fn check_head(run: &Run, fs: &Arc<Filesystem>, durable: u64, begun: u64) -> Result<(), Failure> {
    let found = walk(fs)?;
    let mut reasons = Vec::new();
    for version in possible(&run.model.names, durable, begun) {
        match match_names(&version.state, &found) {
            Ok(objects) => {
                let file = |id: FileId| -> Vec<&Version<FileState>> {
                    run.model
                        .files
                        .get(&id)
                        .map(|v| possible(v, durable, begun).collect())
                        .unwrap_or_default()
                };
                let checked = objects.iter().try_for_each(|(id, object)| {
                    check_file(fs, *object, &file(*id)).map_err(|why| format!("file {id}: {why}"))
                });
                match checked {
                    Ok(()) => return Ok(()),
                    Err(why) => reasons.push(format!("names of step {}: {why}", version.step)),
                }
            }
            Err(why) => reasons.push(format!("step {}: {why}", version.step)),
        }
    }
    wrong(format!("steps {durable} to {begun}: no version fits:\n  {}", reasons.join("\n  ")))
}

/// All names found in the file system.
fn walk(fs: &Arc<Filesystem>) -> Result<BTreeMap<String, Found>, Failure> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(String::new(), fs.node(fs.root())?)];
    while let Some((path, dir)) = dirs.pop() {
        for entry in dir.entries()? {
            let entry = entry?;
            let node = fs.node(entry.id)?;
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            found.insert(path.clone(), Found { object: entry.id, kind: node.kind() });
            if node.is_dir() {
                dirs.push((path, node));
            }
        }
    }
    Ok(found)
}

/// Checks the names; returns the object of each file if they match.
fn match_names(names: &Names, found: &BTreeMap<String, Found>) -> Result<BTreeMap<FileId, ObjectId>, String> {
    if let Some(missing) = names.keys().find(|path| !found.contains_key(*path)) {
        return Err(format!("{missing} is missing"));
    }
    if let Some(extra) = found.keys().find(|path| !names.contains_key(*path)) {
        return Err(format!("{extra} should not be there"));
    }
    let mut objects = BTreeMap::new();
    for (path, entry) in names {
        let there = &found[path];
        let kind = match entry {
            Entry::Dir(_) => FileKind::Directory,
            Entry::File(_) => FileKind::Regular,
            Entry::Symlink(_) => FileKind::Symlink,
        };
        if there.kind != kind {
            return Err(format!("{path} is a {:?}", there.kind));
        }
        if *objects.entry(entry.id()).or_insert(there.object) != there.object {
            return Err(format!("{path} is another file than its other names"));
        }
    }
    Ok(objects)
}

/// Checks each part of a file against these versions.
fn check_file(
    fs: &Arc<Filesystem>,
    object: ObjectId,
    versions: &[&Version<FileState>],
) -> Result<(), String> {
    let node = fs.node(object).map_err(|error| error.to_string())?;
    let is_any = |test: &dyn Fn(&FileState) -> bool| versions.iter().any(|version| test(&version.state));
    let mode = node.attrs().mode & 0o7777;
    if !is_any(&|state| state.mode == mode) {
        return Err(format!("mode {mode:o}"));
    }
    match node.kind() {
        FileKind::Symlink => {
            let target = node.readlink().map_err(|error| error.to_string())?;
            if !is_any(&|state| state.bytes == target) {
                return Err("another target".to_owned());
            }
        }
        FileKind::Regular => {
            check_bytes(&node, versions)?;
            check_xattrs(&node, versions)?;
        }
        _ => {}
    }
    Ok(())
}

fn check_bytes(node: &Node, versions: &[&Version<FileState>]) -> Result<(), String> {
    let size = node.attrs().size as usize;
    if !versions.iter().any(|version| version.state.bytes.len() == size) {
        let sizes: Vec<usize> = versions.iter().map(|version| version.state.bytes.len()).collect();
        return Err(format!("{size} bytes, expected one of {sizes:?}"));
    }
    let mut bytes = vec![0; size];
    let read = node.read_at(0, &mut bytes).map_err(|error| error.to_string())?;
    if read != size {
        return Err(format!("{read} of {size} bytes could be read"));
    }
    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
        let fits = versions.iter().any(|version| {
            let known = version.state.bytes.get(i * SECTOR..).unwrap_or(&[]);
            let known = &known[..known.len().min(sector.len())];
            // Bytes after the end of a version are zeros.
            sector[..known.len()] == *known && sector[known.len()..].iter().all(|byte| *byte == 0)
        });
        if !fits {
            return Err(format!("the bytes from {} on are of no version", i * SECTOR));
        }
    }
    Ok(())
}

fn check_xattrs(node: &Node, versions: &[&Version<FileState>]) -> Result<(), String> {
    let values = node.xattr_values().map_err(|error| error.to_string())?;
    let found: BTreeMap<String, Vec<u8>> = values
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
        .collect();
    let names = versions.iter().flat_map(|version| version.state.xattrs.keys()).chain(found.keys());
    for name in names {
        let value = found.get(name);
        if !versions.iter().any(|version| version.state.xattrs.get(name) == value) {
            return Err(format!("extended attribute {name} is of no version"));
        }
    }
    Ok(())
}

fn check_snapshots(run: &Run, pool: &LivePool, durable: u64, begun: u64) -> Result<(), Failure> {
    let view = pool.view()?;
    for (name, snapshot) in &run.model.snapshots {
        let must_be = snapshot.taken <= durable && snapshot.destroyed.is_none_or(|step| step > begun);
        let may_be = snapshot.taken <= begun && snapshot.destroyed.is_none_or(|step| step > durable);
        let dataset = match view.dsl().dataset(&format!("{POOL}@{name}")) {
            Ok(dataset) if may_be => dataset,
            Ok(_) => return wrong(format!("snapshot {name} should not be there")),
            Err(DslError::NotFound { .. }) if !must_be => continue,
            Err(error) => return Err(format!("snapshot {name}: {error}").into()),
        };
        let fs = Filesystem::open(dataset.open_objset()?)?;
        let objects = match_names(&snapshot.names, &walk(&fs)?);
        let objects = objects.map_err(|why| Wrong(format!("snapshot {name}: {why}")))?;
        for (id, object) in objects {
            let Some(state) = snapshot.files.get(&id) else { continue };
            let version = Version { step: snapshot.taken, state: Arc::clone(state) };
            check_file(&fs, object, &[&version])
                .map_err(|why| Wrong(format!("snapshot {name}, file {id}: {why}")))?;
        }
    }
    Ok(())
}
