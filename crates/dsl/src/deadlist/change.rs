//! Deadlists in syncing context
//! (docs/on-disk/22-mos-dsl.md, section 4.2; docs/on-disk/15-space.md, section 6.2).
//!
//! # What always holds
//! - The list under key k has the blocks born after k, up to the next key.
//! - The totals in the bonus are the sums of the totals of the lists.
//! - Lists without a block are the shared empty one where the pool has such a thing: the first block that
//!   comes in gets a list of its own.
//!
//! # Order
//! While a dataset is written, `DeadlistWriter` collects in memory what the write kills, and one
//! `DeadlistWriter::flush` at the end touches each list once. Everything else is done by sync tasks,
//! after that.

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
        // Livelists can be below nothing between two steps: modulo 2^64 they come out right.
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

    /// Adds a key, with an empty list. There must be no block that belongs to it yet.
    pub(crate) fn add_key(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<(), DslError> {
        let list = Bpobj::create_or_share(m)?;
        Ok(m.zap(id)?.insert_int_key(key.0, list.0)?)
    }

    /// A new deadlist with those keys of another that are below `below`, all empty.
    pub(crate) fn clone_keys(m: MosTx<'_>, id: ObjectId, below: Txg) -> Result<ObjectId, DslError> {
        let keys = Deadlist::keys(m, id)?;
        let new = Deadlist::create(m)?;
        for key in keys.into_iter().filter(|key| *key < below) {
            Deadlist::add_key(m, new, key)?;
        }
        Ok(new)
    }

    /// Removes a key; its blocks go to the key before. The first key stays, it has none before it: removing
    /// it changes nothing, and neither does removing a key that is not there.
    pub(crate) fn remove_key(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<(), DslError> {
        let deadlist = open(m, id)?;
        let buckets = deadlist.buckets();
        let Some(at) = buckets.iter().position(|(k, _)| *k == key).filter(|at| *at > 0) else {
            return Ok(());
        };
        attach(m, id, &mut buckets[at - 1].clone(), buckets[at].1)?;
        Ok(m.zap(id)?.remove_int_key(key.0)?)
    }

    /// Removes a key and gives its list to the caller; what the list holds is taken off the totals.
    pub(crate) fn detach(m: MosTx<'_>, id: ObjectId, key: Txg) -> Result<Option<ObjectId>, DslError> {
        let deadlist = open(m, id)?;
        let Some((_, list)) = deadlist.buckets().iter().find(|(k, _)| *k == key).copied() else {
            return Ok(None);
        };
        Deadlist::add_space(m, id, Space::default(), Bpobj::open(&m.view(), list)?.space())?;
        m.zap(id)?.remove_int_key(key.0)?;
        Ok(Some(list))
    }

    /// Puts all blocks of `from` into `into`, each under the largest key that is not above its own, and frees
    /// `from`.
    pub(crate) fn merge(m: MosTx<'_>, into: ObjectId, from: ObjectId) -> Result<(), DslError> {
        let mut sum = Space::default();
        // Lists may have thousands of keys: that of the target is read once, and followed.
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

    /// Moves the lists with keys of at least `from_key` to the list `to`, and removes these keys. Returns
    /// what the blocks are charged.
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

    /// Frees a deadlist and its lists. The blocks in it stay as they are.
    pub(crate) fn free(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        for (_, list) in open(m, id)?.buckets() {
            Bpobj::release(m, *list)?;
        }
        m.free(id)
    }

    /// Puts one block into a deadlist.
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
        // Such pools are older than anything that Cenote writes to.
        return Err(DslError::WrongType { object: id, expected: "deadlist", found: ObjType::BPOBJ_HDR });
    }
    Ok(list)
}

/// Puts `list` under the key of a bucket, beside what is there, and changes the bucket if that is another
/// list then.
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

/// A list under a key, and what is to be appended to it.
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
    /// Version of the object that `buckets` is made from.
    version: u64,
    buckets: Vec<Bucket>,
}

impl DeadlistWriter {
    /// For the deadlist in this object.
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

    /// Makes it a writer for the deadlist in `id`: reads the keys again if it is another deadlist than
    /// before, or if it was changed by other means.
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

    /// Remembers a block and what it is charged. Holes are left out.
    pub(crate) fn insert(&mut self, bp: &BlockPtr, space: Space) {
        self.push(bp, false, space);
    }

    /// The same with the mark of livelists: freed blocks count negative.
    pub(crate) fn push(&mut self, bp: &BlockPtr, freed: bool, space: Space) {
        let Some(entry) = StoredBlock::new(bp, freed) else { return };
        let birth = bp.accounting_birth();
        let after = self.buckets.partition_point(|bucket| bucket.key < birth);
        // A block that is too old for the first key belongs there all the same.
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
