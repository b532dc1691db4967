//! Encodes replies to bytes. A reply is written into a buffer of the transport, and never beyond its end.

use super::super::service::Opened;
use crate::export::{Attr, DirLine, Entry, Kind, SpaceInfo, Stability, Time};
use rustix::io::Errno;

/// Time for which the kernel may cache an answer.
struct Lifetime {
    seconds: u64,
    nanos: u32,
}

impl Lifetime {
    /// Lifetime of answers that soon change by themselves, in nanoseconds: too short for a program to notice,
    /// long enough to save requests.
    const MOMENT_NANOS: u32 = 20_000_000;
    /// Lifetime of answers without a limit, in seconds: within the kernel's signed counter of jiffies.
    const EVER_SECONDS: u64 = 1 << 30;

    fn of(stability: Stability) -> Lifetime {
        match stability {
            Stability::Volatile => Lifetime { seconds: 0, nanos: 0 },
            Stability::Settling => Lifetime { seconds: 0, nanos: Lifetime::MOMENT_NANOS },
            Stability::Stable => Lifetime { seconds: Lifetime::EVER_SECONDS, nanos: 0 },
        }
    }
}

/// The body of a reply under construction.
pub(in crate::fuse) struct Body<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

/// The error for a reply that does not fit: the kernel gave a smaller buffer than its protocol says.
fn no_room<T>(_: T) -> Errno {
    Errno::RANGE
}

impl<'a> Body<'a> {
    pub(in crate::fuse) fn new(bytes: &'a mut [u8]) -> Body<'a> {
        Body { bytes, len: 0 }
    }

    /// Number of bytes that were written to the body.
    pub(in crate::fuse) fn len(&self) -> usize {
        self.len
    }

    /// The part of the buffer that is not written yet.
    pub(in crate::fuse) fn rest(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.len..).unwrap_or_default()
    }

    /// Number of bytes that can still be written.
    pub(in crate::fuse) fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.len)
    }

    /// Counts `count` bytes at the beginning of [`Body::rest`] as written.
    pub(in crate::fuse) fn advance(&mut self, count: usize) {
        self.len = (self.len + count).min(self.bytes.len());
    }

    pub(in crate::fuse) fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let room = self.rest().get_mut(..bytes.len()).ok_or(()).map_err(no_room)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    pub(in crate::fuse) fn u16(&mut self, value: u16) -> Result<(), Errno> {
        self.put(&value.to_ne_bytes())
    }

    pub(in crate::fuse) fn u32(&mut self, value: u32) -> Result<(), Errno> {
        self.put(&value.to_ne_bytes())
    }

    pub(in crate::fuse) fn u64(&mut self, value: u64) -> Result<(), Errno> {
        self.put(&value.to_ne_bytes())
    }

    /// Writes the attributes of a file; `shown` is its inode number.
    fn attr(&mut self, shown: u64, attr: &Attr) -> Result<(), Errno> {
        for word in [shown, attr.size, attr.blocks] {
            self.u64(word)?;
        }
        for time in [attr.atime, attr.mtime, attr.ctime] {
            self.u64(time.secs.cast_unsigned())?;
        }
        for time in [attr.atime, attr.mtime, attr.ctime] {
            self.u32(time.nanos)?;
        }
        let mode = mode_of(attr.kind) | u32::from(attr.perm);
        for word in [mode, attr.nlink, attr.uid, attr.gid, pack_device(attr.rdev), attr.block_size, 0] {
            self.u32(word)?;
        }
        Ok(())
    }

    /// Writes the entry of a file that was looked up or made.
    pub(in crate::fuse) fn entry(
        &mut self,
        entry: &Entry,
        name: Stability,
        attr: Stability,
    ) -> Result<(), Errno> {
        let (name, attr) = (Lifetime::of(name), Lifetime::of(attr));
        for word in [entry.node, entry.attr.generation, name.seconds, attr.seconds] {
            self.u64(word)?;
        }
        self.u32(name.nanos)?;
        self.u32(attr.nanos)?;
        self.attr(entry.attr.ino, &entry.attr)
    }

    /// Writes the entry for an absent name, which the kernel may cache for as long as `name` says.
    pub(in crate::fuse) fn absent(&mut self, name: Stability) -> Result<(), Errno> {
        for word in [0, 0, Lifetime::of(name).seconds, 0, 0] {
            self.u64(word)?;
        }
        self.zeros(ATTR)
    }

    fn zeros(&mut self, count: usize) -> Result<(), Errno> {
        self.rest().get_mut(..count).ok_or(()).map_err(no_room)?.fill(0);
        self.len += count;
        Ok(())
    }

    /// Writes the body of the replies to `GETATTR` and `SETATTR`.
    pub(in crate::fuse) fn attributes(&mut self, attr: &Attr, stability: Stability) -> Result<(), Errno> {
        let lifetime = Lifetime::of(stability);
        self.u64(lifetime.seconds)?;
        self.u32(lifetime.nanos)?;
        self.u32(0)?;
        self.attr(attr.ino, attr)
    }

    /// Writes the body of the reply to `OPEN`.
    pub(in crate::fuse) fn opened(&mut self, opened: &Opened) -> Result<(), Errno> {
        self.u64(opened.handle)?;
        self.u32(opened.flags)?;
        self.u32(0)
    }

    pub(in crate::fuse) fn space(&mut self, space: &SpaceInfo) -> Result<(), Errno> {
        for word in [space.blocks, space.free, space.free, space.files, space.files_free] {
            self.u64(word)?;
        }
        for word in [space.block_size, space.name_max, space.block_size, 0, 0, 0, 0, 0, 0, 0] {
            self.u32(word)?;
        }
        Ok(())
    }

    /// Writes the body of the reply to `STATX`.
    pub(in crate::fuse) fn statx(&mut self, attr: &Attr, stability: Stability) -> Result<(), Errno> {
        /// Basic statistics and the time of birth.
        const MASK: u32 = 0xfff;
        let lifetime = Lifetime::of(stability);
        self.u64(lifetime.seconds)?;
        self.u32(lifetime.nanos)?;
        self.u32(0)?;
        self.u64(0)?;
        self.u64(0)?;
        self.u32(MASK)?;
        self.u32(attr.block_size)?;
        self.u64(0)?;
        for word in [attr.nlink, attr.uid, attr.gid] {
            self.u32(word)?;
        }
        let mode = mode_of(attr.kind) | u32::from(attr.perm);
        self.u16(u16::try_from(mode).unwrap_or(0))?;
        self.u16(0)?;
        for word in [attr.ino, attr.size, attr.blocks, 0] {
            self.u64(word)?;
        }
        for time in [attr.atime, attr.crtime, attr.ctime, attr.mtime] {
            self.time(time)?;
        }
        let (major, minor) = attr.rdev;
        for word in [major, minor, 0, 0] {
            self.u32(word)?;
        }
        self.zeros(14 * 8)
    }

    fn time(&mut self, time: Time) -> Result<(), Errno> {
        self.u64(time.secs.cast_unsigned())?;
        self.u32(time.nanos)?;
        self.u32(0)
    }

    /// Writes a line of a directory. `plus`: of a listing with attributes; the kernel itself asks for
    /// attributes that are missing. `false`: the line does not fit.
    pub(in crate::fuse) fn dir_line(&mut self, line: &DirLine<'_>, plus: bool) -> bool {
        let len = dir_line_len(line.name.len(), plus);
        if self.room() < len {
            return false;
        }
        let start = self.len;
        let done = (|| {
            match line.file.filter(|_| plus) {
                Some((entry, stability)) => self.entry(&entry, Stability::Stable, stability)?,
                None if plus => self.zeros(ENTRY)?,
                None => {}
            }
            self.u64(line.node)?;
            self.u64(line.next)?;
            self.u32(u32::try_from(line.name.len()).map_err(no_room)?)?;
            self.u32(line.kind.map_or(0, |kind| mode_of(kind) >> 12))?;
            self.put(line.name)?;
            self.zeros(start + len - self.len)
        })();
        if done.is_err() {
            self.len = start;
        }
        done.is_ok()
    }
}

