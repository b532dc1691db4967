//! The io_uring transport: the kernel writes requests into memory of this process, and one system call sends
//! a reply and fetches the next request (Linux 6.14 and later, if `/sys/module/fuse/parameters/enable_uring`
//! allows it).
//!
//! # What always holds
//! - There is a queue for each processor that the machine may have; requests of a processor come through its
//!   queue. Several threads serve a queue, each with a ring of its own and one request at a time, so a
//!   request that waits for a disk delays no other.
//! - Memory that the kernel was given lives as long as its ring.
//! - Requests that the kernel does not send this way (forgetting, interrupts) still come through `/dev/fuse`.
//!
//! Source: the kernel's document on FUSE over io_uring, and `linux/fuse.h` 7.42.
#![allow(unsafe_code)] // Memory is shared with the kernel.

use super::dispatch;
use super::pages::Pages;
use super::proto::input::{Bytes, Header, Request, fixed_len};
use super::service::Service;
use crate::affinity;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Commands of a ring: register; send a reply and fetch the next request.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Length of the headers that kernel and server share, and offsets of their parts, in bytes.
const HEADERS: usize = 288;
const FIXED_AT: usize = 128;
const ENTRY_AT: usize = 256;
const COMMIT_AT: usize = ENTRY_AT + 8;
const PAYLOAD_LEN_AT: usize = ENTRY_AT + 16;
/// Longest reply to a request that carries names or data: the value of an extended attribute.
const SHORT: usize = (64 << 10) + 4096;

/// Number of queues: one for each processor that this machine may ever have.
pub(super) fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    queues_of(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number after the last one in a list of processors; `None` if it is malformed.
fn queues_of(list: &str) -> Option<u16> {
    let last = list.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<u16>().ok());
    last.and_then(|last| last.checked_add(1))
}

/// Most threads with rings, of all mounts together. From the moment at which the kernel is told of rings, it
/// wants a queue for each processor that the machine may have, and none of them can be given back before the
/// mount ends. So only busy mounts have rings (`rings`), and all others use the classic transport.
const SEATS_MAX: usize = 1024;
/// Memory that the process must be allowed for each seat, in bytes. A seat takes a little more than a
/// mebibyte after long reads.
const MEMORY_OF_SEAT: u64 = 8 << 20;
/// Rings may take one in this many descriptors.
const DESCRIPTORS_OF_SEAT: u64 = 4;
/// Fewest threads of a queue: with fewer, a few readers of a slow disk delay all other requests of a
/// processor.
const SEATS_OF_QUEUE_MIN: usize = 4;

/// Threads of each queue: the fewer queues, the more. As many requests as there are threads wait for disks at
/// the same time, and databases make dozens. But the kernel assigns a request to a thread before that thread
/// runs, and with hundreds of readers all threads of a processor have one: with twice as many threads the
/// slowest replies took twice as long, and other threads (one that writes a txg, a kernel thread that serves
/// a loop device) were delayed as much.
fn seats_of_queue(queues: u16) -> usize {
    (64 / usize::from(queues.max(1))).clamp(SEATS_OF_QUEUE_MIN, 12)
}

/// Greatest number of threads with rings in this process.
fn seats_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        seats_with(cenote::memory_allowed(), descriptors)
    })
}

/// [`seats_max`] with so many bytes of memory and so many descriptors; `None`: descriptors are not limited.
fn seats_with(memory: u64, descriptors: Option<u64>) -> usize {
    let of_memory = memory / MEMORY_OF_SEAT;
    let of_both = descriptors.map_or(of_memory, |most| of_memory.min(most / DESCRIPTORS_OF_SEAT));
    usize::try_from(of_both).unwrap_or(SEATS_MAX).min(SEATS_MAX)
}

/// The account of the threads with rings of a process.
struct Pot {
    taken: AtomicUsize,
    /// Number of mounts that have a share.
    shares: AtomicUsize,
}

static POT: Pot = Pot { taken: AtomicUsize::new(0), shares: AtomicUsize::new(0) };

