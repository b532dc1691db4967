//! An open object set: from the pointer in a dataset to objects by number.

pub(crate) mod accounting;
pub(crate) mod dnode_slots;
pub(crate) mod image;
pub(crate) mod live;
pub(crate) mod live_objects;
mod lookup;
pub(crate) mod new_object;
pub(crate) mod numbers;
pub(crate) mod policy;
pub(crate) mod sync;

use crate::set_blocks::{KeyState, Lease, SetBlocks};
use crate::sync::Arc;
use crate::{DmuError, LiveSet, Store};
use format::BlockPtr;
use format::objset::{ObjsetPhys, ObjsetType};
use image::SetImage;

/// An open object set.
pub struct ObjSet {
    image: Arc<SetImage>,
    /// The writable set that this shows in its newest state.
    live: Option<Arc<LiveSet>>,
}

impl ObjSet {
    /// Opens the object set at `root`; `number` is the dataset's object in the pool's own set (0 for
    /// that set itself), used to say where something is wrong. With a key, its MACs are verified.
    ///
    /// # Errors
    /// [`DmuError::Empty`] if it was never written; otherwise why its block cannot be read.
    pub fn open(
        store: &Arc<Store>,
        root: &BlockPtr,
        number: u64,
        key: KeyState,
    ) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(store, None, root, number, key)
    }

    /// The same of a pool that others change: `lease` keeps what `root` leads to, while it can.
    ///
    /// # Errors
    /// As of [`ObjSet::open`].
    pub fn open_leased(
        store: &Arc<Store>,
        lease: Option<Arc<dyn Lease>>,
        root: &BlockPtr,
        number: u64,
        key: KeyState,
    ) -> Result<Arc<ObjSet>, DmuError> {
        let blocks = SetBlocks { store: Arc::clone(store), number, key, lease };
        let phys = blocks.read_root(root)?;
        let image = Arc::new(SetImage::new(Arc::new(blocks), *root, phys));
        Ok(Arc::new(ObjSet { image, live: None }))
    }

    /// Another object set of the same state of the same pool.
    ///
    /// # Errors
    /// As of [`ObjSet::open`].
    pub fn open_other(&self, root: &BlockPtr, number: u64, key: KeyState) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(self.store(), self.blocks().lease.clone(), root, number, key)
    }

    /// Its state on disk.
    pub(crate) fn image(&self) -> &SetImage {
        &self.image
    }

    /// What its blocks are read with.
    pub(crate) fn blocks(&self) -> &Arc<SetBlocks> {
        self.image.blocks()
    }

    /// The writable set that this shows, if it shows one.
    pub fn live(&self) -> Option<&Arc<LiveSet>> {
        self.live.as_ref()
    }

    /// The root block.
    pub fn phys(&self) -> &ObjsetPhys {
        self.image.phys()
    }

    /// What it holds.
    pub fn kind(&self) -> ObjsetType {
        self.phys().kind
    }

    /// The dataset's object in the pool's own set; 0 for that set.
    pub fn number(&self) -> u64 {
        self.blocks().number
    }

    /// Where its blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        &self.blocks().store
    }

    /// The pointer to its root block.
    pub fn root(&self) -> &BlockPtr {
        self.image.root()
    }

    /// The state of its key.
    pub fn key(&self) -> &KeyState {
        &self.blocks().key
    }

    /// Is encrypted, and cannot be read beyond what is only authenticated.
    pub fn is_locked(&self) -> bool {
        matches!(self.key(), KeyState::Locked)
    }
}

impl LiveSet {
    /// A reading handle that sees the newest state.
    pub fn view(self: &Arc<Self>) -> Arc<ObjSet> {
        Arc::new(ObjSet { image: self.image(), live: Some(Arc::clone(self)) })
    }
}
