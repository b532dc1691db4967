//! The XDR encoding (docs/on-disk/11-labels-config.md, section 2.1).

use super::reader::Reader;
use super::{DEPTH_MAX, NAME_MAX, NvList, NvValue, Pair, WHAT, id, round_up};
use crate::DecodeError;

/// Bytes of the smallest list: version, flags and terminator.
const LIST_MIN: usize = 16;

/// # Errors
/// [`DecodeError`] of the first pair that is cut off, of an unknown type, or nested too deeply.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<NvList, DecodeError> {
    list(r, 1)
}

fn list(r: &mut Reader<'_>, depth: u32) -> Result<NvList, DecodeError> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::field(WHAT, "depth", depth));
    }
    let version = r.u32()?;
    if version != 0 {
        return Err(DecodeError::field(WHAT, "version", version));
    }
    let flags = r.u32()?;
    let mut pairs = Vec::new();
    loop {
        let encoded = r.u32()?;
        let hint = r.u32()?;
        if encoded == 0 && hint == 0 {
            return Ok(NvList { pairs, flags });
        }
        let rest = (encoded as usize).checked_sub(8).ok_or(DecodeError::field(WHAT, "pair size", encoded))?;
        let mut inside = Reader::new(r.take(rest)?, r.order);
        pairs.push(pair(&mut inside, depth)?);
    }
}

fn pair(r: &mut Reader<'_>, depth: u32) -> Result<Pair, DecodeError> {
    let name = string(r)?;
    if name.len() > NAME_MAX {
        return Err(DecodeError::field(WHAT, "name length", name.len() as u64));
    }
    let kind = r.u32()?;
    let count = r.u32()? as usize;
    let expected = match kind {
        id::BOOLEAN => Some(0),
        id::BYTE..=id::STRING | id::HRTIME | id::NVLIST | id::BOOLEAN_VALUE..=id::UINT8 | id::DOUBLE => {
            Some(1)
        }
        _ => None,
    };
    if expected.is_some_and(|n| n != count) {
        return Err(DecodeError::field(WHAT, "element count", count as u64));
    }
    let value = value(r, kind, count, depth)?;
    Ok(Pair::new(name, value))
}

fn value(r: &mut Reader<'_>, kind: u32, count: usize, depth: u32) -> Result<NvValue, DecodeError> {
    // Narrow integers are extended to 32 bits with sign or zeros; truncation reverses both.
    Ok(match kind {
        id::BOOLEAN => NvValue::Boolean,
        id::BYTE => NvValue::Byte(r.u32()? as u8),
        id::INT8 => NvValue::Int8(r.u32()? as i8),
        id::UINT8 => NvValue::Uint8(r.u32()? as u8),
        id::INT16 => NvValue::Int16(r.u32()? as i16),
        id::UINT16 => NvValue::Uint16(r.u32()? as u16),
        id::INT32 => NvValue::Int32(r.u32()? as i32),
        id::UINT32 => NvValue::Uint32(r.u32()?),
        id::INT64 => NvValue::Int64(r.u64()? as i64),
        id::UINT64 => NvValue::Uint64(r.u64()?),
        id::HRTIME => NvValue::Hrtime(r.u64()? as i64),
        id::BOOLEAN_VALUE => NvValue::BooleanValue(r.u32()? != 0),
        id::DOUBLE => NvValue::Double(f64::from_bits(r.u64()?)),
        id::STRING => NvValue::from_bytes(string(r)?.to_vec()),
        id::BYTE_ARRAY => NvValue::ByteArray(padded(r, count)?.to_vec()),
        id::INT8_ARRAY => NvValue::Int8Array(units(r, count, 4, |r| Ok(r.u32()? as i8))?),
        id::UINT8_ARRAY => NvValue::Uint8Array(units(r, count, 4, |r| Ok(r.u32()? as u8))?),
        id::INT16_ARRAY => NvValue::Int16Array(units(r, count, 4, |r| Ok(r.u32()? as i16))?),
        id::UINT16_ARRAY => NvValue::Uint16Array(units(r, count, 4, |r| Ok(r.u32()? as u16))?),
        id::INT32_ARRAY => NvValue::Int32Array(units(r, count, 4, |r| Ok(r.u32()? as i32))?),
        id::UINT32_ARRAY => NvValue::Uint32Array(units(r, count, 4, Reader::u32)?),
        id::INT64_ARRAY => NvValue::Int64Array(units(r, count, 8, |r| Ok(r.u64()? as i64))?),
        id::UINT64_ARRAY => NvValue::Uint64Array(units(r, count, 8, Reader::u64)?),
        id::BOOLEAN_ARRAY => NvValue::BooleanArray(units(r, count, 4, |r| Ok(r.u32()? != 0))?),
        id::STRING_ARRAY => NvValue::from_byte_strings(r.many(count, 4, |r| Ok(string(r)?.to_vec()))?),
        id::NVLIST => NvValue::List(list(r, depth + 1)?),
        id::NVLIST_ARRAY => NvValue::ListArray(r.many(count, LIST_MIN, |r| list(r, depth + 1))?),
        _ => return Err(DecodeError::field(WHAT, "type", kind)),
    })
}

