//! Cache mode: how the kernel caches the files of a mount. It is agreed on when the kernel greets, and holds
//! for the life of the mount.
//!
//! Usually the kernel keeps what programs write for some seconds, and files are not opened here. Where a
//! promise of ZFS could not be kept that way, it does less by itself:
//! - `sync=always`: each write comes here, and is durable when it is answered.
//! - Near a quota, or the end of the pool: each write comes here, so that a program that writes is told that
//!   there is no room. In a file system that comes near later, this is done for files that are made from then
//!   on; a program that writes others is told when they are closed or synced.
//! - `atime=on` with `relatime=off`: files are opened here and their cached pages dropped, so that each
//!   reader is seen.
//!
//! # Uncached files
//! The kernel lets one thread at a time write a file past its cache, or make it durable. So a program that
//! asks for `O_DIRECT`, or writes with `O_DSYNC` or `O_SYNC`, is given a file that bypasses the cache
//! ([`UNCACHED`]), which any number of threads write at the same time; what is to be durable is so when the
//! write is answered. For that, files are opened here, which costs programs that open many a request each: a
//! mount of which a few hundred files were opened, and none in that way, stops doing so for good. Where
//! records are smaller than usual, it does not: they are made for programs that read and write pages of their
//! own. The same goes for a mount in which many files were made: from then on they are made and opened by
//! separate requests, the second of which the kernel does not send, nor that of closing. It is not done where
//! the kernel keeps what is written, as the times of such files are then its own and would stand still; nor
//! by kernels that could leave an old page in the cache of another program.

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

/// With less room than this a file system is near its end, whatever the machine has.
const NEAR_BYTES: u64 = 64 << 20;
/// Part of memory that one mount's dirty pages may take: the kernel gives a FUSE mount a hundredth of the
/// fifth that all may take; twice that.
const DIRTY_PART: u64 = 250;
/// How long a look at the room counts, in milliseconds.
const ROOM_LIFE_MS: u64 = 100;
/// Records of at least this size are the usual ones.
const USUAL_RECORD: u64 = 128 << 10;
/// Files that are opened here before the mount stops doing that, if no program asked to bypass the cache.
const PLAIN_OPENS: u32 = 256;
/// Files that are made by the request that opens them, likewise.
const PLAIN_CREATES: u32 = 1024;
/// Either number after a program has asked to bypass the cache.
const PLAIN_OPENS_SINCE: u32 = 100_000;
/// The first kernel that drops pages which a program read while they were written past the cache.
const DROPS_PAGES: (u32, u32) = (6, 18);
/// The first kernel that checks whether a caller may change flags and projects of files, and through which
/// mount.
const CHECKS_FLAGS: (u32, u32) = (5, 13);
/// `O_DSYNC` of Linux, which is contained in `O_SYNC`. `OFlags::DSYNC` is not that: it has both bits.
const DSYNC: u32 = 0o1_0000;
/// Handle of files that are written past the cache.
pub(super) const UNCACHED: u64 = 1;

/// The part of the cache mode that the kernel and the server agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The kernel keeps what programs write until it is asked for it, or for some seconds.
    pub(super) writeback: bool,
    /// Files are opened here.
    pub(super) opens: bool,
    /// The kernel asks for access control lists, and keeps to them.
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
    /// The kernel may keep dirty pages, where no promise forbids it.
    may_write_back: bool,
    /// [`Agreed::bits`].
    agreed: AtomicU8,
    begun: Instant,
    /// Milliseconds since `begun` at which the room was looked at, and in the lowest bit whether it was near
    /// its end.
    room: AtomicU64,
    /// Bytes of room below which a file system is near its end.
    near: u64,
    /// Files that will still be opened here before the mount stops doing that.
    opens_left: AtomicU32,
    /// Files that will still be opened by the request that makes them.
    creates_left: AtomicU32,
    /// The kernel can mix files that bypass its cache with others.
    can_mix: bool,
    /// A program has opened a file to write it past the cache by `O_DIRECT`.
    has_uncached: AtomicBool,
    /// The kernel checks whether a caller may change flags and projects of files.
    pub(super) checks_flags: bool,
}

