//! Bytes of a pool by their place, without a pointer that tells what they are: what `zdb -R` prints.

use crate::Pool;
use codec::compress::decompress;
use format::{
    AllocOffset, Checksum, ChecksumId, CompressionId, DeviceOffset, Endian, Psize, VdevGuid, VdevId,
};
use vdev::tree::Extent;

/// Largest block.
const BLOCK_MAX: usize = 16 << 20;
/// Up to this size blocks are tried that are no power of two.
const ODD_MAX: usize = 128 << 10;
const SECTOR: usize = 512;

/// Reads `size` bytes at `offset` of a top-level vdev, or of a device below it (`path`: numbers of children, from
/// the top-level vdev down).
///
/// # Errors
/// In words, why they could not be read.
pub fn raw_bytes(
    pool: &Pool,
    vdev: u32,
    path: &[usize],
    offset: u64,
    size: usize,
) -> Result<Vec<u8>, String> {
    let tree = pool.vdevs();
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

/// What a vdev is, or the path of its device, and its guid.
pub fn raw_vdev(pool: &Pool, vdev: u32, path: &[usize]) -> Option<(String, u64)> {
    let mut node = pool.spa().config().vdev_tree.children.iter().find(|top| top.id == vdev)?;
    for child in path {
        node = node.children.get(*child)?;
    }
    let text = node.path.clone().unwrap_or_else(|| node.kind.name().to_owned());
    Some((text, node.guid.0))
}

/// The block of which `image` is the compressed form, by whatever algorithm and size fits: those first that
/// tell right from wrong. Bytes behind the image do no harm.
pub fn decompress_any(image: &[u8], allow_zle: bool) -> Option<(CompressionId, Vec<u8>)> {
    let algorithms = [
        CompressionId::Lz4,
        CompressionId::Zstd,
        CompressionId::Gzip6,
        CompressionId::Lzjb,
        CompressionId::Zle,
    ];
    let powers =
        std::iter::successors(Some(BLOCK_MAX), |size| Some(size / 2)).take_while(|size| *size > image.len());
    let odd = (1..=ODD_MAX / SECTOR).rev().map(|sectors| sectors * SECTOR).filter(|size| *size >= SECTOR);
    let sizes: Vec<usize> = powers.chain(odd).collect();
    for id in algorithms.into_iter().filter(|id| allow_zle || *id != CompressionId::Zle) {
        for size in &sizes {
            let mut block = vec![0; *size];
            if decompress(id, image, &mut block).is_ok() {
                return Some((id, block));
            }
        }
    }
    None
}

/// All checksums of these bytes, by the names of the algorithms.
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
    let salt = pool.store().zio().salt();
    let sum = |id| Some((format!("{id}"), codec::checksum::compute(id, bytes, Endian::Little, salt).ok()?));
    all.into_iter().filter_map(sum).collect()
}
