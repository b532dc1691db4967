//! A full stream and the increments on it, opened read-only without receiving them into a pool of the user's.
//!
//! [`Chain::open`] reads the streams once, in any order of the files, and makes an *index*: a small pool in a file of
//! its own, into which the streams are received, but whose device (`device`) notes for each block whether it stands in
//! a stream file. What is left for the index is metadata. Blocks of streams that are compressed as files or can be read
//! once are stored in the index, compressed. Everything that reads pools then reads the streams: [`Chain::pool`].
//!
//! The index stays beside the file with the newest snapshot (`FILE.idx`). Opening the same files again reads only it.
//!
//! # What always holds
//! - Each byte of a file in a snapshot is verified twice: by the checksums of its stream when the index is made, and
//!   by the checksum in its block pointer whenever it is read.
//! - An index is used only for files of the same size, time of change and ends; otherwise, and if it is damaged, a new
//!   one takes its place. It appears under its name when it is complete. In a folder that cannot be written it is in a
//!   temporary file without a name.
//! - Stream files are never written.
//!
//! # Layers
//! `error`, `extents` -> `store` -> `device`; `unpack` -> `source`; `new_file`; `names` -> `pass` -> [`Chain`] -> `join`.
//!
//! Source: docs/on-disk/30-send-streams.md. Tests: `tests/it/chain.rs`, and in each module.
// Indexes are files of the user's, no devices.
#![allow(clippy::disallowed_types)]

mod device;
mod error;
mod extents;
mod join;
mod names;
mod new_file;
mod pass;
mod source;
mod store;
mod unpack;

pub use error::ChainError;
pub use pass::Progress;
pub use source::Input;
pub use store::ChainSnapshot;
pub use unpack::{Packing, unpacked};

use crate::memory::Budget;
use crate::{Dataset, Error, OpenOptions, Pool, PoolWriter};
use device::{Building, Indexed};
use dsl::prop::PropValue;
use format::{Ashift, CompressionId};
use new_file::NewFile;
use pass::{Cursor, Pass};
use pool::{CreateSpec, Layout, LeafSpec, LivePool, TopSpec};
use source::Source;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{DEVICE_MAX, Head};
use vdev::source::named::NamedDevices;
use vdev::{Devices, Env};

/// Name of the device of an index, as the pool knows it.
const DEVICE: &str = "index";
/// Ending of the name of an index.
const ENDING: &str = ".idx";
/// Smallest device of an index in bytes; it takes no space.
const DEVICE_MIN: u64 = 1 << 40;
/// Bytes of the device for each byte of a stream: what is written again, and what decompresses to more.
const DEVICE_SHARE: u64 = 4;
const DEVICE_SHARE_PACKED: u64 = 64;
/// Default of [`ChainOptions::cache_bytes`].
const CACHE: usize = 128 << 20;

/// How a chain is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainOptions {
    /// The file of the index; `None`: beside the file with the newest snapshot.
    pub index: Option<PathBuf>,
    /// A new index is made even if there is one.
    pub renew: bool,
    /// Upper bound of the block cache in bytes.
    pub cache_bytes: usize,
}

impl Default for ChainOptions {
    fn default() -> ChainOptions {
        ChainOptions { index: None, renew: false, cache_bytes: CACHE }
    }
}

/// The snapshots of some streams, open for reading.
#[derive(Clone)]
pub struct Chain {
    pool: Pool,
    snapshots: Vec<ChainSnapshot>,
    /// What the pool is called in front of the senders' names: nothing, or its name and a slash.
    prefix: String,
}

