//! A receiver in memory: objects with their contents, made of the records of streams or read from an object set.

use codec::compress::decompress;
use dmu::ObjSet;
use format::stream::{Record, RecordKind};
use format::{BlockId, CompressionId, Endian, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stream::{Frame, Reader};

const SECTOR: u64 = 512;

/// An object: what of it travels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Thing {
    kinds: (u32, u32),
    block_size: u64,
    slots: u8,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
    /// Sectors with data, by number; those of zeros are left out.
    sectors: BTreeMap<u64, Vec<u8>>,
}

impl Thing {
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (i, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            let number = offset / SECTOR + i as u64;
            if sector.iter().all(|byte| *byte == 0) {
                self.sectors.remove(&number);
            } else {
                self.sectors.insert(number, sector.to_vec());
            }
        }
    }

    fn free(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).div_ceil(SECTOR);
        let gone: Vec<u64> = self.sectors.range(offset / SECTOR..end).map(|(number, _)| *number).collect();
        gone.iter().for_each(|number| drop(self.sectors.remove(number)));
    }
}

/// A dataset in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<u64, Thing>,
    /// Objects with absent blocks.
    pub(crate) redacted: BTreeSet<u64>,
}

/// All records of a stream.
pub(crate) fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(|| reader.next_frame().expect("readable")).collect()
}

/// Number of records of a type.
pub(crate) fn count(frames: &[Frame], kind: RecordKind) -> usize {
    frames.iter().filter(|frame| frame.header.record.kind() == kind).count()
}

fn expanded(compression: u8, payload: &[u8], size: u64) -> Vec<u8> {
    let id = CompressionId::from_id(compression).expect("known");
    let mut plain = vec![0; size as usize];
    decompress(id, payload, &mut plain).expect("decompressed");
    plain
}

impl Model {
    /// Receives a stream that is not raw.
    pub(crate) fn apply(&mut self, frames: &[Frame]) {
        let mut last = (0, 0);
        for Frame { header, payload, .. } in frames {
            match &header.record {
                Record::Begin(_) | Record::End(_) => {}
                Record::Object(object) => {
                    assert!(object.object.0 > last.0, "objects in order");
                    last = (object.object.0, 0);
                    let ids = object.object.0 + 1..object.object.0 + u64::from(object.slots.max(1));
                    self.objects.retain(|id, _| !ids.contains(id));
                    let thing = self.objects.entry(object.object.0).or_default();
                    let size = u64::from(object.block_size);
                    if thing.block_size != size || thing.slots != object.slots {
                        *thing = Thing { spill: thing.spill.take(), ..Thing::default() };
                    }
                    thing.kinds = (object.kind, object.bonus_kind);
                    (thing.block_size, thing.slots) = (size, object.slots);
                    thing.bonus = payload[..object.bonus_len as usize].to_vec();
                    if object.flags & 4 == 0 {
                        thing.spill = None;
                    }
                }
                Record::FreeObjects(free) => {
                    assert!(free.first.0 > 0 && free.count > 0);
                    let ids = free.first.0..free.first.0 + free.count;
                    self.objects.retain(|id, _| !ids.contains(id));
                }
                Record::Write(write) => {
                    assert!((write.object.0, write.offset) >= last, "writes in order: {write:?}");
                    last = (write.object.0, write.offset);
                    let thing = self.objects.get_mut(&write.object.0).expect("an object");
                    match write.compression {
                        0 => thing.put(write.offset, payload),
                        id => thing.put(write.offset, &expanded(id, payload, write.logical_size)),
                    }
                }
                Record::WriteEmbedded(write) => {
                    let thing = self.objects.get_mut(&write.object.0).expect("an object");
                    let plain = expanded(write.compression, &payload[..write.psize as usize], write.length);
                    thing.put(write.offset, &plain);
                }
                Record::Free(free) => {
                    let thing = self.objects.get_mut(&free.object.0).expect("an object");
                    thing.free(free.offset, free.length);
                }
                Record::Redact(free) => {
                    let thing = self.objects.get_mut(&free.object.0).expect("an object");
                    thing.free(free.offset, free.length);
                    self.redacted.insert(free.object.0);
                }
                Record::Spill(spill) => {
                    let thing = self.objects.get_mut(&spill.object.0).expect("an object");
                    thing.spill = Some(payload.clone());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The contents of an object set. `block_max` is the largest block of the streams.
    pub(crate) fn read(set: &Arc<ObjSet>, block_max: u64) -> Model {
        let mut model = Model::default();
        let mut next = ObjectId(1);
        while let Some(object) = set.next_object(next).expect("readable") {
            let (id, dnode) = (object.id(), object.dnode());
            next = ObjectId(id.0 + dnode.slots() as u64);
            let mut thing = Thing {
                kinds: (dnode.obj_type.id().into(), dnode.bonus_type.id().into()),
                block_size: dnode.data_block_size().min(block_max),
                slots: dnode.slots() as u8,
                bonus: dnode.valid_bonus().to_vec(),
                spill: object.spill().expect("readable").map(|block| block.bytes().to_vec()),
                sectors: BTreeMap::new(),
            };
            assert_eq!(dnode.order, Endian::Little);
            let mut at = 0;
            while let Some(offset) = object.next_data(at).expect("readable") {
                let blkid = offset / object.block_size();
                let block = object.block(BlockId(blkid)).expect("readable").expect("data");
                thing.put(offset, block.bytes());
                at = (blkid + 1) * object.block_size();
            }
            model.objects.insert(id.0, thing);
        }
        model
    }

    /// The same without system attributes, whose byte order is their own.
    #[allow(dead_code, reason = "for pools in another byte order")]
    pub(crate) fn without_attributes(mut self) -> Model {
        const SA: u32 = 44;
        for thing in self.objects.values_mut().filter(|thing| thing.kinds.1 == SA) {
            thing.bonus.clear();
            thing.spill = None;
        }
        self
    }

    /// Fails with the first objects that differ.
    pub(crate) fn assert_is(&self, expected: &Model, what: &str) {
        for id in self.objects.keys().chain(expected.objects.keys()).collect::<BTreeSet<_>>() {
            let (found, wanted) = (self.objects.get(id), expected.objects.get(id));
            let (Some(a), Some(b)) = (found, wanted) else {
                panic!("{what}: object {id}: sent {}, in the snapshot {}", found.is_some(), wanted.is_some());
            };
            let differs: Vec<_> = a
                .sectors
                .keys()
                .chain(b.sectors.keys())
                .filter(|n| a.sectors.get(*n) != b.sectors.get(*n))
                .take(5)
                .collect();
            let head = |thing: &Thing| {
                (thing.kinds, thing.block_size, thing.slots, thing.bonus.clone(), thing.spill.clone())
            };
            assert_eq!(head(a), head(b), "{what}: object {id}");
            assert!(differs.is_empty(), "{what}: object {id}: sectors {differs:?}");
        }
    }
}
