//! How the kernel is to cache the files of a mount. It is agreed when it greets, and holds for the life of the mount.
//!
//! Usually it keeps what programs write for some seconds, and files are not opened here. Where a promise of ZFS
//! could not be kept that way, it does less by itself:
//! - `sync=always`: each write comes here, and is durable when it is answered.
//! - Near a quota, or the end of the pool: each write comes here, so that whoever writes is told that there is no room.
//!   In a file system that comes near later, this is done for files that are made from then on; who writes others is told
//!   when they are closed or synced.
//! - `atime=on` with `relatime=off`: files are opened here and their cached pages dropped, so that each reader is seen.
//!
//! The kernel lets one thread at a time write a file around its cache, or make it durable. So who asks for `O_DIRECT`, or
//! writes with `O_DSYNC` or `O_SYNC`, is given a file around the cache, which any number of threads write at the same time;
//! what is to be durable is so when the write is answered. For that files are opened here, which costs those who open
//! many a request each: a mount of which a few hundred files were opened, and none in that way, stops doing so for
//! good. Where records are smaller than usual, it does not: they are made for programs that read and write pages of their
//! own. The same goes for a mount in which many files were made: from then on they are made and opened by separate requests,
//! the second of which the kernel does not send, nor that of closing. It is not done where the kernel keeps what is written, as the times of such files are then its own and would stand
//! still; nor by kernels that could leave an old page in the cache of somebody else.

use super::LiveService;
use super::rules::lends_rights;
use crate::errno::zpl_errno;
use crate::fuse::{Answer, Opened, WriteAt, flag, open_flag};
use crate::kernel_version::this_kernel;
use admin::DIO_ENABLED;
use admin::served::ServedFilesystem;
use cenote::files::AccessTimes;
use format::ObjectId;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// With less room than this a file system is near its end, whatever the machine.
const NEAR_BYTES: u64 = 64 << 20;
/// Part of memory that one mount's dirty pages may take: the kernel gives a FUSE mount a hundredth of the fifth
/// that all may take; twice that.
const DIRTY_PART: u64 = 250;
/// How long what was found of the room counts, in milliseconds.
const ROOM_LIFE_MS: u64 = 100;
/// Records as large as this are the usual ones.
const USUAL_RECORD: u64 = 128 << 10;
/// So many files are opened here before the mount stops doing that, if nobody asked to go around the cache;
const PLAIN_OPENS: u32 = 256;
/// or so many are made;
const PLAIN_CREATES: u32 = 1024;
/// and so many after somebody did.
const PLAIN_OPENS_SINCE: u32 = 100_000;
/// The first kernel that drops pages which somebody read while they were written around the cache.
const DROPS_PAGES: (u32, u32) = (6, 18);
/// The first kernel that checks who changes flags and projects of files, and through which mount.
const CHECKS_FLAGS: (u32, u32) = (5, 13);
/// `O_DSYNC` of Linux, which `O_SYNC` has in it. `OFlags::DSYNC` is not that: it has both bits.
const DSYNC: u32 = 0o1_0000;
/// Handle of files that are written around the cache.
pub(super) const DIRECT: u64 = 1;

/// How the kernel caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// What programs write stays in the kernel until it is asked for, or for some seconds.
    pub writeback: bool,
    /// Files are opened here.
    pub opens: bool,
    /// The kernel asks for access control lists, and keeps to them.
    pub acls: bool,
}

impl Manner {
    fn bits(self) -> u8 {
        u8::from(self.writeback) | u8::from(self.opens) << 1 | u8::from(self.acls) << 2
    }
}

/// What was agreed, and what is known of the room.
#[derive(Debug)]
pub(super) struct Agreed {
    /// [`Manner::bits`].
    manner: AtomicU8,
    begun: Instant,
    /// Milliseconds since `begun` at which the room was looked at, and in the lowest bit whether it was near its end.
    room: AtomicU64,
    near: u64,
    /// Files that will still be opened here before the mount stops doing that.
    opens_left: AtomicU32,
    /// Files that will still be opened by the request that makes them.
    creates_left: AtomicU32,
    /// The kernel can mix files around its cache with others.
    can_mix: bool,
    /// Somebody has opened a file to write it around the cache by `O_DIRECT`.
    has_around: AtomicBool,
    /// The kernel knows who may change flags and projects of files.
    pub(super) checks_flags: bool,
}

