//! Inputs for the fuzz targets.

use bolero::{ValueGenerator, produce};
use cenote_format::ddt::{DdtClass, DdtKey, DdtPhys, DdtValue, LogRecord};
use cenote_format::indirect::MappingEntry;
use cenote_format::{AllocOffset, Asize, Checksum, Dva, Endian, NvList, NvValue, Txg, VdevId};

/// Random bytes, up to `max` of them. Without a range of its own, a vector gets 64 at most.
pub(crate) fn bytes(max: usize) -> impl ValueGenerator<Output = Vec<u8>> {
    produce::<Vec<u8>>().with().len(0..=max)
}

/// Calls `check` with random bytes, enough for the longest structure, and a byte order.
pub(crate) fn bytes_in_any_order(check: impl Fn(&[u8], Endian) + std::panic::RefUnwindSafe) {
    bolero::check!().with_generator((produce::<bool>(), bytes(4200))).for_each(|(big, bytes)| {
        check(bytes, if *big { Endian::Big } else { Endian::Little });
    });
}

/// Calls `check` with variants of a real structure: some bytes replaced, some cut off.
pub(crate) fn mutants(seed: &[u8], check: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    bolero::check!().with_iterations(4000).with_type::<(Vec<(u16, u8)>, Option<u16>)>().for_each(
        |(changes, cut)| {
            let mut bytes = seed.to_vec();
            for (at, value) in changes.iter().take(8) {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(usize::from(*cut) % (bytes.len() + 1));
            }
            check(&bytes);
        },
    );
}

type Source<'a> = std::iter::Copied<std::slice::Iter<'a, u8>>;

/// A list made from the bytes: every type, nesting as long as there are bytes.
pub(crate) fn any_list(bytes: &[u8]) -> NvList {
    list(&mut bytes.iter().copied(), 1)
}

fn list(source: &mut Source<'_>, depth: u32) -> NvList {
    let mut out = NvList::new();
    for _ in 0..source.next().unwrap_or(0) % 8 {
        let name = string(source);
        out.push(name, value(source, depth));
    }
    out
}

fn string(source: &mut Source<'_>) -> Vec<u8> {
    let len = usize::from(source.next().unwrap_or(0) % 24);
    source.take(len).filter(|b| *b != 0).collect()
}

fn number(source: &mut Source<'_>) -> u64 {
    source.take(8).fold(0, |n, b| n << 8 | u64::from(b))
}

fn many<'a, T>(source: &mut Source<'a>, mut one: impl FnMut(&mut Source<'a>) -> T) -> Vec<T> {
    (0..source.next().unwrap_or(0) % 5).map(|_| one(source)).collect()
}

fn strings(source: &mut Source<'_>) -> NvValue {
    let all = many(source, string);
    match all.iter().map(|s| String::from_utf8(s.clone())).collect() {
        Ok(readable) => NvValue::StringArray(readable),
        Err(_) => NvValue::RawStringArray(all),
    }
}

fn value(source: &mut Source<'_>, depth: u32) -> NvValue {
    match source.next().unwrap_or(0) % 27 {
        0 => NvValue::Boolean,
        1 => NvValue::Byte(number(source) as u8),
        2 => NvValue::Int8(number(source) as i8),
        3 => NvValue::Uint8(number(source) as u8),
        4 => NvValue::Int16(number(source) as i16),
        5 => NvValue::Uint16(number(source) as u16),
        6 => NvValue::Int32(number(source) as i32),
        7 => NvValue::Uint32(number(source) as u32),
        8 => NvValue::Int64(number(source) as i64),
        9 => NvValue::Uint64(number(source)),
        10 => NvValue::Hrtime(number(source) as i64),
        11 => NvValue::BooleanValue(number(source) % 2 == 1),
        12 => NvValue::Double(number(source) as f64),
        13 => NvValue::from_bytes(string(source)),
        14 => NvValue::ByteArray(many(source, |s| number(s) as u8)),
        15 => NvValue::Int8Array(many(source, |s| number(s) as i8)),
        16 => NvValue::Uint8Array(many(source, |s| number(s) as u8)),
        17 => NvValue::Int16Array(many(source, |s| number(s) as i16)),
        18 => NvValue::Uint16Array(many(source, |s| number(s) as u16)),
        19 => NvValue::Int32Array(many(source, |s| number(s) as i32)),
        20 => NvValue::Uint32Array(many(source, |s| number(s) as u32)),
        21 => NvValue::Int64Array(many(source, |s| number(s) as i64)),
        22 => NvValue::Uint64Array(many(source, number)),
        23 => NvValue::BooleanArray(many(source, |s| number(s) % 2 == 1)),
        24 => strings(source),
        25 if depth < 20 => NvValue::List(list(source, depth + 1)),
        26 if depth < 20 => {
            let count = source.next().unwrap_or(0) % 4;
            let inner = |_| list(source, depth + 1);
            NvValue::ListArray((0..count).map(inner).collect())
        }
        _ => NvValue::Boolean,
    }
}

/// A dnode of two slots with one pointer and a bonus.
pub(crate) fn dnode() -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[..8].copy_from_slice(&[20, 17, 1, 1, 44, 0, 0, 3]);
    bytes[8..10].copy_from_slice(&256u16.to_le_bytes());
    bytes[10..12].copy_from_slice(&200u16.to_le_bytes());
    bytes[12] = 1;
    bytes
}

/// An object set of a file system.
pub(crate) fn objset() -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    bytes[..8].copy_from_slice(&[10, 17, 1, 3, 0, 0, 0, 0]);
    bytes[8..10].copy_from_slice(&32u16.to_le_bytes());
    bytes[704] = 2;
    bytes[1024..1032].copy_from_slice(&[39, 17, 1, 1, 0, 0, 0, 0]);
    bytes[1032..1034].copy_from_slice(&8u16.to_le_bytes());
    bytes
}

/// A block of a dedup log.
pub(crate) fn ddt_log() -> Vec<u8> {
    let record = |n: u64| LogRecord {
        key: DdtKey { checksum: Checksum([n; 4]), prop: n },
        value: DdtValue::Flat {
            phys: DdtPhys { dva_words: [n; 6], refcount: n, birth: Txg(n) },
            class_start: n,
        },
        stored_in: n.is_multiple_of(2).then_some(DdtClass::Unique),
    };
    let mut block: Vec<u8> = (1..4).flat_map(|n| record(n).encode(Endian::Little)).collect();
    block.resize(512, 0);
    block
}

/// The mapping of a removed vdev.
pub(crate) fn mapping() -> Vec<u8> {
    let entry = |n: u64| MappingEntry {
        source: AllocOffset(n << 20),
        target: Dva { vdev: VdevId(1), offset: AllocOffset(n << 22), asize: Asize(1 << 20), gang: false },
    };
    (0..8).flat_map(|n| entry(n).encode(Endian::Little)).collect()
}
