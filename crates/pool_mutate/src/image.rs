//! The device images of one pool, open for changes.

use crate::{MutateError, Result};
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

/// Bytes of block cache of the opened pool.
const CACHE: usize = 16 << 20;
/// Most removed vdevs that an address is followed through.
const REMOVALS_MAX: usize = 16;

/// The destination of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The image files.
    Files,
    /// Memory; the files stay as they are.
    Memory,
}

/// The devices of a pool, and the pool as it was before any change.
pub struct Image {
    /// The devices, with the labels read when the image was opened.
    pub found: Found,
    /// The pool on these devices.
    pub pool: Arc<Pool>,
}

impl Image {
    /// Opens the pool of this name from image files.
    ///
    /// # Errors
    /// Fails if a file cannot be opened for writing, or if the pool cannot be opened.
    pub fn open(paths: Vec<PathBuf>, name: &str, backing: Backing) -> Result<Image> {
        let mut found = Search::in_paths(paths).run();
        let mut writable: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
        if backing == Backing::Files {
            let opened = found.open_exclusive(|_| true, Access::Cached, &found.source());
            if let Some((_, _, error)) = opened.failures.into_iter().next() {
                return Err(MutateError::Device(error));
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

    /// The block layer of the pool.
    pub(crate) fn zio(&self) -> &Arc<Zio> {
        self.pool.store().zio()
    }

    /// Reads a block as it is on disk now. In an encrypted block of dnodes the bonus areas stay encrypted.
    ///
    /// # Errors
    /// Fails if the block is damaged or its contents are encrypted.
    pub(crate) fn read(&self, bp: &BlockPtr) -> Result<Block> {
        Ok(self.zio().read(bp, &ReadPolicy::default())?)
    }

    /// Follows an address through the mappings of removed vdevs to the vdev and offset where the first byte
    /// of the block is now. Pointers to one block may carry its addresses from before and after a removal.
    pub(crate) fn resolve(&self, dva: &Dva) -> (VdevId, AllocOffset) {
        let (mut vdev, mut offset) = (dva.vdev, dva.offset);
        for _ in 0..REMOVALS_MAX {
            let Some(mapping) = self.pool.tree().indirect(vdev) else { break };
            let covers = |entry: &&MapEntry| entry.src.0 <= offset.0 && offset.0 - entry.src.0 < entry.len;
            let Some(entry) = mapping.entries().iter().find(covers) else { break };
            (vdev, offset) = (entry.dst.vdev, AllocOffset(entry.dst.offset.0 + (offset.0 - entry.src.0)));
        }
        (vdev, offset)
    }

    /// Whether the pool has this feature active.
    pub(crate) fn has_active(&self, feature: &str) -> bool {
        self.pool.features().is_active(feature)
    }
}
