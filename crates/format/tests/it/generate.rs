//! Generates lists of every shape from bytes.

use cenote_format::{NvList, NvValue};

type Source<'a> = std::iter::Copied<std::slice::Iter<'a, u8>>;

/// A list generated from the bytes: all types, nested while bytes are left.
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