/// Lengths of attributes, of an entry, and of a directory line before its name, in bytes.
const ATTR: usize = 88;
const ENTRY: usize = 40 + ATTR;
const DIRENT: usize = 24;

/// Length of a directory line with a name of so many bytes; `plus`: of a listing with attributes.
pub(in crate::fuse) fn dir_line_len(name: usize, plus: bool) -> usize {
    let prefix = if plus { ENTRY } else { 0 };
    (prefix + DIRENT + name).next_multiple_of(8)
}

/// The file type bits of a mode.
pub(in crate::fuse) fn mode_of(kind: Kind) -> u32 {
    match kind {
        Kind::Fifo => 0o01_0000,
        Kind::CharDevice => 0o02_0000,
        Kind::Directory => 0o04_0000,
        Kind::BlockDevice => 0o06_0000,
        Kind::Regular => 0o10_0000,
        Kind::Symlink => 0o12_0000,
        Kind::Socket => 0o14_0000,
    }
}

/// Device numbers as FUSE packs them: 12 bits of major, 20 of minor.
pub(in crate::fuse) fn pack_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The inverse of [`pack_device`].
pub(in crate::fuse) fn unpack_device(packed: u32) -> (u32, u32) {
    (packed >> 8 & 0xfff, packed & 0xff | packed >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        assert_eq!(pack_device((8, 1)), 0x801);
        assert_eq!(pack_device((0xfff, 0xf_ffff)), u32::MAX);
        assert_eq!(pack_device((5, 0x1_0002)), 0x1000_0502);
        for device in [(8, 1), (0xfff, 0xf_ffff), (5, 0x1_0002), (0, 0)] {
            assert_eq!(unpack_device(pack_device(device)), device);
        }
    }

    #[test]
    fn lines_of_a_directory_end_where_the_room_ends() {
        let mut room = [0xff_u8; 70];
        let mut body = Body::new(&mut room);
        let line = DirLine { node: 9, kind: Some(Kind::Directory), name: b"abc", next: 4, file: None };
        assert!(body.dir_line(&line, false) && body.dir_line(&line, false));
        assert_eq!(body.len(), 64);
        assert!(!body.dir_line(&line, false));
        assert_eq!(body.len(), 64);
        assert_eq!(room[16..32], [3, 0, 0, 0, 4, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0]);
    }

    #[test]
    fn replies_have_the_protocols_lengths() {
        let mut room = [0_u8; 512];
        let space = SpaceInfo::default();
        let lengths = |fill: &mut dyn FnMut(&mut Body<'_>)| {
            let mut body = Body::new(&mut room);
            fill(&mut body);
            body.len()
        };
        let mut lengths = lengths;
        assert_eq!(lengths(&mut |b| b.absent(Stability::Stable).unwrap()), 128);
        assert_eq!(lengths(&mut |b| b.space(&space).unwrap()), 80);
        assert_eq!(lengths(&mut |b| b.opened(&Opened::default()).unwrap()), 16);
    }
}
