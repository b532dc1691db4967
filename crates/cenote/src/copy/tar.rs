//! Writes tar archives in the pax format (POSIX.1-2001), as GNU tar, libarchive and Python read them.
//!
//! A member is an ustar header and its data. What the header cannot hold exactly goes into a pax header before
//! it: long names, sizes above 8 GiB, ids above 2^21, times with nanoseconds, extended attributes as
//! `SCHILY.xattr.NAME`, POSIX ACLs also as `SCHILY.acl.access` and `SCHILY.acl.default`, NFSv4 ACLs as
//! `SCHILY.acl.ace`. Files with holes are stored in GNU's sparse format 1.0: a map of the data at the front,
//! then the data.
//!
//! # What always holds
//! - Exactly as many bytes follow a header as it announces. If reading the file fails, zeros are written and the
//!   ranges are returned.
//! - Names are those of the pool, byte for byte; a name that is not UTF-8 is marked with `hdrcharset=BINARY`.

use std::io::{self, Write};

use format::acl::{Ace, POSIX_ACCESS, POSIX_DEFAULT, PosixEntry, PosixWho, Who, decode_posix};

use super::meta::{Content, Kind, Meta, Segment, Stamp};

const BLOCK: usize = 512;
/// Archives are padded to a multiple of this record size.
const RECORD: u64 = 20 * 512;
/// Largest number of eleven octal digits.
const OCTAL_MAX: u64 = 0o77_777_777_777;
/// Largest number of seven octal digits.
const ID_MAX: u32 = 0o7_777_777;
/// Minimum number of bytes that are read from a file at a time.
const CHUNK_MIN: u64 = 1 << 20;

/// Data of a member.
pub(crate) enum Body<'a> {
    /// No data: all types except regular files.
    None,
    /// A hard link to the earlier member with this name.
    HardLink(&'a [u8]),
    /// A symbolic link with this target.
    Target(&'a [u8]),
    /// A regular file with data in these ranges; the other bytes are zeros.
    Data {
        /// Source of the data.
        content: &'a dyn Content,
        /// Ranges with data.
        segments: &'a [Segment],
    },
}

/// A range that could not be read.
#[derive(Debug)]
pub struct BadRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The read error.
    pub error: io::Error,
}

/// Writes an archive to `out`.
#[derive(Debug)]
pub struct TarWriter<W: Write> {
    out: W,
    written: u64,
    sparse: bool,
}

impl<W: Write> TarWriter<W> {
    /// Creates an archive in `out`; with `sparse`, holes are stored as holes.
    pub fn new(out: W, sparse: bool) -> TarWriter<W> {
        TarWriter { out, written: 0, sparse }
    }

    /// Adds a member. `name` has no leading slash; the name of a directory needs no trailing one. Returns the
    /// ranges that could not be read.
    ///
    /// # Errors
    /// Writing to the archive failed; the archive is incomplete.
    pub(crate) fn member(&mut self, name: &[u8], meta: &Meta, body: &Body<'_>) -> io::Result<Vec<BadRange>> {
        let Body::Data { content, segments } = body else {
            self.headers(name, meta, body, 0, &[])?;
            return Ok(Vec::new());
        };
        let whole = Segment { offset: 0, len: content.size() };
        if !self.sparse || **segments == [whole] || content.size() == 0 {
            self.headers(name, meta, body, content.size(), &[])?;
            return self.zero_filled(*content, segments);
        }
        let map = sparse_map(content.size(), segments);
        let data: u64 = segments.iter().map(|segment| segment.len).sum();
        let stored = map.len() as u64 + data;
        let mut sparse = Vec::new();
        record(&mut sparse, b"GNU.sparse.major", b"1");
        record(&mut sparse, b"GNU.sparse.minor", b"0");
        record(&mut sparse, b"GNU.sparse.name", name);
        record(&mut sparse, b"GNU.sparse.realsize", content.size().to_string().as_bytes());
        self.headers(&sparse_name(name), meta, body, stored, &sparse)?;
        self.put(&map)?;
        let mut bad = Vec::new();
        for segment in *segments {
            self.data(*content, *segment, &mut bad)?;
        }
        self.pad(stored)?;
        Ok(bad)
    }

