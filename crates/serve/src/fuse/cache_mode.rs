//! Cache mode: how the kernel caches the files of a mount. The kernel and the server agree on it in the reply
//! to `INIT`, and it holds for the life of the mount.
//!
//! By default the kernel keeps written data for some seconds before it sends them (write-back cache), and
//! files are not opened at the server (`OPEN` returns `ENOSYS`). Where that would break a promise of ZFS, the
//! kernel caches less:
//! - `sync=always`: each write is sent at once, and is durable when it is answered.
//! - Near a quota or the end of the pool: each write is sent at once, so that the writing program gets the
//!   error for a lack of space. If a file system comes near its end only after it was mounted, this applies
//!   to files that are made from then on; a program that writes other files gets the error when it closes or
//!   syncs them.
//! - `atime=on` with `relatime=off`: files are opened at the server and their cached pages dropped, so that
//!   the server sees each reader.
//!
//! # Uncached files
//! The kernel lets only one thread at a time write a file past its cache, or make it durable. So a program
//! that opens a file with `O_DIRECT`, or writes it with `O_DSYNC` or `O_SYNC`, gets a file that bypasses the
//! cache ([`UNCACHED`]): any number of threads write it at the same time, and a write that must be durable is
//! durable when it is answered. For that, files are opened at the server, at the price of one request for
//! each open: a mount stops this for good after a few hundred files were opened and none of them in this way.
//! It does not stop if records are smaller than the default: such datasets are made for programs that read
//! and write pages of their own. Likewise for a mount in which many files were made: from then on files are
//! made and opened by separate requests, of which the kernel sends neither the second nor the one for
//! closing. Uncached files are not used if the kernel caches writes, because then the times of such files
//! would not advance (the kernel sets them), nor with kernels that may leave an old page in the cache of
//! another program.

use super::errno::errno;
use super::flag;
use super::service::{Answer, Opened, WriteAt, open_flag};
use crate::export::{LiveExport, LiveFs, lends_rights};
use crate::kernel_version::this_kernel;
use admin::DIO_ENABLED;
use admin::served::ServedFilesystem;
use cenote::files::AccessTimes;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Below this space a file system is near its end, whatever the memory of the machine.
const NEAR_BYTES: u64 = 64 << 20;
/// One in this many bytes of memory may be dirty pages of one mount: twice the kernel's default for a FUSE
/// mount, which is a hundredth of the fifth of memory that all dirty pages may take.
const DIRTY_PART: u64 = 250;
/// Time for which a measured amount of space is used, in milliseconds.
const ROOM_LIFE_MS: u64 = 100;
/// Record size from which on a dataset counts as an ordinary one, in bytes.
const USUAL_RECORD: u64 = 128 << 10;
/// Files that are opened at the server before the mount stops that, if no program has bypassed the cache.
const PLAIN_OPENS: u32 = 256;
/// Files that are made by the request that opens them before the mount stops that, if no program has bypassed
/// the cache.
const PLAIN_CREATES: u32 = 1024;
/// Replaces both numbers after a program has bypassed the cache.
const PLAIN_OPENS_SINCE: u32 = 100_000;
/// The first kernel that drops pages which were read while their range was written past the cache.
const DROPS_PAGES: (u32, u32) = (6, 18);
/// The first kernel that checks whether a caller may change flags and projects of files, and that the mount
/// can be written to.
const CHECKS_FLAGS: (u32, u32) = (5, 13);
/// `O_DSYNC` of Linux, one of the two bits of `O_SYNC`. `OFlags::DSYNC` has both bits.
const DSYNC: u32 = 0o1_0000;
/// Handle of files that bypass the cache.
pub(super) const UNCACHED: u64 = 1;

/// The part of the cache mode that the kernel and the server agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The kernel keeps written data until it is asked for them, at most for some seconds.
    pub(super) writeback: bool,
    /// Files are opened at the server.
    pub(super) opens: bool,
    /// The kernel asks for access control lists, and enforces them.
    pub(super) acls: bool,
}

impl Agreed {
    fn bits(self) -> u8 {
        u8::from(self.writeback) | u8::from(self.opens) << 1 | u8::from(self.acls) << 2
    }
}

/// The cache mode of a mount.
#[derive(Debug)]
pub(super) struct CacheMode {
    /// The kernel may keep dirty pages, unless a promise forbids it.
    may_write_back: bool,
    /// The agreement as [`Agreed::bits`].
    agreed: AtomicU8,
    begun: Instant,
    /// Milliseconds since `begun` at which the space was measured; the lowest bit says whether the file
    /// system was near its end.
    room: AtomicU64,
    /// Bytes of space below which a file system is near its end.
    near: u64,
    /// Files that will still be opened at the server before the mount stops that.
    opens_left: AtomicU32,
    /// Files that will still be opened by the request that makes them.
    creates_left: AtomicU32,
    /// The kernel supports files that bypass its cache beside others.
    can_mix: bool,
    /// A program has opened a file with `O_DIRECT` to write it past the cache.
    has_uncached: AtomicBool,
    /// The kernel checks whether a caller may change flags and projects of files.
    pub(super) checks_flags: bool,
}

