//! Batches of reads, writes and flushes through io_uring.
//!
//! A batch is one submission: the kernel works on all its requests at once, also on several devices. The call
//! returns when the last one has completed, so buffers need only live as long as the call. Rings are kept for
//! reuse, as many as there were concurrent batches.
//!
//! # What always holds
//! - The kernel holds no pointer into a buffer after [`run`] returned.
//! - A request that io_uring could not do stays [`DeviceError::NotRead`] or [`DeviceError::NotWritten`]; the
//!   caller does it with `pread` and `pwrite`. Without io_uring (old kernels, containers that forbid it)
//!   these are all requests. A failed flush is not repeated: the kernel reports a lost write once.

use super::aligned::AlignedBuf;
use super::error::{DeviceError, IoOp};
use super::interface::{Device, ReadRequest, WriteRequest, check_range};
use super::raw::{Bounce, RawTarget, io_error};
use crate::sync::lock;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest number of reads of one submission.
const DEPTH: usize = 64;
/// Writes of one submission: bounds the memory of those that need aligned copies.
const WRITE_DEPTH: usize = 32;
/// Parts of one write; a longer list is left to `pwritev`.
const PARTS_MAX: usize = 1024;
/// Largest number of idle rings that are kept.
const RINGS_KEPT: usize = 64;
/// Most consecutive failures of waiting while requests are in flight.
const PATIENCE: u32 = 10_000;

static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());
static UNAVAILABLE: AtomicBool = AtomicBool::new(false);

struct Ring {
    ring: IoUring,
    /// Process that created the ring: after a fork the child must not use it.
    process: u32,
}

/// A request to the kernel.
///
/// # Safety
/// The memory that the entry points to is valid for what the entry does until `complete` was called, as
/// long as the job is neither moved nor touched otherwise.
unsafe trait Job {
    /// The request; `None` if it must be done otherwise. Called once.
    fn entry(&mut self) -> Option<squeue::Entry>;

    /// Takes the kernel's answer: bytes done, or an error number below zero.
    fn complete(&mut self, answer: i32);

    /// Whether this entry should start before the next one is made, because making that takes long.
    fn starts_at_once(&self) -> bool {
        false
    }
}

/// A read and its destination.
#[derive(Debug)]
pub(super) struct Item<'t, 'r, 'b> {
    target: RawTarget<'t>,
    /// End of the device, as a byte of the file.
    size: u64,
    request: &'r mut ReadRequest<'b>,
    bounce: Option<Bounce>,
}

impl<'t, 'r, 'b> Item<'t, 'r, 'b> {
    /// `size` is the size of the device, whose first byte is at `target.base`.
    pub(super) fn new(target: RawTarget<'t>, size: u64, request: &'r mut ReadRequest<'b>) -> Self {
        Item { target, size: target.base.saturating_add(size), request, bounce: None }
    }

    /// The memory and the place of the read; `None` if it must be done otherwise.
    fn place(&mut self) -> Option<(&mut [u8], u64)> {
        let at = self.target.base.checked_add(self.request.at.0)?;
        check_range(format::DeviceOffset(at), self.request.buf.len() as u64, self.size).ok()?;
        if self.request.buf.is_empty() {
            return None;
        }
        if self.target.fits(self.request.buf, at) {
            return Some((self.request.buf, at));
        }
        self.bounce = Some(Bounce::new(self.target, self.request.buf.len(), at, self.size)?);
        let bounce = self.bounce.as_mut()?;
        let at = bounce.at;
        Some((bounce.span(), at))
    }
}

// SAFETY: the entry points into the request's buffer, which the item borrows mutably, or into the bounce
// buffer, which it owns; both stay where they are when they are not touched.
unsafe impl Job for Item<'_, '_, '_> {
    fn entry(&mut self) -> Option<squeue::Entry> {
        let fd = types::Fd(self.target.fd.as_raw_fd());
        let (buf, at) = self.place()?;
        let len = u32::try_from(buf.len()).ok()?;
        Some(opcode::Read::new(fd, buf.as_mut_ptr(), len).offset(at).build())
    }

    // Anything but the full length is left to `pread`, which will either succeed or give the precise error.
    fn complete(&mut self, answer: i32) {
        let wanted = self.bounce.as_mut().map_or(self.request.buf.len(), |b| b.span().len());
        if usize::try_from(answer) != Ok(wanted) {
            return;
        }
        let copied = match &self.bounce {
            Some(bounce) => bounce.copy_to(self.request.buf),
            None => Some(()),
        };
        if copied.is_some() {
            self.request.result = Ok(());
        }
    }
}

