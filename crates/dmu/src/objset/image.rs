//! An object set as it is on disk: its root block, and dnodes by number.

use crate::DmuError;
use crate::loop_guard::Memory;
use crate::object::disk_tree::DiskTree;
use crate::objset::dnode_slots::DnodeSlots;
use crate::set_blocks::SetBlocks;
use crate::sync::{Arc, Mutex, lock};
use format::dnode::{Dnode, SLOT_SIZE};
use format::objset::ObjsetPhys;
use format::{BlockId, BlockPtr, Level, ObjectId};

/// An object set as it is on disk.
pub(crate) struct SetImage {
    blocks: Arc<SetBlocks>,
    root: BlockPtr,
    phys: ObjsetPhys,
    /// Blocks of dnodes that [`SetImage::next_dnode`] has met.
    met: Mutex<Memory>,
}

impl SetImage {
    /// The set whose root block, to which `root` points, holds `phys`.
    pub(crate) fn new(blocks: Arc<SetBlocks>, root: BlockPtr, phys: ObjsetPhys) -> SetImage {
        SetImage { blocks, root, phys, met: Mutex::default() }
    }

    /// The source of its blocks.
    pub(crate) fn blocks(&self) -> &Arc<SetBlocks> {
        &self.blocks
    }

    /// The pointer to its root block.
    pub(crate) fn root(&self) -> &BlockPtr {
        &self.root
    }

    /// The decoded root block.
    pub(crate) fn phys(&self) -> &ObjsetPhys {
        &self.phys
    }

    /// The dnode with this number; `None` if the number is free, inside a larger dnode, or out of range.
    ///
    /// # Errors
    /// [`DmuError`] if the block of the dnode cannot be read, or the dnode is damaged.
    pub(crate) fn dnode(&self, id: ObjectId) -> Result<Option<Dnode>, DmuError> {
        if let Some(dnode) = self.phys.accounting_dnode(id) {
            return Ok(Some(dnode.clone()));
        }
        if id.0 == 0 || id.0 >= ObjectId::LIMIT {
            return Ok(None);
        }
        let per_block = self.slots_per_block();
        let Some(block) = self.block(&self.tree(), id.0 / per_block)? else { return Ok(None) };
        let wanted = (id.0 % per_block) as usize;
        match DnodeSlots::new(block.bytes()).find(|(slot, _)| *slot == wanted) {
            Some((_, bytes)) => self.decode(id, bytes, &block),
            None => Ok(None),
        }
    }

    /// The first dnode with a number of at least `from`, and its number.
    ///
    /// # Errors
    /// [`DmuError`] if a block of dnodes cannot be read or is damaged, or the tree of the dnodes repeats itself: such
    /// a walk would not end.
    pub(crate) fn next_dnode(&self, from: ObjectId) -> Result<Option<(ObjectId, Dnode)>, DmuError> {
        let per_block = self.slots_per_block();
        let tree = self.tree();
        let mut next = from.0.max(1);
        while let Some(start) = self.next_stored(&tree, next)? {
            next = next.max(start);
            if next >= ObjectId::LIMIT {
                break;
            }
            let blkid = next / per_block;
            // Unless a walk continues in a block that it has met already.
            if blkid > from.0 / per_block {
                let bp = tree.pointer(Level(0), BlockId(blkid))?;
                let mut met = lock(&self.met);
                if !met.note(&bp, blkid) {
                    return Err(tree.corrupt("its tree repeats itself"));
                }
            }
            if let Some(block) = self.block(&tree, blkid)? {
                for (slot, bytes) in DnodeSlots::new(block.bytes()) {
                    let id = ObjectId(blkid * per_block + slot as u64);
                    if id.0 >= next
                        && id.0 != 0
                        && bytes.first().is_some_and(|kind| *kind != 0)
                        && let Some(dnode) = self.decode(id, bytes, &block)?
                    {
                        return Ok(Some((id, dnode)));
                    }
                }
            }
            next = (blkid + 1) * per_block;
        }
        Ok(None)
    }

    /// The tree of the array of dnodes.
    fn tree(&self) -> DiskTree {
        let dnode = Arc::new(self.phys.meta_dnode.clone());
        DiskTree::new(Arc::clone(&self.blocks), ObjectId(0), dnode)
    }

    /// The first slot at or after `slot` that is in a block of dnodes, not a hole.
    fn next_stored(&self, tree: &DiskTree, slot: u64) -> Result<Option<u64>, DmuError> {
        let size = self.phys.meta_dnode.data_block_size();
        let offset = slot.saturating_mul(SLOT_SIZE as u64);
        let found = tree.next(offset / size, true)?;
        Ok(found.map(|blkid| offset.max(blkid.saturating_mul(size)) / SLOT_SIZE as u64))
    }

    fn block(&self, tree: &DiskTree, blkid: u64) -> Result<Option<zio::Block>, DmuError> {
        tree.block(BlockId(blkid)).inspect_err(|error| self.blocks.store.tell(error, BlockId(blkid)))
    }

    fn slots_per_block(&self) -> u64 {
        (self.phys.meta_dnode.data_block_size() / SLOT_SIZE as u64).max(1)
    }

    fn decode(&self, id: ObjectId, bytes: &[u8], block: &zio::Block) -> Result<Option<Dnode>, DmuError> {
        Dnode::decode(bytes, block.order()).map_err(|source| self.blocks.decode_error(id, source))
    }
}
