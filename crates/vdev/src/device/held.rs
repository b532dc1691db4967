//! Writes that are held back until they are wanted: a command opens a pool, and only if the command is not
//! refused does a write reach the devices of the pool.
//!
//! # What always holds
//! - Before [`Hold::release`] no device is written; reads see the held writes.
//! - A release performs all writes and flushes of all devices of the hold in their original order, so a crash
//!   at any point leaves what a crash of the pool would have left without the hold.
//! - A device that fails during a release fails every later request, like a missing one. The others continue
//!   only if the [`Judge`] allows it, which is asked before any write after the lost one; otherwise every
//!   request to any of them fails, and the devices have a prefix of the held writes.
//! - Held writes take bounded memory: more than 64 MiB cause a release.

use super::error::{DeviceError, flush_is_supported};
use super::interface::{Device, ReadRequest, WriteRequest, check_range};
use super::raw::RawTarget;
use super::sparse::SparseBytes;
use crate::sync::{read, write};
use format::{DeviceOffset, VdevGuid};
use std::fmt::Debug;
use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Most bytes of held writes.
const HELD_MAX: usize = 64 << 20;

/// Decides whether the pool can go on without a device that has failed.
pub trait Judge: Send + Sync + Debug {
    /// Called when `leaf` has lost some of the held writes and takes no more; `failed` are all such leaves.
    /// Records the failure, and returns whether no data are lost as long as the others take all writes.
    ///
    /// Called while requests to all devices of the hold wait, so it must not make one.
    fn can_lose(&self, leaf: VdevGuid, failed: &[VdevGuid]) -> bool;
}

/// Held writes and flushes of several devices, in one order.
#[derive(Debug, Default)]
pub struct Hold {
    /// Requests go to the devices. Set under the lock, and never cleared.
    is_released: AtomicBool,
    judge: OnceLock<Box<dyn Judge>>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// The writes and flushes, in the order in which they were made.
    steps: Vec<Step>,
    /// Bytes of the writes in `steps`.
    bytes: usize,
    /// The error that made the release fail.
    error: Option<DeviceError>,
}

/// A device of the hold, and its held writes.
#[derive(Debug)]
struct Member {
    leaf: VdevGuid,
    base: Arc<dyn Device>,
    pages: SparseBytes,
    /// The error after which the device takes no more requests.
    failure: Arc<OnceLock<DeviceError>>,
}

#[derive(Debug)]
enum Step {
    Write { device: usize, at: DeviceOffset, bytes: Box<[u8]> },
    Flush { device: usize },
}

impl Step {
    fn device(&self) -> usize {
        match self {
            Step::Write { device, .. } | Step::Flush { device } => *device,
        }
    }

    /// Runs the step. A write is tried twice, as elsewhere; a flush is not, because a system reports a lost
    /// write only once.
    fn run(&self, base: &dyn Device) -> Result<(), DeviceError> {
        match self {
            Step::Write { at, bytes, .. } => base.write_at(bytes, *at).or_else(|_| base.write_at(bytes, *at)),
            Step::Flush { .. } => flush_is_supported(base.flush()),
        }
    }
}

impl State {
    /// The devices that have failed.
    fn failed(&self) -> Vec<VdevGuid> {
        let failed = self.members.iter().filter(|member| member.failure.get().is_some());
        failed.map(|member| member.leaf).collect()
    }
}

impl Hold {
    /// Puts the device of a leaf behind the hold.
    pub fn device(self: &Arc<Self>, leaf: VdevGuid, base: Arc<dyn Device>) -> HeldDevice {
        let failure = Arc::<OnceLock<DeviceError>>::default();
        let mut state = self.write();
        let index = state.members.len();
        let pages = SparseBytes::default();
        state.members.push(Member { leaf, base: Arc::clone(&base), pages, failure: Arc::clone(&failure) });
        drop(state);
        HeldDevice { base, hold: Arc::clone(self), index, failure }
    }

    /// Sets the judge of device failures. Without one, no device may fail; a second one is ignored.
    pub fn set_judge(&self, judge: Box<dyn Judge>) {
        let _first_counts = self.judge.set(judge);
    }

    /// Passes all requests on to the devices from now on, the held ones first.
    ///
    /// # Errors
    /// The error of a device that failed and that the judge does not allow to lose; then all devices fail
    /// from now on.
    pub fn release(&self) -> Result<(), DeviceError> {
        if self.is_released() {
            return Ok(());
        }
        self.release_locked(&mut self.write())
    }

