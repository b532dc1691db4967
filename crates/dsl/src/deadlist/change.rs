//! Deadlists in syncing context (docs/on-disk/22-mos-dsl.md, section 4.2; docs/on-disk/15-space.md, section
//! 6.2).
//!
//! # What always holds
//! - The list under key k has the blocks born after k, up to the next key.
//! - The totals in the bonus are the sums of the totals of the lists.
//! - In a pool with the feature `empty_bpobj` lists without a block are the shared empty one: the first block
//!   creates a list.
//!
//! # Order
//! While a dataset is written, `DeadlistWriter` collects the killed blocks in memory, and one
//! `DeadlistWriter::flush` at the end changes each list once. All other changes are made by sync tasks, after
//! that.

use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::deadlist::Deadlist;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use format::bpobj::StoredBlock;
use format::dsl::{DEADLIST_PHYS_SIZE, DeadlistPhys};
use format::{BlockPtr, Endian, ObjType, ObjectId, Txg};

impl Deadlist {
    /// Makes a deadlist without keys.
    pub(crate) fn create(m: MosTx<'_>) -> Result<ObjectId, DslError> {
        m.create_zap(ObjType::DEADLIST, ObjType::DEADLIST_HDR, vec![0; DEADLIST_PHYS_SIZE], 0)
    }

    /// Adds `more` to the totals in the bonus, and takes `less` off.
    pub(crate) fn add_space(m: MosTx<'_>, id: ObjectId, more: Space, less: Space) -> Result<(), DslError> {
        let object = m.object_with_bonus(id, ObjType::DEADLIST_HDR, "deadlist")?;
        let order = object.read().order();
        let phys =
            object.with_bonus(|bonus| DeadlistPhys::decode(bonus, order)).map_err(DslError::decode(id))?;
        // Totals of livelists may be below 0 for a while: they are counted modulo 2^64.
        let net = |now: u64, more: u64, less: u64| now.wrapping_add(more).wrapping_sub(less);
        let phys = DeadlistPhys {
            used: net(phys.used, more.used, less.used),
            comp: net(phys.comp, more.compressed, less.compressed),
            uncomp: net(phys.uncomp, more.uncompressed, less.uncompressed),
        };
        object.set_bonus(&phys.encode(Endian::Little), m.tx);
        Ok(())
    }

    /// The keys of a deadlist, ascending.
    pub(crate) fn keys(m: MosTx<'_>, id: ObjectId) -> Result<Vec<Txg>, DslError> {
        Ok(Deadlist::lists(m, id)?.into_iter().map(|(key, _)| key).collect())
    }

    /// The keys, ascending, and the list under each.
    pub(crate) fn lists(m: MosTx<'_>, id: ObjectId) -> Result<Vec<(Txg, ObjectId)>, DslError> {
        Ok(open(m, id)?.buckets().to_vec())
    }