    /// Ends the archive and gives the output back.
    ///
    /// # Errors
    /// Writing to the archive failed.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.zeros(2 * BLOCK as u64)?;
        let rest = self.written.next_multiple_of(RECORD) - self.written;
        self.zeros(rest)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn zero_filled(&mut self, content: &dyn Content, segments: &[Segment]) -> io::Result<Vec<BadRange>> {
        let mut bad = Vec::new();
        let mut at = 0;
        for segment in segments {
            self.zeros(segment.offset - at)?;
            self.data(content, *segment, &mut bad)?;
            at = segment.offset + segment.len;
        }
        self.zeros(content.size() - at)?;
        self.pad(content.size())?;
        Ok(bad)
    }

    fn data(&mut self, content: &dyn Content, segment: Segment, bad: &mut Vec<BadRange>) -> io::Result<()> {
        read_in_blocks(content, segment, &mut |piece| match piece {
            Piece::Data(_, bytes) => self.put(bytes),
            Piece::Bad(range) => {
                let len = range.len;
                push_bad(bad, range);
                self.zeros(len)
            }
        })
    }

    /// The pax header if one is needed, then the ustar header.
    fn headers(
        &mut self,
        name: &[u8],
        meta: &Meta,
        body: &Body<'_>,
        stored: u64,
        more: &[u8],
    ) -> io::Result<()> {
        let mut name = name.to_vec();
        if meta.kind == Kind::Directory && !name.ends_with(b"/") {
            name.push(b'/');
        }
        let link: &[u8] = match body {
            Body::HardLink(target) | Body::Target(target) => target,
            _ => b"",
        };
        let mut pax = Vec::new();
        if std::str::from_utf8(&name).is_err() || std::str::from_utf8(link).is_err() {
            record(&mut pax, b"hdrcharset", b"BINARY");
        }
        let (prefix, short) = split_name(&name).unwrap_or_else(|| {
            record(&mut pax, b"path", &name);
            (&[], &name[..name.len().min(100)])
        });
        if link.len() > 100 || !link.is_ascii() {
            record(&mut pax, b"linkpath", link);
        }
        if stored > OCTAL_MAX {
            record(&mut pax, b"size", stored.to_string().as_bytes());
        }
        if meta.uid > ID_MAX {
            record(&mut pax, b"uid", meta.uid.to_string().as_bytes());
        }
        if meta.gid > ID_MAX {
            record(&mut pax, b"gid", meta.gid.to_string().as_bytes());
        }
        if meta.mtime.nanos != 0 || !(0..=OCTAL_MAX as i64).contains(&meta.mtime.secs) {
            record(&mut pax, b"mtime", decimal(meta.mtime).as_bytes());
        }
        record(&mut pax, b"atime", decimal(meta.atime).as_bytes());
        record(&mut pax, b"ctime", decimal(meta.ctime).as_bytes());
        pax.extend_from_slice(more);
        if !matches!(body, Body::HardLink(_)) {
            xattr_records(&mut pax, &meta.xattrs);
            if !meta.aces.is_empty() {
                record(&mut pax, b"SCHILY.acl.ace", ace_text(&meta.aces).as_bytes());
            }
        }
        let header = Ustar {
            name: short,
            prefix,
            mode: meta.perm & 0o7777,
            uid: meta.uid.min(ID_MAX),
            gid: meta.gid.min(ID_MAX),
            size: stored.min(OCTAL_MAX),
            mtime: u64::try_from(meta.mtime.secs).unwrap_or(0).min(OCTAL_MAX),
            flag: type_flag(meta.kind, body),
            link: &link[..link.len().min(100)],
            device: meta.rdev,
        };
        let extended = Ustar {
            name: &pax_name(&name),
            prefix: b"",
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: pax.len() as u64,
            mtime: header.mtime,
            flag: b'x',
            link: b"",
            device: (0, 0),
        };
        self.put(&extended.encode())?;
        self.put(&pax)?;
        self.pad(pax.len() as u64)?;
        self.put(&header.encode())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn zeros(&mut self, mut len: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while len > 0 {
            let n = len.min(ZEROS.len() as u64);
            self.put(&ZEROS[..n as usize])?;
            len -= n;
        }
        Ok(())
    }

    fn pad(&mut self, len: u64) -> io::Result<()> {
        self.zeros(len.next_multiple_of(BLOCK as u64) - len)
    }
}

/// Adds a range, and joins it to the previous one if they are adjacent: millions of blocks of a file may be lost.
pub(crate) fn push_bad(bad: &mut Vec<BadRange>, range: BadRange) {
    match bad.last_mut() {
        Some(last) if last.offset + last.len == range.offset => last.len += range.len,
        _ => bad.push(range),
    }
}

/// A piece of a file as [`read_in_blocks`] yields it.
pub enum Piece<'a> {
    /// Offset and data.
    Data(u64, &'a [u8]),
    /// A range that cannot be read.
    Bad(BadRange),
}

/// Reads a range in pieces of whole blocks. A piece that fails is read again block by block, so that only
/// damaged blocks count as lost.
///
/// # Errors
/// The error of `sink`. Read errors are passed to `sink` as [`Piece::Bad`].
pub fn read_in_blocks(
    content: &dyn Content,
    segment: Segment,
    sink: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let block = content.block_size().max(512);
    let chunk = CHUNK_MIN.next_multiple_of(block);
    let end = segment.offset + segment.len;
    let mut buf = vec![0u8; chunk.min(segment.len) as usize];
    let mut at = segment.offset;
    while at < end {
        // Up to the next multiple of the chunk size, so that pieces begin at a block.
        let len = (chunk - at % chunk).min(end - at);
        let whole = &mut buf[..len as usize];
        if content.read_at(at, whole).is_ok() {
            sink(Piece::Data(at, whole))?;
        } else {
            let mut inner = at;
            while inner < at + len {
                let len = (block - inner % block).min(at + len - inner);
                let piece = &mut buf[..len as usize];
                match content.read_at(inner, piece) {
                    Ok(()) => sink(Piece::Data(inner, piece))?,
                    Err(error) => sink(Piece::Bad(BadRange { offset: inner, len, error }))?,
                }
                inner += len;
            }
        }
        at += len;
    }
    Ok(())
}

/// Fields of the 512-byte header.
struct Ustar<'a> {
    name: &'a [u8],
    prefix: &'a [u8],
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: u64,
    flag: u8,
    link: &'a [u8],
    device: (u32, u32),
}