    fn release_locked(&self, state: &mut State) -> Result<(), DeviceError> {
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        for step in std::mem::take(&mut state.steps) {
            let member = &state.members[step.device()];
            if member.failure.get().is_some() {
                continue;
            }
            let Err(error) = step.run(&*member.base) else { continue };
            let leaf = member.leaf;
            tracing::warn!(%leaf, %error, "a device took only a part of what was held for it");
            let _is_first = member.failure.set(error.clone());
            let failed = state.failed();
            if !self.judge.get().is_some_and(|judge| judge.can_lose(leaf, &failed)) {
                state.error = Some(error.clone());
                return Err(error);
            }
        }
        state.members.iter_mut().for_each(|member| member.pages = SparseBytes::default());
        self.is_released.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether requests go to the devices directly.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// The devices that failed during the release.
    pub fn failed(&self) -> Vec<VdevGuid> {
        self.read().failed()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        read(&self.state)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        write(&self.state)
    }
}

/// A device whose writes are held back until its [`Hold`] is released.
#[derive(Debug)]
pub struct HeldDevice {
    base: Arc<dyn Device>,
    hold: Arc<Hold>,
    index: usize,
    /// The error after which the device takes no more requests: set before the hold is released, never after.
    failure: Arc<OnceLock<DeviceError>>,
}

impl HeldDevice {
    /// After the release: the device, or its error. `None` before.
    fn released(&self) -> Option<Result<&dyn Device, DeviceError>> {
        self.hold.is_released().then(|| match self.failure.get() {
            None => Ok(&*self.base),
            Some(error) => Err(error.clone()),
        })
    }

    /// Runs `step` while requests are held, otherwise `direct`.
    fn held<T>(
        &self,
        step: impl FnOnce(&mut State) -> Result<T, DeviceError>,
        direct: impl FnOnce(&dyn Device) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if let Some(device) = self.released() {
            return direct(device?);
        }
        let mut state = self.hold.write();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        if let Some(device) = self.released() {
            drop(state);
            return direct(device?);
        }
        let done = step(&mut state)?;
        if state.bytes > HELD_MAX {
            self.hold.release_locked(&mut state)?;
            // The last write may be the one that this device did not take.
            self.failure.get().map_or(Ok(()), |error| Err(error.clone()))?;
        }
        Ok(done)
    }
}

/// Reads what the device has, with zeros past its end (a page may reach further than the device).
fn read_base(base: &dyn Device, buf: &mut [u8], at: u64) -> Result<(), DeviceError> {
    let there = base.size().saturating_sub(at).min(buf.len() as u64) as usize;
    let (head, tail) = buf.split_at_mut(there);
    tail.fill(0);
    if head.is_empty() { Ok(()) } else { base.read_at(head, DeviceOffset(at)) }
}

impl Device for HeldDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn size_now(&self) -> u64 {
        self.base.size_now()
    }

    fn renew_size(&self) -> u64 {
        self.base.renew_size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        if let Some(device) = self.released() {
            return device?.read_at(buf, at);
        }
        check_range(at, buf.len() as u64, self.size())?;
        let state = self.hold.read();
        match state.error.as_ref().or(self.failure.get()) {
            Some(error) => Err(error.clone()),
            // Released meanwhile: the held pages are gone.
            None => {
                state.members[self.index].pages.read(buf, at.0, |out, pos| read_base(&*self.base, out, pos))
            }
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if let Some(Ok(device)) = self.released() {
            return device.read_many(requests);
        }
        for request in requests {
            request.result = self.read_at(request.buf, request.at);
        }
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let hold = |state: &mut State| {
            check_range(at, buf.len() as u64, self.size())?;
            state.members[self.index]
                .pages
                .write(buf, at.0, |page, pos| read_base(&*self.base, page, pos))?;
            state.bytes += buf.len();
            state.steps.push(Step::Write { device: self.index, at, bytes: buf.into() });
            Ok(())
        };
        self.held(hold, |device| device.write_at(buf, at))
    }

    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        if let Some(device) = self.released() {
            return device?.write_parts(parts, at);
        }
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.write_at(&bytes, at)
    }

    fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
        if let Some(Ok(device)) = self.released() {
            return device.write_many(requests);
        }
        for request in requests {
            request.result = self.write_parts(&request.parts, request.at);
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let hold = |state: &mut State| {
            state.steps.push(Step::Flush { device: self.index });
            Ok(())
        };
        self.held(hold, |device| device.flush())
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        // A discard may be ignored.
        self.held(|_| check_range(at, len, self.size()), |device| device.discard(at, len))
    }

    fn is_at(&self, path: &Path) -> bool {
        self.base.is_at(path)
    }

    fn is_removed(&self) -> bool {
        self.base.is_removed()
    }

    fn path(&self) -> Option<&Path> {
        self.base.path()
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.base.sector_sizes()
    }