/// The right of a mount to a number of threads with rings, which returns to its pot when dropped.
pub(super) struct Share(usize, &'static Pot);

impl Share {
    /// Takes a share for a mount with so many queues. `None`: other mounts have too many seats, or one mount
    /// would need more than there are.
    pub(super) fn take(queues: u16) -> Option<Share> {
        POT.take(queues, seats_of_queue(queues), seats_max())
    }

    /// Number of mounts that have a share.
    pub(super) fn count() -> usize {
        POT.shares.load(Ordering::Acquire)
    }

    /// Number of threads that may serve the ring.
    pub(super) fn seats(&self) -> usize {
        self.0
    }
}

impl Pot {
    fn take(&'static self, queues: u16, seats_of_queue: usize, max: usize) -> Option<Share> {
        let wanted = seats_of_queue * usize::from(queues);
        let with = |taken: usize| taken.checked_add(wanted).filter(|all| *all <= max);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).ok()?;
        self.shares.fetch_add(1, Ordering::AcqRel);
        Some(Share(wanted, self))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.1.taken.fetch_sub(self.0, Ordering::AcqRel);
        self.1.shares.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the administrator allows FUSE to use io_uring.
pub(super) fn is_enabled() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.trim() == "Y")
}

/// The place of one thread in a queue.
pub(super) struct Seat {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: Arc<OwnedFd>,
    queue: u16,
    /// The completion that arrived when the ring was registered.
    first: Option<i32>,
    memory: Box<Memory>,
}

/// Memory that the kernel reads and writes. Boxed: it must not move.
struct Memory {
    headers: Vec<u8>,
    payload: Pages,
    /// Buffer for replies to requests that carry names or data: the payload is still being read then.
    short: Pages,
    /// Addresses and lengths of the first two, as the kernel takes them.
    parts: [Part; 2],
}

/// `struct iovec`.
#[repr(C)]
struct Part {
    base: u64,
    len: u64,
}

impl Seat {
    /// Makes a seat in a queue for the calling thread: the kernel accepts commands of a ring only from the
    /// thread that made it. Sends no command yet.
    pub(super) fn new(device: Arc<OwnedFd>, queue: u16, payload: usize) -> io::Result<Seat> {
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(2)?;
        let mut memory = Box::new(Memory {
            headers: vec![0; HEADERS],
            payload: Pages::new(payload)?,
            short: Pages::new(SHORT)?,
            parts: [Part::EMPTY; 2],
        });
        memory.parts = [Part::of(&mut memory.headers), Part::of(&mut memory.payload)];
        Ok(Seat { ring, device, queue, first: None, memory })
    }

    fn submit(&mut self, what: u32, commit: u64) -> io::Result<()> {
        let mut command = [0_u8; 80];
        for (to, from) in
            command.iter_mut().skip(8).zip(commit.to_ne_bytes().into_iter().chain(self.queue.to_ne_bytes()))
        {
            *to = from;
        }
        let mut call = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), what).cmd(command);
        if what == REGISTER {
            call = call.addr(Some(self.memory.parts.as_ptr() as u64));
        }
        let mut entry = call.build();
        if what == REGISTER {
            set_len(&mut entry, 2);
        }
        // SAFETY: the headers, the payload and their list are owned by this seat and stay where they are
        // until the ring, which is dropped before them, is gone.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))
    }

    /// Registers with the kernel. Requests of a processor are answered on that processor: the calling program
    /// sleeps then, and no other processor has to be woken. The completion is the first request, or at once
    /// the error.
    pub(super) fn register(&mut self) -> io::Result<()> {
        affinity::stay_at(self.queue);
        self.submit(REGISTER, 0)?;
        self.ring.submit()?;
        self.first = self.ring.completion().next().map(|done| done.result());
        match self.first {
            Some(refused) if refused < 0 => Err(io::Error::from_raw_os_error(-refused)),
            _ => Ok(()),
        }
    }

    /// Waits for the next request. `false`: there will be none.
    fn wait(&mut self) -> io::Result<bool> {
        let answer = loop {
            if let Some(first) = self.first.take() {
                break first;
            }
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => continue,
                Err(e) => return Err(e),
                Ok(_) => {}
            }
            if let Some(done) = self.ring.completion().next() {
                break done.result();
            }
        };
        if answer >= 0 {
            return Ok(true);
        }
        match Errno::from_raw_os_error(-answer) {
            // The mount has ended, or is ending.
            Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV => Ok(false),
            other => Err(other.into()),
        }
    }

    /// Serves requests until the mount ends. The seat is registered.
    pub(super) fn serve(mut self, service: &dyn Service) -> io::Result<()> {
        while self.wait()? {
            let commit = self.answer(service);
            self.submit(COMMIT_AND_FETCH, commit)?;
        }
        Ok(())
    }

    /// Answers the request in the memory, in place; returns the number under which the reply is sent.
    fn answer(&mut self, service: &dyn Service) -> u64 {
        let Memory { headers, payload, short, .. } = &mut *self.memory;
        let word = |at: usize| headers.get(at..).and_then(|bytes| Bytes::new(bytes).u64()).unwrap_or(0);
        let commit = word(COMMIT_AT);
        let given =
            headers.get(PAYLOAD_LEN_AT..).and_then(|bytes| Bytes::new(bytes).u32()).unwrap_or(0) as usize;
        let (unique, answer) = match Header::decode(headers) {
            None => (0, Err(Errno::IO)),
            Some(header) => {
                let fixed = headers.get(FIXED_AT..FIXED_AT + fixed_len(header.opcode)).unwrap_or_default();
                // Only requests without names or data get long replies, so those can be made in place.
                let (rest, room) = match given.saturating_sub(header.extensions) {
                    0 => (&[][..], &mut payload[..]),
                    given => (payload.get(..given).unwrap_or_default(), &mut short[..]),
                };
                let is_short = !rest.is_empty();
                let request = Request { header, fixed, rest };
                let answer = dispatch::answer(service, &request, room).unwrap_or(Ok(0));
                if let (true, Ok(len)) = (is_short, answer) {
                    let len = len.min(payload.len()).min(short.len());
                    put(payload, 0, short.get(..len).unwrap_or_default());
                }
                (header.unique, answer)
            }
        };
        let (code, len) = match answer {
            Ok(len) => (0, len),
            Err(e) => (-e.raw_os_error(), 0),
        };
        let len = u32::try_from(len).unwrap_or(0);
        put(headers, 0, &(len + 16).to_ne_bytes());
        put(headers, 4, &code.to_ne_bytes());
        put(headers, 8, &unique.to_ne_bytes());
        put(headers, PAYLOAD_LEN_AT, &len.to_ne_bytes());
        commit
    }
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = to.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