impl Chain {
    /// Opens streams: full ones, and increments that follow each other, in any order. Packages (`zfs send -R`, `-I`)
    /// may be among them.
    ///
    /// # Errors
    /// [`ChainError`]: a file cannot be read, a stream is damaged, the start of an increment is missing, or two
    /// increments start from the same snapshot.
    pub fn open(
        inputs: Vec<Input>,
        options: &ChainOptions,
        progress: Progress<'_>,
    ) -> Result<Chain, ChainError> {
        let mut sources: Vec<Source> = inputs.into_iter().map(Source::open).collect::<Result<_, _>>()?;
        let place = match &options.index {
            Some(file) => Some(file.clone()),
            None => beside(&sources)?,
        };
        if let Some(place) = place.as_deref().filter(|_| !options.renew)
            && let Some(chain) = reopened(place, &sources, options)
        {
            return Ok(chain);
        }
        let own = NewFile::create(place.as_deref(), options.index.is_some())?;
        let head = build(&mut sources, own.file(), progress, own.name())?;
        let file = own.keep()?;
        let files = sources.iter().map(Source::plain).collect();
        Ok(Chain::over(file, files, head, options)?)
    }

    /// The chain over a complete index.
    fn over(
        own: File,
        files: Vec<Option<Arc<File>>>,
        head: Head,
        options: &ChainOptions,
    ) -> Result<Chain, Error> {
        let devices = NamedDevices::new();
        let (snapshots, prefix, name) = (head.snapshots.clone(), head.prefix.clone(), head.pool.clone());
        devices.insert(DEVICE, Arc::new(Indexed::new(own, files, head)));
        let open = OpenOptions::new().devices(Devices::new(devices)).search(DEVICE);
        let pool = Pool::open(&name, &open.cache_bytes(options.cache_bytes))?;
        Ok(Chain { pool, snapshots, prefix })
    }

    /// The pool in which the snapshots are. It has their senders' names, if those are of one pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The snapshots, in the order in which they follow each other.
    pub fn snapshots(&self) -> &[ChainSnapshot] {
        &self.snapshots
    }

    /// Full name of a snapshot, or of a dataset, in [`Chain::pool`].
    pub fn name_in_pool(&self, sent: &str) -> String {
        format!("{}{sent}", self.prefix)
    }

    /// The snapshot that `name` names: `dataset@snapshot`, `@snapshot` of the only dataset that has it or of the one
    /// above all others, or a dataset for its newest. An empty name is the newest of the dataset above all others.
    ///
    /// # Errors
    /// [`ChainError::NoSnapshot`], [`ChainError::Ambiguous`].
    pub fn find(&self, name: &str) -> Result<&ChainSnapshot, ChainError> {
        let (dataset, snapshot) = match name.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot)),
            None => (name, None),
        };
        let is_of = |found: &&ChainSnapshot| {
            (dataset.is_empty() || found.dataset == dataset)
                && snapshot.is_none_or(|snapshot| found.snapshot == snapshot)
        };
        let found: Vec<&ChainSnapshot> = self.snapshots.iter().filter(is_of).collect();
        let top = found.iter().min_by_key(|found| found.dataset.len());
        let Some(top) = top else { return Err(ChainError::NoSnapshot { name: name.to_owned() }) };
        let below = format!("{}/", top.dataset);
        if found.iter().any(|found| found.dataset != top.dataset && !found.dataset.starts_with(&below)) {
            let mut datasets: Vec<String> = found.iter().map(|found| found.dataset.clone()).collect();
            datasets.sort();
            datasets.dedup();
            return Err(ChainError::Ambiguous { name: name.to_owned(), datasets });
        }
        let newest = found.iter().rev().find(|found| found.dataset == top.dataset);
        newest.copied().ok_or_else(|| ChainError::NoSnapshot { name: name.to_owned() })
    }

    /// A snapshot of the chain, for reading its files.
    ///
    /// # Errors
    /// [`Error::Dsl`] if it cannot be read.
    pub fn dataset(&self, snapshot: &ChainSnapshot) -> Result<Dataset, Error> {
        let name = format!("{}@{}", snapshot.dataset, snapshot.snapshot);
        self.pool.dataset(&self.name_in_pool(&name))
    }
}

