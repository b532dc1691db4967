//! Batches over several devices, such as the columns of one RAID-Z block or the labels of all leaves.
//!
//! Requests to open files are queued in the kernel together, also if they are on several devices. Every other
//! device gets its share of the batch in one call of [`Device::read_many`] or [`Device::write_many`].

use super::error::DeviceError;
use super::interface::{Device, ReadRequest, WriteRequest};
#[cfg(target_os = "linux")]
use super::uring;

/// Reads a batch from several devices; each request carries its outcome.
pub fn read_across(batch: &mut [(&dyn Device, ReadRequest<'_>)]) {
    #[cfg(target_os = "linux")]
    if batch.len() > 1 {
        uring::read_batch(batch);
    }
    let pending = batch.iter_mut().filter(|(_, request)| request.is_pending());
    for (device, share) in shares(pending.map(|(device, request)| (*device, request)), false) {
        read_share(device, share);
    }
}

/// Writes a batch to several devices; each request carries its outcome. Requests that overlap are written in
/// any order. Devices that are not open files are written in the order of the batch, so that simulated runs
/// repeat.
pub fn write_across(batch: &mut [(&dyn Device, WriteRequest<'_>)]) {
    #[cfg(target_os = "linux")]
    if batch.len() > 1 {
        uring::write_batch(batch);
    }
    let pending = batch.iter_mut().filter(|(_, request)| request.is_pending());
    each_device(pending.map(|(device, request)| (*device, request)).collect(), write_share);
}

/// Flushes several devices at once; outcomes in the order of the devices.
pub fn flush_across(devices: &[&dyn Device]) -> Vec<Result<(), DeviceError>> {
    let mut results = vec![None; devices.len()];
    #[cfg(target_os = "linux")]
    if devices.len() > 1 {
        uring::flush_batch(devices, &mut results);
    }
    let pending = devices.iter().zip(&mut results).filter(|(_, result)| result.is_none());
    each_device(pending.map(|(device, result)| (*device, result)).collect(), |device, share| {
        share.into_iter().for_each(|result| *result = Some(device.flush()));
    });
    results.into_iter().map(|result| result.unwrap_or(Err(DeviceError::NotWritten))).collect()
}

/// Reads a device's share of a batch. An open file gets single calls: the kernel could not queue its
/// requests.
fn read_share(device: &dyn Device, mut share: Vec<&mut ReadRequest<'_>>) {
    if share.len() == 1 || device.raw_target().is_some() {
        share.into_iter().for_each(|request| request.result = device.read_at(request.buf, request.at));
        return;
    }
    let mut requests: Vec<_> =
        share.iter_mut().map(|request| ReadRequest::new(request.at, &mut *request.buf)).collect();
    device.read_many(&mut requests);
    let results: Vec<_> = requests.into_iter().map(|request| request.result).collect();
    for (request, result) in share.into_iter().zip(results) {
        request.result = result;
    }
}

/// Writes a device's share of a batch. An open file gets single calls, as for reads.
fn write_share(device: &dyn Device, mut share: Vec<&mut WriteRequest<'_>>) {
    if share.len() == 1 || device.raw_target().is_some() {
        share.into_iter().for_each(|request| request.result = device.write_parts(&request.parts, request.at));
        return;
    }
    let mut requests: Vec<_> = share
        .iter_mut()
        .map(|request| WriteRequest::new(request.at, std::mem::take(&mut request.parts)))
        .collect();
    device.write_many(&mut requests);
    for (request, done) in share.into_iter().zip(requests) {
        (request.parts, request.result) = (done.parts, done.result);
    }
}

/// Groups a batch by device. `in_order`: only consecutive requests are grouped.
fn shares<'d, T>(
    batch: impl Iterator<Item = (&'d dyn Device, T)>,
    in_order: bool,
) -> Vec<(&'d dyn Device, Vec<T>)> {
    let mut shares: Vec<(&dyn Device, Vec<T>)> = Vec::new();
    for (device, item) in batch {
        let from = if in_order { shares.len().saturating_sub(1) } else { 0 };
        let known = shares.iter_mut().skip(from).find(|(known, _)| std::ptr::addr_eq(*known, device));
        match known {
            Some((_, share)) => share.push(item),
            None => shares.push((device, vec![item])),
        }
    }
    shares
}

/// Calls `work` with the share of each device: each open file on a thread of its own, because only requests
/// that the kernel could not queue come here; all others in order, so that simulated runs repeat.
fn each_device<T: Send>(batch: Vec<(&dyn Device, T)>, work: impl Fn(&dyn Device, Vec<T>) + Sync) {
    let in_order = batch.iter().any(|(device, _)| device.raw_target().is_none());
    let shares = shares(batch.into_iter(), in_order);
    if in_order || shares.len() < 2 {
        shares.into_iter().for_each(|(device, share)| work(device, share));
        return;
    }
    std::thread::scope(|scope| {
        for (device, share) in shares {
            let work = &work;
            scope.spawn(move || work(device, share));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::file::{Access, FileDevice};
    use crate::device::memory::MemoryDevice;
    use crate::sync::lock;
    use format::DeviceOffset;
    use std::io::IoSlice;
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    #[test]
    fn files_are_served_in_parallel_and_simulated_devices_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<FileDevice> = (0..3)
            .map(|i| {
                let path = folder.path().join(i.to_string());
                std::fs::write(&path, [0; 512]).unwrap();
                FileDevice::open(&path, Access::Cached).unwrap()
            })
            .collect();
        let mut threads: Vec<Option<ThreadId>> = vec![None; 9];
        let items: Vec<(&dyn Device, &mut Option<ThreadId>)> =
            threads.iter_mut().enumerate().map(|(i, id)| (&files[i % 3] as &dyn Device, id)).collect();
        each_device(items, |_, ids| ids.into_iter().for_each(|id| *id = Some(thread::current().id())));
        let of_device = |i: usize| threads.iter().skip(i).step_by(3).collect::<Vec<_>>();
        for i in 0..3 {
            assert!(of_device(i).iter().all(|id| id.is_some() && *id == of_device(i)[0]));
            assert!(of_device(i)[0] != of_device((i + 1) % 3)[0]);
        }
        let memories = [MemoryDevice::new(1), MemoryDevice::new(1)];
        let order = Mutex::new(Vec::new());
        let items: Vec<(&dyn Device, usize)> = (0..6).map(|n| (&memories[n % 2] as &dyn Device, n)).collect();
        each_device(items, |_, share| {
            share.into_iter().for_each(|n| lock(&order).push((n, thread::current().id())))
        });
        let expected: Vec<_> = (0..6).map(|n| (n, thread::current().id())).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    }

    /// A device that records the number of requests of each call.
    #[derive(Debug)]
    struct Counting {
        memory: MemoryDevice,
        calls: Mutex<Vec<usize>>,
    }

    impl Device for Counting {
        fn size(&self) -> u64 {
            self.memory.size()
        }

        fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
            lock(&self.calls).push(1);
            self.memory.read_at(buf, at)
        }

        fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
            lock(&self.calls).push(requests.len());
            self.memory.read_many(requests);
        }

        fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
            lock(&self.calls).push(1);
            self.memory.write_at(buf, at)
        }

        fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
            lock(&self.calls).push(requests.len());
            self.memory.write_many(requests);
        }
    }

    #[test]
    fn each_device_gets_its_whole_share_in_one_call() {
        let new = || Counting { memory: MemoryDevice::new(1 << 20), calls: Mutex::default() };
        let devices = [new(), new()];
        let device = |i: usize| &devices[i] as &dyn Device;
        let bytes: Vec<[u8; 4]> = (0..6u8).map(|i| [i; 4]).collect();
        // The order of writes matters: the second device interrupts the first.
        let mut writes: Vec<(&dyn Device, WriteRequest<'_>)> = [0, 0, 1, 1, 1, 0]
            .into_iter()
            .zip(&bytes)
            .enumerate()
            .map(|(i, (which, bytes))| {
                (device(which), WriteRequest::new(DeviceOffset(i as u64 * 100), vec![IoSlice::new(bytes)]))
            })
            .collect();
        write_across(&mut writes);
        assert!(writes.iter().all(|(_, request)| request.result == Ok(())));
        assert_eq!([0, 1].map(|i| std::mem::take(&mut *lock(&devices[i].calls))), [vec![2, 1], vec![3]]);
        // The order of reads does not.
        let mut bufs = [[9u8; 4]; 4];
        let mut reads: Vec<(&dyn Device, ReadRequest<'_>)> = [(0, 0u64), (1, 200), (0, 500), (1, 1 << 20)]
            .into_iter()
            .zip(&mut bufs)
            .map(|((which, at), buf)| (device(which), ReadRequest::new(DeviceOffset(at), buf)))
            .collect();
        read_across(&mut reads);
        let results: Vec<bool> = reads.iter().map(|(_, request)| request.result.is_ok()).collect();
        drop(reads);
        assert_eq!(results, [true, true, true, false]);
        assert_eq!(bufs[..3], [[0; 4], [2; 4], [5; 4]]);
        assert_eq!([0, 1].map(|i| std::mem::take(&mut *lock(&devices[i].calls))), [vec![2], vec![2]]);
    }
}
