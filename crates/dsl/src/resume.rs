//! Resume tokens of interrupted receives: encoded from the state that the receiving dataset keeps, and
//! decoded again (docs/on-disk/30-send-streams.md, sections 7 and 8).

use crate::dataset::Dataset;
use crate::error::DslError;
use crate::mos;
use codec::{checksum, compress};
use format::names;
use format::nvlist::{NvList, NvValue};
use format::{ChecksumId, CompressionId, Endian};

/// The only version of tokens in use.
const VERSION: u64 = 1;
/// Largest packed list in a token, in bytes: room for every name and thousands of snapshots.
const PACKED_MAX: usize = 1 << 20;

/// Keys with a number: name in the dataset's ZAP, name in the token.
const NUMBERS: [(&str, &str); 5] = [
    (names::dataset::RESUME_FROMGUID, "fromguid"),
    (names::dataset::RESUME_OBJECT, "object"),
    (names::dataset::RESUME_OFFSET, "offset"),
    (names::dataset::RESUME_BYTES, "bytes"),
    (names::dataset::RESUME_TOGUID, "toguid"),
];
const TO_NAME: (&str, &str) = (names::dataset::RESUME_TONAME, "toname");
const REDACT_SNAPS: (&str, &str) = (names::dataset::RESUME_REDACT_BOOK_SNAPS, "book_redact_snaps");
/// Boolean keys, true if present.
const FLAGS: [(&str, &str); 4] = [
    (names::dataset::RESUME_LARGEBLOCKOK, "largeblockok"),
    (names::dataset::RESUME_EMBEDOK, "embedok"),
    (names::dataset::RESUME_COMPRESSOK, "compressok"),
    (names::dataset::RESUME_RAWOK, "rawok"),
];

/// Why a text is no resume token. The messages are those of `zfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A part is missing, or is not a number.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// The token is of another version.
    #[error("resume token is corrupt (invalid version {version})")]
    Version {
        /// Version in the token.
        version: u64,
    },
    /// The payload has other characters than hex digits.
    #[error("resume token is corrupt (payload is not hex-encoded)")]
    NotHex,
    /// The checksum does not match the payload.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// The payload cannot be decompressed to the size that the token says.
    #[error("resume token is corrupt (decompression failed)")]
    Decompression,
    /// The payload holds no name-value list.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List,
}

/// The resume state that a partly received dataset keeps; `None`: it cannot be resumed.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn state_of(dataset: &Dataset) -> Result<Option<NvList>, DslError> {
    let Some(zap) = dataset.zap()? else { return Ok(None) };
    if zap.lookup(names::dataset::RESUME_TOGUID.as_bytes())?.is_none() {
        return Ok(None);
    }
    let mut list = NvList::new();
    for (key, name) in NUMBERS {
        if let Some(number) = mos::lookup_number(&zap, dataset.id(), key)? {
            list.push(name, NvValue::Uint64(number));
        }
    }
    if let Some(entry) = zap.lookup(TO_NAME.0.as_bytes())? {
        let name = entry.string().ok_or_else(|| mos::stored_value(dataset.id(), &entry))?;
        list.push(TO_NAME.1, NvValue::from_bytes(name));
    }
    for (key, name) in FLAGS {
        if zap.lookup(key.as_bytes())?.is_some() {
            list.push(name, NvValue::Boolean);
        }
    }
    if let Some(snaps) = dataset.redact_snaps()? {
        list.push("redact_snaps", NvValue::Uint64Array(snaps));
    }
    if let Some(entry) = zap.lookup(REDACT_SNAPS.0.as_bytes())? {
        list.push(REDACT_SNAPS.1, NvValue::Uint64Array(entry.u64s()));
    }
    Ok(Some(list))
}

/// The token of a dataset, or of the hidden clone that it is being received into.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn token_of(dataset: &Dataset) -> Result<Option<String>, DslError> {
    if dataset.is_snapshot() {
        return Ok(None);
    }
    let mut state = state_of(dataset)?;
    if state.is_none()
        && let Some(child) = dataset.dir().child(names::hidden::RECEIVE)?
        && let Some(head) = child.head()?
    {
        state = state_of(&head)?;
    }
    Ok(state.and_then(|list| encode(&list)))
}

fn sum(compressed: &[u8]) -> Option<u64> {
    // The checksum covers whole 32-bit words only.
    let (words, _) = compressed.as_chunks::<4>();
    let sum = checksum::compute(ChecksumId::Fletcher4, words.as_flattened(), Endian::Little, None).ok()?;
    Some(sum.0[0])
}

/// Encodes the token of this state.
pub fn encode(state: &NvList) -> Option<String> {
    let packed = state.encode_native();
    // zlib never needs more than a few bytes beyond its input.
    let room = packed.len() + packed.len() / 8 + 64;
    let compressed = compress::compress(CompressionId::Gzip6, 6, &packed, room)?;
    let hex: String = compressed.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{VERSION}-{:x}-{:x}-{hex}", sum(&compressed)?, packed.len()))
}

/// Decodes the state in a token.
///
/// # Errors
/// [`TokenError`].
pub fn decode(token: &str) -> Result<NvList, TokenError> {
    let mut parts = token.trim().splitn(4, '-');
    let mut part = || parts.next().filter(|p| !p.is_empty()).ok_or(TokenError::Format);
    let version: u64 = part()?.parse().map_err(|_| TokenError::Format)?;
    if version != VERSION {
        return Err(TokenError::Version { version });
    }
    let expected = u64::from_str_radix(part()?, 16).map_err(|_| TokenError::Format)?;
    let len = usize::from_str_radix(part()?, 16).map_err(|_| TokenError::Format)?;
    let compressed = unhex(part()?).ok_or(TokenError::NotHex)?;
    if sum(&compressed) != Some(expected) {
        return Err(TokenError::Checksum);
    }
    if len > PACKED_MAX {
        return Err(TokenError::Decompression);
    }
    let mut packed = vec![0; len];
    compress::decompress(CompressionId::Gzip6, &compressed, &mut packed)
        .map_err(|_| TokenError::Decompression)?;
    NvList::decode(&packed).map_err(|_| TokenError::List)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|n| n as u8);
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by OpenZFS 2.3.2 for an interrupted receive of `src/fs@c`.
    const REAL: &str = "1-972a23b06-b8-789c636064000310a500c4ec50360710e72765a52697303008409460caa7a515a796806498e0f26c48f2499525a9c52089e31c58f597e4a79766a63030082edc70336e868fbd06923c27583e2f31379581a1b828593fadd8219901090000dc2e14c0";

    #[test]
    fn a_real_token_says_where_to_go_on() {
        let state = decode(REAL).unwrap();
        assert_eq!(state.str("toname"), Some("src/fs@c"));
        assert!(state.u64("object").is_some() && state.u64("toguid").is_some());
        let again = encode(&state).unwrap();
        assert_eq!(decode(&again).unwrap(), state);
        // Deflate may choose other matches than the original zlib; the packed list is the same.
        assert_eq!(again.split('-').nth(2), REAL.split('-').nth(2));
    }

    #[test]
    fn damage_is_named() {
        let why = |token: &str| decode(token).unwrap_err().to_string();
        assert_eq!(why("abc"), "resume token is corrupt (invalid format)");
        assert_eq!(why("2-1-1-00"), "resume token is corrupt (invalid version 2)");
        assert_eq!(why("1-1-1-0g"), "resume token is corrupt (payload is not hex-encoded)");
        assert_eq!(why("1-1-1-00"), "resume token is corrupt (incorrect checksum)");
    }
}
