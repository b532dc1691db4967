//! The file of an index: what the device of its pool holds, and of which streams it was made.
//!
//! ```text
//! bytes of the device that are in no stream file
//! pages of extents, 4 KiB each: 169 extents of 24 bytes, zeros, SHA-256 of what is before
//! head: streams, snapshots, the first byte of the device in each page
//! footer: magic number, version, place and SHA-256 of the head
//! ```
//!
//! All numbers are little-endian.
//!
//! # What always holds
//! - The footer is written last, so that a file that was not finished has none.
//! - Nothing of the file is used before its checksum is compared; what lies in front of the pages is verified by the
//!   checksums of the pool.
//! - All pages but the last are full, and the extents of all ascend without overlaps, so that what a read of the device
//!   costs is bounded by its bytes, whoever has made the index. Reading takes no more memory than some times the size of
//!   the file.
//!
//! Tests: below, and the fuzz target `crates/cenote/tests/it/index.rs`.
// An index is a file of the user's, no device.
#![allow(clippy::disallowed_types)]

use super::extents::{Extent, Extents};
use codec::checksum::compute;
use format::{ChecksumId, Endian};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u64 = u64::from_le_bytes(*b"cenoteIX");
const VERSION: u64 = 1;
/// Bytes of the footer: four numbers and a checksum.
const FOOTER: usize = 4 * 8 + SUM;
/// Bytes of a page, of an extent in it, and of a checksum.
const PAGE: usize = 4096;
const EXTENT: usize = 24;
const SUM: usize = 32;
/// Extents of a page.
const PER_PAGE: usize = (PAGE - SUM) / EXTENT;
/// Largest device.
pub(super) const DEVICE_MAX: u64 = 1 << 50;
/// Most bytes of the head: more than the largest chains need.
const HEAD_MAX: u64 = 1 << 30;

/// The identity of a stream file: if it stays, the file was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// Bytes of the file.
    pub(super) size: u64,
    /// Time of its last change: seconds and nanoseconds.
    pub(super) changed: (i64, i64),
    /// Checksum of its first and last bytes, which have the guids and the checksum of the stream.
    pub(super) ends: [u64; 4],
}

/// A snapshot in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainSnapshot {
    /// Full name of the dataset, as its sender called it.
    pub dataset: String,
    /// Name of the snapshot: the part after `@`.
    pub snapshot: String,
    /// Guid of the snapshot.
    pub guid: u64,
    /// It is a volume's.
    pub is_volume: bool,
    /// Seconds since the start of 1970 at which it was made.
    pub created: u64,
}

/// What an index says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Name of the pool.
    pub(super) pool: String,
    /// What stands in the pool before the names of datasets: nothing, or the name of the pool and a slash.
    pub(super) prefix: String,
    /// Bytes of the device.
    pub(super) device_size: u64,
    /// The stream files, in the order of their numbers.
    pub(super) files: Vec<Identity>,
    /// The snapshots, in the order in which they were made.
    pub(super) snapshots: Vec<ChainSnapshot>,
    /// First byte of the file with pages of extents.
    pub(super) pages_at: u64,
    /// First byte of the device that each page tells of.
    pub(super) pages: Vec<u64>,
}

/// Checksum of some bytes.
pub(super) fn sum(bytes: &[u8]) -> [u64; 4] {
    compute(ChecksumId::Sha256, bytes, Endian::Little, None).map(|sum| sum.0).unwrap_or_default()
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the index is damaged")
}

/// Writes pages, head and footer behind the bytes of the device, which end at `end`.
///
/// # Errors
/// The error of the system.
pub(super) fn finish(file: &File, end: u64, extents: &Extents, mut head: Head) -> io::Result<()> {
    head.pages_at = end;
    head.pages.clear();
    let mut at = end;
    let mut page: Vec<u8> = Vec::with_capacity(PAGE);
    let mut all = extents.iter().peekable();
    while let Some(extent) = all.next() {
        if page.is_empty() {
            head.pages.push(extent.at);
        }
        // An extent in a page has less than 4 GiB.
        let mut rest = Some(*extent);
        while let Some(now) = rest.take() {
            let len = now.len.min(u64::from(u32::MAX) & !511);
            rest = now.within(now.at + len, u64::MAX);
            page.extend(now.at.to_le_bytes());
            page.extend(now.pos.to_le_bytes());
            page.extend((len as u32).to_le_bytes());
            page.extend(now.file.to_le_bytes());
            let is_last = rest.is_none() && all.peek().is_none();
            if page.len() == PER_PAGE * EXTENT || is_last {
                write_page(file, &mut page, at)?;
                at += PAGE as u64;
                head.pages.extend(rest.iter().map(|rest| rest.at));
            }
        }
    }
    let bytes = head.encode();
    file.write_all_at(&bytes, at)?;
    let mut footer = Vec::with_capacity(FOOTER);
    for word in [MAGIC, VERSION, at, bytes.len() as u64].into_iter().chain(sum(&bytes)) {
        footer.extend(word.to_le_bytes());
    }
    file.write_all_at(&footer, at + bytes.len() as u64)
}