/// A write and its source.
#[derive(Debug)]
pub(super) struct WriteItem<'t, 'r, 'b> {
    target: RawTarget<'t>,
    /// End of the device, as a byte of the file.
    size: u64,
    request: &'r mut WriteRequest<'b>,
    staged: Option<AlignedBuf>,
}

impl<'t, 'r, 'b> WriteItem<'t, 'r, 'b> {
    /// `size` is the size of the device, whose first byte is at `target.base`.
    pub(super) fn new(target: RawTarget<'t>, size: u64, request: &'r mut WriteRequest<'b>) -> Self {
        WriteItem { target, size: target.base.saturating_add(size), request, staged: None }
    }
}

// SAFETY: the entry points to the parts of the request, which the item borrows, and their list, which
// that borrow keeps unchanged, or to the aligned copy, which the item owns.
unsafe impl Job for WriteItem<'_, '_, '_> {
    fn entry(&mut self) -> Option<squeue::Entry> {
        let fd = types::Fd(self.target.fd.as_raw_fd());
        let at = self.target.base.checked_add(self.request.at.0)?;
        let size = self.request.size();
        check_range(format::DeviceOffset(at), size, self.size).ok()?;
        let len = u32::try_from(size).ok().filter(|len| *len > 0 && *len <= i32::MAX as u32)?;
        let parts = &self.request.parts;
        if !self.target.fits_parts(parts, at) {
            let staged = self.staged.insert(self.target.aligned_copy(parts, at)?);
            return Some(opcode::Write::new(fd, staged.as_ptr(), len).offset(at).build());
        }
        if let [only] = parts.as_slice() {
            return Some(opcode::Write::new(fd, only.as_ptr(), len).offset(at).build());
        }
        // An `IoSlice` is laid out as an `iovec`.
        let count = u32::try_from(parts.len()).ok().filter(|count| *count as usize <= PARTS_MAX)?;
        Some(opcode::Writev::new(fd, parts.as_ptr().cast(), count).offset(at).build())
    }

    // Anything but the full length is left to `pwritev`, as with reads.
    fn complete(&mut self, answer: i32) {
        if u64::try_from(answer) == Ok(self.request.size()) {
            self.request.result = Ok(());
        }
        self.staged = None;
    }

    fn starts_at_once(&self) -> bool {
        self.staged.is_some()
    }
}

/// A flush and its outcome.
struct FlushItem<'t, 'r> {
    target: RawTarget<'t>,
    result: &'r mut Option<Result<(), DeviceError>>,
}

// SAFETY: the entry has no pointer.
unsafe impl Job for FlushItem<'_, '_> {
    fn entry(&mut self) -> Option<squeue::Entry> {
        let fd = types::Fd(self.target.fd.as_raw_fd());
        Some(opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build())
    }

    fn complete(&mut self, answer: i32) {
        *self.result = match answer {
            0.. => Some(Ok(())),
            // Never started.
            error if Errno::from_raw_os_error(-error) == Errno::CANCELED => None,
            error => Some(Err(io_error(IoOp::Flush, Errno::from_raw_os_error(error.saturating_neg()), 0, 0))),
        };
    }
}