impl Part {
    const EMPTY: Part = Part { base: 0, len: 0 };

    fn of(bytes: &mut [u8]) -> Part {
        Part { base: bytes.as_mut_ptr() as u64, len: bytes.len() as u64 }
    }
}

/// Sets the length of a command, which the builder of io_uring commands leaves out.
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    /// Offset of `len` in `struct io_uring_sqe`, in bytes.
    const LEN_AT: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    let entry: *mut squeue::Entry128 = entry;
    // SAFETY: an entry is `struct io_uring_sqe` and 64 bytes more, as the kernel has it (repr(C), size
    // checked above), so the four bytes from 24 on are its field `len`, which may have any value.
    unsafe { entry.cast::<u8>().add(LEN_AT).cast::<u32>().write_unaligned(len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_all_mounts_together_are_bounded() {
        static OWN: Pot = Pot { taken: AtomicUsize::new(0), shares: AtomicUsize::new(0) };
        for queues in [1, 2, 8, 64, 65, 512, u16::MAX] {
            let take = || OWN.take(queues, seats_of_queue(queues), 256);
            let shares: Vec<Share> = std::iter::from_fn(take).collect();
            let taken: usize = shares.iter().map(Share::seats).sum();
            assert!(taken <= 256, "{queues} queues: {taken}");
            assert_eq!(shares.is_empty(), queues > 64, "{queues} queues");
        }
        assert!(OWN.take(2, 12, 256).is_some(), "what has ended gives its share back");
    }

    #[test]
    fn there_is_a_queue_for_each_processor_that_may_come() {
        for (list, queues) in [("0\n", 1), ("0-63\n", 64), ("0-1,4-7\n", 8), ("0,2\n", 3), ("0-65534", 65535)]
        {
            assert_eq!(queues_of(list), Some(queues), "{list}");
        }
        for list in ["", "\n", "0-", "x", "0-65535", "0-70000"] {
            assert_eq!(queues_of(list), None, "{list}");
        }
    }

    #[test]
    fn memory_and_descriptors_bound_the_rings() {
        let sets = |memory, descriptors, queues| {
            seats_with(memory, descriptors) / (usize::from(queues) * seats_of_queue(queues))
        };
        assert_eq!((sets(1 << 30, Some(1 << 20), 2), sets(1 << 30, Some(1 << 20), 64)), (5, 0));
        assert_eq!((sets(64 << 30, None, 2), sets(64 << 30, None, 64)), (42, 4));
        assert_eq!(sets(64 << 30, Some(1024), 2), 10);
    }
}