impl Ustar<'_> {
    fn encode(&self) -> [u8; BLOCK] {
        let mut out = [0u8; BLOCK];
        let mut text = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        text(0, self.name);
        text(100, &octal::<8>(self.mode.into()));
        text(108, &octal::<8>(self.uid.into()));
        text(116, &octal::<8>(self.gid.into()));
        text(124, &octal::<12>(self.size));
        text(136, &octal::<12>(self.mtime));
        text(148, b"        ");
        text(156, &[self.flag]);
        text(157, self.link);
        text(257, b"ustar\x0000");
        text(329, &octal::<8>(u64::from(self.device.0.min(ID_MAX))));
        text(337, &octal::<8>(u64::from(self.device.1.min(ID_MAX))));
        text(345, self.prefix);
        let sum: u64 = out.iter().map(|&byte| u64::from(byte)).sum();
        out[148..156].copy_from_slice(&octal::<8>(sum));
        // The checksum field ends with NUL and space, as early tar programs expect.
        out[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        out[154..156].copy_from_slice(b"\0 ");
        out
    }
}

/// Octal digits in all bytes but the last, which is NUL.
fn octal<const N: usize>(value: u64) -> [u8; N] {
    let mut out = [0u8; N];
    let mut rest = value;
    for digit in out[..N - 1].iter_mut().rev() {
        *digit = b'0' + (rest & 7) as u8;
        rest >>= 3;
    }
    out
}

fn type_flag(kind: Kind, body: &Body<'_>) -> u8 {
    match (body, kind) {
        (Body::HardLink(_), _) => b'1',
        (_, Kind::Symlink) => b'2',
        (_, Kind::CharDevice) => b'3',
        (_, Kind::BlockDevice) => b'4',
        (_, Kind::Directory) => b'5',
        (_, Kind::Fifo | Kind::Socket) => b'6',
        (_, Kind::Regular) => b'0',
    }
}

