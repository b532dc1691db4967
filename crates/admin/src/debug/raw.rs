//! Reads bytes of a pool by vdev and offset, without a block pointer: the data of `zdb -R`.

use cenote::{Error, Pool};
use codec::compress::{ZstdHeader, decompress, decompress_some, zle_ends};
use dmu::{DmuError, Object};
use format::blkptr::Protection;
use format::{
    AllocOffset, BlockPtr, BpKind, Checksum, ChecksumId, CompressionId, DeviceOffset, Endian, Psize,
    VdevGuid, VdevId,
};
use vdev::tree::Extent;
use zio::ReadPolicy;

/// Maximum size of a block in bytes.
const BLOCK_MAX: usize = 16 << 20;
const SECTOR: usize = 512;

/// Reads `size` bytes at `offset` of a top-level vdev, or of its descendant at `path`: indexes of children, from
/// the top-level vdev down.
///
/// # Errors
/// A message that says why the bytes could not be read.
pub fn raw_bytes(
    pool: &Pool,
    vdev: u32,
    path: &[usize],
    offset: u64,
    size: usize,
) -> Result<Vec<u8>, String> {
    let tree = pool.spa().tree();
    if path.is_empty() {
        let psize = Psize(size as u64);
        let birth = pool.spa().uberblock().txg;
        let at = Extent { vdev: VdevId(vdev), offset: AllocOffset(offset), psize, birth };
        return tree.read_quietly(&at, &|_| true).map_err(|error| error.to_string());
    }
    let (_, guid) = raw_vdev(pool, vdev, path).ok_or("no such vdev")?;
    let device = tree.device(VdevGuid(guid)).ok_or("the device is not open")?;
    let mut bytes = vec![0; size];
    let at = DeviceOffset(offset.saturating_add(format::units::LABEL_START));
    device.read_at(&mut bytes, at).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Type, or device path, and guid of a vdev. `None`: there is no such vdev.
pub fn raw_vdev(pool: &Pool, vdev: u32, path: &[usize]) -> Option<(String, u64)> {
    let root = pool.spa().tree().status();
    let mut node = root.children.iter().find(|top| top.id == vdev)?;
    for child in path {
        node = node.children.get(*child)?;
    }
    let path = node.path.as_ref().map(|path| path.display().to_string());
    Some((path.unwrap_or_else(|| node.kind.name().to_owned()), node.guid.0))
}

/// Decompresses `image` by trying each algorithm. Bytes after the end of the compressed data are ignored.
///
/// With `lsize` the block has that size. Otherwise the streams of lz4, gzip and zstd give the size. An lzjb stream
/// has no end mark: the block gets as many bytes as `image` has, so a caller that knows the block's size passes
/// that many bytes. Zle is tried last, because almost any data is a valid zle stream; the smallest possible block
/// larger than the image is returned.
pub fn decompress_any(
    image: &[u8],
    lsize: Option<usize>,
    allow_zle: bool,
) -> Option<(CompressionId, Vec<u8>)> {
    match lsize {
        Some(lsize) => {
            let ids = ALGORITHMS.into_iter().filter(|id| allow_zle || *id != CompressionId::Zle);
            ids.into_iter().find_map(|id| Some((id, exactly(id, image, lsize)?)))
        }
        None => {
            let telling = ALGORITHMS.into_iter().find_map(|id| Some((id, as_it_tells(id, image)?)));
            let lzjb = || Some((CompressionId::Lzjb, exactly(CompressionId::Lzjb, image, image.len())?));
            telling.or_else(lzjb).or_else(|| if allow_zle { smallest_zle(image) } else { None })
        }
    }
}

/// The algorithms, in the order in which they are tried.
const ALGORITHMS: [CompressionId; 5] =
    [CompressionId::Lz4, CompressionId::Lzjb, CompressionId::Gzip1, CompressionId::Zstd, CompressionId::Zle];

fn exactly(id: CompressionId, image: &[u8], lsize: usize) -> Option<Vec<u8>> {
    let mut block = vec![0; lsize.min(BLOCK_MAX)];
    decompress(id, image, &mut block).ok()?;
    Some(block)
}

/// The block, with the size that its stream gives.
fn as_it_tells(id: CompressionId, image: &[u8]) -> Option<Vec<u8>> {
    let mut block = vec![0; BLOCK_MAX];
    let size = decompress_some(id, image, &mut block).ok()?;
    block.truncate(size);
    (size > 0 && size.is_multiple_of(SECTOR)).then_some(block)
}

fn smallest_zle(image: &[u8]) -> Option<(CompressionId, Vec<u8>)> {
    let mut ends = zle_ends(image).take_while(|end| *end <= BLOCK_MAX);
    let lsize = ends.find(|end| *end > image.len() && end.is_multiple_of(SECTOR))?;
    Some((CompressionId::Zle, exactly(CompressionId::Zle, image, lsize)?))
}

/// The block embedded in a block pointer. `None`: the pointer is not embedded, or its payload is not a valid block.
pub fn embedded_block(bp: &BlockPtr) -> Option<Vec<u8>> {
    let payload = bp.embedded_payload()?;
    let lsize = usize::try_from(bp.lsize().0).ok().filter(|lsize| *lsize <= BLOCK_MAX)?;
    exactly(bp.compression().ok()?, &payload, lsize)
}

/// The header before the zstd frame of a block. `None`: the block is encrypted or is not compressed with zstd.
///
/// # Errors
/// The block cannot be read.
pub fn zstd_header(object: &Object, bp: &BlockPtr) -> Result<Option<ZstdHeader>, Error> {
    if bp.compression() != Ok(CompressionId::Zstd) || bp.protection() == Protection::Encrypted {
        return Ok(None);
    }
    let stored = match bp.kind() {
        BpKind::Hole | BpKind::Redacted => return Ok(None),
        BpKind::Embedded => bp.embedded_payload().unwrap_or_default(),
        BpKind::Normal | BpKind::Gang => {
            let zio = object.objset().store().zio();
            let (objset, id) = (object.objset().number(), object.id());
            zio.read_physical(bp, &ReadPolicy::default()).map_err(|source| DmuError::Zio {
                objset,
                object: id,
                source,
            })?
        }
    };
    Ok(ZstdHeader::decode(&stored))
}

/// The checksums of these bytes by every algorithm, with the algorithms' names.
pub fn checksums(pool: &Pool, bytes: &[u8]) -> Vec<(String, Checksum)> {
    let all = [
        ChecksumId::Fletcher2,
        ChecksumId::Fletcher4,
        ChecksumId::Sha256,
        ChecksumId::Sha512,
        ChecksumId::Skein,
        ChecksumId::Edonr,
        ChecksumId::Blake3,
    ];
    let salt = pool.spa().store().zio().salt();
    let sum = |id| Some((format!("{id}"), codec::checksum::compute(id, bytes, Endian::Little, salt).ok()?));
    all.into_iter().filter_map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::compress::compress;

    /// Data that every algorithm compresses: text, then zeros for zle.
    fn block() -> Vec<u8> {
        let mut block: Vec<u8> = b"sixteen letters ".iter().copied().cycle().take(3 * SECTOR).collect();
        block.resize(12 * SECTOR, 0);
        block
    }

    fn image(id: CompressionId) -> Vec<u8> {
        let mut image = compress(id, 0, &block(), 12 * SECTOR).expect("it shrinks");
        image.resize(image.len().next_multiple_of(SECTOR), 0);
        image
    }

    #[test]
    fn a_block_of_known_size_is_found_by_every_algorithm() {
        for id in ALGORITHMS {
            let found = decompress_any(&image(id), Some(12 * SECTOR), true);
            assert_eq!(found, Some((id, block())), "{id}");
        }
        assert_eq!(decompress_any(&image(CompressionId::Zle), Some(12 * SECTOR), false), None);
        assert_eq!(decompress_any(&[0; SECTOR], Some(usize::MAX), false), None);
    }

    #[test]
    fn without_a_size_streams_tell_it() {
        for id in [CompressionId::Lz4, CompressionId::Gzip1, CompressionId::Zstd] {
            assert_eq!(decompress_any(&image(id), None, false), Some((id, block())), "{id}");
        }
        // An lzjb stream gives no size: the result is as large as the image and is the beginning of the block.
        let found = decompress_any(&image(CompressionId::Lzjb), None, false).expect("a block");
        assert_eq!(found, (CompressionId::Lzjb, block()[..SECTOR].to_vec()));
        // The smallest block of whole sectors, larger than the image, that ends where a run does: eight of
        // 192 zeros.
        let found =
            decompress_any(&image(CompressionId::Zle), None, true).map(|(id, block)| (id, block.len()));
        assert_eq!(found, Some((CompressionId::Zle, 6 * SECTOR)));
    }
}