fn write_page(file: &File, page: &mut Vec<u8>, at: u64) -> io::Result<()> {
    page.resize(PAGE - SUM, 0);
    for word in sum(page) {
        page.extend(word.to_le_bytes());
    }
    file.write_all_at(page, at)?;
    page.clear();
    Ok(())
}

/// Reads the head of an index.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is damaged, was not finished, or has another version.
pub(super) fn read_head(file: &File) -> io::Result<Head> {
    let size = file.metadata()?.len();
    let at = size.checked_sub(FOOTER as u64).ok_or_else(damaged)?;
    let mut footer = vec![0; FOOTER];
    file.read_exact_at(&mut footer, at)?;
    let mut words = Fields(&footer);
    let mut word = || words.u64().ok_or_else(damaged);
    let (magic, version, head_at, len) = (word()?, word()?, word()?, word()?);
    let expected = [word()?, word()?, word()?, word()?];
    let is_placed = head_at.checked_add(len) == Some(at) && len <= HEAD_MAX;
    if (magic, version) != (MAGIC, VERSION) || !is_placed {
        return Err(damaged());
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, head_at)?;
    if sum(&bytes) != expected {
        return Err(damaged());
    }
    let head = Head::decode(&bytes).ok_or_else(damaged)?;
    let pages = (head.pages.len() as u64).saturating_mul(PAGE as u64);
    if head.pages_at.checked_add(pages) == Some(head_at) { Ok(head) } else { Err(damaged()) }
}

/// Reads the extents of a page.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is damaged.
pub(super) fn read_page(file: &File, head: &Head, index: usize) -> io::Result<Vec<Extent>> {
    let mut page = vec![0; PAGE];
    file.read_exact_at(&mut page, head.pages_at + (index * PAGE) as u64)?;
    let (body, stored) = page.split_at(PAGE - SUM);
    let mut words = Fields(stored);
    if sum(body).into_iter().any(|word| words.u64() != Some(word)) {
        return Err(damaged());
    }
    let mut fields = Fields(body);
    let extent = |fields: &mut Fields<'_>| {
        let (at, pos) = (fields.u64()?, fields.u64()?);
        let (len, file) = (fields.u32()?, fields.u32()?);
        Some(Extent { at, len: len.into(), file, pos })
    };
    let extents = (0..PER_PAGE).map_while(|_| extent(&mut fields)).take_while(|extent| extent.len > 0);
    let extents: Vec<Extent> = extents.collect();
    if is_in_place(&extents, head, index) { Ok(extents) } else { Err(damaged()) }
}