/// Whether a program that opened a file with these flags may continue while its write is still being made
/// (asynchronous I/O). For such writes the kernel drops the pages of the range before the write, and not
/// after. Programs that use asynchronous I/O open with `O_DIRECT`.
fn is_unordered(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::DIRECT)
}

/// Whether a write must be durable when it is answered. For other files the kernel sends `FSYNC`.
pub(super) fn is_durable(write: &WriteAt<'_>) -> bool {
    write.handle == UNCACHED && write.flags & (OFlags::DSYNC | OFlags::SYNC).bits() != 0
}

impl CacheMode {
    /// The mode before the kernel and the server have agreed.
    pub(super) fn new(may_write_back: bool) -> CacheMode {
        let info = rustix::system::sysinfo();
        let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
        CacheMode {
            may_write_back,
            agreed: AtomicU8::new(0),
            begun: Instant::now(),
            room: AtomicU64::new(0),
            near: NEAR_BYTES.max(memory / DIRTY_PART),
            opens_left: AtomicU32::new(PLAIN_OPENS),
            creates_left: AtomicU32::new(PLAIN_CREATES),
            can_mix: this_kernel() >= DROPS_PAGES,
            has_uncached: AtomicBool::new(false),
            checks_flags: this_kernel() >= CHECKS_FLAGS,
        }
    }

    /// Notes that pages of a file are read into the kernel's cache.
    pub(super) fn note_cached_read(&self, export: &LiveExport, node: u64) {
        if self.has_uncached.load(Ordering::Acquire) {
            export.note_cached(node);
        }
    }

    /// Whether the kernel may have read pages of a file while this write was on its way, and will not drop
    /// them.
    pub(super) fn leaves_old_pages(&self, export: &LiveExport, node: u64, write: &WriteAt<'_>) -> bool {
        write.handle == UNCACHED && is_unordered(write.flags) && export.may_be_cached(node)
    }

    /// The present agreement with the kernel.
    pub(super) fn agreed(&self) -> Agreed {
        let bits = self.agreed.load(Ordering::Relaxed);
        Agreed { writeback: bits & 1 != 0, opens: bits & 2 != 0, acls: bits & 4 != 0 }
    }

    /// Adjusts the mode when the contents of the mount come back after they were taken away: files that were
    /// opened before may still be open.
    pub(super) fn contents_return(&self) {
        self.has_uncached.store(true, Ordering::Release);
    }

    /// The agreement that the server would offer now.
    fn wanted(&self, live: &LiveFs) -> Agreed {
        let has_pages = self.can_mix && has_own_pages(live);
        let writeback =
            self.may_write_back && !has_pages && !live.writer().is_sync_always() && !self.is_near_end(live);
        let opens = needs_opens(live) || (self.can_mix && !writeback);
        Agreed { writeback, opens, acls: live.fs().options().posix_acls }
    }

    /// Whether the server opens a file that a program opens with these flags. `false`: the kernel need not
    /// ask again.
    pub(super) fn asks_on(&self, live: &LiveFs, flags: u32) -> bool {
        self.agreed().opens && self.counts_on(live, &self.opens_left, flags)
    }

    /// Whether one request makes and opens a file with these flags. `false`: the kernel makes files by one
    /// request and opens them by another, for good. That saves requests: the kernel then learns that files
    /// need not be opened, and does not close them either.
    ///
    /// Separate requests are used only if all files are made through this kernel, which looks a name up
    /// before it makes it: a program whose file exists already by the time of the request gets the error that
    /// the name exists, even if it did not ask for a new file.
    pub(super) fn creates(&self, live: &LiveFs, flags: u32) -> bool {
        let agreed = self.agreed();
        // Near the end of the space new files are opened in another way.
        agreed.writeback || (agreed.opens && self.counts_on(live, &self.creates_left, flags))
    }

    /// Counts down for a file that is opened with these flags. `false`: files are no longer opened at the
    /// server.
    fn counts_on(&self, live: &LiveFs, left: &AtomicU32, flags: u32) -> bool {
        if wants_uncached(OFlags::from_bits_retain(flags)) {
            for left in [&self.opens_left, &self.creates_left] {
                left.store(PLAIN_OPENS_SINCE, Ordering::Relaxed);
            }
            return true;
        }
        if needs_opens(live) || has_own_pages(live) {
            return true;
        }
        let count = |left: u32| left.checked_sub(1);
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok() {
            return true;
        }
        // Requests that are being answered at this moment get the same answer.
        self.agreed.fetch_and(!2, Ordering::Relaxed);
        false
    }

    /// Whether properties have changed so that only a new mount keeps all promises.
    pub(super) fn wants_new_mount(&self, live: &LiveFs) -> bool {
        let now = self.agreed();
        let is_async = now.writeback && live.writer().is_sync_always();
        is_async || (needs_opens(live) && !now.opens) || now.acls != live.fs().options().posix_acls
    }

