//! Zstandard frames without magic number, preceded by a header of two big-endian words
//! (docs/on-disk/13-checksums-compression.md, section 2.6).
//! Only the first word is needed for decoding. The second has level and library version of the writer. Old
//! big-endian writers confused its parts, so it is ignored.

use super::error::DecompressError;
use format::CompressionId;
use std::cell::RefCell;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

/// Size in bytes of the header before the frame: frame size, version and level.
pub(crate) const ZSTD_HEADER: usize = 8;
const ID: CompressionId = CompressionId::Zstd;
/// The level of `compression=zstd`.
const DEFAULT_LEVEL: i32 = 3;
/// Binary logarithm of the largest window: 128 MiB. No memory is allocated for it.
const WINDOW_LOG_MAX: u32 = 27;
/// The fast levels that have names, with the byte stored for each.
const FAST: [(i32, u8); 20] = [
    (-1, 103),
    (-2, 104),
    (-3, 105),
    (-4, 106),
    (-5, 107),
    (-6, 108),
    (-7, 109),
    (-8, 110),
    (-9, 111),
    (-10, 112),
    (-20, 113),
    (-30, 114),
    (-40, 115),
    (-50, 116),
    (-60, 117),
    (-70, 118),
    (-80, 119),
    (-90, 120),
    (-100, 121),
    (-500, 122),
];
const FASTEST: (i32, u8) = (-1000, 123);

thread_local! {
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// The byte stored for a level in block headers and properties, and the level that the byte means: the nearest one,
/// because not all fast levels have a byte.
pub(crate) fn level_to_byte(level: i32) -> (i32, u8) {
    match level {
        0 => (DEFAULT_LEVEL, DEFAULT_LEVEL as u8),
        1.. => (level.min(19), level.min(19) as u8),
        _ => FAST.into_iter().find(|(named, _)| *named <= level).unwrap_or(FASTEST),
    }
}

/// The level that a stored byte means; 0 and 255 are the default.
pub fn level_from_byte(byte: u8) -> Option<i32> {
    match byte {
        0 | 255 => Some(DEFAULT_LEVEL),
        1..=19 => Some(byte.into()),
        _ => FAST.into_iter().chain([FASTEST]).find(|(_, b)| *b == byte).map(|(level, _)| level),
    }
}

/// The header before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdHeader {
    /// Size of the frame in bytes.
    pub size: u32,
    /// Version of the library that wrote the frame: 10405 is 1.4.5.
    pub version: u32,
    /// The stored byte of the level ([`level_from_byte`]).
    pub level: u8,
}

impl ZstdHeader {
    /// Decodes the header of an image. The second word may have either byte order; the zero byte of the version
    /// shows which (docs/on-disk/13-checksums-compression.md, section 2.6). `None`: the image is too short.
    pub fn decode(image: &[u8]) -> Option<ZstdHeader> {
        let (size, rest) = image.split_first_chunk::<4>()?;
        let word = u32::from_be_bytes(*rest.first_chunk::<4>()?);
        let [low, .., high] = word.to_le_bytes();
        let swapped = word.swap_bytes();
        let (level, version) = match word.to_le_bytes().iter().position(|byte| *byte == 0) {
            Some(3) => (low, word >> 8),
            Some(0) => (high, swapped >> 8),
            Some(1) => (low, swapped & 0x00ff_ffff),
            _ => (high, word & 0x00ff_ffff),
        };
        Some(ZstdHeader { size: u32::from_be_bytes(*size), version, level })
    }
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    match decompress_some(src, dst)? {
        written if written == dst.len() => Ok(()),
        _ => Err(DecompressError::Size { id: ID, expected: dst.len() }),
    }
}

/// Decompresses a frame of unknown size, which must fit into `dst`. Returns the size.
pub(super) fn decompress_some(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let (header, rest) = src.split_first_chunk::<ZSTD_HEADER>().ok_or(short)?;
    let (length, _) = header.split_first_chunk::<4>().ok_or(short)?;
    let len = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| short)?;
    let frame = rest.get(..len).ok_or(short)?;
    DECODER.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => slot.insert(decoder().ok_or(DecompressError::Memory { id: ID })?),
        };
        // One call for the whole frame, so that the output serves as the window.
        match decoder.decompress(dst, frame) {
            Ok(written) => Ok(written),
            Err(_) => {
                // After an error the decoder is in an undefined state.
                *slot = None;
                Err(DecompressError::Corrupt { id: ID })
            }
        }
    })
}

fn decoder() -> Option<DCtx<'static>> {
    let mut decoder = DCtx::try_create()?;
    decoder.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
    Some(decoder)
}

pub(super) fn compress(level: i32, src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let (level, byte) = level_to_byte(level);
    let room = limit.min(ZSTD_HEADER + zstd_safe::compress_bound(src.len()));
    let mut out = vec![0; room];
    let (header, frame) = out.split_first_chunk_mut::<ZSTD_HEADER>()?;
    let len = ENCODER.with_borrow_mut(|slot| {
        let encoder = match slot {
            Some(encoder) => encoder,
            None => slot.insert(CCtx::try_create()?),
        };
        encoder.reset(ResetDirective::SessionAndParameters).ok()?;
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::CompressionLevel(level),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            encoder.set_parameter(parameter).ok()?;
        }
        encoder.compress2(frame, src).ok()
    })?;
    let version = zstd_safe::version_number() & 0xff_ffff;
    *header = (u64::from(u32::try_from(len).ok()?) << 32 | u64::from(byte) << 24 | u64::from(version))
        .to_be_bytes();
    out.truncate(ZSTD_HEADER + len);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_that_has_a_byte_keeps_it() {
        for byte in (1..=19).chain(103..=123) {
            let level = level_from_byte(byte).unwrap();
            assert_eq!(level_to_byte(level), (level, byte));
        }
        assert_eq!(level_from_byte(60), None);
        assert_eq!(level_to_byte(0), (3, 3));
        assert_eq!(level_to_byte(22), (19, 19));
        assert_eq!(level_to_byte(-15), (-20, 113));
        assert_eq!(level_to_byte(i32::MIN), FASTEST);
    }

    #[test]
    fn header_states_length_level_and_version() {
        let image = compress(-20, &[9; 4096], 4096).unwrap();
        let (header, frame) = image.split_first_chunk::<8>().unwrap();
        assert_eq!(u32::from_be_bytes(*header.first_chunk().unwrap()) as usize, frame.len());
        assert_eq!(header[4], 113);
        assert!(zstd_safe::version_number() >= 10_405);
        assert_ne!(frame[..4], [0x28, 0xb5, 0x2f, 0xfd], "magicless");
    }
}
