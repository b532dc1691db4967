//! The images of one pool, open for changes.

use crate::{ForgeError, Result};
use format::{AllocOffset, BlockPtr, Dva, VdevGuid, VdevId};
use pool::{OpenOptions, Pool, Which};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::device::Device;
use vdev::device::file::Access;
use vdev::device::overlay::OverlayDevice;
use vdev::scan::{Found, Search};
use vdev::tree::MapEntry;
use zio::{Block, ReadPolicy, Zio};

/// Bytes of cache for what is read through the pool itself.
const CACHE: usize = 16 << 20;
/// Vdevs that may have been removed one after the other.
const REMOVALS_MAX: usize = 16;

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Into the files.
    Files,
    /// Into memory; the files stay as they are.
    Memory,
}

/// The devices of a pool, and the pool as it was before anything was changed.
pub struct Image {
    /// The devices, with what their labels said at the beginning.
    pub found: Found,
    /// The pool on them.
    pub pool: Arc<Pool>,
}

impl Image {
    /// Opens the pool of this name in these files.
    ///
    /// # Errors
    /// If a file cannot be opened for writing, or the pool not at all.
    pub fn open(paths: Vec<PathBuf>, name: &str, backing: Backing) -> Result<Image> {
        let mut found = Search::in_paths(paths).run();
        let mut writable: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
        if backing == Backing::Files {
            let opened = found.open_exclusive(|_| true, Access::Cached);
            if let Some((_, _, error)) = opened.failures.into_iter().next() {
                return Err(ForgeError::Device(error));
            }
            writable = opened.devices;
        }
        for leaf in &mut found.leaves {
            leaf.device = match leaf.probe.guid().and_then(|guid| writable.get(&guid)) {
                Some(device) => Arc::clone(device),
                None => Arc::new(OverlayDevice::new(Arc::clone(&leaf.device))),
            };
        }
        let options = OpenOptions {
            cache_bytes: CACHE,
            allow_missing_logs: true,
            allow_missing_tops: true,
            ..OpenOptions::default()
        };
        let pool = Pool::open(&found, &Which::Name(name.to_owned()), &options)?;
        Ok(Image { found, pool })
    }

    /// Reads and writes its blocks.
    pub fn zio(&self) -> &Arc<Zio> {
        self.pool.store().zio()
    }

    /// The contents of a block as they are on disk now; of encrypted dnodes with their bonuses
    /// as they are.
    ///
    /// # Errors
    /// If the block is damaged or its contents are encrypted.
    pub fn read(&self, bp: &BlockPtr) -> Result<Block> {
        Ok(self.zio().read(bp, &ReadPolicy::default())?)
    }

    /// Where the first byte of a block is, wherever removals have moved it since: blocks may be known by
    /// their old and their new places.
    pub fn place_of(&self, dva: &Dva) -> (VdevId, AllocOffset) {
        let (mut vdev, mut offset) = (dva.vdev, dva.offset);
        for _ in 0..REMOVALS_MAX {
            let Some(mapping) = self.pool.tree().indirect(vdev) else { break };
            let covers = |entry: &&MapEntry| entry.src.0 <= offset.0 && offset.0 - entry.src.0 < entry.len;
            let Some(entry) = mapping.entries().iter().find(covers) else { break };
            (vdev, offset) = (entry.dst.vdev, AllocOffset(entry.dst.offset.0 + (offset.0 - entry.src.0)));
        }
        (vdev, offset)
    }

    /// Whether a feature is in use.
    pub fn has_active(&self, feature: &str) -> bool {
        self.pool.features().is_active(feature)
    }
}