/// Writes through io_uring; requests that it cannot do stay [`DeviceError::NotWritten`].
pub(super) fn write_batch(batch: &mut [(&dyn Device, WriteRequest<'_>)]) {
    let mut items: Vec<_> = batch
        .iter_mut()
        .filter(|(device, request)| request.is_pending() && !device.is_read_only())
        .filter_map(|(device, request)| {
            let target = device.raw_target()?;
            Some(WriteItem::new(target, device.size(), request))
        })
        .collect();
    write_items(&mut items);
}

/// Writes the items through io_uring; items that it cannot do stay [`DeviceError::NotWritten`].
pub(super) fn write_items(items: &mut [WriteItem<'_, '_, '_>]) {
    run(items, WRITE_DEPTH);
}

/// Flushes through io_uring; devices that it cannot flush stay `None`.
pub(super) fn flush_batch(devices: &[&dyn Device], results: &mut [Option<Result<(), DeviceError>>]) {
    let mut items: Vec<_> = devices
        .iter()
        .zip(results)
        .filter(|(device, _)| !device.is_read_only())
        .filter_map(|(device, result)| Some(FlushItem { target: device.raw_target()?, result }))
        .collect();
    run(&mut items, DEPTH);
}

/// Reads through io_uring; requests that it cannot do stay [`DeviceError::NotRead`].
pub(super) fn read_batch(batch: &mut [(&dyn Device, ReadRequest<'_>)]) {
    let mut items: Vec<_> = batch
        .iter_mut()
        .filter(|(_, request)| request.is_pending())
        .filter_map(|(device, request)| {
            let target = device.raw_target()?;
            Some(Item::new(target, device.size(), request))
        })
        .collect();
    read_items(&mut items);
}

/// Reads the items through io_uring; items that it cannot do stay [`DeviceError::NotRead`].
pub(super) fn read_items(items: &mut [Item<'_, '_, '_>]) {
    run(items, DEPTH);
}

/// Runs the jobs, `depth` at a time.
fn run<J: Job>(items: &mut [J], depth: usize) {
    if items.len() < 2 {
        return; // a plain call is cheaper
    }
    let Some(mut ring) = take_ring() else { return };
    for chunk in items.chunks_mut(depth.min(DEPTH)) {
        if !submit(&mut ring.ring, chunk) {
            return; // the ring is in doubt: drop it
        }
    }
    let mut rings = lock(&RINGS);
    if rings.len() < RINGS_KEPT {
        rings.push(ring);
    }
}

fn take_ring() -> Option<Ring> {
    if UNAVAILABLE.load(Ordering::Relaxed) {
        return None;
    }
    let process = std::process::id();
    while let Some(ring) = lock(&RINGS).pop() {
        if ring.process == process {
            return Some(ring);
        }
        // Made before a fork: the parent still uses the shared memory behind it.
        std::mem::forget(ring);
    }
    match IoUring::builder().dontfork().build(DEPTH as u32) {
        Ok(ring) => Some(Ring { ring, process }),
        Err(error) => {
            tracing::debug!(%error, "no io_uring, using pread and pwrite");
            UNAVAILABLE.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// Submits at most [`DEPTH`] jobs and waits for all of them. Returns whether the ring is clean.
fn submit<J: Job>(ring: &mut IoUring, chunk: &mut [J]) -> bool {
    let mut pushed = 0;
    for (i, item) in chunk.iter_mut().enumerate() {
        let Some(entry) = item.entry() else { continue };
        // SAFETY: what the entry points to stays valid until it was completed (the contract of `Job`):
        // `chunk` is borrowed mutably until this function returns, no item is touched before its
        // completion was seen, and the function does not return (or unwind: nothing below panics) while
        // an entry is with the kernel. The descriptor is borrowed for as long by the item's target.
        match unsafe { ring.submission().push(&entry.user_data(i as u64)) } {
            Ok(()) => pushed += 1,
            Err(_) => break,
        }
        if item.starts_at_once() {
            // An error shows again when waiting, and is handled there.
            let _ = ring.submit();
        }
    }
    wait(ring, chunk, pushed)
}

/// Waits until the kernel holds none of the `pushed` entries.
fn wait<J: Job>(ring: &mut IoUring, chunk: &mut [J], pushed: usize) -> bool {
    let mut completed = 0;
    let mut failures = 0;
    while completed < pushed {
        let answer = ring.submit_and_wait(pushed - completed);
        for done in ring.completion() {
            completed += 1;
            if let Some(item) = chunk.get_mut(done.user_data() as usize) {
                item.complete(done.result());
            }
        }
        if let Err(error) = answer
            && error.kind() != std::io::ErrorKind::Interrupted
        {
            let unsent = ring.submission().len();
            if completed + unsent >= pushed {
                return unsent == 0; // what was not sent dies with the ring
            }
            failures += 1;
            if failures > PATIENCE {
                // Requests are in flight with memory that is about to be freed, and the kernel does not
                // report when they end. Continuing would corrupt memory.
                tracing::error!(%error, "io_uring does not answer");
                std::process::abort();
            }
            std::thread::yield_now();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::file::{Access, FileDevice};
    use super::*;
    use format::DeviceOffset;

    #[test]
    fn batches_do_not_fall_back_where_there_is_io_uring() {
        if IoUring::new(2).is_err() {
            return;
        }
        let path = std::env::current_exe().unwrap();
        for access in [Access::Cached, Access::Direct] {
            let device = FileDevice::open(&path, access).unwrap();
            let mut bufs = vec![vec![0; 5000]; 100];
            let mut batch: Vec<(&dyn Device, ReadRequest<'_>)> = bufs
                .iter_mut()
                .enumerate()
                .map(|(i, buf)| -> (&dyn Device, _) {
                    (&device, ReadRequest::new(DeviceOffset(i as u64 * 777), buf))
                })
                .collect();
            read_batch(&mut batch);
            assert!(batch.iter().all(|(_, request)| request.result == Ok(())), "{access:?}");
            drop(batch);
            for (i, buf) in bufs.iter().enumerate() {
                let mut plain = vec![0; buf.len()];
                device.read_at(&mut plain, DeviceOffset(i as u64 * 777)).unwrap();
                assert!(*buf == plain);
            }
        }
    }
}
