//! Changes that are only in memory, in the order in which they would be logged.
//!
//! Changes of names are ordered at once. Changes of one object wait in a list of their own until a commit of
//! that object, a rename of it, or a commit of all objects.

use crate::LiveObject;
use format::zil::{Body, LogTime, SetAttr, mask};
use format::{BlockId, ObjectId, Txg};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Largest write that is copied even if it covers whole blocks: a shared buffer is copied when its block
/// changes again, which happens often to small blocks.
const COPIED_MAX: usize = 8 << 10;

/// The data of a write, as written: later changes of the object do not affect it.
///
/// Blocks that were written whole are shared with the object, which copies them when they change again; of
/// other blocks the written part is copied. So a record never holds more memory than was written.
#[derive(Debug, Clone, Default)]
pub struct LogData {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Copied(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Copied(bytes) => bytes,
            Part::Shared(bytes) => bytes,
        }
    }
}

impl LogData {
    /// A copy of `data`.
    pub fn copied(data: &[u8]) -> LogData {
        LogData { parts: vec![Part::Copied(data.to_vec())] }
    }

    /// The data that the caller has just written to `object` at `offset`, in a transaction that it still
    /// holds, while no other thread changes that range.
    pub fn written(object: &LiveObject, offset: u64, data: &[u8]) -> LogData {
        if data.len() <= COPIED_MAX {
            return LogData::copied(data);
        }
        let size = object.block_size();
        let mut parts = Vec::with_capacity((data.len() as u64 / size) as usize + 2);
        let (mut rest, mut at) = (data, offset);
        while !rest.is_empty() {
            let len = rest.len().min((size - at % size) as usize);
            let (part, after) = rest.split_at(len);
            let whole = (len as u64 == size).then(|| object.buffer(BlockId(at / size))).flatten();
            parts.push(match whole.filter(|bytes| bytes.len() == len) {
                Some(bytes) => Part::Shared(bytes),
                None => Part::Copied(part.to_vec()),
            });
            (rest, at) = (after, at + len as u64);
        }
        LogData { parts }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes().len() as u64).sum()
    }

    /// Whether the write had no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of all data.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slice(0..self.len())
    }

    /// Bytes of memory that it alone holds, as long as the object has not changed the shared blocks.
    fn memory(&self) -> u64 {
        let of_part = |part: &Part| match part {
            Part::Copied(bytes) => bytes.len(),
            Part::Shared(_) => 0,
        };
        self.parts.iter().map(|part| (of_part(part) + size_of::<Part>()) as u64).sum()
    }

    /// A copy of a range.
    pub(crate) fn slice(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = 0;
        for part in &self.parts {
            let part = part.bytes();
            let (from, to) = (range.start.saturating_sub(at), range.end.saturating_sub(at));
            let (from, to) = (from.min(part.len() as u64), to.min(part.len() as u64));
            bytes.extend_from_slice(&part[from as usize..to as usize]);
            at += part.len() as u64;
        }
        bytes
    }
}

/// A change to be logged.
#[derive(Debug, Clone)]
pub enum Pending {
    /// A change other than a write.
    Body(Body),
    /// A change that no record can describe: a commit waits for its txg.
    Txg {
        /// Number of the changed object.
        object: ObjectId,
    },
    /// A write of data.
    Write {
        /// Number of the file's object; 1 in a volume.
        object: ObjectId,
        /// Offset of the first byte.
        offset: u64,
        /// The written data.
        data: LogData,
        /// The mtime that the write has set, if any. It gets a record of its own, after the last of several
        /// writes.
        mtime: Option<LogTime>,
    },
}

/// Bytes of memory of a record without its data.
const RECORD_COST: u64 = 256;

impl Pending {
    /// Bytes of memory of the change.
    pub(crate) fn memory(&self) -> u64 {
        let data = match self {
            Pending::Write { data, .. } => data.memory() as usize,
            Pending::Body(Body::Write { data, .. }) => data.as_ref().map_or(0, Vec::len),
            Pending::Body(Body::SetSaXattr { value, .. }) => value.len(),
            Pending::Body(Body::CloneRange(range)) => range.pointers.len() * 128,
            Pending::Body(_) | Pending::Txg { .. } => 0,
        };
        RECORD_COST + data as u64
    }

    /// Whether it is a clone, which references blocks of other files.
    pub(crate) fn is_clone(&self) -> bool {
        matches!(self, Pending::Body(Body::CloneRange(_)))
    }

    /// The record of a write's mtime, unless `next` is a later write of the same file with one.
    pub(crate) fn time_of_write(&self, next: Option<&Pending>) -> Option<Body> {
        let Pending::Write { object, mtime: Some(mtime), .. } = self else { return None };
        if matches!(next, Some(Pending::Write { object: same, mtime: Some(_), .. }) if same == object) {
            return None;
        }
        let none = LogTime { secs: 0, nanos: 0 };
        Some(Body::SetAttr(Box::new(SetAttr {
            object: *object,
            mask: mask::MTIME,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime: none,
            mtime: *mtime,
            xvattr: None,
            domains: Vec::new(),
        })))
    }

