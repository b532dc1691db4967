//! Files and block devices.
//!
//! Reads of block devices bypass the page cache (`O_DIRECT`) when the system allows it: the pool
//! has its own cache, and a second copy of it in the kernel helps nobody. Image files are read
//! through the page cache unless [`Access::Direct`] is asked for: they are small, often fresh
//! from a download, and shared by many short commands. Either way a batch goes to the kernel as
//! one io_uring submission where there is io_uring; single reads are plain `pread`s.
//!
//! # What always holds
//! - A device that is open for writing is ours alone: files are locked (`flock`), block devices
//!   opened with `O_EXCL`, which keeps mounts, MD, LVM and the kernel's ZFS away.
//! - Whatever `O_DIRECT` cannot do (alignment, file systems without it, the odd tail of a file)
//!   is done through the page cache; the caller sees no difference.

#[cfg(target_os = "linux")]
use super::uring;
use super::{Device, DeviceError, RawTarget, ReadRequest, check_range};
use format::DeviceOffset;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Alignment that every device accepts.
const SAFE_ALIGN: u32 = 4096;

/// How reads go to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// [`Access::Direct`] for block devices, [`Access::Cached`] for files.
    #[default]
    Auto,
    /// Through the page cache.
    Cached,
    /// Past the page cache where possible.
    Direct,
}

/// A second descriptor of the same file that bypasses the page cache.
#[derive(Debug)]
struct Direct {
    fd: OwnedFd,
    offset_align: u64,
    memory_align: usize,
}

/// A file or block device.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    fd: OwnedFd,
    direct: Option<Direct>,
    size: u64,
    writable: bool,
    is_block: bool,
}

impl FileDevice {
    /// Opens for reading; nobody is kept from writing meanwhile.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        FileDevice::open_as(path, access, false).map_err(open_error)
    }

    /// Opens for reading and writing, alone: [`DeviceError::Busy`] if anybody else does.
    pub fn open_writable(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        FileDevice::open_as(path, access, true).map_err(open_error)
    }

    fn open_as(path: &Path, access: Access, writable: bool) -> Result<FileDevice, Errno> {
        let kind = FileType::from_raw_mode(fs::stat(path)?.st_mode);
        let is_block = match kind {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            // A FIFO would block, a terminal would be read: neither is a leaf.
            _ => return Err(Errno::NOTBLK),
        };
        let mut flags = OFlags::CLOEXEC | if writable { OFlags::RDWR } else { OFlags::RDONLY };
        if writable && is_block {
            flags |= OFlags::EXCL;
        }
        let fd = fs::open(path, flags, Mode::empty())?;
        if writable && !is_block {
            fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        }
        let size = fs::seek(&fd, SeekFrom::End(0))?;
        let direct = match access {
            Access::Direct => open_direct(path, &fd, flags, is_block),
            Access::Auto if is_block => open_direct(path, &fd, flags, is_block),
            _ => None,
        };
        Ok(FileDevice { path: path.to_owned(), fd, direct, size, writable, is_block })
    }

    /// Whether reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Whether this is a block device rather than a file.
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// Reads through `O_DIRECT`, bounced through aligned memory where needed. `None`: it cannot
    /// be done this way.
    fn read_direct(&self, direct: &Direct, buf: &mut [u8], at: u64) -> Option<()> {
        let target = direct.target();
        if target.fits(buf, at) {
            return read_full(&direct.fd, buf, at).ok();
        }
        let mut bounce = Bounce::new(target, buf.len(), at, self.size)?;
        let from = bounce.at;
        read_full(&direct.fd, bounce.span(), from).ok()?;
        bounce.copy_to(buf)
    }
}

impl Direct {
    fn target(&self) -> RawTarget<'_> {
        RawTarget {
            fd: self.fd.as_fd(),
            base: 0,
            offset_align: self.offset_align,
            memory_align: self.memory_align,
        }
    }
}

impl RawTarget<'_> {
    /// Whether a read may go straight into `buf`.
    pub(super) fn fits(&self, buf: &[u8], at: u64) -> bool {
        at.is_multiple_of(self.offset_align)
            && (buf.len() as u64).is_multiple_of(self.offset_align)
            && buf.as_ptr().addr().is_multiple_of(self.memory_align)
    }
}

/// Aligned memory around a request that is not aligned itself.
#[derive(Debug)]
pub(super) struct Bounce {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    skip: usize,
    /// Where the aligned read starts on the file.
    pub(super) at: u64,
}

impl Bounce {
    /// `None` if the aligned range would reach past `size`.
    pub(super) fn new(target: RawTarget<'_>, len: usize, at: u64, size: u64) -> Option<Bounce> {
        let first = at - at % target.offset_align;
        let end = at.checked_add(len as u64)?.checked_next_multiple_of(target.offset_align)?;
        if end > size {
            return None;
        }
        let span = (end - first) as usize;
        let memory = vec![0; span + target.memory_align];
        let start = memory.as_ptr().align_offset(target.memory_align);
        memory.get(start..start + span)?;
        Some(Bounce { memory, start, len: span, skip: (at - first) as usize, at: first })
    }