/// Whether writes of a file that was opened with these flags may go on when their caller already does
/// something else: the kernel then drops the pages of their range before they are made, and not after.
/// Programs that do so open with `O_DIRECT`.
fn is_unordered(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::DIRECT)
}

/// Whether a write is to be durable when it is answered. For other files the kernel asks separately.
pub(super) fn is_durable(write: &WriteAt<'_>) -> bool {
    write.handle == UNCACHED && write.flags & (OFlags::DSYNC | OFlags::SYNC).bits() != 0
}

impl CacheMode {
    /// Before anything is agreed on.
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

    /// Notes that pages of a file are read for the kernel's cache.
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

    /// The contents of the mount were taken away and come back: files that were opened before may still be
    /// open.
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

    /// Whether files are opened here when a program opens one with these flags. `false`: from now on the
    /// kernel need not ask.
    pub(super) fn asks_on(&self, live: &LiveFs, flags: u32) -> bool {
        self.agreed().opens && self.counts_on(live, &self.opens_left, flags)
    }

    /// Whether a file is made and opened, with these flags, by one request. `false`: the kernel is to make it
    /// by one request and to open it by another, for good. That is fewer: it is then told that files need not
    /// be opened, and closes none.
    ///
    /// Only where nothing is made but through this kernel, which looks before it makes: a program that makes
    /// a file by itself is told that it is there, also when that was all the same.
    pub(super) fn creates(&self, live: &LiveFs, flags: u32) -> bool {
        let agreed = self.agreed();
        // Near the end of the room new files are opened in another way.
        agreed.writeback || (agreed.opens && self.counts_on(live, &self.creates_left, flags))
    }

    /// Counts down for a file that is opened with these flags. `false`: files are no longer opened here.
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
        // Requests that are asking at this moment get the same answer.
        self.agreed.fetch_and(!2, Ordering::Relaxed);
        false
    }

    /// Whether properties were changed so that only a new mount keeps all promises.
    pub(super) fn wants_new_mount(&self, live: &LiveFs) -> bool {
        let now = self.agreed();
        let is_async = now.writeback && live.writer().is_sync_always();
        is_async || (needs_opens(live) && !now.opens) || now.acls != live.fs().options().posix_acls
    }

    /// Agrees with a kernel that offers these abilities.
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

    /// [`CacheMode::is_near_end`], as of a moment ago.
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

    /// How a file that was just made is opened, with these flags of `open`.
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

    /// How a file that is there is opened, where files are opened here.
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
        // The kernel takes back the rights that a file lends, but not past its cache.
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
            // Of a file that it knows to be empty the kernel asks for nothing, unless the file bypasses its
            // cache.
            _ if is_noted && attrs.size == 0 && !writes => open_flag::DIRECT_IO,
            AccessTimes::Always => opened.flags & !open_flag::KEEP_CACHE,
            _ => opened.flags,
        };
        Ok(Opened { flags, ..opened })
    }
}

/// Whether files are for programs with pages of their own.
fn has_own_pages(live: &LiveFs) -> bool {
    live.fs().options().record_size < USUAL_RECORD
}

/// Whether a promise could not be kept without opening files here.
pub(super) fn needs_opens(live: &LiveFs) -> bool {
    live.access_rule() == AccessTimes::Always
}

/// Whether a program that opens a file with these flags is served better past the kernel's cache.
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
        // No other test of this process depends on it.
        assert!(DIO_ENABLED.set(0));
        assert!(
            !wants_uncached(OFlags::RDONLY | OFlags::DIRECT) && wants_uncached(OFlags::RDWR | OFlags::SYNC)
        );
        assert!(DIO_ENABLED.set(1));
    }
}