    /// The object of the change, if it concerns one alone.
    fn object(&self) -> Option<ObjectId> {
        match self {
            Pending::Write { object, .. } | Pending::Txg { object } => Some(*object),
            Pending::Body(body) => match body {
                Body::Write { object, .. }
                | Body::Write2 { object, .. }
                | Body::Truncate { object, .. }
                | Body::AclV0 { object, .. }
                | Body::Acl { object, .. }
                | Body::SetSaXattr { object, .. } => Some(*object),
                Body::SetAttr(set) => Some(set.object),
                Body::CloneRange(clone) => Some(clone.object),
                _ => None,
            },
        }
    }
}

/// A change, with its txg.
#[derive(Debug, Clone)]
pub(crate) struct Itx {
    pub(crate) txg: Txg,
    pub(crate) body: Pending,
}

/// Changes of one txg.
#[derive(Debug, Default)]
pub(crate) struct OfTxg {
    ordered: Vec<Itx>,
    own: HashMap<ObjectId, Vec<Itx>>,
}

/// All pending changes of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    txgs: BTreeMap<Txg, OfTxg>,
    /// Number of records that were ever ordered.
    ordered: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, txg: Txg, body: Pending) {
        let of_txg = self.txgs.entry(txg).or_default();
        match body.object() {
            Some(object) => match of_txg.own.entry(object) {
                Entry::Occupied(mut list) => list.get_mut().push(Itx { txg, body }),
                // Most files are written once: reserve no more room.
                Entry::Vacant(place) => _ = place.insert(vec![Itx { txg, body }]),
            },
            None => {
                of_txg.ordered.push(Itx { txg, body });
                self.ordered += 1;
            }
        }
    }

    /// Orders the changes of an object, or of all. Returns the number of records that were ever ordered.
    pub(crate) fn order(&mut self, object: Option<ObjectId>) -> u64 {
        for of_txg in self.txgs.values_mut() {
            let moved: Vec<Vec<Itx>> = match object {
                Some(object) => of_txg.own.remove(&object).into_iter().collect(),
                None => of_txg.own.drain().map(|(_, list)| list).collect(),
            };
            for mut list in moved {
                self.ordered += list.len() as u64;
                of_txg.ordered.append(&mut list);
            }
        }
        self.ordered
    }

    pub(crate) fn forget(&mut self, object: ObjectId) {
        for of_txg in self.txgs.values_mut() {
            of_txg.own.remove(&object);
        }
    }

    /// Takes the ordered changes newer than `synced`. Also returns the number of records that were ever
    /// ordered.
    pub(crate) fn take(&mut self, synced: Txg) -> (Vec<Itx>, u64) {
        let mut all = Vec::new();
        for (txg, of_txg) in &mut self.txgs {
            let mut list = std::mem::take(&mut of_txg.ordered);
            if *txg > synced {
                all.append(&mut list);
            }
        }
        (all, self.ordered)
    }

    /// Notes that the txg is on disk. Returns the obsolete changes, to be dropped without a lock.
    pub(crate) fn synced(&mut self, txg: Txg) -> BTreeMap<Txg, OfTxg> {
        let newer = self.txgs.split_off(&Txg(txg.0 + 1));
        std::mem::replace(&mut self.txgs, newer)
    }

    pub(crate) fn clear(&mut self) {
        self.txgs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(object: u64) -> Pending {
        Pending::Write { object: ObjectId(object), offset: 0, data: LogData::copied(&[0]), mtime: None }
    }

    fn name() -> Pending {
        Pending::Body(Body::Remove { dir: ObjectId(1), name: b"a".to_vec() })
    }

    #[test]
    fn an_object_is_ordered_when_it_is_asked_for() {
        let mut queue = Queue::default();
        queue.push(Txg(1), write(5));
        queue.push(Txg(1), write(6));
        queue.push(Txg(1), name());
        assert_eq!(queue.order(Some(ObjectId(5))), 2);
        let (taken, count) = queue.take(Txg(0));
        let objects: Vec<_> = taken.iter().map(|itx| itx.body.object()).collect();
        assert_eq!((objects, count), (vec![None, Some(ObjectId(5))], 2));
        assert_eq!(queue.order(None), 3);
    }

    #[test]
    fn what_is_on_disk_is_dropped() {
        let mut queue = Queue::default();
        queue.push(Txg(1), name());
        queue.push(Txg(2), name());
        assert_eq!(queue.synced(Txg(1)).len(), 1);
        assert_eq!(queue.take(Txg(1)).0.len(), 1);
        queue.push(Txg(2), name());
        assert!(queue.take(Txg(2)).0.is_empty());
    }
}
