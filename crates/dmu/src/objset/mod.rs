//! Open object sets: from the pointer in a dataset to objects by number.

pub(crate) mod accounting;
pub(crate) mod live;
pub(crate) mod numbers;
pub(crate) mod policy;
pub(crate) mod sync;

use crate::LiveSet;
use crate::loop_guard::Memory;
use crate::set_blocks::{KeyState, Lease, SetBlocks};
use crate::sync::{Arc, Mutex, lock};
use crate::{DmuError, Object, Store};
use format::dnode::{Dnode, SLOT_SIZE};
use format::objset::{ObjsetPhys, ObjsetType};
use format::{BlockId, BlockPtr, Level, ObjectId};

/// An object set that is open for reading.
pub struct ObjSet {
    blocks: Arc<SetBlocks>,
    root: BlockPtr,
    phys: ObjsetPhys,
    /// Blocks of dnodes that [`ObjSet::next_object`] has met.
    met: Mutex<Memory>,
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
        Ok(ObjSet::of_blocks(Arc::new(blocks), *root, phys, None))
    }

    /// Opens another object set of the same state of the same pool.
    ///
    /// # Errors
    /// Those of [`ObjSet::open`].
    pub fn open_other(&self, root: &BlockPtr, number: u64, key: KeyState) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(self.store(), self.blocks.lease.clone(), root, number, key)
    }

    /// A set whose root block is known. With `live`, objects are read in their newest state.
    pub(crate) fn of_blocks(
        blocks: Arc<SetBlocks>,
        root: BlockPtr,
        phys: ObjsetPhys,
        live: Option<Arc<LiveSet>>,
    ) -> Arc<ObjSet> {
        Arc::new(ObjSet { blocks, root, phys, met: Mutex::default(), live })
    }

    /// The source of its blocks.
    pub(crate) fn blocks(&self) -> &Arc<SetBlocks> {
        &self.blocks
    }

    /// Whether the tree of an object on disk references `bp` as its data block `blkid`. Returns false also if
    /// that cannot be read.
    pub fn leads_to(self: &Arc<Self>, object: ObjectId, blkid: BlockId, bp: &BlockPtr) -> bool {
        self.object(object).is_ok_and(|object| {
            object.dnode().maxblkid >= blkid
                && object.block_ptr(Level(0), blkid).is_ok_and(|now| !now.is_hole() && now == *bp)
        })
    }

    /// The writable set whose newest state this shows; `None`: it shows the state on disk.
    pub fn live(&self) -> Option<&Arc<LiveSet>> {
        self.live.as_ref()
    }

    /// The decoded root block.
    pub fn phys(&self) -> &ObjsetPhys {
        &self.phys
    }

    /// Kind of the set's contents.
    pub fn kind(&self) -> ObjsetType {
        self.phys.kind
    }

    /// Number of the dataset's object in the MOS; 0 for the MOS.
    pub fn number(&self) -> u64 {
        self.blocks.number
    }

    /// The store of its blocks.
    pub fn store(&self) -> &Arc<Store> {
        &self.blocks.store
    }

    /// The pointer to its root block.
    pub fn root(&self) -> &BlockPtr {
        &self.root
    }

    /// The state of its key.
    pub fn key(&self) -> &KeyState {
        &self.blocks.key
    }

    /// Whether the set is encrypted and its key not loaded: only authenticated data can be read.
    pub fn is_locked(&self) -> bool {
        matches!(self.key(), KeyState::Locked)
    }

    /// The object of the dnode array.
    pub fn meta_object(self: &Arc<Self>) -> Object {
        Object::new(Arc::clone(self), ObjectId(0), Arc::new(self.phys.meta_dnode.clone()))
    }

    /// Opens the object with this number.
    ///
    /// # Errors
    /// [`DmuError::NoObject`] if the number is free, inside a larger dnode, or out of range.
    pub fn object(self: &Arc<Self>, id: ObjectId) -> Result<Object, DmuError> {
        if let Some(live) = &self.live {
            return Ok(live.object(id)?.read_through(Arc::clone(self)));
        }
        let none = DmuError::NoObject { objset: self.number(), object: id };
        if let Some(dnode) = self.phys.accounting_dnode(id) {
            return Ok(Object::new(Arc::clone(self), id, Arc::new(dnode.clone())));
        }
        if id.0 == 0 || id.0 >= ObjectId::LIMIT {
            return Err(none);
        }
        let per_block = self.slots_per_block();
        let Some(block) = self.meta_object().block(BlockId(id.0 / per_block))? else { return Err(none) };
        let wanted = (id.0 % per_block) as usize;
        for (slot, bytes) in DnodeSlots::new(block.bytes()) {
            if slot == wanted {
                let dnode = self.decode(id, bytes, &block)?.ok_or(none)?;
                return Ok(Object::new(Arc::clone(self), id, Arc::new(dnode)));
            }
        }
        Err(none)
    }

    /// The first object with a number of at least `from`, in order of numbers. Fails if the tree of the
    /// dnodes repeats itself: such a walk would not end.
    pub fn next_object(self: &Arc<Self>, from: ObjectId) -> Result<Option<Object>, DmuError> {
        if let Some(live) = &self.live {
            return Ok(live.next_object(from)?.map(|object| object.read_through(Arc::clone(self))));
        }
        let per_block = self.slots_per_block();
        let meta = self.meta_object();
        let mut next = from.0.max(1);
        while let Some(offset) = meta.next_data(next.saturating_mul(SLOT_SIZE as u64))? {
            next = next.max(offset / SLOT_SIZE as u64);
            if next >= ObjectId::LIMIT {
                break;
            }
            let blkid = next / per_block;
            // Unless a walk continues in a block that it has met already.
            if blkid > from.0 / per_block {
                let bp = meta.block_ptr(Level(0), BlockId(blkid))?;
                let mut met = lock(&self.met);
                if !met.note(&bp, blkid) {
                    return Err(meta.corrupt("its tree repeats itself"));
                }
            }
            if let Some(block) = meta.block(BlockId(blkid))? {
                for (slot, bytes) in DnodeSlots::new(block.bytes()) {
                    let id = ObjectId(blkid * per_block + slot as u64);
                    if id.0 >= next
                        && id.0 != 0
                        && bytes.first().is_some_and(|kind| *kind != 0)
                        && let Some(dnode) = self.decode(id, bytes, &block)?
                    {
                        return Ok(Some(Object::new(Arc::clone(self), id, Arc::new(dnode))));
                    }
                }
            }
            next = (blkid + 1) * per_block;
        }
        Ok(None)
    }

    fn slots_per_block(&self) -> u64 {
        (self.phys.meta_dnode.data_block_size() / SLOT_SIZE as u64).max(1)
    }

    fn decode(&self, id: ObjectId, bytes: &[u8], block: &zio::Block) -> Result<Option<Dnode>, DmuError> {
        Dnode::decode(bytes, block.order()).map_err(|source| self.blocks.decode_error(id, source))
    }
}

/// The dnodes of a block, each with the number of its first slot and the bytes from there on. Slots inside a
/// larger dnode are skipped.
pub(crate) struct DnodeSlots<'a> {
    bytes: &'a [u8],
    slot: usize,
}

impl<'a> DnodeSlots<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> DnodeSlots<'a> {
        DnodeSlots { bytes, slot: 0 }
    }
}

impl<'a> Iterator for DnodeSlots<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.slot * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE)?;
        let slot = self.slot;
        self.slot += Dnode::slots_at(rest);
        Some((slot, rest))
    }
}
