//! Hand-made ZAPs with blocks of the minimum size.

use format::Endian;
use format::zap::{
    CHUNK_DATA, CHUNK_SIZE, FAT_MAGIC, FAT_TYPE, LEAF_MAGIC, LEAF_TYPE, MICRO_MAGIC, hash_name,
};

const SIZE: usize = 512;
const BUCKETS: usize = SIZE / 32;
const CHUNKS: usize = (SIZE - 2 * BUCKETS) / CHUNK_SIZE - 2;
const SALT: u64 = 0xABCD_EF01;

struct Pen {
    bytes: Vec<u8>,
    order: Endian,
}

impl Pen {
    fn new(order: Endian) -> Pen {
        Pen { bytes: vec![0; SIZE], order }
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &self.order.put_u64(value));
    }

    fn u16(&mut self, at: usize, value: usize) {
        self.put(at, &self.order.put_u16(value as u16));
    }
}

/// A micro ZAP with five names.
pub(crate) fn micro(order: Endian) -> Vec<u8> {
    let mut pen = Pen::new(order);
    pen.u64(0, MICRO_MAGIC);
    pen.u64(8, SALT);
    for (i, name) in ["a", "file", "Makefile", "makefile", "a rather long name"].iter().enumerate() {
        let at = 64 * (i + 1);
        pen.u64(at, i as u64);
        pen.put(at + 14, name.as_bytes());
    }
    pen.bytes
}

/// A fat ZAP with a header, two leaves, and the pointer table in the header.
pub(crate) fn fat(order: Endian) -> Vec<u8> {
    let mut header = Pen::new(order);
    let words = [FAT_TYPE, FAT_MAGIC, 0, 0, 5, 0, 0, 3, 2, 6, SALT, 0, 0];
    for (i, word) in words.into_iter().enumerate() {
        header.u64(8 * i, word);
    }
    for slot in 0..32 {
        header.u64(SIZE / 2 + 8 * slot, 1 + slot as u64 / 16);
    }
    let names = ["one", "two", "three", "a name longer than a chunk", "f", "sixth"];
    let mut blocks = header.bytes;
    for prefix in 0..2 {
        let mine = names.iter().filter(|name| hash_name(SALT, 0, name.as_bytes()) >> 63 == prefix);
        blocks.extend(leaf(prefix, &mine.copied().collect::<Vec<_>>(), order));
    }
    blocks
}

fn leaf(prefix: u64, names: &[&str], order: Endian) -> Vec<u8> {
    let mut pen = Pen::new(order);
    pen.u64(0, LEAF_TYPE);
    pen.u64(16, prefix);
    pen.put(24, &order.put_u32(LEAF_MAGIC));
    pen.u16(30, names.len());
    pen.u16(32, 1);
    pen.bytes[48..48 + 2 * BUCKETS].fill(0xFF);
    let mut next = 0;
    for name in names {
        let hash = hash_name(SALT, 0, name.as_bytes());
        let bucket = (hash >> (64 - 4 - 1)) as usize % BUCKETS;
        let text = [name.as_bytes(), &[0]].concat();
        let needed = 2 + text.len().div_ceil(CHUNK_DATA);
        if next + needed > CHUNKS {
            break;
        }
        let head = 48 + 2 * bucket;
        let old = pen.order.get_u16(&pen.bytes, head).map_or(0xFFFF, usize::from);
        let (entry, value, text_at) = (next, next + 1, next + 2);
        let at = chunk_at(entry);
        pen.put(at, &[252, 8]);
        for (i, field) in [old, text_at, text.len(), value, 1].into_iter().enumerate() {
            pen.u16(at + 2 + 2 * i, field);
        }
        pen.u64(at + 16, hash);
        pen.u16(head, entry);
        array(&mut pen, value, &7u64.to_be_bytes());
        array(&mut pen, text_at, &text);
        next += needed;
    }
    pen.bytes
}

fn chunk_at(chunk: usize) -> usize {
    48 + 2 * BUCKETS + CHUNK_SIZE * chunk
}

fn array(pen: &mut Pen, first: usize, bytes: &[u8]) {
    let parts = bytes.chunks(CHUNK_DATA).count();
    for (i, part) in bytes.chunks(CHUNK_DATA).enumerate() {
        let at = chunk_at(first + i);
        pen.put(at, &[251]);
        pen.put(at + 1, part);
        pen.u16(at + 22, if i + 1 == parts { 0xFFFF } else { first + i + 1 });
    }
}
