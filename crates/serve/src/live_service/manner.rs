//! How the kernel is to cache the files of a mount. It is agreed when it greets, and holds for the life of the mount.
//!
//! Usually it keeps what programs write for some seconds, and files are not opened here. Where a promise of ZFS
//! could not be kept that way, it does less by itself:
//! - `sync=always`: each write comes here, and is durable when it is answered.
//! - Near a quota, or the end of the pool: each write comes here, so that whoever writes is told that there is no room.
//!   In a file system that comes near later, this is done for files that are made from then on; who writes others is told
//!   when they are closed or synced.
//! - `atime=on` with `relatime=off`: files are opened here and their cached pages dropped, so that each reader is seen.

use super::LiveService;
use crate::errno::zpl_errno;
use crate::fuse::{Answer, Opened, flag, open_flag};
use cenote::files::AccessTimes;
use format::ObjectId;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// With less room than this a file system is near its end, whatever the machine.
const NEAR_BYTES: u64 = 64 << 20;
/// Part of memory that one mount's dirty pages may take: the kernel gives a FUSE mount a hundredth of the fifth
/// that all may take; twice that.
const DIRTY_PART: u64 = 250;
/// How long what was found of the room counts, in milliseconds.
const ROOM_LIFE_MS: u64 = 100;
/// Handle of files that are written around the cache.
pub(super) const DIRECT: u64 = 1;

/// How the kernel caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// What programs write stays in the kernel until it is asked for, or for some seconds.
    pub writeback: bool,
    /// Files are opened here.
    pub opens: bool,
}

/// What was agreed, and what is known of the room.
#[derive(Debug)]
pub(super) struct Agreed {
    /// Bit 0: write-back, bit 1: opens.
    manner: AtomicU8,
    begun: Instant,
    /// Milliseconds since `begun` at which the room was looked at, and in the lowest bit whether it was near its end.
    room: AtomicU64,
    near: u64,
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
        }
    }
}

impl LiveService {
    /// What was agreed with the kernel.
    pub fn manner(&self) -> Manner {
        let bits = self.agreed.manner.load(Ordering::Relaxed);
        Manner { writeback: bits & 1 != 0, opens: bits & 2 != 0 }
    }

    /// Goes on with what was agreed for a mount whose contents these replace.
    pub(crate) fn go_on_as(&self, manner: Manner) {
        let bits = u8::from(manner.writeback) | u8::from(manner.opens) << 1;
        self.agreed.manner.store(bits, Ordering::Relaxed);
    }

    /// What would be agreed today.
    fn wanted_manner(&self) -> Manner {
        let opens = self.fs().options().access_times == AccessTimes::Always;
        let writeback = self.writeback && !self.writer.is_sync_always() && !self.is_near_end();
        Manner { writeback, opens }
    }

    /// Properties were changed so that only a new mount keeps all promises.
    pub fn wants_new_mount(&self) -> bool {
        let (now, wanted) = (self.manner(), self.wanted_manner());
        (now.writeback && self.writer.is_sync_always()) || (wanted.opens && !now.opens)
    }

    /// Agrees with a kernel that offers these abilities.
    pub(super) fn agree(&self, offered: u64) -> Manner {
        let mut manner = self.wanted_manner();
        manner.writeback &= offered & flag::WRITEBACK_CACHE != 0;
        let bits = u8::from(manner.writeback) | u8::from(manner.opens) << 1;
        self.agreed.manner.store(bits, Ordering::Relaxed);
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

    /// How a file that was just made is opened.
    pub(super) fn opened_new(&self) -> Opened {
        if self.manner().writeback && self.was_near_end() {
            return Opened {
                handle: DIRECT,
                flags: open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES,
            };
        }
        Opened { handle: 0, flags: open_flag::KEEP_CACHE }
    }

    /// What the flags of a file forbid those who open it, where files are opened here.
    pub(super) fn check_open(&self, id: ObjectId, flags: u32) -> Answer<()> {
        let (flags, attrs) =
            (OFlags::from_bits_retain(flags), self.fs().attrs(id).map_err(|e| zpl_errno(&e))?);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let grows_only = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
        if writes
            && (attrs.flags & FLAG_IMMUTABLE != 0 || (attrs.flags & FLAG_APPENDONLY != 0 && !grows_only))
        {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// How a file that is there is opened, where files are opened here.
    pub(super) fn opened_again(&self) -> Opened {
        let opened = self.opened_new();
        match self.fs().options().access_times {
            AccessTimes::Always => Opened { flags: opened.flags & !open_flag::KEEP_CACHE, ..opened },
            _ => opened,
        }
    }
}