    /// The aligned memory.
    pub(super) fn span(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    /// Copies what was asked for.
    pub(super) fn copy_to(&self, buf: &mut [u8]) -> Option<()> {
        let from = self.start + self.skip;
        buf.copy_from_slice(self.memory.get(from..from + buf.len())?);
        Some(())
    }
}

/// Opens the file a second time with `O_DIRECT`; `None` if that is not possible here.
fn open_direct(path: &Path, fd: &OwnedFd, flags: OFlags, is_block: bool) -> Option<Direct> {
    let flags = (flags - OFlags::EXCL) | OFlags::DIRECT;
    let direct = fs::open(path, flags, Mode::empty()).ok()?;
    let (one, two) = (fs::fstat(fd).ok()?, fs::fstat(&direct).ok()?);
    if (one.st_dev, one.st_ino, one.st_rdev) != (two.st_dev, two.st_ino, two.st_rdev) {
        return None; // replaced in between
    }
    let (memory, offset) = direct_alignment(&direct, is_block);
    Some(Direct {
        fd: direct,
        offset_align: u64::from(offset.max(512).checked_next_power_of_two()?),
        memory_align: memory.max(1).checked_next_power_of_two()? as usize,
    })
}

/// What `O_DIRECT` wants of addresses and of offsets.
fn direct_alignment(fd: &OwnedFd, is_block: bool) -> (u32, u32) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags};
        if let Ok(stat) = fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
            && stat.stx_dio_offset_align != 0
        {
            return (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
        }
        if is_block && let Ok(sector) = fs::ioctl_blksszget(fd) {
            return (sector, sector);
        }
    }
    let _ = (fd, is_block);
    (SAFE_ALIGN, SAFE_ALIGN)
}

/// Reads until the buffer is full.
fn read_full(fd: &OwnedFd, buf: &mut [u8], at: u64) -> Result<(), DeviceError> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(fd, &mut buf[done..], at + done as u64) {
            Ok(0) => return Err(DeviceError::Truncated { at: DeviceOffset(at + done as u64) }),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(cause) => return Err(io_error(cause, at, buf.len())),
        }
    }
    Ok(())
}

/// Writes the whole buffer.
fn write_full(fd: &OwnedFd, buf: &[u8], at: u64) -> Result<(), DeviceError> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pwrite(fd, &buf[done..], at + done as u64) {
            Ok(0) => return Err(io_error(Errno::IO, at, buf.len())),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(cause) => return Err(io_error(cause, at, buf.len())),
        }
    }
    Ok(())
}

fn io_error(cause: Errno, at: u64, len: usize) -> DeviceError {
    match cause {
        Errno::NODEV | Errno::NXIO => DeviceError::Gone,
        cause => DeviceError::Io { at: DeviceOffset(at), len, cause },
    }
}

fn open_error(cause: Errno) -> DeviceError {
    match cause {
        Errno::WOULDBLOCK | Errno::BUSY => DeviceError::Busy,
        cause => DeviceError::Io { at: DeviceOffset(0), len: 0, cause },
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size)?;
        if let Some(direct) = &self.direct
            && self.read_direct(direct, buf, at.0).is_some()
        {
            return Ok(());
        }
        // Also after a failed direct read: it tells apart what O_DIRECT refuses and what is broken.
        read_full(&self.fd, buf, at.0)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        #[cfg(target_os = "linux")]
        if requests.len() > 1
            && let Some(target) = self.raw_target()
        {
            let mut items: Vec<_> =
                requests.iter_mut().map(|request| uring::Item::new(target, self.size, request)).collect();
            uring::read_items(&mut items);
        }
        for request in requests {
            if request.result == Err(DeviceError::NotRead) {
                request.result = self.read_at(request.buf, request.at);
            }
        }
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        check_range(at, buf.len() as u64, self.size)?;
        match &self.direct {
            Some(direct) if direct.target().fits(buf, at.0) => match write_full(&direct.fd, buf, at.0) {
                // What O_DIRECT refuses after all is done through the page cache.
                Err(DeviceError::Io { cause: Errno::INVAL, .. }) => write_full(&self.fd, buf, at.0),
                result => result,
            },
            _ => write_full(&self.fd, buf, at.0),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if !self.writable {
            return Ok(());
        }
        fs::fdatasync(&self.fd).map_err(|cause| io_error(cause, 0, 0))
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        check_range(at, len, self.size)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.fd, flags, at.0, len) {
            // Discarding is advice; what cannot be discarded stays.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(cause) => Err(io_error(cause, at.0, 0)),
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn raw_target(&self) -> Option<RawTarget<'_>> {
        Some(match &self.direct {
            Some(direct) => direct.target(),
            None => RawTarget { fd: self.fd.as_fd(), base: 0, offset_align: 1, memory_align: 1 },
        })
    }
}