/// Prefix and name for the ustar header. `None`: the name needs a pax record.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if !name.is_ascii() {
        return None;
    }
    if name.len() <= 100 {
        return Some((&[], name));
    }
    // The separating slash is not stored; a directory's trailing slash cannot be the separator.
    let cut = (1..name.len() - 1).find(|&i| name[i] == b'/' && name.len() - i - 1 <= 100)?;
    (cut <= 155).then(|| (&name[..cut], &name[cut + 1..]))
}

fn base_name(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
}

/// Shortens a name to the size of the header's field.
fn pax_name(name: &[u8]) -> Vec<u8> {
    let base = base_name(name);
    [b"./PaxHeaders/", &base[..base.len().min(86)]].concat()
}

fn sparse_name(name: &[u8]) -> Vec<u8> {
    let base = base_name(name);
    let dir = &name[..name.len() - base.len()];
    [dir, b"GNUSparseFile.0/", base].concat()
}

/// The map at the front of a sparse member: count, then offset and length of each range, one number a line, padded
/// to a whole block. A file that ends with a hole has an empty range at the end.
fn sparse_map(size: u64, segments: &[Segment]) -> Vec<u8> {
    let end = segments.last().map_or(0, |last| last.offset + last.len);
    let closing = (end < size).then_some(Segment { offset: size, len: 0 });
    let mut text = format!("{}\n", segments.len() + usize::from(closing.is_some())).into_bytes();
    for segment in segments.iter().chain(closing.as_ref()) {
        text.extend_from_slice(format!("{}\n{}\n", segment.offset, segment.len).as_bytes());
    }
    text.resize(text.len().next_multiple_of(BLOCK), 0);
    text
}

/// One pax record: its own length in decimal, a space, `key=value`, newline.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let body = key.len() + value.len() + 3;
    let mut len = body + 1;
    while len != body + len.to_string().len() {
        len = body + len.to_string().len();
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Decimal seconds without trailing zeros. The fraction of a time before 1970 counts backwards.
fn decimal(time: Stamp) -> String {
    let (sign, secs, nanos) = match (time.secs < 0, time.nanos) {
        (true, 0) => ("-", time.secs.unsigned_abs(), 0),
        (true, nanos) => ("-", time.secs.unsigned_abs() - 1, 1_000_000_000 - nanos),
        (false, nanos) => ("", time.secs.unsigned_abs(), nanos),
    };
    if nanos == 0 {
        return format!("{sign}{secs}");
    }
    let fraction = format!("{nanos:09}");
    format!("{sign}{secs}.{}", fraction.trim_end_matches('0'))
}

fn xattr_records(pax: &mut Vec<u8>, xattrs: &[(Vec<u8>, Vec<u8>)]) {
    for (name, value) in xattrs {
        let key: Option<&[u8]> = match name {
            name if name == POSIX_ACCESS.as_bytes() => Some(b"SCHILY.acl.access"),
            name if name == POSIX_DEFAULT.as_bytes() => Some(b"SCHILY.acl.default"),
            _ => None,
        };
        if let Some((key, text)) = key.zip(acl_text(value)) {
            record(pax, key, text.as_bytes());
        }
        // A key ends at its first `=`: GNU tar writes that character, and the escape character, as %XX.
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                _ => key.push(byte),
            }
        }
        record(pax, &key, value);
    }
}