/// An array that repeats its count before its elements.
fn units<'a, T>(
    r: &mut Reader<'a>,
    count: usize,
    unit: usize,
    read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let again = r.u32()?;
    if again as usize != count {
        return Err(DecodeError::field(WHAT, "element count", again));
    }
    r.many(count, unit, read)
}

/// `n` bytes, and the padding up to a multiple of four.
fn padded<'a>(r: &mut Reader<'a>, n: usize) -> Result<&'a [u8], DecodeError> {
    let bytes = r.take(n)?;
    r.take(round_up(n, 4) - n)?;
    Ok(bytes)
}

fn string<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = r.u32()? as usize;
    let bytes = padded(r, len)?;
    if bytes.contains(&0) {
        return Err(DecodeError::invalid(WHAT, "a string holds a NUL"));
    }
    Ok(bytes)
}

pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    put_u32(out, 0);
    put_u32(out, list.flags);
    for pair in &list.pairs {
        let start = out.len();
        put_u32(out, 0); // the size, known at the end
        put_u32(out, pair.native_size() as u32);
        put_string(out, pair.name_bytes());
        put_u32(out, pair.value.type_id());
        put_u32(out, pair.value.count() as u32);
        put_value(out, &pair.value);
        let size = (out.len() - start) as u32;
        if let Some(field) = out.get_mut(start..start + 4) {
            field.copy_from_slice(&size.to_be_bytes());
        }
    }
    put_u64(out, 0);
}

fn put_value(out: &mut Vec<u8>, value: &NvValue) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(x) | NvValue::Uint8(x) => put_u32(out, u32::from(*x)),
        NvValue::Int8(x) => put_u32(out, i32::from(*x) as u32),
        NvValue::Int16(x) => put_u32(out, i32::from(*x) as u32),
        NvValue::Uint16(x) => put_u32(out, u32::from(*x)),
        NvValue::Int32(x) => put_u32(out, *x as u32),
        NvValue::Uint32(x) => put_u32(out, *x),
        NvValue::Int64(x) | NvValue::Hrtime(x) => put_u64(out, *x as u64),
        NvValue::Uint64(x) => put_u64(out, *x),
        NvValue::BooleanValue(x) => put_u32(out, u32::from(*x)),
        NvValue::Double(x) => put_u64(out, x.to_bits()),
        NvValue::String(x) => put_string(out, x.as_bytes()),
        NvValue::RawString(x) => put_string(out, x),
        NvValue::ByteArray(x) => put_padded(out, x),
        NvValue::Int8Array(v) => put_units(out, v, |out, x| put_u32(out, i32::from(x) as u32)),
        NvValue::Uint8Array(v) => put_units(out, v, |out, x| put_u32(out, u32::from(x))),
        NvValue::Int16Array(v) => put_units(out, v, |out, x| put_u32(out, i32::from(x) as u32)),
        NvValue::Uint16Array(v) => put_units(out, v, |out, x| put_u32(out, u32::from(x))),
        NvValue::Int32Array(v) => put_units(out, v, |out, x| put_u32(out, x as u32)),
        NvValue::Uint32Array(v) => put_units(out, v, put_u32),
        NvValue::Int64Array(v) => put_units(out, v, |out, x| put_u64(out, x as u64)),
        NvValue::Uint64Array(v) => put_units(out, v, put_u64),
        NvValue::BooleanArray(v) => put_units(out, v, |out, x| put_u32(out, u32::from(x))),
        NvValue::StringArray(_) | NvValue::RawStringArray(_) => {
            for s in value.strings() {
                put_string(out, s);
            }
        }
        NvValue::List(x) => encode(x, out),
        NvValue::ListArray(v) => {
            for x in v {
                encode(x, out);
            }
        }
    }
}

fn put_units<T: Copy>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, T)) {
    put_u32(out, items.len() as u32);
    for item in items {
        put(out, *item);
    }
}

fn put_u32(out: &mut Vec<u8>, x: u32) {
    out.extend_from_slice(&x.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, x: u64) {
    out.extend_from_slice(&x.to_be_bytes());
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + round_up(bytes.len(), 4) - bytes.len(), 0);
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    put_padded(out, bytes);
}
