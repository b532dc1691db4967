//! Embedded checksums, which are stored inside the range that they cover: labels, uberblocks, gang headers
//! (docs/on-disk/11-labels-config.md, section 1.1; 12-block-pointers.md, section 7).
//!
//! The last 40 bytes of the region are a magic number and four words. The checksum is computed with a *verifier* in
//! place of the four words. The verifier identifies the region's location, so a region written to the wrong place
//! is detected.

use super::{ChecksumError, is_shortened, sha256, shorten, words};
use aws_lc_rs::digest;
use format::{BlockPtr, Checksum, ChecksumId, Endian};

/// Magic number of every embedded checksum.
pub const TRAILER_MAGIC: u64 = 0x0210_DA7A_B10C_7A11;
/// Size of magic number and checksum in bytes.
pub const TRAILER_SIZE: usize = 40;

/// Verifies the trailer of a region. Returns the region's byte order; `None`: the trailer is wrong. The verifier of
/// a part of a label is its byte offset on the device and three zeros.
///
/// # Errors
/// If the region is too short for a trailer.
pub fn verify_trailer(region: &[u8], verifier: [u64; 4]) -> Result<Option<Endian>, ChecksumError> {
    let (body, trailer) = split(region)?;
    Ok(check(body, trailer, verifier).filter(|found| found.stored == found.actual).map(|found| found.order))
}

/// Writes the trailer at the end of `region`, in little-endian order.
///
/// # Errors
/// If the region is too short for a trailer.
pub fn write_trailer(region: &mut [u8], verifier: [u64; 4]) -> Result<(), ChecksumError> {
    let actual = prepare(region, verifier)?;
    store(region, actual);
    Ok(())
}

/// The hash of a region up to its trailer. The four labels of a device have the same contents and differ only in
/// their verifiers: this is the common part of their checksums.
#[derive(Clone)]
pub struct BodySum(digest::Context);

impl BodySum {
    /// Hashes a region without its trailer, which consists of these parts.
    pub fn new(body: &[&[u8]]) -> BodySum {
        let mut context = digest::Context::new(&digest::SHA256);
        body.iter().for_each(|part| context.update(part));
        BodySum(context)
    }

    /// Verifies a trailer for this body, as [`verify_trailer`] does.
    pub fn verify(&self, trailer: &[u8; TRAILER_SIZE], verifier: [u64; 4]) -> Option<Endian> {
        let order = order_of(trailer, 0)?;
        let stored = order.words("checksum trailer", trailer, 8).ok()?;
        (self.with(order, verifier) == stored).then_some(order)
    }

    /// The trailer for this body, in little-endian order.
    pub fn trailer(&self, verifier: [u64; 4]) -> [u8; TRAILER_SIZE] {
        substituted(Endian::Little, self.with(Endian::Little, verifier))
    }

    fn with(&self, order: Endian, verifier: [u64; 4]) -> [u64; 4] {
        let mut context = self.0.clone();
        context.update(&substituted(order, verifier));
        words(Endian::Big, context.finish().as_ref())
    }
}

/// The verifier of the gang header that `bp` points to: the first address and the physical birth.
///
/// # Errors
/// If the pointer has no address.
pub fn gang_verifier(bp: &BlockPtr) -> Result<[u64; 4], ChecksumError> {
    let first = bp.dvas().next().ok_or(ChecksumError::NoAddress)?;
    Ok([first.vdev.0.into(), first.offset.0, bp.physical_birth().0, 0])
}

/// Verifies the gang header of `bp`. Returns its byte order; `None`: the trailer is wrong. `header` is the whole
/// header, 512 bytes or more; all its copies have the same trailer.
///
/// # Errors
/// If the pointer has no address, or the header is too short for a trailer.
pub fn verify_gang_header(header: &[u8], bp: &BlockPtr) -> Result<Option<Endian>, ChecksumError> {
    let verifier = gang_verifier(bp)?;
    let (body, trailer) = split(header)?;
    Ok(check(body, trailer, verifier)
        .filter(|found| gang_words(bp, found.actual) == found.stored)
        .map(|found| found.order))
}

/// Writes the trailer of the gang header of `bp`, in little-endian order.
///
/// # Errors
/// If the pointer has no address, or the header is too short for a trailer.
pub fn write_gang_header(header: &mut [u8], bp: &BlockPtr) -> Result<(), ChecksumError> {
    let actual = prepare(header, gang_verifier(bp)?)?;
    store(header, gang_words(bp, actual));
    Ok(())
}

/// The words to store for the checksum `actual`: in the gang header of a protected block it is folded and
/// shortened, independently of the block's own algorithm.
fn gang_words(bp: &BlockPtr, actual: [u64; 4]) -> [u64; 4] {
    if is_shortened(bp) {
        let [a, b] = shorten(ChecksumId::GangHeader, Checksum(actual));
        [a, b, 0, 0]
    } else {
        actual
    }
}

struct Found {
    order: Endian,
    stored: [u64; 4],
    actual: [u64; 4],
}

fn split(region: &[u8]) -> Result<(&[u8], &[u8; TRAILER_SIZE]), ChecksumError> {
    region.split_last_chunk().ok_or(ChecksumError::NoRoom { len: region.len() })
}