    /// Agrees with a kernel that offers these capabilities (bits of [`super::flag`]).
    pub(super) fn agree(&self, live: &LiveFs, offered: u64) -> Agreed {
        let mut agreed = self.wanted(live);
        agreed.writeback &= offered & flag::WRITEBACK_CACHE != 0;
        agreed.acls &= offered & flag::POSIX_ACL != 0;
        self.agreed.store(agreed.bits(), Ordering::Relaxed);
        agreed
    }

    fn is_near_end(&self, live: &LiveFs) -> bool {
        live.writer().available() < self.near
    }

    /// [`CacheMode::is_near_end`], at most [`ROOM_LIFE_MS`] old.
    fn was_near_end(&self, live: &LiveFs) -> bool {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX >> 1);
        let known = self.room.load(Ordering::Relaxed);
        if known != 0 && now.saturating_sub(known >> 1) < ROOM_LIFE_MS {
            return known & 1 != 0;
        }
        let is_near = self.is_near_end(live);
        self.room.store(now << 1 | u64::from(is_near), Ordering::Relaxed);
        is_near
    }

    /// Reply to opening a file that was just made, with these flags of `open`.
    pub(super) fn opened_new(&self, live: &LiveFs, flags: u32) -> Opened {
        let agreed = self.agreed();
        let is_uncached = match agreed.writeback {
            true => self.was_near_end(live),
            false => agreed.opens && self.can_mix && wants_uncached(OFlags::from_bits_retain(flags)),
        };
        if is_uncached {
            if is_unordered(flags) {
                self.has_uncached.store(true, Ordering::Release);
            }
            return Opened {
                handle: UNCACHED,
                flags: open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH,
            };
        }
        Opened { handle: 0, flags: open_flag::KEEP_CACHE }
    }

    /// Reply to opening an existing file, if files are opened at the server.
    ///
    /// # Errors
    /// `EPERM` if the flags of the file forbid it.
    pub(super) fn opened_again(&self, live: &LiveFs, node: u64, flags: u32) -> Answer<Opened> {
        let attrs = live.stored_attrs(node).map_err(|e| errno(&e))?;
        let wanted = OFlags::from_bits_retain(flags);
        let writes = wanted.intersects(OFlags::WRONLY | OFlags::RDWR);
        let grows_only = wanted.contains(OFlags::APPEND) && !wanted.contains(OFlags::TRUNC);
        if writes
            && (attrs.flags & FLAG_IMMUTABLE != 0 || (attrs.flags & FLAG_APPENDONLY != 0 && !grows_only))
        {
            return Err(Errno::PERM);
        }
        // The kernel clears set-id bits and capabilities, but not for writes that bypass its cache.
        let has_capabilities = || live.has_capabilities(live.id(node)).map_err(|e| errno(&e));
        let is_lending = writes && (lends_rights(&attrs) || has_capabilities()?);
        let opened = if is_lending {
            Opened { handle: 0, flags: open_flag::KEEP_CACHE }
        } else {
            self.opened_new(live, flags)
        };
        let rule = live.access_rule();
        let is_first = attrs.atime <= attrs.mtime || attrs.atime <= attrs.ctime;
        let is_noted = rule == AccessTimes::Always || (rule == AccessTimes::Relative && is_first);
        let flags = match rule {
            // For a file that it knows to be empty the kernel sends no reads, unless the file bypasses its
            // cache.
            _ if is_noted && attrs.size == 0 && !writes => open_flag::DIRECT_IO,
            AccessTimes::Always => opened.flags & !open_flag::KEEP_CACHE,
            _ => opened.flags,
        };
        Ok(Opened { flags, ..opened })
    }
}

/// Whether a dataset is for programs with pages of their own: its records are small.
fn has_own_pages(live: &LiveFs) -> bool {
    live.fs().options().record_size < USUAL_RECORD
}

/// Whether some promise can be kept only if files are opened at the server.
pub(super) fn needs_opens(live: &LiveFs) -> bool {
    live.access_rule() == AccessTimes::Always
}

/// Whether a program that opens a file with these flags is faster without the kernel's cache.
fn wants_uncached(flags: OFlags) -> bool {
    let is_written = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    (flags.contains(OFlags::DIRECT) && DIO_ENABLED.is_on()) || (is_written && flags.bits() & DSYNC != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_ask_for_it_bypass_the_cache() {
        assert!(
            wants_uncached(OFlags::RDONLY | OFlags::DIRECT) && wants_uncached(OFlags::RDWR | OFlags::SYNC)
        );
        assert!(wants_uncached(OFlags::WRONLY | OFlags::from_bits_retain(DSYNC)));
        assert!(!wants_uncached(OFlags::RDONLY | OFlags::DSYNC) && !wants_uncached(OFlags::RDWR));
        // No other test of this process depends on the parameter.
        assert!(DIO_ENABLED.set(0));
        assert!(
            !wants_uncached(OFlags::RDONLY | OFlags::DIRECT) && wants_uncached(OFlags::RDWR | OFlags::SYNC)
        );
        assert!(DIO_ENABLED.set(1));
    }
}
