//! Replaces the contents of a block in place: compresses, checksums and writes them.

use crate::image::Image;
use crate::{MutateError, Result};
use codec::checksum::{self, TRAILER_MAGIC, TRAILER_SIZE};
use codec::compress::compress;
use format::blkptr::{BLKPTR_SIZE, EMBEDDED_MAX};
use format::{BlockPtr, BpKind, ChecksumId, CompressionId, Dva, Endian, Psize};
use vdev::tree::Extent;

/// Bytes of a gang header.
const GANG_HEADER: usize = 512;
/// The words of an embedded block pointer that carry payload, in order.
const EMBEDDED_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

/// Compressions and levels that this pool may use, the one of the block itself first.
fn compressions(image: &Image, bp: &BlockPtr) -> Vec<(CompressionId, i32)> {
    let mut compressions =
        vec![(bp.compression().unwrap_or(CompressionId::Lzjb), 19), (CompressionId::Lzjb, 0)];
    if image.has_active("lz4_compress") {
        compressions.push((CompressionId::Lz4, 0));
    }
    if image.pool.version() >= 5 {
        compressions.push((CompressionId::Gzip9, 0));
    }
    if image.has_active("zstd_compress") {
        compressions.push((CompressionId::Zstd, 19));
    }
    compressions
}

/// Encodes new contents at exactly the stored size of the old ones; returns the compression and the stored
/// bytes.
///
/// # Errors
/// [`MutateError::TooLarge`] if no compression makes them fit.
pub(crate) fn stored_form(image: &Image, bp: &BlockPtr, contents: &[u8]) -> Result<(CompressionId, Vec<u8>)> {
    let psize = bp.psize().0 as usize;
    if contents.len() == psize {
        return Ok((CompressionId::Off, contents.to_vec()));
    }
    for (id, level) in compressions(image, bp) {
        if let Some(mut packed) = compress(id, level, contents, psize) {
            if !bp.is_embedded() {
                packed.resize(psize, 0);
            }
            return Ok((id, packed));
        }
    }
    Err(MutateError::TooLarge(*bp))
}

/// Writes new contents in the place of a block, and returns the new pointer. `order` is the byte order of the
/// contents.
///
/// # Errors
/// Fails if they do not fit or cannot be written.
pub(crate) fn seal(image: &Image, bp: &BlockPtr, contents: &[u8], order: Endian) -> Result<BlockPtr> {
    if bp.is_embedded() {
        return embed(image, bp, contents, order);
    }
    let (id, stored) = stored_form(image, bp, contents)?;
    let bp = with_order(bp, order).with_prop_bits(32, 7, id.id().into());
    write_stored(image, &bp, &stored)
}

/// Returns the pointer with the byte order flag set to `order`. The MAC in its words is stored as bytes, so
/// these words are swapped along with the flag.
fn with_order(bp: &BlockPtr, order: Endian) -> BlockPtr {
    let mut swapped = bp.with_prop_bits(63, 1, u64::from(order == Endian::Little));
    if checksum::is_shortened(bp) && order != bp.byte_order() {
        for i in [14, 15] {
            swapped = swapped.with_word(i, bp.words()[i].swap_bytes());
        }
    }
    swapped
}

/// Changes the byte order flag of a block whose contents are plain bytes, without changing the contents.
///
/// # Errors
/// Fails if the block cannot be read, or a gang block cannot be written.
pub(crate) fn relabel(image: &Image, bp: &BlockPtr, order: Endian) -> Result<BlockPtr> {
    let stored = image.zio().read_physical(bp, &zio::ReadPolicy::default())?;
    let bp = with_order(bp, order);
    if bp.kind() == BpKind::Gang {
        write_stored(image, &bp, &stored)
    } else {
        with_checksum(image, &bp, &stored)
    }
}

