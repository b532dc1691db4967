//! Files and block devices.
//!
//! Reads of block devices bypass the page cache (`O_DIRECT`) when the system allows it: the pool has its own
//! cache, which makes a second copy in the kernel useless. Image files are read through the page cache unless
//! [`Access::Direct`] is requested: they are small, often just downloaded, and shared by many short commands.
//! Either way a batch goes to the kernel as one io_uring submission if there is io_uring; single reads are
//! plain `pread`s.
//!
//! # What always holds
//! - A device that is open for writing has no other writer: files are locked, block devices opened with
//!   `O_EXCL`, which excludes mounts, MD, LVM and the kernel's ZFS.
//! - Requests that `O_DIRECT` refuses (alignment, file systems without it, the odd tail of a file) go through
//!   the page cache; the caller sees no difference.

use super::error::{Cause, DeviceError, Holder, IoOp};
use super::interface::{Device, ReadRequest, WriteRequest, check_range, size_of_parts};
use super::raw::{Bounce, RawTarget, io_error};
#[cfg(target_os = "linux")]
use super::uring;
use crate::tunable::Tunable;
use format::DeviceOffset;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Alignment that every device accepts.
const SAFE_ALIGN: u32 = 4096;
/// Most parts of one write call.
const PARTS_MAX: usize = 512;

/// Path of reads through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// [`Access::Direct`] for block devices, [`Access::Cached`] for files.
    #[default]
    Auto,
    /// Through the kernel's page cache.
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
    /// Bytes of the device; `renew_size` may increase it.
    size: AtomicU64,
    writable: bool,
    is_block: bool,
    sectors: (u64, u64),
}

/// log2 of the logical sector size, in bytes, that regular files report.
pub static FILE_LOGICAL_ASHIFT: Tunable = Tunable::new("vdev_file_logical_ashift", 9, 9, 16);
/// log2 of the physical sector size, in bytes, that regular files report.
pub static FILE_PHYSICAL_ASHIFT: Tunable = Tunable::new("vdev_file_physical_ashift", 9, 9, 16);

/// Opens a leaf of a pool that is written: like [`FileDevice::open_writable`], but bypasses the page cache
/// also for files, unless [`Access::Cached`] is requested. The pool has its own cache. Writing through the
/// page cache would cost a copy, and the kernel would write later and in other portions than the pool
/// planned.
///
/// # Errors
/// [`DeviceError::Busy`] if the device is open for writing elsewhere, otherwise the reason why it cannot be
/// opened.
pub fn open_exclusive(path: &Path, access: Access) -> Result<Arc<dyn Device>, DeviceError> {
    let access = if access == Access::Auto { Access::Direct } else { access };
    Ok(Arc::new(FileDevice::open_writable(path, access)?))
}

