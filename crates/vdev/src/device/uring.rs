//! Batches of reads through io_uring.
//!
//! A batch is one submission: all reads wait together, whatever devices they are on. The call
//! returns when the last read has completed, so buffers need only live as long as the call. Rings
//! are kept for reuse, as many as there were concurrent batches.
//!
//! # What always holds
//! - The kernel holds no pointer into a buffer after [`read_items`] returned.
//! - A read that io_uring could not do stays [`DeviceError::NotRead`]; the caller does it with
//!   `pread`. Without io_uring (old kernels, containers that forbid it) that is every read.

use super::file::Bounce;
use super::{Device, DeviceError, RawTarget, ReadRequest, check_range};
use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Reads of one submission.
const DEPTH: usize = 64;
/// Rings kept for reuse.
const RINGS_KEPT: usize = 64;
/// How often waiting may fail in a row while reads are under way.
const PATIENCE: u32 = 10_000;

static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());
static UNAVAILABLE: AtomicBool = AtomicBool::new(false);

struct Ring {
    ring: IoUring,
    /// The process that made it: after a fork the child must not touch it.
    process: u32,
}

/// One read and where it goes.
#[derive(Debug)]
pub(super) struct Item<'t, 'r, 'b> {
    target: RawTarget<'t>,
    /// End of the file.
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

    /// Takes the kernel's answer; anything but the full length is left to `pread`, which will
    /// either succeed or give the precise error.
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

/// Reads what can be read this way; the rest stays [`DeviceError::NotRead`].
pub(super) fn read_batch(batch: &mut [(&dyn Device, ReadRequest<'_>)]) {
    let mut items: Vec<_> = batch
        .iter_mut()
        .filter(|(_, request)| request.result == Err(DeviceError::NotRead))
        .filter_map(|(device, request)| {
            let target = device.raw_target()?;
            Some(Item::new(target, device.size(), request))
        })
        .collect();
    read_items(&mut items);
}

/// Reads the items, [`DEPTH`] at a time.
pub(super) fn read_items(items: &mut [Item<'_, '_, '_>]) {
    if items.len() < 2 {
        return; // a plain pread is cheaper
    }
    let Some(mut ring) = take_ring() else { return };
    for chunk in items.chunks_mut(DEPTH) {
        if !submit(&mut ring.ring, chunk) {
            return; // the ring is in doubt: drop it
        }
    }
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if rings.len() < RINGS_KEPT {
        rings.push(ring);
    }
}

fn take_ring() -> Option<Ring> {
    if UNAVAILABLE.load(Ordering::Relaxed) {
        return None;
    }
    let process = std::process::id();
    while let Some(ring) = RINGS.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        if ring.process == process {
            return Some(ring);
        }
        // Made before a fork: the parent still uses the shared memory behind it.
        std::mem::forget(ring);
    }
    match IoUring::builder().dontfork().build(DEPTH as u32) {
        Ok(ring) => Some(Ring { ring, process }),
        Err(error) => {
            tracing::debug!(%error, "no io_uring, reading with pread");
            UNAVAILABLE.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// Submits at most [`DEPTH`] reads and waits for all of them. Returns whether the ring is clean.
fn submit(ring: &mut IoUring, chunk: &mut [Item<'_, '_, '_>]) -> bool {
    let mut pushed = 0;
    for (i, item) in chunk.iter_mut().enumerate() {
        let fd = types::Fd(item.target.fd.as_raw_fd());
        let Some((buf, at)) = item.place() else { continue };
        let Ok(len) = u32::try_from(buf.len()) else { continue };
        let read = opcode::Read::new(fd, buf.as_mut_ptr(), len).offset(at).build().user_data(i as u64);
        // SAFETY: `buf` belongs to `chunk`, which is borrowed mutably until this function returns;
        // it is not touched before the completion of this entry was seen, and the function does
        // not return (or unwind: nothing in the loop below panics) while an entry is with the
        // kernel. The descriptor is borrowed for as long by `item.target`.
        match unsafe { ring.submission().push(&read) } {
            Ok(()) => pushed += 1,
            Err(_) => break,
        }
    }
    wait(ring, chunk, pushed)
}

/// Waits until the kernel holds none of the `pushed` entries.
fn wait(ring: &mut IoUring, chunk: &mut [Item<'_, '_, '_>], pushed: usize) -> bool {
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
                // Reads are under way into memory that we are about to give back, and the
                // kernel does not tell when they end. Going on would corrupt memory.
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