/// Returns an embedded pointer with other contents.
fn embed(image: &Image, bp: &BlockPtr, contents: &[u8], order: Endian) -> Result<BlockPtr> {
    let same_size = contents.len() <= EMBEDDED_MAX;
    let packed = compressions(image, bp)
        .into_iter()
        .find_map(|(id, level)| Some((id, compress(id, level, contents, EMBEDDED_MAX)?)));
    let (id, packed) = match packed {
        Some(found) => found,
        None if same_size => (CompressionId::Off, contents.to_vec()),
        None => return Err(MutateError::TooLarge(*bp)),
    };
    let mut payload = packed;
    let psize = payload.len() as u64;
    payload.resize(EMBEDDED_MAX, 0);
    let mut sealed =
        with_order(bp, order).with_prop_bits(25, 7, psize - 1).with_prop_bits(32, 7, id.id().into());
    for (word, value) in EMBEDDED_WORDS.into_iter().zip(Endian::Little.all_words(&payload)) {
        sealed = sealed.with_word(word, value);
    }
    Ok(sealed)
}

/// Writes the stored bytes of a block as given, and returns the pointer with their checksum. The MAC of a
/// protected block is kept.
///
/// # Errors
/// Fails if a vdev cannot be written.
pub(crate) fn write_stored(image: &Image, bp: &BlockPtr, stored: &[u8]) -> Result<BlockPtr> {
    if bp.kind() == BpKind::Gang {
        write_gang(image, bp, stored)?;
    } else {
        write_copies(image, bp, stored)?;
    }
    with_checksum(image, bp, stored)
}

fn with_checksum(image: &Image, bp: &BlockPtr, stored: &[u8]) -> Result<BlockPtr> {
    let id = bp.checksum_kind()?;
    let full = checksum::compute(id, stored, bp.byte_order(), image.zio().salt())?;
    let words = if checksum::is_shortened(bp) {
        let [a, b] = checksum::shorten(id, full);
        [a, b, bp.words()[14], bp.words()[15]]
    } else {
        full.0
    };
    Ok(words.into_iter().enumerate().fold(*bp, |bp, (i, word)| bp.with_word(12 + i, word)))
}

fn write_copies(image: &Image, bp: &BlockPtr, stored: &[u8]) -> Result<()> {
    let dvas: Vec<Dva> = bp.dvas().collect();
    for dva in dvas {
        let at = Extent {
            vdev: dva.vdev,
            offset: dva.offset,
            psize: Psize(stored.len() as u64),
            birth: bp.physical_birth(),
        };
        write_extent(image, &at, stored, 0)?;
    }
    Ok(())
}

/// Writes an extent; one on a removed vdev goes to where the vdev's mapping leads.
fn write_extent(image: &Image, at: &Extent, data: &[u8], depth: usize) -> Result<()> {
    let tree = image.pool.tree();
    let Some(mapping) = tree.indirect(at.vdev) else { return Ok(tree.write(at, data)?) };
    let (mut done, end) = (0, data.len() as u64);
    for entry in mapping.entries() {
        let here = at.offset.0 + done;
        if done >= end || depth > 16 {
            break;
        }
        if entry.src.0 > here || here >= entry.src.0 + entry.len {
            continue;
        }
        let skip = here - entry.src.0;
        let len = (entry.len - skip).min(end - done);
        let part = &data[done as usize..(done + len) as usize];
        let mut offset = entry.dst.offset;
        offset.0 += skip;
        let target = Extent { vdev: entry.dst.vdev, offset, psize: Psize(len), birth: at.birth };
        write_extent(image, &target, part, depth + 1)?;
        done += len;
    }
    if done < end { Err(MutateError::Unsupported("a block that a mapping does not cover")) } else { Ok(()) }
}

