//! Attributes and content of a file to be copied, independent of source and target.

use std::io;

use format::acl::Ace;
pub use zpl::{FileKind as Kind, Time as Stamp};

/// Attributes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Kind of the file.
    pub(crate) kind: Kind,
    /// Permission bits with set-id and sticky, without the type.
    pub(crate) perm: u32,
    /// User id of the owner.
    pub(crate) uid: u32,
    /// Group id.
    pub(crate) gid: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Time of the last access.
    pub(crate) atime: Stamp,
    /// Time of the last change of the data.
    pub(crate) mtime: Stamp,
    /// Time of the last change of the attributes.
    pub(crate) ctime: Stamp,
    /// Major and minor number of a device.
    pub(crate) rdev: (u32, u32),
    /// Extended attributes with their full names, POSIX ACLs among them.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The NFSv4 ACL, empty if it is equivalent to the mode.
    pub(crate) aces: Vec<Ace>,
}

/// Content of a file or volume: data and holes.
pub trait Content {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Reads all of `buf` from `offset`; the range lies below [`Content::size`].
    ///
    /// # Errors
    /// A block cannot be read; contains the error of the layer below.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Offset of the first byte of data at or after `offset`; `None`: only a hole follows.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;

    /// Offset of the first byte of a hole at or after `offset`; the end counts as a hole.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    fn next_hole(&self, offset: u64) -> io::Result<u64>;

    /// Block size in bytes: reads of whole blocks read each block once.
    fn block_size(&self) -> u64;
}

/// A range of bytes that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub len: u64,
}

/// Maximum number of separate ranges; beyond it, small holes are stored as zeros.
const SEGMENTS_MAX: usize = 1 << 20;

/// The ranges with data, in order and not adjacent; the other bytes are zeros.
///
/// # Errors
/// As [`Content::next_data`].
pub(crate) fn segments(content: &dyn Content) -> io::Result<Vec<Segment>> {
    let size = content.size();
    let mut found: Vec<Segment> = Vec::new();
    let mut hole_min = 1;
    let mut at = 0;
    while at < size {
        let Some(start) = content.next_data(at)?.filter(|&start| start < size) else { break };
        let end = content.next_hole(start)?.clamp(start, size);
        if end == start {
            return Err(io::Error::other("a range of data without length"));
        }
        match found.last_mut() {
            Some(last) if start - (last.offset + last.len) < hole_min => last.len = end - last.offset,
            _ => found.push(Segment { offset: start, len: end - start }),
        }
        if found.len() > SEGMENTS_MAX {
            hole_min = widen(&mut found, hole_min);
        }
        at = end;
    }
    Ok(found)
}

/// Joins ranges over small holes until a quarter of the maximum is left. Returns the size of the smallest remaining
/// hole.
fn widen(found: &mut Vec<Segment>, mut hole_min: u64) -> u64 {
    while found.len() > SEGMENTS_MAX / 4 {
        hole_min = hole_min.saturating_mul(2);
        found.dedup_by(|next, last| {
            let near = next.offset - (last.offset + last.len) < hole_min;
            if near {
                last.len = next.offset + next.len - last.offset;
            }
            near
        });
    }
    hole_min
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Content in memory; runs of zeros of at least `block` bytes are holes.
    pub(crate) struct Bytes {
        pub(crate) data: Vec<u8>,
        pub(crate) block: usize,
        /// Offset of a byte that cannot be read.
        pub(crate) bad: Option<u64>,
    }

    impl Bytes {
        pub(crate) fn new(data: impl Into<Vec<u8>>) -> Bytes {
            Bytes { data: data.into(), block: 512, bad: None }
        }

        /// An offset and the starts of all blocks behind it.
        fn blocks_from(&self, offset: u64) -> impl Iterator<Item = u64> {
            let (size, block) = (self.data.len() as u64, self.block as u64);
            std::iter::successors(Some(offset), move |at| Some((at / block + 1) * block))
                .take_while(move |&at| at < size)
        }

        fn is_hole(&self, at: usize) -> bool {
            let start = at / self.block * self.block;
            let end = (start + self.block).min(self.data.len());
            self.data[start..end].iter().all(|&b| b == 0)
        }
    }

    impl Content for Bytes {
        fn size(&self) -> u64 {
            self.data.len() as u64
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let end = offset + buf.len() as u64;
            if self.bad.is_some_and(|bad| (offset..end).contains(&bad)) {
                return Err(io::Error::other("bad block"));
            }
            buf.copy_from_slice(&self.data[offset as usize..end as usize]);
            Ok(())
        }
        fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
            Ok(self.blocks_from(offset).find(|&at| !self.is_hole(at as usize)))
        }
        fn next_hole(&self, offset: u64) -> io::Result<u64> {
            Ok(self.blocks_from(offset).find(|&at| self.is_hole(at as usize)).unwrap_or(self.size()))
        }
        fn block_size(&self) -> u64 {
            self.block as u64
        }
    }

    #[test]
    fn segments_of_holes_and_data() {
        let mut data = vec![0u8; 512 * 7 + 10];
        data[512] = 1;
        data[1024] = 1;
        data[512 * 5] = 1;
        data[512 * 7] = 1;
        let seg = |offset, len| Segment { offset, len };
        assert_eq!(segments(&Bytes::new(data)).unwrap(), [seg(512, 1024), seg(2560, 512), seg(3584, 10)]);
        assert_eq!(segments(&Bytes::new(vec![0; 600])).unwrap(), []);
        assert_eq!(segments(&Bytes::new(vec![])).unwrap(), []);
    }

    #[test]
    fn too_many_segments_are_joined() {
        struct Comb;
        impl Content for Comb {
            fn size(&self) -> u64 {
                (SEGMENTS_MAX as u64 + 5) * 1024
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
                Ok(Some(offset.next_multiple_of(1024)))
            }
            fn next_hole(&self, offset: u64) -> io::Result<u64> {
                Ok(offset / 1024 * 1024 + 512)
            }
            fn block_size(&self) -> u64 {
                512
            }
        }
        let found = segments(&Comb).unwrap();
        assert_eq!(found, [Segment { offset: 0, len: Comb.size() - 512 }]);
    }
}