impl Agreed {
    pub(super) fn new() -> Agreed {
        let info = rustix::system::sysinfo();
        let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
        Agreed {
            manner: AtomicU8::new(0),
            begun: Instant::now(),
            room: AtomicU64::new(0),
            near: NEAR_BYTES.max(memory / DIRTY_PART),
            opens_left: AtomicU32::new(PLAIN_OPENS),
            creates_left: AtomicU32::new(PLAIN_CREATES),
            can_mix: this_kernel() >= DROPS_PAGES,
            has_around: AtomicBool::new(false),
            checks_flags: this_kernel() >= CHECKS_FLAGS,
        }
    }
}

/// Whether writes of a file that was opened with these flags may go on when their caller already does something else: the
/// kernel then drops the pages of their range before they are made, and not after. Programs that do so open with `O_DIRECT`.
fn is_unordered(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::DIRECT)
}

impl LiveService {
    /// Pages of a file are read for the kernel's cache.
    pub(super) fn note_cached_read(&self, node: u64) {
        if self.agreed.has_around.load(Ordering::Acquire) {
            self.lookups().keeps_pages(node);
        }
    }

    /// Whether the kernel may have read pages of a file while this write was on its way, and will not drop them.
    pub(crate) fn leaves_old_pages(&self, node: u64, write: &WriteAt<'_>) -> bool {
        write.handle == DIRECT && is_unordered(write.flags) && self.lookups().has_pages(node)
    }

    /// What was agreed with the kernel.
    pub fn manner(&self) -> Manner {
        let bits = self.agreed.manner.load(Ordering::Relaxed);
        Manner { writeback: bits & 1 != 0, opens: bits & 2 != 0, acls: bits & 4 != 0 }
    }

    /// Goes on with what was agreed for a mount whose contents these replace.
    pub(crate) fn go_on_as(&self, manner: Manner) {
        self.agreed.manner.store(manner.bits(), Ordering::Relaxed);
        // Files that were opened before may still be open.
        self.agreed.has_around.store(true, Ordering::Release);
    }

    /// What would be agreed today.
    fn wanted_manner(&self) -> Manner {
        let has_pages = self.agreed.can_mix && self.has_pages();
        let writeback = self.writeback && !has_pages && !self.writer.is_sync_always() && !self.is_near_end();
        let opens = self.needs_opens() || (self.agreed.can_mix && !writeback);
        Manner { writeback, opens, acls: self.fs().options().posix_acls }
    }

    /// Files are for programs with pages of their own.
    fn has_pages(&self) -> bool {
        self.fs().options().record_size < USUAL_RECORD
    }

    /// A promise could not be kept without opening files here.
    fn needs_opens(&self) -> bool {
        self.access_rule() == AccessTimes::Always
    }

    /// A file is opened with these flags. `false`: from now on the kernel need not ask.
    pub(super) fn asks_on(&self, flags: u32) -> bool {
        self.manner().opens && self.counts_on(&self.agreed.opens_left, flags)
    }

    /// A file is to be made and opened with these flags. `false`: the kernel is to make it by one request and to open it by
    /// another, for good. That is fewer: it is then told that files need not be opened, and closes none.
    ///
    /// Only where nothing is made but through this kernel, which looks before it makes: who makes a file by itself is told
    /// that it is there, also when that was all the same.
    pub(super) fn creates(&self, flags: u32) -> bool {
        let manner = self.manner();
        // Near the end of the room new files are opened in another way.
        manner.writeback || (manner.opens && self.counts_on(&self.agreed.creates_left, flags))
    }

    /// Counts down for a file that is opened with these flags. `false`: files are no longer opened here.
    fn counts_on(&self, left: &AtomicU32, flags: u32) -> bool {
        if wants_around(OFlags::from_bits_retain(flags)) {
            for left in [&self.agreed.opens_left, &self.agreed.creates_left] {
                left.store(PLAIN_OPENS_SINCE, Ordering::Relaxed);
            }
            return true;
        }
        if self.needs_opens() || self.has_pages() {
            return true;
        }
        let count = |left: u32| left.checked_sub(1);
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok() {
            return true;
        }
        // Those who are asking at this moment are told the same.
        self.agreed.manner.fetch_and(!2, Ordering::Relaxed);
        false
    }

    /// Properties were changed so that only a new mount keeps all promises.
    pub fn wants_new_mount(&self) -> bool {
        let now = self.manner();
        let is_async = now.writeback && self.writer.is_sync_always();
        is_async || (self.needs_opens() && !now.opens) || now.acls != self.fs().options().posix_acls
    }

