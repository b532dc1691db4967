//! Open object sets: from the pointer in a dataset to objects by number.

pub(crate) mod accounting;
pub(crate) mod dnode_slots;
pub(crate) mod image;
pub(crate) mod live;
pub(crate) mod live_objects;
mod lookup;
pub(crate) mod new_object;
pub(crate) mod numbers;
pub(crate) mod policy;
pub(crate) mod raw;
pub(crate) mod sync;

use crate::set_blocks::{KeyState, Lease, SetBlocks};
use crate::sync::Arc;
use crate::{DmuError, LiveSet, Store};
use format::BlockPtr;
use format::objset::{ObjsetPhys, ObjsetType};
use image::SetImage;

/// An object set that is open for reading.
pub struct ObjSet {
    image: Arc<SetImage>,
    /// The writable set whose newest state this shows; `None`: it shows the state on disk.
    live: Option<Arc<LiveSet>>,
}

impl ObjSet {
    /// Opens the object set at `root`; `number` is that of the dataset's object in the MOS (0 for the MOS
    /// itself), used in errors. With a key, its MACs are verified.
    ///
    /// # Errors
    /// [`DmuError::Empty`] if it was never written; otherwise the error of reading its root block.
    pub fn open(
        store: &Arc<Store>,
        root: &BlockPtr,
        number: u64,
        key: KeyState,
    ) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(store, None, root, number, key)
    }

    /// Opens an object set of a pool that others change: `lease` holds the blocks of `root`, as long as it
    /// can.
    ///
    /// # Errors
    /// Those of [`ObjSet::open`].
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

    /// Opens another object set of the same state of the same pool.
    ///
    /// # Errors
    /// Those of [`ObjSet::open`].
    pub fn open_other(&self, root: &BlockPtr, number: u64, key: KeyState) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(self.store(), self.blocks().lease.clone(), root, number, key)
    }

    /// Its state on disk.
    pub(crate) fn image(&self) -> &SetImage {
        &self.image
    }

    /// The source of its blocks.
    pub(crate) fn blocks(&self) -> &Arc<SetBlocks> {
        self.image.blocks()
    }

    /// The writable set whose newest state this shows; `None`: it shows the state on disk.
    pub(crate) fn live(&self) -> Option<&Arc<LiveSet>> {
        self.live.as_ref()
    }

    /// The decoded root block.
    pub fn phys(&self) -> &ObjsetPhys {
        self.image.phys()
    }

    /// Kind of the set's contents.
    pub fn kind(&self) -> ObjsetType {
        self.phys().kind
    }

    /// Number of the dataset's object in the MOS; 0 for the MOS.
    pub fn number(&self) -> u64 {
        self.blocks().number
    }

    /// The store of its blocks.
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

    /// Whether the set is encrypted and its key not loaded: only authenticated data can be read.
    pub fn is_locked(&self) -> bool {
        matches!(self.key(), KeyState::Locked)
    }
}

impl LiveSet {
    /// A reading handle that shows the newest state.
    pub fn view(self: &Arc<Self>) -> Arc<ObjSet> {
        Arc::new(ObjSet { image: self.image(), live: Some(Arc::clone(self)) })
    }
}