/// A POSIX ACL of Linux's attribute form (docs/on-disk/23-zpl.md, section 4) as text, ids as numbers.
fn acl_text(value: &[u8]) -> Option<String> {
    let line = |entry: &PosixEntry| {
        let who = match entry.who {
            PosixWho::UserObj => "user:".to_owned(),
            PosixWho::User(id) => format!("user:{id}"),
            PosixWho::GroupObj => "group:".to_owned(),
            PosixWho::Group(id) => format!("group:{id}"),
            PosixWho::Mask => "mask:".to_owned(),
            PosixWho::Other => "other:".to_owned(),
        };
        let bit = |mask, letter| if entry.perm & mask != 0 { letter } else { '-' };
        format!("{who}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
    };
    let entries = decode_posix(value).ok()?;
    Some(entries.iter().map(line).collect::<Vec<_>>().join(","))
}

/// An NFSv4 ACL as text: kind of subject, rights, inheritance, type and, for named users and groups, the id.
#[must_use]
pub fn ace_text(aces: &[Ace]) -> String {
    // Bits of docs/on-disk/23-zpl.md, section 4, in the order of the letters.
    const RIGHTS: [(u32, char); 14] = [
        (0x1, 'r'),
        (0x2, 'w'),
        (0x20, 'x'),
        (0x4, 'p'),
        (0x1_0000, 'd'),
        (0x40, 'D'),
        (0x80, 'a'),
        (0x100, 'A'),
        (0x8, 'R'),
        (0x10, 'W'),
        (0x2_0000, 'c'),
        (0x4_0000, 'C'),
        (0x8_0000, 'o'),
        (0x10_0000, 's'),
    ];
    const INHERITANCE: [(u16, char); 5] = [(1, 'f'), (2, 'd'), (8, 'i'), (4, 'n'), (0x80, 'I')];
    let line = |ace: &Ace| {
        // Ids of Windows domains have no number on other systems.
        let id = |id: u64| u32::try_from(id).map_or_else(|_| "nobody".to_owned(), |id| id.to_string());
        let (who, named) = match ace.who {
            Who::Owner => ("owner@".to_owned(), None),
            Who::Group => ("group@".to_owned(), None),
            Who::Everyone => ("everyone@".to_owned(), None),
            Who::User(user) => (format!("user:{}", id(user)), Some(id(user))),
            Who::NamedGroup(group) => (format!("group:{}", id(group)), Some(id(group))),
        };
        let rights: String =
            RIGHTS.iter().map(|&(bit, c)| if ace.mask & bit != 0 { c } else { '-' }).collect();
        let inherit: String =
            INHERITANCE.iter().map(|&(bit, c)| if ace.flags & bit != 0 { c } else { '-' }).collect();
        let kind = match ace.kind {
            0 => "allow",
            1 => "deny",
            2 => "audit",
            3 => "alarm",
            _ => "other",
        };
        let named = named.map_or_else(String::new, |id| format!(":{id}"));
        format!("{who}:{rights}:{inherit}:{kind}{named}")
    };
    aces.iter().map(line).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::meta::segments;
    use super::super::meta::tests::Bytes;
    use super::*;
    use std::process::{Command, Stdio};

    fn meta(kind: Kind, size: u64) -> Meta {
        let time = |secs, nanos| Stamp { secs, nanos };
        Meta {
            kind,
            perm: 0o640,
            uid: 12,
            gid: 4_000_000_000,
            size,
            atime: time(5, 0),
            mtime: time(1_700_000_000, 123_456_789),
            ctime: time(7, 0),
            rdev: (5, 1),
            xattrs: vec![(b"user.a=b".to_vec(), vec![0, 10, 255])],
            aces: Vec::new(),
        }
    }

    #[test]
    fn a_record_counts_its_own_digits() {
        let rec = |value: &[u8]| {
            let mut out = Vec::new();
            record(&mut out, b"k", value);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(rec(b"v"), "6 k=v\n");
        for len in 0..2000 {
            let text = rec(&vec![b'x'; len]);
            assert_eq!(text.split(' ').next().unwrap(), text.len().to_string());
        }
    }

    #[test]
    fn times_before_1970() {
        let text = |secs, nanos| decimal(Stamp { secs, nanos });
        assert_eq!(text(-2, 800_000_000), "-1.2");
        assert_eq!(text(-1, 999_999_999), "-0.000000001");
        assert_eq!(text(-3, 0), "-3");
        assert_eq!(text(3, 10), "3.00000001");
    }

    #[test]
    fn long_names_are_split_at_a_slash() {
        let dir = [vec![b'd'; 120], b"/".to_vec(), vec![b'f'; 90]].concat();
        assert_eq!(split_name(&dir).map(|(p, n)| (p.len(), n.len())), Some((120, 90)));
        assert_eq!(split_name(&[b'x'; 101]), None);
        assert_eq!(split_name(&[vec![b'd'; 160], b"/f".to_vec()].concat()), None);
        assert_eq!(split_name("ä".as_bytes()), None);
    }

    #[test]
    fn acl_as_text() {
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let acl = [
            2u32.to_le_bytes().to_vec(),
            entry(1, 7, u32::MAX),
            entry(2, 5, 1000),
            entry(4, 4, u32::MAX),
            entry(0x10, 5, u32::MAX),
            entry(0x20, 0, u32::MAX),
        ]
        .concat();
        assert_eq!(acl_text(&acl).unwrap(), "user::rwx,user:1000:r-x,group::r--,mask::r-x,other::---");
        assert_eq!(acl_text(&acl[..acl.len() - 1]), None);
        assert_eq!(acl_text(b""), None);
    }

    #[test]
    fn nfs4_acl_as_text() {
        let ace = |kind, flags, mask, who| Ace { kind, flags, mask, who, guids: None };
        let text = ace_text(&[
            ace(0, 0x1000, 0x1E_01FF, Who::Owner),
            ace(1, 0x43, 0x2, Who::NamedGroup(70)),
            ace(0, 0, 1, Who::User(1 << 40)),
        ]);
        let wanted = "owner@:rwxp-DaARWcCos:-----:allow,\
                      group:70:-w------------:fd---:deny:70,\
                      user:nobody:r-------------:-----:allow:nobody";
        assert_eq!(text, wanted);
    }

    /// An archive with every kind of member, and its listing by the host's tar.
    fn sample(sparse: bool) -> Vec<u8> {
        let mut tar = TarWriter::new(Vec::new(), sparse);
        let mut add =
            |name: &[u8], kind, size, body: Body<'_>| tar.member(name, &meta(kind, size), &body).unwrap();
        add(b"dir", Kind::Directory, 0, Body::None);
        let full = Bytes::new(vec![7u8; 1000]);
        let map = segments(&full).unwrap();
        add(b"dir/full", Kind::Regular, 1000, Body::Data { content: &full, segments: &map });
        add(b"dir/again", Kind::Regular, 1000, Body::HardLink(b"dir/full"));
        let mut holes = vec![0u8; 100_000];
        holes[5000] = 1;
        holes[50_000] = 2;
        let holes = Bytes::new(holes);
        let map = segments(&holes).unwrap();
        add(&[b'l'; 300], Kind::Regular, 100_000, Body::Data { content: &holes, segments: &map });
        add(b"link", Kind::Symlink, 0, Body::Target(&[b't'; 200]));
        add(b"fifo", Kind::Fifo, 0, Body::None);
        assert_eq!(tar.written % BLOCK as u64, 0);
        tar.finish().unwrap()
    }

    fn host_tar(args: &[&str], archive: Vec<u8>) -> Vec<u8> {
        let mut child = Command::new("tar")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || stdin.write_all(&archive));
        let output = child.wait_with_output().unwrap();
        let _ = feed.join();
        assert!(output.status.success());
        output.stdout
    }

    #[test]
    fn the_hosts_tar_reads_it() {
        for sparse in [true, false] {
            let archive = sample(sparse);
            assert_eq!(archive.len() as u64 % RECORD, 0);
            let long = "l".repeat(300);
            let listing = String::from_utf8(host_tar(&["-tf", "-"], archive.clone())).unwrap();
            assert_eq!(
                listing.lines().collect::<Vec<_>>(),
                ["dir/", "dir/full", "dir/again", &long, "link", "fifo"]
            );
            let content = host_tar(&["-xOf", "-", &long], archive.clone());
            assert_eq!(content.len(), 100_000);
            assert_eq!((content[5000], content[50_000]), (1, 2));
            assert_eq!(content.iter().filter(|&&b| b != 0).count(), 2);
            assert_eq!(archive.len() < 50_000, sparse);
        }
    }

    #[test]
    fn a_bad_block_is_zeros_and_told() {
        let mut data = vec![9u8; 5000];
        data[1024..1536].fill(8);
        let content = Bytes { bad: Some(1100), ..Bytes::new(data) };
        let map = segments(&content).unwrap();
        let mut tar = TarWriter::new(Vec::new(), true);
        let body = Body::Data { content: &content, segments: &map };
        let bad = tar.member(b"f", &meta(Kind::Regular, 5000), &body).unwrap();
        assert_eq!(bad.iter().map(|b| (b.offset, b.len)).collect::<Vec<_>>(), [(1024, 512)]);
        let content = host_tar(&["-xOf", "-", "f"], tar.finish().unwrap());
        assert!(content[1024..1536].iter().all(|&b| b == 0));
        assert_eq!(content.iter().filter(|&&b| b == 9).count(), 5000 - 512);
    }
}
