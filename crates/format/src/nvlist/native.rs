//! The native encoding (docs/on-disk/11-labels-config.md, section 2.2).
//!
//! A pair is the memory image of its writer: values start at a multiple of eight from the start of the pair, and
//! embedded lists follow after its end, without a header.

use super::reader::Reader;
use super::{DEPTH_MAX, NvList, NvValue, Pair, WHAT, id, round_up};
use crate::DecodeError;

/// Bytes of a pair before its name.
const PAIR_HEADER: usize = 16;
/// Bytes of a list in the value of its pair.
const LIST_STRUCT: usize = 24;

/// # Errors
/// [`DecodeError`] of the first pair that is cut off, of an unknown type, or nested too deeply.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<NvList, DecodeError> {
    let (version, flags) = (r.u32()?, r.u32()?);
    pairs(r, version, flags, 1)
}

fn pairs(r: &mut Reader<'_>, version: u32, flags: u32, depth: u32) -> Result<NvList, DecodeError> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::field(WHAT, "depth", depth));
    }
    if version != 0 {
        return Err(DecodeError::field(WHAT, "version", version));
    }
    let mut pairs = Vec::new();
    loop {
        let size = r.u32()? as usize;
        if size == 0 {
            return Ok(NvList { pairs, flags });
        }
        let rest = size.checked_sub(4).ok_or(DecodeError::field(WHAT, "pair size", size as u64))?;
        let mut inside = Reader::new(r.take(rest)?, r.order);
        pairs.push(pair(&mut inside, r, depth)?);
    }
}

/// `r` is inside the pair, after its size; `after` is at the position of embedded lists.
fn pair(r: &mut Reader<'_>, after: &mut Reader<'_>, depth: u32) -> Result<Pair, DecodeError> {
    let name_len = usize::from(r.u16()?);
    r.u16()?;
    let count = r.u32()? as usize;
    let kind = r.u32()?;
    let name = terminated(r.take(name_len)?)?;
    r.take(round_up(PAIR_HEADER + name_len, 8) - PAIR_HEADER - name_len)?;
    let value = match kind {
        id::NVLIST => {
            let (version, flags) = list_struct(r)?;
            NvValue::List(pairs(after, version, flags, depth + 1)?)
        }
        id::NVLIST_ARRAY => {
            DecodeError::need(WHAT, count.saturating_mul(8 + LIST_STRUCT), r.remaining())?;
            r.take(8 * count)?;
            let heads = r.many(count, LIST_STRUCT, list_struct)?;
            let mut lists = Vec::with_capacity(count);
            for (version, flags) in heads {
                lists.push(pairs(after, version, flags, depth + 1)?);
            }
            NvValue::ListArray(lists)
        }
        _ => value(r, kind, count)?,
    };
    Ok(Pair::new(name, value))
}

/// Version and flags of an embedded list.
fn list_struct(r: &mut Reader<'_>) -> Result<(u32, u32), DecodeError> {
    let head = (r.u32()?, r.u32()?);
    r.take(LIST_STRUCT - 8)?;
    Ok(head)
}

fn value(r: &mut Reader<'_>, kind: u32, count: usize) -> Result<NvValue, DecodeError> {
    Ok(match kind {
        id::BOOLEAN => NvValue::Boolean,
        id::BYTE => NvValue::Byte(u8(r)?),
        id::INT8 => NvValue::Int8(u8(r)? as i8),
        id::UINT8 => NvValue::Uint8(u8(r)?),
        id::INT16 => NvValue::Int16(r.u16()? as i16),
        id::UINT16 => NvValue::Uint16(r.u16()?),
        id::INT32 => NvValue::Int32(r.u32()? as i32),
        id::UINT32 => NvValue::Uint32(r.u32()?),
        id::INT64 => NvValue::Int64(r.u64()? as i64),
        id::UINT64 => NvValue::Uint64(r.u64()?),
        id::HRTIME => NvValue::Hrtime(r.u64()? as i64),
        id::BOOLEAN_VALUE => NvValue::BooleanValue(r.u32()? != 0),
        id::DOUBLE => NvValue::Double(f64::from_bits(r.u64()?)),
        id::STRING => NvValue::from_bytes(next_string(r)?.to_vec()),
        id::BYTE_ARRAY => NvValue::ByteArray(r.take(count)?.to_vec()),
        id::INT8_ARRAY => NvValue::Int8Array(r.many(count, 1, |r| Ok(u8(r)? as i8))?),
        id::UINT8_ARRAY => NvValue::Uint8Array(r.take(count)?.to_vec()),
        id::INT16_ARRAY => NvValue::Int16Array(r.many(count, 2, |r| Ok(r.u16()? as i16))?),
        id::UINT16_ARRAY => NvValue::Uint16Array(r.many(count, 2, Reader::u16)?),
        id::INT32_ARRAY => NvValue::Int32Array(r.many(count, 4, |r| Ok(r.u32()? as i32))?),
        id::UINT32_ARRAY => NvValue::Uint32Array(r.many(count, 4, Reader::u32)?),
        id::INT64_ARRAY => NvValue::Int64Array(r.many(count, 8, |r| Ok(r.u64()? as i64))?),
        id::UINT64_ARRAY => NvValue::Uint64Array(r.many(count, 8, Reader::u64)?),
        id::BOOLEAN_ARRAY => NvValue::BooleanArray(r.many(count, 4, |r| Ok(r.u32()? != 0))?),
        id::STRING_ARRAY => {
            DecodeError::need(WHAT, count.saturating_mul(8), r.remaining())?;
            r.take(8 * count)?;
            NvValue::from_byte_strings(r.many(count, 1, |r| Ok(next_string(r)?.to_vec()))?)
        }
        _ => return Err(DecodeError::field(WHAT, "type", kind)),
    })
}