/// Writes the parts of a gang block and its header.
fn write_gang(image: &Image, bp: &BlockPtr, stored: &[u8]) -> Result<()> {
    if image.has_active("dynamic_gang_header") {
        return Err(MutateError::Unsupported("gang headers of any size"));
    }
    let mut header = read_gang_header(image, bp)?;
    // `bp` has the new byte order already; the header on disk may still have the old one.
    let old = [Endian::Little, Endian::Big]
        .into_iter()
        .find(|order| order.get_u64(&header, GANG_HEADER - TRAILER_SIZE) == Some(TRAILER_MAGIC))
        .ok_or(MutateError::Unsupported("a gang header without a trailer"))?;
    let order = bp.byte_order();
    let mut rest = stored;
    for at in (0..3).map(|i| i * BLKPTR_SIZE) {
        let mut piece = BlockPtr::decode(&header[at..], old)?;
        if !piece.is_hole() {
            let len = (piece.psize().0 as usize).min(rest.len());
            let (own, behind) = rest.split_at(len);
            rest = behind;
            piece = write_stored(image, &with_order(&piece, order), own)?;
        }
        header[at..at + BLKPTR_SIZE].copy_from_slice(&piece.encode(order));
    }
    let verifier = checksum::gang_verifier(bp)?;
    let mut sums = trailer_sum(&header, verifier, order);
    if checksum::is_shortened(bp) {
        let [a, b] = checksum::shorten(ChecksumId::GangHeader, format::Checksum(sums));
        sums = [a, b, 0, 0];
    }
    put_trailer(&mut header, sums, order);
    write_copies(image, bp, &header)
}

fn read_gang_header(image: &Image, bp: &BlockPtr) -> Result<Vec<u8>> {
    let first = bp.dvas().next().ok_or(MutateError::Unsupported("a gang block without an address"))?;
    let at = Extent {
        vdev: first.vdev,
        offset: first.offset,
        psize: Psize(GANG_HEADER as u64),
        birth: bp.physical_birth(),
    };
    let is_header = |data: &[u8]| checksum::verify_gang_header(data, bp).is_ok_and(|order| order.is_some());
    Ok(image.pool.tree().read(&at, &is_header).data?)
}

/// Writes the checksum trailer of a label region in this byte order.
pub(crate) fn seal_region(region: &mut [u8], verifier: [u64; 4], order: Endian) {
    let sums = trailer_sum(region, verifier, order);
    put_trailer(region, sums, order);
}

/// The checksum of a region with a trailer in this byte order.
fn trailer_sum(region: &[u8], verifier: [u64; 4], order: Endian) -> [u64; 4] {
    let mut image = region.to_vec();
    put_trailer(&mut image, verifier, order);
    checksum::compute(ChecksumId::Sha256, &image, order, None).map_or([0; 4], |sum| sum.0)
}

fn put_trailer(region: &mut [u8], words: [u64; 4], order: Endian) {
    let Some((_, trailer)) = region.split_last_chunk_mut::<TRAILER_SIZE>() else { return };
    let [a, b, c, d] = words;
    for (bytes, word) in trailer.as_chunks_mut::<8>().0.iter_mut().zip([TRAILER_MAGIC, a, b, c, d]) {
        *bytes = order.put_u64(word);
    }
}

/// The pointer fields that change when a block is rewritten; kept to update the other pointers to the same
/// block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealedFields {
    bp: BlockPtr,
}

impl SealedFields {
    /// Remembers the fields of the new pointer.
    pub(crate) fn new(bp: BlockPtr) -> SealedFields {
        SealedFields { bp }
    }

    /// Applies the change to another pointer to the block, which may have another birth and another MAC.
    pub(crate) fn apply(&self, to: &BlockPtr) -> BlockPtr {
        let count = if checksum::is_shortened(&self.bp) { 2 } else { 4 };
        let mut bp =
            with_order(to, self.bp.byte_order()).with_prop_bits(32, 7, self.bp.compression_id().into());
        for i in 12..12 + count {
            bp = bp.with_word(i, self.bp.words()[i]);
        }
        bp
    }
}
