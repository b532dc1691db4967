//! The 512-byte header of a member.

use super::super::meta::{Kind, Meta, Stamp};

/// The decoded fields of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) flag: u8,
    /// Number of bytes that follow the header.
    pub(super) size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    device: (u32, u32),
    /// Of GNU's old sparse format: the first part of the map, whether more of it follows, and the file size.
    pub(super) old_sparse: Option<OldSparse>,
}

#[derive(Debug)]
pub(super) struct OldSparse {
    pub(super) map: Vec<(u64, u64)>,
    pub(super) is_extended: bool,
    pub(super) size: u64,
}

/// The bytes of a field.
fn field(block: &[u8], at: usize, len: usize) -> &[u8] {
    block.get(at..at + len).unwrap_or(&[])
}

/// Bytes of a field up to the first NUL.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|byte| *byte == 0).next().unwrap_or(&[]).to_vec()
}

/// Octal digits between spaces and NULs, or a base-256 number if the first bit is set.
fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let start = if first & 0x40 != 0 { i64::from(*first) - 256 } else { i64::from(first & 0x3F) };
        return rest.iter().try_fold(start, |value, byte| {
            value.checked_mul(256).and_then(|value| value.checked_add(i64::from(*byte)))
        });
    }
    let digits = field.iter().skip_while(|byte| **byte == b' ').take_while(|byte| !matches!(byte, b' ' | 0));
    let mut value = 0i64;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(digit.into())?;
    }
    Some(value)
}

fn unsigned(field: &[u8]) -> Option<u64> {
    number(field).and_then(|value| u64::try_from(value).ok())
}

/// Ids that do not fit are replaced by the id of `nobody`.
fn id(field: &[u8]) -> u32 {
    unsigned(field).and_then(|id| u32::try_from(id).ok()).unwrap_or(zpl::NOBODY)
}

/// Offset and length of each range, up to the first empty field.
pub(super) fn old_map(block: &[u8], entries: usize) -> Option<Vec<(u64, u64)>> {
    let mut map = Vec::new();
    for entry in block.chunks_exact(24).take(entries) {
        if entry.first() == Some(&0) {
            break;
        }
        map.push((unsigned(field(entry, 0, 12))?, unsigned(field(entry, 12, 12))?));
    }
    Some(map)
}

impl Header {
    pub(super) fn decode(block: &[u8; 512]) -> Result<Header, &'static str> {
        let sum = number(field(block, 148, 8)).ok_or("the checksum is no number")?;
        // The checksum field itself counts as spaces. Some old archives sum signed bytes.
        let bytes = || block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { b' ' } else { *b });
        let unsigned_sum: i64 = bytes().map(i64::from).sum();
        let signed_sum: i64 = bytes().map(|byte| i64::from(byte as i8)).sum();
        if sum != unsigned_sum && sum != signed_sum {
            return Err("the checksum is wrong");
        }
        let magic = field(block, 257, 8);
        let is_gnu = magic == b"ustar  \0";
        let is_ustar = magic.starts_with(b"ustar") && !is_gnu;
        let mut name = text(field(block, 0, 100));
        if is_ustar {
            let prefix = text(field(block, 345, 155));
            if !prefix.is_empty() {
                name = [&prefix, &b"/"[..], &name].concat();
            }
        }
        let flag = match block.get(156) {
            Some(0) if name.ends_with(b"/") => b'5',
            Some(flag) => *flag,
            None => 0,
        };
        let old_sparse = if is_gnu && flag == b'S' {
            let map = old_map(field(block, 386, 96), 4).ok_or("the map of a sparse file is damaged")?;
            let size = unsigned(field(block, 483, 12)).ok_or("the size of a sparse file is damaged")?;
            Some(OldSparse { map, is_extended: block.get(482).is_some_and(|byte| *byte != 0), size })
        } else {
            None
        };
        let device = |at| unsigned(field(block, at, 8)).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Ok(Header {
            name,
            link: text(field(block, 157, 100)),
            flag,
            size: unsigned(field(block, 124, 12)).ok_or("the size is no number")?,
            mode: unsigned(field(block, 100, 8)).ok_or("the mode is no number")? as u32,
            uid: id(field(block, 108, 8)),
            gid: id(field(block, 116, 8)),
            mtime: number(field(block, 136, 12)).ok_or("the time is no number")?,
            device: if is_gnu || is_ustar { (device(329), device(337)) } else { (0, 0) },
            old_sparse,
        })
    }

    /// The attributes in the header itself.
    pub(super) fn meta(&self) -> Meta {
        let kind = match self.flag {
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            // POSIX: unknown types are treated as regular files.
            _ => Kind::Regular,
        };
        let mtime = Stamp { secs: self.mtime, nanos: 0 };
        Meta {
            kind,
            perm: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: mtime,
            mtime,
            ctime: mtime,
            rdev: self.device,
            xattrs: Vec::new(),
            aces: Vec::new(),
        }
    }
}

/// The program that wrote compressed data with this beginning.
pub(super) fn compressed_by(block: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 5] = [
        (&[0x1F, 0x8B], "gzip"),
        (&[0x28, 0xB5, 0x2F, 0xFD], "zstd"),
        (&[0xFD, b'7', b'z', b'X', b'Z', 0], "xz"),
        (b"BZh", "bzip2"),
        (&[0x04, 0x22, 0x4D, 0x18], "lz4"),
    ];
    known.iter().find(|(magic, _)| block.starts_with(magic)).map(|(_, by)| *by)
}