    /// Adds a key, with an empty list. No block may belong to it yet.
    pub(crate) fn add_key(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<(), DslError> {
        let list = Bpobj::create_or_share(m)?;
        Ok(m.zap(id)?.insert_int_key(key.0, list.0)?)
    }

    /// Creates a deadlist with the keys of another that are below `below`, all with empty lists.
    pub(crate) fn clone_keys(m: MosTx<'_>, id: ObjectId, below: Txg) -> Result<ObjectId, DslError> {
        let keys = Deadlist::keys(m, id)?;
        let new = Deadlist::create(m)?;
        for key in keys.into_iter().filter(|key| *key < below) {
            Deadlist::add_key(m, new, key)?;
        }
        Ok(new)
    }

    /// Removes a key; its blocks go to the previous key. The first key stays, because no key is before it; a
    /// missing key is ignored.
    pub(crate) fn remove_key(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<(), DslError> {
        let deadlist = open(m, id)?;
        let buckets = deadlist.buckets();
        let Some(at) = buckets.iter().position(|(k, _)| *k == key).filter(|at| *at > 0) else {
            return Ok(());
        };
        attach(m, id, &mut buckets[at - 1].clone(), buckets[at].1)?;
        Ok(m.zap(id)?.remove_int_key(key.0)?)
    }

    /// Removes a key, returns its list to the caller, and subtracts the totals of that list.
    pub(crate) fn detach(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<Option<ObjectId>, DslError> {
        let deadlist = open(m, id)?;
        let Some((_, list)) = deadlist.buckets().iter().find(|(k, _)| *k == key).copied() else {
            return Ok(None);
        };
        Deadlist::add_space(m, id, Space::default(), Bpobj::open(&m.view(), list)?.space())?;
        m.zap(id)?.remove_int_key(key.0)?;
        Ok(Some(list))
    }

    /// Moves all blocks of `from` to `into`, each under the largest key that is not above its own, and frees
    /// `from`.
    pub(crate) fn merge(m: MosTx<'_>, into: ObjectId, from: ObjectId) -> Result<(), DslError> {
        let mut sum = Space::default();
        // A deadlist may have thousands of keys: those of the target are read once, and then updated in
        // memory.
        let mut buckets = open(m, into)?.buckets().to_vec();
        for (key, list) in open(m, from)?.buckets() {
            let above = buckets.partition_point(|(k, _)| k <= key);
            if let Some(bucket) = buckets[..above].last_mut() {
                sum = sum.plus(attach(m, into, bucket, *list)?);
            } else {
                sum = sum.plus(Bpobj::open(&m.view(), *list)?.space());
                m.zap(into)?.insert_int_key(key.0, list.0)?;
                buckets.insert(above, (*key, *list));
            }
        }
        Deadlist::add_space(m, into, sum, Space::default())?;
        m.free(from)
    }

    /// Moves the lists with keys of at least `from_key` to the list `to`, and removes these keys. Returns the
    /// charge of their blocks.
    pub(crate) fn move_range(
        m: MosTx<'_>,
        id: ObjectId,
        from_key: Txg,
        to: ObjectId,
    ) -> Result<Space, DslError> {
        let mut sum = Space::default();
        let deadlist = open(m, id)?;
        for (key, list) in deadlist.buckets().iter().filter(|(key, _)| *key >= from_key) {
            sum = sum.plus(Bpobj::append_sub(m, to, *list)?);
            m.zap(id)?.remove_int_key(key.0)?;
        }
        Deadlist::add_space(m, id, Space::default(), sum)?;
        Ok(sum)
    }

    /// Frees a deadlist and its lists. The blocks in it are not freed.
    pub(crate) fn free(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        for (_, list) in open(m, id)?.buckets() {
            Bpobj::release(m, *list)?;
        }
        m.free(id)
    }

    /// Adds one block to a deadlist.
    #[cfg(test)]
    pub(crate) fn insert(m: MosTx<'_>, id: ObjectId, bp: &BlockPtr) -> Result<(), DslError> {
        let mut writer = DeadlistWriter::open(m, id)?;
        writer.insert(bp, m.space_of(bp));
        writer.flush(m)
    }
}

fn open(m: MosTx<'_>, id: ObjectId) -> Result<Deadlist, DslError> {
    let list = Deadlist::open(&m.view(), id)?;
    if list.bare().is_some() {
        // Pools with such lists are older than any version that Cenote writes.
        return Err(DslError::WrongType { object: id, expected: "deadlist", found: ObjType::BPOBJ_HDR });
    }
    Ok(list)
}

/// Appends `list` to the list of a bucket, and updates the bucket if that replaces its list.
fn attach(
    m: MosTx<'_>,
    id: ObjectId,
    (key, there): &mut (Txg, ObjectId),
    list: ObjectId,
) -> Result<Space, DslError> {
    if !Bpobj::is_shared(m, *there)? {
        return Bpobj::append_sub(m, *there, list);
    }
    if Bpobj::is_shared(m, list)? {
        Bpobj::release(m, list)?;
        return Ok(Space::default());
    }
    let space = Bpobj::open(&m.view(), list)?.space();
    m.zap(id)?.update_int_key(key.0, list.0)?;
    Bpobj::release(m, std::mem::replace(there, list))?;
    Ok(space)
}

/// A list under a key, and its entries to be appended.
#[derive(Debug)]
struct Bucket {
    key: Txg,
    list: ObjectId,
    pending: Vec<StoredBlock>,
    more: Space,
    less: Space,
}

/// Collects blocks for a deadlist in memory.
#[derive(Debug)]
pub(crate) struct DeadlistWriter {
    id: ObjectId,
    /// Version of the object that `buckets` was read from.
    version: u64,
    buckets: Vec<Bucket>,
}

impl DeadlistWriter {
    /// Opens a writer for the deadlist in this object.
    pub(crate) fn open(m: MosTx<'_>, id: ObjectId) -> Result<DeadlistWriter, DslError> {
        let version = m.object(id)?.version();
        let empty = |(key, list): &(Txg, ObjectId)| Bucket {
            key: *key,
            list: *list,
            pending: Vec::new(),
            more: Space::default(),
            less: Space::default(),
        };
        let buckets: Vec<Bucket> = open(m, id)?.buckets().iter().map(empty).collect();
        if buckets.is_empty() {
            let (found, expected) = (0, 1);
            return Err(DslError::Mismatch { what: "keys of a deadlist", object: id, found, expected });
        }
        Ok(DeadlistWriter { id, version, buckets })
    }

    /// Switches the writer to the deadlist in `id`: reads the keys again if that is another deadlist or if
    /// its object was changed by other means.
    #[cfg(test)]
    pub(crate) fn refresh(&mut self, m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        assert!(self.is_flushed(), "a deadlist is changed while blocks wait to be put into it");
        if self.id != id || m.object(id)?.version() != self.version {
            *self = DeadlistWriter::open(m, id)?;
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.pending.is_empty())
    }

    /// Adds a block and its charge. Ignores holes.
    pub(crate) fn insert(&mut self, bp: &BlockPtr, space: Space) {
        self.push(bp, false, space);
    }

    /// Adds an entry of a livelist: entries with the freed mark count negative.
    pub(crate) fn push(&mut self, bp: &BlockPtr, freed: bool, space: Space) {
        let Some(entry) = StoredBlock::new(bp, freed) else { return };
        let birth = bp.accounting_birth();
        let after = self.buckets.partition_point(|bucket| bucket.key < birth);
        // A block older than the first key belongs to the first list.
        let Some(bucket) = self.buckets.get_mut(after.saturating_sub(1)) else { return };
        bucket.pending.push(entry);
        let sum = if freed { &mut bucket.less } else { &mut bucket.more };
        *sum = sum.plus(space);
    }

    /// Writes the collected entries to the object.
    pub(crate) fn flush(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        if self.is_flushed() {
            return Ok(());
        }
        let (mut more, mut less) = (Space::default(), Space::default());
        for bucket in self.buckets.iter_mut().filter(|bucket| !bucket.pending.is_empty()) {
            if Bpobj::is_shared(m, bucket.list)? {
                let own = Bpobj::create(m, 0)?;
                m.zap(self.id)?.update_int_key(bucket.key.0, own.0)?;
                Bpobj::release(m, bucket.list)?;
                bucket.list = own;
            }
            Bpobj::append_net(m, bucket.list, &bucket.pending, bucket.more, bucket.less)?;
            (more, less) = (more.plus(bucket.more), less.plus(bucket.less));
            bucket.pending = Vec::new();
            (bucket.more, bucket.less) = (Space::default(), Space::default());
        }
        Deadlist::add_space(m, self.id, more, less)?;
        self.version = m.object(self.id)?.version();
        Ok(())
    }
}