fn u8(r: &mut Reader<'_>) -> Result<u8, DecodeError> {
    Ok(r.take(1)?.first().copied().unwrap_or(0))
}

/// The string before the NUL at the end of `bytes`.
fn terminated(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match bytes.split_last() {
        Some((0, name)) if !name.contains(&0) => Ok(name),
        _ => Err(DecodeError::invalid(WHAT, "a name does not end in its only NUL")),
    }
}

/// The string up to the next NUL, which is consumed too.
fn next_string<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let end = r.find_nul().ok_or(DecodeError::invalid(WHAT, "a string does not end"))?;
    let string = r.take(end)?;
    r.take(1)?;
    Ok(string)
}

pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    put(out, &0u32.to_le_bytes());
    put(out, &list.flags.to_le_bytes());
    put_pairs(list, out);
}

fn put_pairs(list: &NvList, out: &mut Vec<u8>) {
    for pair in &list.pairs {
        let start = out.len();
        let name = pair.name_bytes();
        put(out, &(pair.native_size() as u32).to_le_bytes());
        put(out, &((name.len() + 1) as u16).to_le_bytes());
        put(out, &[0, 0]);
        put(out, &(pair.value.count() as u32).to_le_bytes());
        put(out, &pair.value.type_id().to_le_bytes());
        put(out, name);
        out.resize(start + round_up(PAIR_HEADER + name.len() + 1, 8), 0);
        put_value(&pair.value, out);
        out.resize(start + pair.native_size(), 0);
        match &pair.value {
            NvValue::List(inner) => put_pairs(inner, out),
            NvValue::ListArray(lists) => lists.iter().for_each(|inner| put_pairs(inner, out)),
            _ => {}
        }
    }
    put(out, &0u32.to_le_bytes());
}

fn put_value(value: &NvValue, out: &mut Vec<u8>) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(x) | NvValue::Uint8(x) => out.push(*x),
        NvValue::Int8(x) => put(out, &x.to_le_bytes()),
        NvValue::Int16(x) => put(out, &x.to_le_bytes()),
        NvValue::Uint16(x) => put(out, &x.to_le_bytes()),
        NvValue::Int32(x) => put(out, &x.to_le_bytes()),
        NvValue::Uint32(x) => put(out, &x.to_le_bytes()),
        NvValue::Int64(x) | NvValue::Hrtime(x) => put(out, &x.to_le_bytes()),
        NvValue::Uint64(x) => put(out, &x.to_le_bytes()),
        NvValue::BooleanValue(x) => put(out, &u32::from(*x).to_le_bytes()),
        NvValue::Double(x) => put(out, &x.to_le_bytes()),
        NvValue::String(x) => put(out, x.as_bytes()),
        NvValue::RawString(x) | NvValue::ByteArray(x) | NvValue::Uint8Array(x) => put(out, x),
        NvValue::Int8Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Int16Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Uint16Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Int32Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Uint32Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Int64Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::Uint64Array(v) => v.iter().for_each(|x| put(out, &x.to_le_bytes())),
        NvValue::BooleanArray(v) => v.iter().for_each(|x| put(out, &u32::from(*x).to_le_bytes())),
        NvValue::StringArray(_) | NvValue::RawStringArray(_) => {
            let strings = value.strings();
            out.resize(out.len() + 8 * strings.len(), 0);
            for s in strings {
                put(out, s);
                out.push(0);
            }
        }
        NvValue::List(inner) => put_list_struct(inner, out),
        NvValue::ListArray(lists) => {
            out.resize(out.len() + 8 * lists.len(), 0);
            lists.iter().for_each(|inner| put_list_struct(inner, out));
        }
    }
}

fn put_list_struct(list: &NvList, out: &mut Vec<u8>) {
    put(out, &0u32.to_le_bytes());
    put(out, &list.flags.to_le_bytes());
    put(out, &[0; LIST_STRUCT - 8]);
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}
