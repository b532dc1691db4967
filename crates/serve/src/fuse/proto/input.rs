//! Decodes requests from bytes.

use super::op;

/// Reads fields one after the other.
#[derive(Clone, Copy)]
pub(in crate::fuse) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(in crate::fuse) fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(in crate::fuse) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(in crate::fuse) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(in crate::fuse) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// The bytes up to the next NUL, which is skipped.
    pub(in crate::fuse) fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = self.0.get(..end)?;
        self.0 = self.0.get(end + 1..)?;
        Some(name)
    }

    pub(in crate::fuse) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }
}

/// The header of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fuse) struct Header {
    /// Length of the request in bytes, header included.
    pub(in crate::fuse) len: u32,
    pub(in crate::fuse) opcode: u32,
    /// Number of the request, repeated in its reply.
    pub(in crate::fuse) unique: u64,
    pub(in crate::fuse) node: u64,
    pub(in crate::fuse) uid: u32,
    pub(in crate::fuse) gid: u32,
    pub(in crate::fuse) pid: u32,
    /// Length of the extensions at the end, in bytes.
    pub(in crate::fuse) extensions: usize,
}

impl Header {
    pub(in crate::fuse) fn decode(bytes: &[u8]) -> Option<Header> {
        let mut b = Bytes(bytes);
        let header = Header {
            len: b.u32()?,
            opcode: b.u32()?,
            unique: b.u64()?,
            node: b.u64()?,
            uid: b.u32()?,
            gid: b.u32()?,
            pid: b.u32()?,
            extensions: usize::from(b.u16()?) * 8,
        };
        b.u16()?;
        Some(header)
    }
}

/// Length of the fixed part that precedes names and data in a request of this kind, in bytes. The ring
/// transport carries the two parts in different buffers.
pub(in crate::fuse) fn fixed_len(opcode: u32) -> usize {
    match opcode {
        op::FORGET | op::RENAME | op::LINK | op::INTERRUPT | op::SYNCFS => 8,
        op::MKDIR | op::OPEN | op::OPENDIR | op::GETXATTR | op::LISTXATTR | op::BATCH_FORGET => 8,
        op::GETATTR | op::MKNOD | op::CREATE | op::TMPFILE | op::SETXATTR => 16,
        op::FSYNC | op::FSYNCDIR | op::RENAME2 => 16,
        op::FLUSH | op::RELEASE | op::RELEASEDIR | op::LSEEK | op::STATX => 24,
        op::FALLOCATE | op::IOCTL => 32,
        op::READ | op::READDIR | op::READDIRPLUS | op::WRITE => 40,
        op::COPY_FILE_RANGE => 56,
        op::INIT => 64,
        op::SETATTR => 88,
        _ => 0,
    }
}

/// Body of the request `INIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fuse) struct Init {
    pub(in crate::fuse) major: u32,
    pub(in crate::fuse) minor: u32,
    pub(in crate::fuse) max_readahead: u32,
    pub(in crate::fuse) flags: u64,
}

impl Init {
    pub(in crate::fuse) fn decode(body: &[u8]) -> Option<Init> {
        let mut b = Bytes(body);
        let (major, minor) = (b.u32()?, b.u32()?);
        let (max_readahead, low) = (b.u32().unwrap_or(0), b.u32().unwrap_or(0));
        let high = if u64::from(low) & super::flag::INIT_EXT != 0 { b.u32().unwrap_or(0) } else { 0 };
        Some(Init { major, minor, max_readahead, flags: u64::from(low) | u64::from(high) << 32 })
    }
}

/// A request, its parts wherever the transport has them.
pub(in crate::fuse) struct Request<'a> {
    pub(in crate::fuse) header: Header,
    /// The fixed part, see [`fixed_len`].
    pub(in crate::fuse) fixed: &'a [u8],
    /// Names and data.
    pub(in crate::fuse) rest: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_and_a_name() {
        let mut bytes = Vec::new();
        for word in [45_u32, op::LOOKUP] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [7_u64, 1] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [1000_u32, 100, 42] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(b"name\0");
        let header = Header::decode(&bytes).unwrap();
        assert_eq!((header.len, header.opcode, header.unique, header.node), (45, 1, 7, 1));
        assert_eq!((header.uid, header.gid, header.pid), (1000, 100, 42));
        assert_eq!(header.extensions, if cfg!(target_endian = "little") { 8 } else { 2048 });
        assert_eq!(Bytes::new(&bytes[40..]).name(), Some(&b"name"[..]));
        assert_eq!(Bytes::new(b"no end").name(), None);
        assert_eq!(Header::decode(&bytes[..39]), None);
    }

    #[test]
    fn an_old_and_a_new_greeting() {
        let mut old = Vec::new();
        for word in [7_u32, 31, 4096, 1] {
            old.extend(word.to_ne_bytes());
        }
        assert_eq!(Init::decode(&old), Some(Init { major: 7, minor: 31, max_readahead: 4096, flags: 1 }));
        let mut new = Vec::new();
        for word in [7_u32, 45, 4096, 1 << 30, 1 << 9] {
            new.extend(word.to_ne_bytes());
        }
        assert_eq!(Init::decode(&new).unwrap().flags, 1 << 30 | super::super::flag::OVER_IO_URING);
        assert_eq!(Init::decode(&new[..6]), None);
    }
}