impl FileDevice {
    /// Opens a device for reading. Other processes may write to it meanwhile.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        FileDevice::open_as(path, access, false).map_err(|cause| open_error(path, cause))
    }

    /// Opens a device for reading and writing, exclusively.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if the device is open for writing elsewhere, otherwise the reason why it cannot
    /// be opened.
    pub fn open_writable(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        FileDevice::open_as(path, access, true).map_err(|cause| open_error(path, cause))
    }

    fn open_as(path: &Path, access: Access, writable: bool) -> Result<FileDevice, Errno> {
        let kind = FileType::from_raw_mode(fs::stat(path)?.st_mode);
        let is_block = match kind {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            FileType::Directory => return Err(Errno::ISDIR),
            // A FIFO would block, a terminal would be read: neither is a leaf.
            _ => return Err(Errno::NOTBLK),
        };
        let mut flags = OFlags::CLOEXEC | if writable { OFlags::RDWR } else { OFlags::RDONLY };
        if writable && is_block {
            flags |= OFlags::EXCL;
        }
        let fd = fs::open(path, flags, Mode::empty())?;
        if writable && !is_block {
            lock(&fd)?;
        }
        let size = fs::seek(&fd, SeekFrom::End(0))?;
        let direct = match access {
            Access::Direct => open_direct(path, &fd, flags, is_block),
            Access::Auto if is_block => open_direct(path, &fd, flags, is_block),
            _ => None,
        };
        let sectors = if is_block { block_sectors(&fd) } else { file_sectors() };
        Ok(FileDevice { path: path.to_owned(), fd, direct, size: size.into(), writable, is_block, sectors })
    }

    /// Whether reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Writes parts bypassing the page cache, through aligned memory if the parts are not aligned. `None`:
    /// the range is not aligned, or the file system refuses.
    fn write_direct(
        &self,
        direct: &Direct,
        parts: &[IoSlice<'_>],
        at: u64,
    ) -> Option<Result<(), DeviceError>> {
        let target = direct.target();
        let result = if target.fits_parts(parts, at) {
            write_parts_full(&direct.fd, parts, at)
        } else {
            write_full(&direct.fd, &target.aligned_copy(parts, at)?, at)
        };
        match result {
            Err(DeviceError::Io { cause: Cause::System(Errno::INVAL), .. }) => None,
            result => Some(result),
        }
    }

    /// Reads through `O_DIRECT`, bounced through aligned memory where needed. `None`: this is not possible.
    fn read_direct(&self, direct: &Direct, buf: &mut [u8], at: u64) -> Option<()> {
        let target = direct.target();
        if target.fits(buf, at) {
            return read_full(&direct.fd, buf, at).ok();
        }
        let mut bounce = Bounce::new(target, buf.len(), at, self.size())?;
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

/// Locks the whole file for the open file description, as virtual machines lock their images: no other
/// description gets a lock on any part of it before this one is closed. On file systems without such locks it
/// uses `flock`.
fn lock(fd: &OwnedFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    {
        use nix::libc::F_WRLCK;
        match lock_description(fd, F_WRLCK) {
            Ok(()) => return Ok(()),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => return Err(Errno::WOULDBLOCK),
            Err(error) => tracing::debug!(%error, "no lock of an open file description"),
        }
    }
    fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
}

/// Releases the lock. Closing the descriptor is not enough while another process has a copy of it, as each
/// child has until it executes its program.
fn unlock(fd: &OwnedFd) {
    #[cfg(target_os = "linux")]
    // If this fails, the file was locked with `flock`.
    let _ = lock_description(fd, nix::libc::F_UNLCK);
    let _ = fs::flock(fd, FlockOperation::NonBlockingUnlock);
}

#[cfg(target_os = "linux")]
fn lock_description(fd: &OwnedFd, kind: i32) -> nix::Result<()> {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{SEEK_SET, flock};
    // Length 0: to the end of the file, even if that moves.
    let whole = flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(fd, FcntlArg::F_OFD_SETLK(&whole)).map(drop)
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if self.writable && !self.is_block {
            unlock(&self.fd);
        }
    }
}

/// Logical and physical sector of a block device.
fn file_sectors() -> (u64, u64) {
    let logical = 1 << FILE_LOGICAL_ASHIFT.get();
    (logical, logical.max(1 << FILE_PHYSICAL_ASHIFT.get()))
}

fn block_sectors(fd: &OwnedFd) -> (u64, u64) {
    #[cfg(target_os = "linux")]
    {
        let logical = fs::ioctl_blksszget(fd).map_or(512, u64::from).max(512);
        (logical, fs::ioctl_blkpbszget(fd).map_or(logical, u64::from).max(logical))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = fd;
        (512, 512)
    }
}

/// Alignment that `O_DIRECT` requires of memory addresses and of offsets.
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
            Err(cause) => return Err(io_error(IoOp::Read, cause, at, buf.len())),
        }
    }
    Ok(())
}

/// Writes until the whole buffer is written.
fn write_full(fd: &OwnedFd, buf: &[u8], at: u64) -> Result<(), DeviceError> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pwrite(fd, &buf[done..], at + done as u64) {
            Ok(0) => return Err(io_error(IoOp::Write, Errno::IO, at, buf.len())),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(cause) => return Err(io_error(IoOp::Write, cause, at, buf.len())),
        }
    }
    Ok(())
}

/// Writes all parts, one after the other.
fn write_parts_full(fd: &OwnedFd, parts: &[IoSlice<'_>], at: u64) -> Result<(), DeviceError> {
    let mut at = at;
    for parts in parts.chunks(PARTS_MAX) {
        let mut done = loop {
            match rustix::io::pwritev(fd, parts, at) {
                Ok(done) => break done,
                Err(Errno::INTR) => {}
                Err(cause) => return Err(io_error(IoOp::Write, cause, at, size_of_parts(parts) as usize)),
            }
        };
        for part in parts {
            let skipped = done.min(part.len());
            done -= skipped;
            if skipped < part.len() {
                write_full(fd, &part[skipped..], at + skipped as u64)?;
            }
            at += part.len() as u64;
        }
    }
    Ok(())
}

/// The error for a failure to open `path`.
fn open_error(path: &Path, cause: Errno) -> DeviceError {
    match cause {
        Errno::WOULDBLOCK | Errno::BUSY => DeviceError::Busy { holder: holder_of(path) },
        Errno::NOENT => DeviceError::NotFound,
        Errno::ISDIR => DeviceError::IsFolder,
        Errno::NOTBLK => DeviceError::NotADevice,
        Errno::ACCESS | Errno::PERM => DeviceError::Denied,
        cause => DeviceError::Open { cause: cause.into() },
    }
}

/// The holder of a busy device, as far as the system knows it: the block devices that are built on it, or the
/// process that has locked the file. A lock of an open file description, such as ours, names no process.
fn holder_of(path: &Path) -> Option<Holder> {
    let stat = fs::stat(path).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return lock_holder(path);
    }
    let (major, minor) = (fs::major(stat.st_rdev), fs::minor(stat.st_rdev));
    let entries = std::fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders")).ok()?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    (!names.is_empty()).then_some(Holder::Devices(names))
}