    fn reread_partitions(&self) -> Result<(), DeviceError> {
        self.base.reread_partitions()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn raw_target(&self) -> Option<RawTarget<'_>> {
        match self.released() {
            Some(Ok(device)) => device.raw_target(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;

    fn byte(device: &dyn Device, at: u64) -> u8 {
        let mut buf = [0];
        device.read_at(&mut buf, DeviceOffset(at)).expect("within the device");
        buf[0]
    }

    #[test]
    fn nothing_is_written_before_the_release() {
        let bases = [0, 1].map(|_| Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>);
        let hold = Arc::new(Hold::default());
        let [a, b] = bases.each_ref().map(|base| hold.device(VdevGuid(1), Arc::clone(base)));
        a.write_at(&[1; 100], DeviceOffset(5000)).expect("held");
        b.write_parts(&[IoSlice::new(&[2; 3]), IoSlice::new(&[3; 3])], DeviceOffset(70_000)).expect("held");
        a.write_at(&[4; 10], DeviceOffset(5010)).expect("held");
        a.flush().expect("held");
        assert!(a.write_at(&[0; 2], DeviceOffset((1 << 20) - 1)).is_err());
        assert_eq!((byte(&a, 5000), byte(&a, 5010), byte(&b, 70_003)), (1, 4, 3));
        assert_eq!((byte(&*bases[0], 5000), byte(&*bases[1], 70_003)), (0, 0));
        hold.release().expect("good devices");
        assert_eq!((byte(&*bases[0], 5000), byte(&*bases[0], 5010), byte(&*bases[1], 70_003)), (1, 4, 3));
        a.write_at(&[9], DeviceOffset(5000)).expect("released");
        assert_eq!((byte(&a, 5000), byte(&*bases[0], 5000)), (9, 9));
    }

    #[test]
    fn memory_is_bounded() {
        let base: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let hold = Arc::new(Hold::default());
        let device = hold.device(VdevGuid(1), Arc::clone(&base));
        for _ in 0..=HELD_MAX >> 20 {
            device.write_at(&vec![7; 1 << 20], DeviceOffset(0)).expect("held");
        }
        assert!(hold.is_released());
        assert_eq!(byte(&*base, 77), 7);
    }

    #[test]
    fn the_order_of_all_devices_is_kept_up_to_an_error() {
        let [first, second] = [0, 1].map(|_| Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>);
        let hold = Arc::new(Hold::default());
        let a = hold.device(VdevGuid(1), Arc::clone(&first));
        let refusing = hold.device(VdevGuid(2), Arc::new(ReadOnly(second)));
        a.write_at(&[1], DeviceOffset(0)).expect("held");
        refusing.write_at(&[1], DeviceOffset(0)).expect("held");
        a.write_at(&[2], DeviceOffset(0)).expect("held");
        assert_eq!(hold.release(), Err(DeviceError::ReadOnly));
        assert_eq!(byte(&*first, 0), 1, "what was written behind the failed write is not");
        assert_eq!(a.write_at(&[3], DeviceOffset(0)), Err(DeviceError::ReadOnly));
        assert_eq!(hold.release(), Err(DeviceError::ReadOnly));
    }

    #[test]
    fn a_device_that_can_be_lost_fails_alone() {
        let [first, second, third] =
            [0, 1, 2].map(|_| Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>);
        let hold = Arc::new(Hold::default());
        hold.set_judge(Box::new(AllBut(VdevGuid(3))));
        let a = hold.device(VdevGuid(1), Arc::clone(&first));
        let refusing = hold.device(VdevGuid(2), Arc::new(ReadOnly(Arc::clone(&second))));
        let needed = hold.device(VdevGuid(3), Arc::clone(&third));
        refusing.write_at(&[1], DeviceOffset(0)).expect("held");
        for device in [&a, &refusing, &needed] {
            device.write_at(&[2], DeviceOffset(0)).expect("held");
            device.flush().expect("held");
        }
        hold.release().expect("one may fail");
        assert_eq!(hold.failed(), [VdevGuid(2)]);
        assert_eq!((byte(&a, 0), byte(&*first, 0), byte(&*third, 0), byte(&*second, 0)), (2, 2, 2, 0));
        a.write_at(&[3], DeviceOffset(0)).expect("a good device");
        assert_eq!(refusing.read_at(&mut [0], DeviceOffset(0)), Err(DeviceError::ReadOnly));
        assert_eq!(refusing.flush(), Err(DeviceError::ReadOnly));
    }

    #[test]
    fn nothing_goes_on_without_a_device_that_is_needed() {
        let [first, second] = [0, 1].map(|_| Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>);
        let hold = Arc::new(Hold::default());
        hold.set_judge(Box::new(AllBut(VdevGuid(3))));
        let needed = hold.device(VdevGuid(3), Arc::new(ReadOnly(first)));
        let a = hold.device(VdevGuid(1), Arc::clone(&second));
        needed.write_at(&[1], DeviceOffset(0)).expect("held");
        a.write_at(&[1], DeviceOffset(0)).expect("held");
        assert_eq!(hold.release(), Err(DeviceError::ReadOnly));
        assert_eq!(byte(&*second, 0), 0);
        assert_eq!(a.flush(), Err(DeviceError::ReadOnly));
    }

    /// A judge that allows the loss of every leaf but one.
    #[derive(Debug)]
    struct AllBut(VdevGuid);

    impl Judge for AllBut {
        fn can_lose(&self, leaf: VdevGuid, failed: &[VdevGuid]) -> bool {
            assert!(failed.contains(&leaf));
            !failed.contains(&self.0)
        }
    }

    /// A device that refuses writes.
    #[derive(Debug)]
    struct ReadOnly(Arc<dyn Device>);

    impl Device for ReadOnly {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
            self.0.read_at(buf, at)
        }
    }
}
