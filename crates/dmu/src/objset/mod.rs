//! An open object set: from the pointer in a dataset to objects by number.

pub(crate) mod accounting;
pub(crate) mod live;
pub(crate) mod numbers;
pub(crate) mod policy;
pub(crate) mod sync;

use crate::LiveSet;
use crate::loop_guard::Memory;
use crate::sync::{Arc, Mutex, PoisonError};
use crate::{DmuError, Object, Store};
use codec::crypt::{DataKey, block as crypt_block};
use format::dnode::{Dnode, SLOT_SIZE};
use format::objset::{FLAG_USERACCOUNTING_COMPLETE, ObjsetPhys, ObjsetType};
use format::{BlockId, BlockPtr, Level, ObjType, ObjectId};
use zio::ZioError;

/// What is known about the key of an object set.
#[derive(Clone, Default)]
pub enum KeyState {
    /// Not encrypted.
    #[default]
    None,
    /// Encrypted, and the key is not loaded: what is only authenticated can be read, unchecked.
    Locked,
    /// Encrypted, with its key.
    Key(Arc<DataKey>),
}

impl KeyState {
    /// The key, if there is one.
    pub fn key(&self) -> Option<&DataKey> {
        match self {
            KeyState::Key(key) => Some(key),
            KeyState::None | KeyState::Locked => None,
        }
    }
}

/// A state of a pool that others change, for as long as somebody reads it.
pub trait Lease: Send + Sync {
    /// What was freed since that state may have been overwritten by now.
    fn has_lapsed(&self) -> bool;

    /// The object set of this dataset (0: the pool's own) in the newest state that is on disk; `None` if there is none.
    fn newest(&self, number: u64) -> Option<Arc<ObjSet>>;
}

/// An open object set.
pub struct ObjSet {
    store: Arc<Store>,
    /// It shows a state of a pool that others change. Held as long as anybody reads it.
    lease: Option<Arc<dyn Lease>>,
    root: BlockPtr,
    number: u64,
    phys: ObjsetPhys,
    key: KeyState,
    /// Blocks of dnodes that [`ObjSet::next_object`] has met.
    met: Mutex<Memory>,
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
        if root.is_hole() {
            return Err(DmuError::Empty { objset: number });
        }
        let at_root = |source| DmuError::Zio { objset: number, object: ObjectId(0), source };
        if root.obj_type() != ObjType::OBJSET {
            return Err(DmuError::Corrupt {
                objset: number,
                object: ObjectId(0),
                why: "the root is not an object set",
            });
        }
        let block = store.read(root, key.key()).map_err(at_root)?;
        let phys = ObjsetPhys::decode(block.bytes(), block.order()).map_err(|source| DmuError::Decode {
            objset: number,
            object: ObjectId(0),
            source,
        })?;
        if let (Some(key), true) = (key.key(), root.uses_crypt()) {
            let (portable, local) = crypt_block::objset_macs(key, block.bytes(), block.order())
                .map_err(|source| at_root(ZioError::Crypt { bp: *root, source }))?;
            let local_applies = phys.flags & FLAG_USERACCOUNTING_COMPLETE != 0 && phys.local_mac != [0; 32];
            if portable != phys.portable_mac || (local_applies && local != phys.local_mac) {
                let source = codec::crypt::CryptError::Authentication;
                return Err(at_root(ZioError::Crypt { bp: *root, source }));
            }
        }
        Ok(Arc::new(ObjSet {
            store: Arc::clone(store),
            lease,
            root: *root,
            number,
            phys,
            key,
            met: Mutex::default(),
            live: None,
        }))
    }

    /// Another object set of the same state of the same pool.
    ///
    /// # Errors
    /// As of [`ObjSet::open`].
    pub fn open_other(&self, root: &BlockPtr, number: u64, key: KeyState) -> Result<Arc<ObjSet>, DmuError> {
        ObjSet::open_leased(&self.store, self.lease.clone(), root, number, key)
    }

    /// A set whose root block is known. With `live`, objects are read in their newest state.
    pub(crate) fn of_parts(
        store: &Arc<Store>,
        root: BlockPtr,
        number: u64,
        phys: ObjsetPhys,
        live: Option<Arc<LiveSet>>,
    ) -> Arc<ObjSet> {
        let store = Arc::clone(store);
        let (lease, key) = (None, KeyState::None);
        Arc::new(ObjSet { store, lease, root, number, phys, key, met: Mutex::default(), live })
    }

    /// The writable set that this shows, if it shows one.
    pub fn live(&self) -> Option<&Arc<LiveSet>> {
        self.live.as_ref()
    }

    /// The root block.
    pub fn phys(&self) -> &ObjsetPhys {
        &self.phys
    }

    /// What it holds.
    pub fn kind(&self) -> ObjsetType {
        self.phys.kind
    }

    /// The dataset's object in the pool's own set; 0 for that set.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where its blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What keeps the state of the pool that it shows, if others change that pool.
    pub(crate) fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.lease.as_ref()
    }

    /// The pointer to its root block.
    pub fn root(&self) -> &BlockPtr {
        &self.root
    }

    /// The state of its key.
    pub fn key(&self) -> &KeyState {
        &self.key
    }

    /// Is encrypted, and cannot be read beyond what is only authenticated.
    pub fn is_locked(&self) -> bool {
        matches!(self.key, KeyState::Locked)
    }

    /// The object whose data are the dnodes.
    pub fn meta_object(self: &Arc<Self>) -> Object {
        Object::new(Arc::clone(self), ObjectId(0), Arc::new(self.phys.meta_dnode.clone()))
    }

    /// The object with this number.
    ///
    /// # Errors
    /// [`DmuError::NoObject`] if the number is free, inside a larger dnode, or out of range.
    pub fn object(self: &Arc<Self>, id: ObjectId) -> Result<Object, DmuError> {
        if let Some(live) = &self.live {
            return Ok(live.object(id)?.read_through(Arc::clone(self)));
        }
        let none = DmuError::NoObject { objset: self.number, object: id };
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

    /// The first object with a number of at least `from`, in order of numbers. Fails where
    /// the tree of the dnodes repeats itself: such a walk would not end.
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
            // Where a walk goes on in a block it has been there already.
            if blkid > from.0 / per_block {
                let bp = meta.block_ptr(Level(0), BlockId(blkid))?;
                let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
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
        Dnode::decode(bytes, block.order()).map_err(|source| DmuError::Decode {
            objset: self.number,
            object: id,
            source,
        })
    }
}

/// The dnodes of a block, each with the number of its first slot and the bytes from there on. Slots
/// inside a larger dnode are passed over.
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