/// The index beside the file with the newest snapshot; `None`: some streams can be read only once.
fn beside(sources: &[Source]) -> Result<Option<PathBuf>, ChainError> {
    if sources.is_empty() {
        return Err(ChainError::NoFiles);
    }
    if sources.iter().any(|source| source.identity.is_none()) {
        return Ok(None);
    }
    let newest = sources.iter().max_by_key(|source| (source.created, source.name.clone()));
    Ok(newest.map(|source| {
        let mut name = source.name.clone().into_os_string();
        name.push(ENDING);
        name.into()
    }))
}

/// The chain over an existing index, if it is whole and of these files.
fn reopened(place: &Path, sources: &[Source], options: &ChainOptions) -> Option<Chain> {
    let own = new_file::open_own(place).ok()?;
    let head = store::read_head(&own).ok()?;
    let is_used = |source: &Source| source.identity.as_ref().is_some_and(|own| head.files.contains(own));
    if !sources.iter().all(is_used) {
        return None;
    }
    let of = |identity| sources.iter().find(|source| source.identity.as_ref() == Some(identity));
    let files = head.files.iter().map(|identity| of(identity).map(Source::plain));
    let files = files.collect::<Option<Vec<_>>>()?;
    Chain::over(own, files, head, options).ok()
}

/// Makes an index in an empty file.
fn build(
    sources: &mut [Source],
    own: &File,
    progress: Progress<'_>,
    path: &Path,
) -> Result<Head, ChainError> {
    let mut cursors = Vec::with_capacity(sources.len());
    for (number, source) in sources.iter_mut().enumerate() {
        cursors.push(Cursor::new(number, source)?);
    }
    let index = |cause| ChainError::Index { file: path.to_owned(), cause };
    let name = names::pool_for(cursors.iter().filter_map(Cursor::begin));
    let files: Vec<_> = sources.iter().map(Source::plain).collect();
    let is_stored = files.iter().any(Option::is_none);
    let own = own.try_clone().map_err(index)?;
    let device = Arc::new(Building::new(device_size(sources), own, files));
    let pool = new_pool(&name, &device, is_stored)?;
    let snapshots = Pass::new(&pool, &device, progress).run(cursors)?;
    pool.close()?;
    let is_otherwise = name == names::OTHERWISE;
    let mut head = Head {
        prefix: if is_otherwise { format!("{name}/") } else { String::new() },
        pool: name,
        // Without an identity for each, the index cannot be used again.
        files: sources
            .iter()
            .map(|source| source.identity.clone())
            .collect::<Option<_>>()
            .unwrap_or_default(),
        snapshots,
        ..Head::default()
    };
    device.finish(head.clone()).map_err(index)?;
    head = store::read_head(device.own()).map_err(index)?;
    Ok(head)
}

/// Bytes of the device for these streams.
fn device_size(sources: &[Source]) -> u64 {
    let share = |source: &Source| {
        let share = if source.plain().is_some() { DEVICE_SHARE } else { DEVICE_SHARE_PACKED };
        source.identity.as_ref().map_or(DEVICE_MIN, |file| file.size).saturating_mul(share)
    };
    let needed = sources.iter().map(share).fold(0, u64::saturating_add);
    needed.clamp(DEVICE_MIN, DEVICE_MAX).next_power_of_two()
}

/// An empty pool on the device. Blocks are written as they are in the streams, unless they are stored.
fn new_pool(name: &str, device: &Arc<Building>, is_stored: bool) -> Result<PoolWriter, Error> {
    let leaf = LeafSpec::file(DEVICE, Arc::clone(device) as _);
    let top = TopSpec {
        layout: Layout::Single,
        class: pool::space::Class::Normal,
        ashift: Some(Ashift(9)),
        leaves: vec![leaf],
    };
    let Budget { cache_bytes, limits } = Budget::of_command();
    let mut spec = CreateSpec { cache_bytes, limits, ..CreateSpec::new(name, vec![top]) };
    if !is_stored {
        let off = PropValue::Number(CompressionId::Off.id().into());
        spec.root.props.push(("compression".to_owned(), off));
    }
    let live = LivePool::create(spec, Env::system())?;
    live.start();
    Ok(PoolWriter::of(live))
}