fn check(body: &[u8], trailer: &[u8; TRAILER_SIZE], verifier: [u64; 4]) -> Option<Found> {
    let order = order_of(trailer, 0)?;
    let stored = order.words("checksum trailer", trailer, 8).ok()?;
    Some(Found { order, stored, actual: sha256(&[body, &substituted(order, verifier)]) })
}

/// The byte order of the magic number at byte `at`.
pub(super) fn order_of(bytes: &[u8], at: usize) -> Option<Endian> {
    [Endian::Little, Endian::Big].into_iter().find(|order| order.get_u64(bytes, at) == Some(TRAILER_MAGIC))
}

/// The trailer with the verifier, for which the checksum is computed.
pub(super) fn substituted(order: Endian, words: [u64; 4]) -> [u8; TRAILER_SIZE] {
    let [a, b, c, d] = words;
    let mut out = [0; TRAILER_SIZE];
    for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip([TRAILER_MAGIC, a, b, c, d]) {
        *bytes = order.put_u64(word);
    }
    out
}

/// Writes the magic number and computes the checksum words.
fn prepare(region: &[u8], verifier: [u64; 4]) -> Result<[u64; 4], ChecksumError> {
    let (body, _) = split(region)?;
    Ok(sha256(&[body, &substituted(Endian::Little, verifier)]))
}

fn store(region: &mut [u8], words: [u64; 4]) {
    if let Some((_, trailer)) = region.split_last_chunk_mut::<TRAILER_SIZE>() {
        *trailer = substituted(Endian::Little, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_part_is_right_only_where_it_belongs() {
        let mut region: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
        let place = [0x20000, 0, 0, 0];
        write_trailer(&mut region, place).unwrap();
        assert_eq!(verify_trailer(&region, place), Ok(Some(Endian::Little)));
        assert_eq!(verify_trailer(&region, [0x20400, 0, 0, 0]), Ok(None));
        region[100] ^= 1;
        assert_eq!(verify_trailer(&region, place), Ok(None));
    }

    #[test]
    fn one_body_in_several_places() {
        let body: Vec<u8> = (0..5000u32).map(|i| (i * 11) as u8).collect();
        let (front, back) = body.split_at(1234);
        let sum = BodySum::new(&[front, back]);
        for place in [[0x4000, 0, 0, 0], [0x4_4000, 0, 0, 0], [1, 2, 3, 4]] {
            let mut region = [&body[..], &[0; TRAILER_SIZE]].concat();
            write_trailer(&mut region, place).unwrap();
            let (_, trailer) = region.split_last_chunk().unwrap();
            assert_eq!((sum.trailer(place), sum.verify(trailer, place)), (*trailer, Some(Endian::Little)));
            assert_eq!(sum.verify(trailer, [7; 4]), None);
            assert_eq!(BodySum::new(&[&body[1..]]).verify(trailer, place), None);
        }
        let sums = sha256(&[&body, &substituted(Endian::Big, [5; 4])]);
        let trailer = substituted(Endian::Big, sums);
        assert_eq!(sum.verify(&trailer, [5; 4]), Some(Endian::Big));
        assert_eq!(sum.verify(&[0; TRAILER_SIZE], [5; 4]), None);
    }

    #[test]
    fn the_other_byte_order_is_recognised() {
        let place = [0x4000, 0, 0, 0];
        let mut region = vec![3u8; 1024];
        let body = region[..984].to_vec();
        let sums = sha256(&[&body, &substituted(Endian::Big, place)]);
        region[984..].copy_from_slice(&substituted(Endian::Big, sums));
        assert_eq!(verify_trailer(&region, place), Ok(Some(Endian::Big)));
    }

    #[test]
    fn header_of_a_protected_gang_block_is_folded() {
        let plain = BlockPtr::HOLE
            .with_word(0, 0x1_0000_0010)
            .with_word(1, 1 << 63 | 0x800)
            .with_word(10, 77)
            .with_prop_bits(48, 8, 19);
        let protected = plain.with_prop_bits(61, 1, 1);
        assert_eq!(gang_verifier(&plain), Ok([1, 0x800 << 9, 77, 0]));
        let mut header = [0x55; 512];
        write_gang_header(&mut header, &plain).unwrap();
        assert_eq!(verify_gang_header(&header, &plain), Ok(Some(Endian::Little)));
        assert_eq!(verify_gang_header(&header, &protected), Ok(None));
        let mut folded = [0x55; 512];
        write_gang_header(&mut folded, &protected).unwrap();
        assert_eq!(verify_gang_header(&folded, &protected), Ok(Some(Endian::Little)));
        assert_eq!(folded[496..], [0; 16]);
        assert_eq!(folded[480..488], {
            let word = |at| Endian::Little.get_u64(&header, at).unwrap();
            (word(480) ^ word(496)).to_le_bytes()
        });
    }

    #[test]
    fn regions_too_short_are_errors() {
        assert_eq!(verify_trailer(&[0; 39], [0; 4]), Err(ChecksumError::NoRoom { len: 39 }));
        assert_eq!(write_trailer(&mut [], [0; 4]), Err(ChecksumError::NoRoom { len: 0 }));
        assert_eq!(verify_gang_header(&[0; 512], &BlockPtr::HOLE), Err(ChecksumError::NoAddress));
    }
}