#[cfg(target_os = "linux")]
fn lock_holder(path: &Path) -> Option<Holder> {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, flock};
    let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut asked =
        flock { l_type: F_WRLCK as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&fd, FcntlArg::F_GETLK(&mut asked)).ok()?;
    let is_locked = asked.l_type != F_UNLCK as i16;
    u32::try_from(asked.l_pid).ok().filter(|pid| is_locked && *pid > 0).map(Holder::Process)
}

#[cfg(not(target_os = "linux"))]
fn lock_holder(_: &Path) -> Option<Holder> {
    None
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    fn size_now(&self) -> u64 {
        fs::seek(&self.fd, SeekFrom::End(0)).unwrap_or_else(|_| self.size())
    }

    fn renew_size(&self) -> u64 {
        let now = self.size_now();
        self.size.fetch_max(now, Relaxed).max(now)
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check_range(at, buf.len() as u64, self.size())?;
        if let Some(direct) = &self.direct
            && self.read_direct(direct, buf, at.0).is_some()
        {
            return Ok(());
        }
        // Also after a failed direct read, to distinguish a refusal of O_DIRECT from a broken device.
        read_full(&self.fd, buf, at.0)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        #[cfg(target_os = "linux")]
        if requests.len() > 1
            && let Some(target) = self.raw_target()
        {
            let mut items: Vec<_> =
                requests.iter_mut().map(|request| uring::Item::new(target, self.size(), request)).collect();
            uring::read_items(&mut items);
        }
        for request in requests.iter_mut().filter(|request| request.is_pending()) {
            request.result = self.read_at(request.buf, request.at);
        }
    }

    fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
        #[cfg(target_os = "linux")]
        if requests.len() > 1
            && self.writable
            && let Some(target) = self.raw_target()
        {
            let mut items: Vec<_> = requests
                .iter_mut()
                .map(|request| uring::WriteItem::new(target, self.size(), request))
                .collect();
            uring::write_items(&mut items);
        }
        for request in requests.iter_mut().filter(|request| request.is_pending()) {
            request.result = self.write_parts(&request.parts, request.at);
        }
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.write_parts(&[IoSlice::new(buf)], at)
    }

    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        check_range(at, size_of_parts(parts), self.size())?;
        if let Some(direct) = &self.direct
            && let Some(result) = self.write_direct(direct, parts, at.0)
        {
            return result;
        }
        // The parts that `O_DIRECT` refuses go through the page cache.
        write_parts_full(&self.fd, parts, at.0)
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.sectors
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if !self.writable {
            return Ok(());
        }
        fs::fdatasync(&self.fd).map_err(|cause| io_error(IoOp::Flush, cause, 0, 0))
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        check_range(at, len, self.size())?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.fd, flags, at.0, len) {
            // A discard is advice: a device without support ignores it.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(cause) => Err(io_error(IoOp::Discard, cause, at.0, len as usize)),
        }
    }

    #[cfg(target_os = "linux")]
    fn reread_partitions(&self) -> Result<(), DeviceError> {
        match super::partition_table::reread(self.fd.as_fd()) {
            Err(cause) if self.is_block => match cause {
                // A device that cannot have partitions; ours are found by reading the table.
                Errno::INVAL | Errno::NOTTY => Ok(()),
                Errno::BUSY => Err(DeviceError::Busy { holder: None }),
                cause => Err(io_error(IoOp::RereadPartitions, cause, 0, 0)),
            },
            _ => Ok(()),
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_at(&self, path: &Path) -> bool {
        let (Ok(open), there) = (fs::fstat(&self.fd), fs::stat(path)) else { return true };
        match there {
            Ok(there) if self.is_block => there.st_rdev == open.st_rdev,
            Ok(there) => (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino),
            Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
    }

    fn is_removed(&self) -> bool {
        // Some file systems do not count links.
        !self.is_block && fs::fstat(&self.fd).is_ok_and(|open| open.st_nlink == 0) && !self.is_at(&self.path)
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
