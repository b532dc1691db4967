//! Gang blocks: a header block of pointers to pieces, used when no free space was large enough
//! (docs/on-disk/12-block-pointers.md, section 7).
//!
//! # What always holds
//! - The pieces add up to the block before any of them is read, so that memory is bounded by the
//!   block's own size; gangs nest at most [`MAX_DEPTH`] deep.

use crate::ZioError;
use crate::layer::Zio;
use crate::policy::ReadPolicy;
use codec::checksum;
use format::blkptr::BLKPTR_SIZE;
use format::{BlockPtr, ChecksumId, Dva, Endian, ObjType, Psize};
use vdev::tree::{Extent, Fault, Read, VdevError};

/// Most nested gangs. OpenZFS splits a block into three at a time down to 512 bytes: 16 MiB needs ten.
const MAX_DEPTH: usize = 16;
/// Bytes of a classic header.
pub(crate) const HEADER_SIZE: usize = 512;
/// Bytes of the trailer: magic and four words.
const TRAILER_SIZE: usize = 40;
const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// The pointers to the pieces of a gang block that is itself `depth` gangs deep.
pub(crate) fn pieces(
    zio: &Zio,
    bp: &BlockPtr,
    how: &ReadPolicy<'_>,
    faults: &mut Vec<Fault>,
    depth: usize,
) -> Result<Vec<BlockPtr>, ZioError> {
    let bad = |why| Err(ZioError::Gang { bp: *bp, why });
    if depth >= MAX_DEPTH {
        return bad("nested too deep");
    }
    let header = read_header(zio, bp, how, faults)?;
    #[cfg(feature = "testing")]
    let header = crate::mutators::mutate_stored(bp, crate::mutators::Stored::GangHeader, header);
    let mut pieces = pieces_of(&header, bp.byte_order());
    pieces.retain(|piece| !piece.is_hole());
    let total: u64 = pieces.iter().map(|piece| piece.psize().0).sum();
    if pieces.is_empty() || total != bp.psize().0 {
        return bad("the pieces do not add up to the block");
    }
    if pieces.len() > 1 && pieces.iter().any(|piece| piece.psize() == bp.psize()) {
        return bad("a piece as large as the block");
    }
    Ok(pieces)
}

fn pieces_of(header: &[u8], order: Endian) -> Vec<BlockPtr> {
    let room = header.len().saturating_sub(TRAILER_SIZE) / BLKPTR_SIZE * BLKPTR_SIZE;
    BlockPtr::decode_all(header.get(..room).unwrap_or(&[]), order).collect()
}

fn read_header(
    zio: &Zio,
    bp: &BlockPtr,
    how: &ReadPolicy<'_>,
    faults: &mut Vec<Fault>,
) -> Result<Vec<u8>, ZioError> {
    let Some(first) = bp.dvas().next() else {
        return Err(ZioError::Gang { bp: *bp, why: "no address" });
    };
    let large = zio.dynamic_gang_headers().then(|| large_header_size(zio, bp)).flatten();
    let tree = zio.tree();
    let mut last = VdevError::NoCopies;
    let mut found = None;
    let mut bad = Vec::new();
    for size in large.into_iter().chain([HEADER_SIZE]) {
        let verify = |data: &[u8]| header_is_valid(bp, &first, data);
        for dva in bp.dvas() {
            let psize = Psize(size as u64);
            if let Err(error) = tree.check(&dva, psize) {
                last = error;
                continue;
            }
            let at = Extent { vdev: dva.vdev, offset: dva.offset, psize, birth: bp.physical_birth() };
            let Read { data, faults: more } = zio.read_extent(&tree, &at, how, &verify);
            // A header of the other size is no error of the device.
            if data.is_ok() || size == HEADER_SIZE {
                faults.extend_from_slice(&more);
                bad.push((at, more));
            }
            match data {
                Ok(header) => found = Some(header),
                Err(error) => last = error,
            }
            if found.is_some() && !how.every_copy {
                break;
            }
        }
        if let Some(header) = found {
            zio.heal(&tree, &bad, &header, how);
            return Ok(header);
        }
    }
    Err(ZioError::Unreadable { bp: *bp, faults: faults.clone(), source: last })
}

/// The smallest allocation over the vdevs of the block, where that is more than a classic header.
fn large_header_size(zio: &Zio, bp: &BlockPtr) -> Option<usize> {
    let smallest = bp.dvas().filter_map(|dva| zio.tree().min_alloc(dva.vdev)).min()?;
    (smallest > HEADER_SIZE as u64 && smallest <= format::units::MAX_BLOCK).then_some(smallest as usize)
}

/// SHA-256 over the header with the verifier (vdev, offset, birth) in the place of the checksum.
fn header_is_valid(bp: &BlockPtr, first: &Dva, header: &[u8]) -> bool {
    let order = bp.byte_order();
    let Some(trailer) = header.len().checked_sub(TRAILER_SIZE) else { return false };
    if order.get_u64(header, trailer) != Some(TRAILER_MAGIC) {
        return false;
    }
    let mut stored = [0; 4];
    for (i, word) in stored.iter_mut().enumerate() {
        *word = order.get_u64(header, trailer + 8 + 8 * i).unwrap_or(0);
    }
    let verifier = [u64::from(first.vdev.0), first.offset.0, bp.physical_birth().0, 0];
    let mut image = header.to_vec();
    for (slot, word) in image[trailer + 8..].chunks_exact_mut(8).zip(verifier) {
        slot.copy_from_slice(&order.put_u64(word));
    }
    let Ok(sum) = checksum::compute(ChecksumId::Sha256, &image, order, None) else { return false };
    let [a, b, c, d] = sum.0;
    let expected =
        if bp.uses_crypt() && bp.obj_type() != ObjType::OBJSET { [a ^ c, b ^ d, 0, 0] } else { sum.0 };
    stored == expected
}