/// Whether the extents of a page are in order, between its start and that of the next page, and fill it if there is one.
fn is_in_place(extents: &[Extent], head: &Head, index: usize) -> bool {
    let next = head.pages.get(index + 1).copied();
    let end = next.unwrap_or(head.device_size);
    let mut least = head.pages.get(index).copied().unwrap_or(end);
    let are_ordered = extents.iter().all(|extent| {
        let follows = extent.at >= least && extent.end() <= end;
        least = extent.end();
        follows
    });
    are_ordered && (next.is_none() || extents.len() == PER_PAGE)
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let word = |out: &mut Vec<u8>, word: u64| out.extend(word.to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str| {
            word(out, text.len() as u64);
            out.extend(text.as_bytes());
        };
        text(&mut out, &self.pool);
        text(&mut out, &self.prefix);
        word(&mut out, self.device_size);
        word(&mut out, self.files.len() as u64);
        for file in &self.files {
            word(&mut out, file.size);
            word(&mut out, file.changed.0 as u64);
            word(&mut out, file.changed.1 as u64);
            file.ends.iter().for_each(|sum| word(&mut out, *sum));
        }
        word(&mut out, self.snapshots.len() as u64);
        for snapshot in &self.snapshots {
            text(&mut out, &snapshot.dataset);
            text(&mut out, &snapshot.snapshot);
            word(&mut out, snapshot.guid);
            word(&mut out, snapshot.is_volume.into());
            word(&mut out, snapshot.created);
        }
        word(&mut out, self.pages_at);
        word(&mut out, self.pages.len() as u64);
        self.pages.iter().for_each(|first| word(&mut out, *first));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Head> {
        let mut fields = Fields(bytes);
        let (pool, prefix, device_size) = (fields.text()?, fields.text()?, fields.u64()?);
        let files = fields.list(|fields| {
            let size = fields.u64()?;
            let changed = (fields.u64()? as i64, fields.u64()? as i64);
            let ends = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
            Some(Identity { size, changed, ends })
        })?;
        let snapshots = fields.list(|fields| {
            Some(ChainSnapshot {
                dataset: fields.text()?,
                snapshot: fields.text()?,
                guid: fields.u64()?,
                is_volume: fields.u64()? != 0,
                created: fields.u64()?,
            })
        })?;
        let pages_at = fields.u64()?;
        let pages = fields.list(Fields::u64)?;
        let head = Head { pool, prefix, device_size, files, snapshots, pages_at, pages };
        let is_ordered = head.pages.is_sorted_by(|one, next| one < next);
        (fields.0.is_empty() && is_ordered && head.device_size <= DEVICE_MAX).then_some(head)
    }
}

/// Numbers and texts, read one after the other.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(head.to_vec()).ok()
    }

    /// A number and as many parts. A wrong number ends with the bytes.
    fn list<T>(&mut self, part: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u64()?;
        (0..count).map(|_| part(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let snapshot = ChainSnapshot {
            dataset: "tank/home".to_owned(),
            snapshot: "mon".to_owned(),
            guid: 7,
            is_volume: false,
            created: 1_700_000_000,
        };
        Head {
            pool: "tank".to_owned(),
            device_size: 1 << 40,
            files: vec![Identity { size: 5, changed: (-3, 9), ends: [1, 2, 3, u64::MAX] }],
            snapshots: vec![snapshot],
            ..Head::default()
        }
    }

    fn file() -> File {
        tempfile::tempfile().expect("a file")
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let mut extents = Extents::default();
        let all: Vec<Extent> = (0..500)
            .map(|n| Extent { at: n * 1024, len: 512, file: 1 + (n % 2) as u32, pos: n * 824 })
            .collect();
        all.iter().for_each(|extent| extents.put(*extent));
        // Longer than a page can tell of one extent.
        extents.put(Extent { at: 1 << 30, len: 10 << 30, file: 0, pos: 512 });
        let file = file();
        finish(&file, 3000, &extents, head()).expect("written");
        let read = read_head(&file).expect("read");
        assert_eq!((read.pages_at, read.pages.len()), (3000, 3));
        assert_eq!(Head { pages_at: 0, pages: Vec::new(), ..read.clone() }, head());
        let mut again = Extents::default();
        for page in 0..read.pages.len() {
            let extents = read_page(&file, &read, page).expect("read");
            assert_eq!(extents[0].at, read.pages[page]);
            extents.into_iter().for_each(|extent| again.put(extent));
        }
        assert!(again.iter().eq(extents.iter()));
    }

    #[test]
    fn an_extent_that_crosses_a_page_is_found_by_its_rest() {
        let mut extents = Extents::default();
        (0..PER_PAGE as u64 - 1)
            .for_each(|n| extents.put(Extent { at: n * 1024, len: 512, file: 1, pos: n }));
        extents.put(Extent { at: 1 << 39, len: 10 << 30, file: 0, pos: 0 });
        let file = file();
        finish(&file, 0, &extents, head()).expect("written");
        let read = read_head(&file).expect("read");
        let second = read_page(&file, &read, 1).expect("read");
        assert_eq!((read.pages.len(), second[0].at), (2, read.pages[1]));
    }

    #[test]
    fn pages_that_overlap_or_have_gaps_at_their_ends_are_refused() {
        let refused = |extents: &[(u64, u32)], pages: &[u64]| {
            let (file, mut page) = (file(), Vec::new());
            for (at, len) in extents {
                page.extend([at.to_le_bytes(), 0u64.to_le_bytes()].concat());
                page.extend([len.to_le_bytes(), 1u32.to_le_bytes()].concat());
            }
            write_page(&file, &mut page, 0).expect("written");
            read_page(&file, &Head { pages: pages.to_vec(), ..head() }, 0).is_err()
        };
        assert!(!refused(&[(0, 512), (512, 512)], &[0]));
        assert!(refused(&[(0, 512), (511, 512)], &[0]), "they overlap");
        assert!(refused(&[(512, 512)], &[1024]), "before the start of the page");
        assert!(refused(&[((1 << 40) - 511, 512)], &[0]), "behind the end of the device");
        assert!(refused(&[(0, 512)], &[0, 1024]), "not full");
        let full: Vec<(u64, u32)> = (0..PER_PAGE as u64).map(|n| (n * 512, 512)).collect();
        let next = PER_PAGE as u64 * 512;
        assert!(!refused(&full, &[0, next]) && refused(&full, &[0, next - 512]));
    }

    /// Whoever makes an index can make its checksums, too.
    #[test]
    fn no_head_makes_the_decoder_panic() {
        let bytes = head().encode();
        for at in 0..bytes.len() {
            assert_eq!(Head::decode(&bytes[..at]), None);
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = Head::decode(&changed);
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let mut extents = Extents::default();
        extents.put(Extent { at: 0, len: 512, file: 1, pos: 0 });
        let file = file();
        finish(&file, 0, &extents, head()).expect("written");
        let size = file.metadata().expect("a size").len();
        for at in 0..size {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 1], at).expect("written");
            let read = read_head(&file).and_then(|head| read_page(&file, &head, 0));
            assert!(read.is_err(), "byte {at}");
            file.write_all_at(&byte, at).expect("written");
        }
        for len in (0..size).rev() {
            file.set_len(len).expect("cut");
            assert!(read_head(&file).is_err(), "{len} bytes");
        }
    }
}