    /// Agrees with a kernel that offers these abilities.
    pub(super) fn agree(&self, offered: u64) -> Manner {
        let mut manner = self.wanted_manner();
        manner.writeback &= offered & flag::WRITEBACK_CACHE != 0;
        manner.acls &= offered & flag::POSIX_ACL != 0;
        self.agreed.manner.store(manner.bits(), Ordering::Relaxed);
        manner
    }

    fn is_near_end(&self) -> bool {
        self.writer.available() < self.agreed.near
    }

    /// The same, as of a moment ago.
    fn was_near_end(&self) -> bool {
        let now = u64::try_from(self.agreed.begun.elapsed().as_millis()).unwrap_or(u64::MAX >> 1);
        let known = self.agreed.room.load(Ordering::Relaxed);
        if known != 0 && now.saturating_sub(known >> 1) < ROOM_LIFE_MS {
            return known & 1 != 0;
        }
        let is_near = self.is_near_end();
        self.agreed.room.store(now << 1 | u64::from(is_near), Ordering::Relaxed);
        is_near
    }

    /// How a file that was just made is opened, with these flags of `open`.
    pub(super) fn opened_new(&self, flags: u32) -> Opened {
        let manner = self.manner();
        let goes_around = match manner.writeback {
            true => self.was_near_end(),
            false => manner.opens && self.agreed.can_mix && wants_around(OFlags::from_bits_retain(flags)),
        };
        if goes_around {
            if is_unordered(flags) {
                self.agreed.has_around.store(true, Ordering::Release);
            }
            return Opened {
                handle: DIRECT,
                flags: open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH,
            };
        }
        Opened { handle: 0, flags: open_flag::KEEP_CACHE }
    }

    /// How a file that is there is opened, where files are opened here; an error if its flags forbid it.
    pub(super) fn opened_again(&self, id: ObjectId, flags: u32) -> Answer<Opened> {
        let attrs = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?;
        let wanted = OFlags::from_bits_retain(flags);
        let writes = wanted.intersects(OFlags::WRONLY | OFlags::RDWR);
        let grows_only = wanted.contains(OFlags::APPEND) && !wanted.contains(OFlags::TRUNC);
        if writes
            && (attrs.flags & FLAG_IMMUTABLE != 0 || (attrs.flags & FLAG_APPENDONLY != 0 && !grows_only))
        {
            return Err(Errno::PERM);
        }
        // Of what a file lends the kernel takes care, but not around its cache.
        let is_lending = writes && (lends_rights(&attrs) || self.has_capabilities(id)?);
        let opened = if is_lending {
            Opened { handle: 0, flags: open_flag::KEEP_CACHE }
        } else {
            self.opened_new(flags)
        };
        let rule = self.access_rule();
        let is_first = attrs.atime <= attrs.mtime || attrs.atime <= attrs.ctime;
        let is_noted = rule == AccessTimes::Always || (rule == AccessTimes::Relative && is_first);
        let flags = match rule {
            // Of a file that it knows to be empty the kernel asks for nothing, unless it is to go around its cache.
            _ if is_noted && attrs.size == 0 && !writes => open_flag::DIRECT_IO,
            AccessTimes::Always => opened.flags & !open_flag::KEEP_CACHE,
            _ => opened.flags,
        };
        Ok(Opened { flags, ..opened })
    }
}

/// Whether who opens a file with these flags is better off around the kernel's cache.
fn wants_around(flags: OFlags) -> bool {
    let is_written = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    (flags.contains(OFlags::DIRECT) && DIO_ENABLED.is_on()) || (is_written && flags.bits() & DSYNC != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_for_it_goes_around_the_cache() {
        assert!(wants_around(OFlags::RDONLY | OFlags::DIRECT) && wants_around(OFlags::RDWR | OFlags::SYNC));
        assert!(wants_around(OFlags::WRONLY | OFlags::from_bits_retain(DSYNC)));
        assert!(!wants_around(OFlags::RDONLY | OFlags::DSYNC) && !wants_around(OFlags::RDWR));
        // No other test of this process depends on it.
        assert!(DIO_ENABLED.set(0));
        assert!(!wants_around(OFlags::RDONLY | OFlags::DIRECT) && wants_around(OFlags::RDWR | OFlags::SYNC));
        assert!(DIO_ENABLED.set(1));
    }
}
