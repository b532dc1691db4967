//! One suite over every kind of device, and the faults of simulated disks.
#![allow(clippy::disallowed_types)] // images are made here

use cenote_vdev::device::file::{Access, FileDevice, open_exclusive};
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::overlay::OverlayDevice;
use cenote_vdev::device::partition::PartitionDevice;
use cenote_vdev::device::sim::{Fate, Op, OpKind, Power, Rates, SimDisk};
use cenote_vdev::device::{
    Device, DeviceError, ReadRequest, WriteRequest, flush_across, read_across, write_across,
};
use cenote_vdev::env::{Env, Random};
use cenote_vdev::gpt;
use format::DeviceOffset;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Not a multiple of any alignment, so that the tail is odd.
const SIZE: u64 = (3 << 20) + 1234;

fn at(offset: u64) -> DeviceOffset {
    DeviceOffset(offset)
}

/// A file of this size on a real file system (where `O_DIRECT` works), or in memory.
fn file(folder: &Path, name: &str, size: u64) -> PathBuf {
    let path = folder.join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

fn disk_folder() -> tempfile::TempDir {
    // Below the build folder: /tmp may be a tmpfs.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The required behaviour of every writable device, compared with a plain array.
fn suite(device: &dyn Device) {
    assert_eq!(device.size(), SIZE);
    assert!(!device.is_read_only());
    let mut model = vec![0; SIZE as usize];
    let mut random = Random::from_seed(5);
    for round in 0..300 {
        let start = random.below(SIZE);
        // Aligned ones too: they take another path.
        let start = if random.one_in(2) { start & !4095 } else { start };
        let len = (1 + random.below(200_000)).min(SIZE - start) as usize;
        let range = start as usize..start as usize + len;
        if round % 3 == 0 {
            random.fill(&mut model[range.clone()]);
            device.write_at(&model[range.clone()], at(start)).unwrap();
        }
        if round % 50 == 0 {
            device.flush().unwrap();
        }
        let mut read = vec![0xAA; len];
        device.read_at(&mut read, at(start)).unwrap();
        assert!(read == model[range], "{len} at {start}");
    }
    batch(device, &model);
    write_batches(device, &mut model);
    ranges(device);
}

fn slices(parts: &[Vec<u8>]) -> Vec<IoSlice<'_>> {
    parts.iter().map(|part| IoSlice::new(part)).collect()
}

/// Batches of writes of several parts each, valid and invalid ones.
fn write_batches(device: &dyn Device, model: &mut [u8]) {
    let mut random = Random::from_seed(7);
    for count in [1, 2, 31, 32, 33, 100] {
        // Places that do not overlap; lengths of parts with all kinds of alignment.
        let slot: u64 = (3 << 20) / count;
        let blocks: Vec<(u64, Vec<Vec<u8>>)> = (0..count)
            .map(|i| {
                let aligned = random.one_in(2);
                let step: u64 = if aligned { 4096 } else { 1 };
                let start = (i * slot).next_multiple_of(step);
                let mut left = slot.saturating_sub(start - i * slot).min(300_000);
                let mut parts = Vec::new();
                while left > 0 && parts.len() < 7 && !random.one_in(9) {
                    let len = (random.below(left) + 1).next_multiple_of(step);
                    if len > left {
                        break;
                    }
                    let mut part = vec![0; len as usize];
                    random.fill(&mut part);
                    parts.push(part);
                    left -= len;
                }
                (start, parts)
            })
            .collect();
        // As parts of one call, or all in one batch with one that is out of range.
        if count == 1 {
            device.write_parts(&slices(&blocks[0].1), at(blocks[0].0)).unwrap();
        } else {
            let mut batch: Vec<(&dyn Device, WriteRequest<'_>)> = blocks
                .iter()
                .map(|(start, parts)| (device, WriteRequest::new(at(*start), slices(parts))))
                .collect();
            batch.push((device, WriteRequest::new(at(SIZE - 1), vec![IoSlice::new(&[1, 2])])));
            write_across(&mut batch);
            let (_, bad) = batch.pop().unwrap();
            assert!(matches!(bad.result, Err(DeviceError::OutOfRange { .. })), "{:?}", bad.result);
            assert!(batch.iter().all(|(_, request)| request.result == Ok(())));
        }
        for (start, parts) in &blocks {
            let all = parts.concat();
            model[*start as usize..*start as usize + all.len()].copy_from_slice(&all);
        }
        let mut read = vec![0; SIZE as usize];
        device.read_at(&mut read, at(0)).unwrap();
        assert!(read == model, "batch of {count}");
        assert_eq!(flush_across(&[device, device]), [Ok(()), Ok(())]);
    }
}

/// Batches of reads, valid and invalid ones.
fn batch(device: &dyn Device, model: &[u8]) {
    let mut random = Random::from_seed(6);
    for count in [0, 1, 2, 63, 64, 65, 200] {
        let places: Vec<(u64, usize)> = (0..count)
            .map(|i| match i % 7 {
                3 => (SIZE - 10, 11),
                4 => (SIZE - 1234, 1234),
                5 => (random.below(1 << 20) & !4095, 8192),
                _ => (random.below(1 << 20), random.below(50_000) as usize),
            })
            .collect();
        let mut bufs: Vec<Vec<u8>> = places.iter().map(|(_, len)| vec![0; *len]).collect();
        let mut requests: Vec<ReadRequest<'_>> =
            places.iter().zip(&mut bufs).map(|((start, _), buf)| ReadRequest::new(at(*start), buf)).collect();
        device.read_many(&mut requests);
        let results: Vec<_> = requests.into_iter().map(|request| request.result).collect();
        check(&places, &bufs, &results, model);

        let mut bufs: Vec<Vec<u8>> = places.iter().map(|(_, len)| vec![0; *len]).collect();
        let mut across: Vec<(&dyn Device, ReadRequest<'_>)> = places
            .iter()
            .zip(&mut bufs)
            .map(|((start, _), buf)| (device, ReadRequest::new(at(*start), buf)))
            .collect();
        read_across(&mut across);
        let results: Vec<_> = across.into_iter().map(|(_, request)| request.result).collect();
        check(&places, &bufs, &results, model);
    }
}

fn check(places: &[(u64, usize)], bufs: &[Vec<u8>], results: &[Result<(), DeviceError>], model: &[u8]) {
    for (((start, len), buf), result) in places.iter().zip(bufs).zip(results) {
        let end = *start as usize + len;
        if end > model.len() {
            assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{result:?}");
        } else {
            assert_eq!(*result, Ok(()));
            assert!(*buf == model[*start as usize..end], "{len} at {start}");
        }
    }
}

/// No request reaches bytes outside the device.
fn ranges(device: &dyn Device) {
    let out = |result| assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{result:?}");
    for (start, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 2), (0, SIZE as usize + 1)] {
        out(device.read_at(&mut vec![0; len], at(start)));
        out(device.write_at(&vec![0; len], at(start)));
        out(device.discard(at(start), len as u64));
    }
    device.read_at(&mut [], at(SIZE)).unwrap();
}

#[test]
fn memory() {
    suite(&MemoryDevice::new(SIZE));
    suite(&MemoryDevice::from_bytes(&vec![0; SIZE as usize]));
}

#[test]
fn cached_file() {
    let folder = disk_folder();
    let path = file(folder.path(), "cached", SIZE);
    let device = FileDevice::open_writable(&path, Access::Cached).unwrap();
    assert!(!device.is_direct());
    suite(&device);
}

#[test]
fn direct_file() {
    let folder = disk_folder();
    let device = FileDevice::open_writable(&file(folder.path(), "direct", SIZE), Access::Direct).unwrap();
    suite(&device);
}

#[test]
fn file_on_a_file_system_without_direct_access() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in(shm).unwrap();
    suite(&FileDevice::open_writable(&file(folder.path(), "tmpfs", SIZE), Access::Direct).unwrap());
}

#[test]
fn overlay() {
    let base = Arc::new(MemoryDevice::new(SIZE));
    suite(&OverlayDevice::new(Arc::clone(&base) as Arc<dyn Device>));
    let mut bytes = vec![1; SIZE as usize];
    base.read_at(&mut bytes, at(0)).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "the base was written");
}

#[test]
fn window() {
    let base: Arc<dyn Device> = Arc::new(MemoryDevice::new(2 * SIZE));
    suite(&PartitionDevice::new(Arc::clone(&base), at(12345), SIZE).unwrap());
    let mut outside = vec![1; 12345];
    base.read_at(&mut outside, at(0)).unwrap();
    assert!(outside.iter().all(|byte| *byte == 0));
    for (start, len) in [(SIZE, SIZE + 1), (u64::MAX, 2), (2, u64::MAX)] {
        assert!(PartitionDevice::new(Arc::clone(&base), at(start), len).is_err());
    }
}

#[test]
fn window_of_a_file() {
    let folder = disk_folder();
    for access in [Access::Cached, Access::Direct] {
        let path = file(folder.path(), &format!("{access:?}"), 2 * SIZE);
        let base: Arc<dyn Device> = Arc::new(FileDevice::open_writable(&path, access).unwrap());
        suite(&PartitionDevice::new(base, at(1 << 20), SIZE).unwrap());
    }
}

#[test]
fn simulated() {
    suite(&SimDisk::new(SIZE, 1));
    suite(&SimDisk::over(Arc::new(MemoryDevice::new(SIZE)), 1, Power::new()));
}

#[test]
fn reads_from_several_devices_at_once() {
    let folder = disk_folder();
    let devices: Vec<Box<dyn Device>> = (0..5u8)
        .map(|i| -> Box<dyn Device> {
            let device: Box<dyn Device> = match i {
                0 => Box::new(MemoryDevice::new(SIZE)),
                1 | 2 => {
                    let path = file(folder.path(), &format!("f{i}"), SIZE);
                    Box::new(FileDevice::open_writable(&path, Access::Direct).unwrap())
                }
                _ => {
                    let path = file(folder.path(), &format!("f{i}"), SIZE);
                    Box::new(FileDevice::open_writable(&path, Access::Cached).unwrap())
                }
            };
            device.write_at(&vec![i + 1; 100_000], at(0)).unwrap();
            device
        })
        .collect();
    let mut bufs = vec![vec![0; 10_000]; 40];
    let mut batch: Vec<(&dyn Device, ReadRequest<'_>)> = bufs
        .iter_mut()
        .enumerate()
        .map(|(i, buf)| (&*devices[i % 5], ReadRequest::new(at(i as u64 * 1000), buf)))
        .collect();
    read_across(&mut batch);
    assert!(batch.iter().all(|(_, request)| request.result == Ok(())));
    for (i, buf) in bufs.iter().enumerate() {
        assert!(buf.iter().all(|byte| usize::from(*byte) == i % 5 + 1));
    }
}

#[test]
fn read_only_files_are_not_written() {
    let folder = disk_folder();
    let device = FileDevice::open(&file(folder.path(), "ro", SIZE), Access::Auto).unwrap();
    assert!(device.is_read_only());
    assert_eq!(device.write_at(&[1], at(0)), Err(DeviceError::ReadOnly));
    assert_eq!(device.discard(at(0), 1), Err(DeviceError::ReadOnly));
    assert_eq!(device.flush(), Ok(()));
}

#[test]
fn only_one_may_write() {
    let folder = disk_folder();
    let path = file(folder.path(), "one", SIZE);
    let first = FileDevice::open_writable(&path, Access::Auto).unwrap();
    assert!(FileDevice::open_writable(&path, Access::Auto).unwrap_err().is_busy());
    FileDevice::open(&path, Access::Auto).unwrap();
    drop(first);
    FileDevice::open_writable(&path, Access::Auto).unwrap();
}

#[test]
fn writes_to_several_devices_at_once() {
    let folder = disk_folder();
    for access in [Access::Cached, Access::Direct] {
        let files: Vec<FileDevice> = (0..4)
            .map(|i| file(folder.path(), &format!("{access:?}{i}"), SIZE))
            .map(|path| FileDevice::open_writable(&path, access).unwrap())
            .collect();
        let memory = MemoryDevice::new(SIZE);
        let read_only = FileDevice::open(&file(folder.path(), "ro", SIZE), access).unwrap();
        let mut devices: Vec<&dyn Device> = files.iter().map(|device| device as &dyn Device).collect();
        devices.extend([&memory as &dyn Device, &read_only]);
        let blocks: Vec<Vec<u8>> = (0..120u8).map(|i| vec![i + 1; 8192]).collect();
        let mut batch: Vec<(&dyn Device, WriteRequest<'_>)> = blocks
            .iter()
            .enumerate()
            .map(|(i, block)| {
                let parts = vec![IoSlice::new(&block[..4000]), IoSlice::new(&block[4000..])];
                (devices[i % 6], WriteRequest::new(at(i as u64 * 8192), parts))
            })
            .collect();
        write_across(&mut batch);
        for (i, (_, request)) in batch.iter().enumerate() {
            let expected = if i % 6 == 5 { Err(DeviceError::ReadOnly) } else { Ok(()) };
            assert_eq!(request.result, expected);
        }
        for (i, block) in blocks.iter().enumerate().filter(|(i, _)| i % 6 != 5) {
            assert!(contents(devices[i % 6], i as u64 * 8192, 8192) == *block);
        }
        assert_eq!(flush_across(&devices), vec![Ok(()); 6]);
    }
}

/// Block devices, as loop devices: exclusive, with their sectors, partitioned.
#[test]
fn block_devices() {
    if !testkit::need_root() || !testkit::need_file("/dev/loop-control") {
        return;
    }
    let Some(losetup) = testkit::need_tool("losetup") else { return };
    let folder = disk_folder();
    let image = file(folder.path(), "disk", 1 << 30);
    let losetup = |arguments: &[&str]| {
        let output = Command::new(&losetup).args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    for sector in [512, 4096] {
        let image = image.to_str().unwrap();
        let (made, disk) = losetup(&["-f", "-P", "--show", "-b", &sector.to_string(), image]);
        if !made {
            testkit::skip("no loop devices");
            return;
        }
        let _detach = Detach(&losetup, disk.clone());
        let path = Path::new(&disk);
        let device = open_exclusive(path, Access::Auto).unwrap();
        assert_eq!(device.sector_sizes().0, sector);
        assert!(device.sector_sizes().1 >= sector);
        assert!(open_exclusive(path, Access::Auto).unwrap_err().is_busy());
        let identity = gpt::Identity::random(&Env::simulated(sector).0);
        let partition = gpt::write(&*device, &identity).unwrap();
        assert_eq!(gpt::partitions(&*device).unwrap().unwrap()[0], partition);
        let name = path.file_name().unwrap().to_str().unwrap();
        let folder = format!("/sys/block/{name}/{name}p1");
        // Some kernels have no support for partition tables.
        if Path::new(&folder).exists() {
            let number = |file: &str| -> u64 {
                std::fs::read_to_string(format!("{folder}/{file}")).unwrap().trim().parse().unwrap()
            };
            // The kernel counts in units of 512 bytes.
            assert_eq!((number("start") * 512, number("size") * 512), (partition.start.0, partition.len));
        }
        if let Some(parted) = testkit::tool("parted") {
            let output =
                Command::new(parted).args(["-m", "-s", &disk, "unit", "B", "print"]).output().unwrap();
            let (text, problems) = (String::from_utf8_lossy(&output.stdout), output.stderr);
            let end = partition.start.0 + partition.len - 1;
            let line = format!("1:{}B:{end}B:{}B:", partition.start.0, partition.len);
            assert!(output.status.success() && problems.is_empty() && text.contains(&line), "{text}");
        }
        let block = vec![0x5a; 3 << 20];
        device.write_at(&block, at(64 << 20)).unwrap();
        device.write_at(&block[..777], at(32 << 20)).unwrap();
        device.flush().unwrap();
        assert!(contents(&*device, 64 << 20, block.len()) == block);
        assert!(contents(&*device, 32 << 20, 778)[770..] == [0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0]);
    }
}

struct Detach<'a>(&'a dyn Fn(&[&str]) -> (bool, String), String);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        (self.0)(&["-d", &self.1]);
    }
}

#[test]
fn a_file_that_shrank_is_found_out() {
    let folder = disk_folder();
    for access in [Access::Cached, Access::Direct] {
        let path = file(folder.path(), "shrinks", SIZE);
        let device = FileDevice::open(&path, access).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let error = device.read_at(&mut [0; 8192], at((1 << 20) - 4096)).unwrap_err();
        assert_eq!(error, DeviceError::Truncated { at: at(1 << 20) });
    }
}

#[test]
fn what_is_not_a_disk_is_refused() {
    let folder = disk_folder();
    assert!(FileDevice::open(folder.path(), Access::Auto).is_err());
    assert!(FileDevice::open(Path::new("/dev/null"), Access::Auto).is_err());
    assert!(FileDevice::open(&folder.path().join("none"), Access::Auto).is_err());
}

// The faults of simulated disks.

fn contents(disk: &dyn Device, start: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.read_at(&mut bytes, at(start)).unwrap();
    bytes
}

#[test]
fn damage_sits_on_top_and_writing_heals_it() {
    let disk = SimDisk::new(SIZE, 1);
    disk.write_at(&[7; 4096], at(0)).unwrap();
    disk.flush().unwrap();
    disk.flip(at(100), 2, 0x80);
    disk.garble(at(1000), 100);
    disk.make_unreadable(at(3000), 10);
    assert_eq!(contents(&disk, 99, 4), [7, 0x87, 0x87, 7]);
    let garbage = contents(&disk, 1000, 100);
    assert!(garbage.iter().filter(|byte| **byte != 7).count() > 80);
    assert_eq!(garbage, contents(&disk, 1000, 100), "the same every time");
    assert_eq!(garbage[50..], contents(&disk, 1050, 50));
    assert!(disk.read_at(&mut [0; 2], at(2999)).is_err());
    assert!(disk.read_at(&mut [0; 2], at(2998)).is_ok());
    disk.write_at(&[8; 20], at(2995)).unwrap();
    disk.write_at(&[8; 1], at(100)).unwrap();
    disk.flush().unwrap();
    assert_eq!(contents(&disk, 2994, 22)[..2], [7, 8]);
    assert_eq!(contents(&disk, 99, 4), [7, 8, 0x87, 7]);
    disk.repair();
    assert_eq!(contents(&disk, 99, 4), [7, 8, 7, 7]);
    assert_eq!(contents(&disk, 1000, 100), [7; 100]);
}

#[test]
fn sim_reads_that_are_misdirected_or_short() {
    let disk = SimDisk::new(SIZE, 1);
    let sectors: Vec<u8> = (1..=4_u8).flat_map(|i| [i; 512]).collect();
    disk.write_at(&sectors, at(SIZE - 2048)).unwrap();
    disk.write_at(&sectors, at(0)).unwrap();
    disk.flush().unwrap();
    let read = |from: u64, len: usize| {
        let mut buf = vec![0xee; len];
        disk.read_at(&mut buf, at(from)).unwrap();
        buf
    };
    // The last sector, then the first: the distance wraps around the end of the disk.
    disk.misdirect_reads(at(4096), 1024, SIZE - 4096 - 512);
    assert_eq!(read(4096, 512), [4; 512]);
    assert_eq!(read(4096, 1024), [[4; 512], [1; 512]].concat());
    assert_eq!(read(3584, 512), [0; 512]);
    disk.write_at(&[9; 512], at(4096)).unwrap();
    assert_eq!(read(4096, 512), [9; 512]);
    disk.repair();
    disk.cut_reads_short(512);
    assert_eq!(read(0, 1024), [[1; 512], [0xee; 512]].concat());
    disk.cut_reads_short(0);
    assert_eq!(read(0, 1024), [[1; 512], [2; 512]].concat());
}

#[test]
fn what_was_flushed_survives_and_what_was_not_may_be_lost_or_torn() {
    let (mut kept, mut lost, mut torn, mut scattered) = (0, 0, 0, 0);
    for seed in 0..400 {
        let power = Power::new();
        let disk = SimDisk::powered(SIZE, seed, Arc::clone(&power));
        disk.write_at(&[1; 8192], at(0)).unwrap();
        disk.flush().unwrap();
        disk.write_at(&[2; 8192], at(4096)).unwrap();
        assert_eq!(contents(&disk, 4096, 8192), [2; 8192], "seen before it is durable");
        power.cut();
        assert_eq!(disk.read_at(&mut [0], at(0)), Err(DeviceError::PowerOff));
        assert_eq!(disk.write_at(&[0], at(0)), Err(DeviceError::PowerOff));
        assert_eq!(disk.flush(), Err(DeviceError::PowerOff));
        let after = disk.power_on(seed, Power::new());
        assert_eq!(contents(&after, 0, 4096), [1; 4096], "flushed");
        let bytes = contents(&after, 4096, 8192);
        let sectors: Vec<bool> = bytes
            .chunks(512)
            .enumerate()
            .map(|(i, sector)| {
                let old = if i < 8 { 1 } else { 0 };
                assert!(sector.iter().all(|b| *b == 2) || sector.iter().all(|b| *b == old), "mixed sector");
                sector[0] == 2
            })
            .collect();
        match sectors.iter().filter(|new| **new).count() {
            0 => lost += 1,
            16 => kept += 1,
            n if sectors[..n].iter().all(|new| *new) => torn += 1,
            _ => scattered += 1,
        }
    }
    assert!(kept > 100 && lost > 50 && torn > 20 && scattered > 20, "{kept} {lost} {torn} {scattered}");
}

#[test]
fn later_writes_may_survive_earlier_ones() {
    let seen = (0..200).any(|seed| {
        let disk = SimDisk::new(SIZE, seed);
        disk.write_at(&[1; 512], at(0)).unwrap();
        disk.write_at(&[1; 512], at(512)).unwrap();
        let after = disk.power_on(seed, Power::new());
        contents(&after, 0, 512)[0] == 0 && contents(&after, 512, 512)[0] == 1
    });
    assert!(seen);
}

#[test]
fn a_cut_happens_in_the_middle_of_an_operation() {
    for n in 0..4 {
        let power = Power::new();
        let disks = [1, 2].map(|seed| SimDisk::powered(SIZE, seed, Arc::clone(&power)));
        power.cut_after(n);
        let results = [
            disks[0].write_at(&[1; 512], at(0)),
            disks[1].write_at(&[1; 512], at(0)),
            disks[0].flush(),
            disks[1].flush(),
        ];
        let good = results.iter().take_while(|result| result.is_ok()).count();
        assert_eq!(good as u64, n);
        assert!(results[good..].iter().all(|result| *result == Err(DeviceError::PowerOff)));
        assert!(power.is_off());
        // Flushed before the cut: always kept. Never started: never kept.
        let after = disks.each_ref().map(|disk| disk.power_on(9, Power::new()));
        if n == 3 {
            assert_eq!(contents(&after[0], 0, 1), [1]);
        }
        if n == 0 {
            assert_eq!(contents(&after[1], 0, 1), [0]);
        }
    }
}

#[test]
fn unflushed_writes_have_the_fate_that_was_chosen() {
    let mut seen = [0; 6];
    for seed in 0..100 {
        let disk = SimDisk::new(SIZE, seed).with_sectors(512, 4096);
        for i in 0..5 {
            disk.write_at(&[1 + i as u8; 1024], at(i * 1024)).unwrap();
        }
        let end = |fate| {
            let after = disk.power_on_after(fate, seed, Power::new());
            assert_eq!(after.sector_sizes(), (512, 4096));
            let sectors = contents(&after, 0, 5 * 1024);
            sectors.chunks(1024).map(|write| write.iter().all(|byte| *byte != 0)).collect::<Vec<_>>()
        };
        assert_eq!(end(Fate::Kept), [true; 5]);
        assert_eq!(end(Fate::Lost), [false; 5]);
        let kept = end(Fate::InOrder);
        let count = kept.iter().filter(|kept| **kept).count();
        assert!(kept[..count].iter().all(|kept| *kept), "{kept:?}");
        seen[count] += 1;
        assert_eq!(contents(&disk, 0, 1), [1], "the old disk is as it was");
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

#[test]
fn a_disk_that_dies_after_some_operations() {
    let disk = SimDisk::new(SIZE, 1);
    disk.vanish_after(2);
    disk.write_at(&[1], at(0)).unwrap();
    assert_eq!(contents(&disk, 0, 1), [1]);
    for _ in 0..3 {
        assert_eq!(disk.flush(), Err(DeviceError::Gone));
        assert_eq!(disk.read_at(&mut [0], at(0)), Err(DeviceError::Gone));
    }
    disk.come_back();
    assert_eq!(contents(&disk, 0, 1), [1]);
}

#[test]
fn runs_are_reproduced_by_their_seed() {
    let run = |seed| {
        let disk = SimDisk::new(SIZE, seed);
        disk.set_rates(Rates {
            read_error: 9,
            write_error: 9,
            lost_write: 9,
            misdirected_write: 9,
            lying_flush: 3,
            flush_error: 9,
        });
        let outcomes: Vec<bool> = (0..200)
            .map(|i| match i % 4 {
                0 => disk.read_at(&mut [0; 512], at(i * 512)).is_ok(),
                3 => disk.flush().is_ok(),
                _ => disk.write_at(&[i as u8; 512], at(i * 512)).is_ok(),
            })
            .collect();
        disk.set_rates(Rates::default());
        (outcomes, contents(&disk.power_on(seed, Power::new()), 0, 200 * 512))
    };
    assert!(run(4) == run(4));
    assert!(run(4) != run(5));
}

#[test]
fn chosen_faults_strike_once() {
    let disk = SimDisk::new(SIZE, 1);
    disk.lose_next_write();
    disk.write_at(&[1; 512], at(0)).unwrap();
    assert_eq!(contents(&disk, 0, 1), [0]);
    disk.misdirect_next_write(at(4096));
    disk.write_at(&[2; 512], at(0)).unwrap();
    assert_eq!((contents(&disk, 0, 1), contents(&disk, 4096, 1)), (vec![0], vec![2]));
    disk.tear_next_write(1);
    disk.write_at(&[3; 1024], at(8192)).unwrap();
    assert_eq!((contents(&disk, 8703, 2)), [3, 0]);
    disk.fail_nth(OpKind::Read, 1);
    assert!(disk.read_at(&mut [0], at(0)).is_ok());
    assert!(disk.read_at(&mut [0], at(0)).is_err());
    assert!(disk.read_at(&mut [0], at(0)).is_ok());
    disk.fail_nth(OpKind::Flush, 0);
    disk.flush().unwrap_err();
    disk.vanish();
    assert_eq!(disk.write_at(&[0], at(0)), Err(DeviceError::Gone));
    disk.come_back();
    disk.write_at(&[4], at(4096)).unwrap();
    assert_eq!(contents(&disk, 4096, 1), [4]);
}

#[test]
fn a_failed_flush_may_lose_what_the_next_does_not_miss() {
    let left: Vec<u8> = (0..50)
        .map(|seed| {
            let disk = SimDisk::new(SIZE, seed);
            disk.write_at(&[1; 512], at(0)).unwrap();
            disk.fail_nth(OpKind::Flush, 0);
            assert!(disk.flush().is_err());
            assert_eq!((disk.unflushed(), disk.flush()), (0, Ok(())));
            contents(&disk, 0, 1)[0]
        })
        .collect();
    assert!(left.contains(&0) && left.contains(&1));
}

#[test]
fn lying_flushes_lose_data_at_a_cut() {
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new(SIZE, seed);
        disk.set_rates(Rates { lying_flush: 1, ..Rates::default() });
        disk.write_at(&[1; 512], at(0)).unwrap();
        disk.flush().unwrap();
        contents(&disk.power_on(seed, Power::new()), 0, 1) == [0]
    });
    assert!(lost);
}

#[test]
fn operations_are_recorded() {
    let disk = SimDisk::new(SIZE, 1);
    disk.record(true);
    disk.write_at(&[1, 2], at(7)).unwrap();
    disk.flush().unwrap();
    disk.read_at(&mut [0; 3], at(6)).unwrap();
    disk.vanish();
    let _ = disk.discard(at(0), 10);
    let op = |order, kind, start, len, data: Option<&[u8]>, ok| Op {
        order,
        kind,
        at: at(start),
        len,
        data: data.map(<[u8]>::to_vec),
        ok,
    };
    let expected = [
        op(0, OpKind::Write, 7, 2, Some(&[1, 2]), true),
        op(1, OpKind::Flush, 0, 0, None, true),
        op(0, OpKind::Read, 6, 3, None, true),
        op(1, OpKind::Discard, 0, 10, None, false),
    ];
    assert_eq!(disk.take_record(), expected);
    assert_eq!(disk.take_record(), []);
}

#[test]
fn discarded_ranges_hold_garbage_and_their_surroundings_stay() {
    let disk = SimDisk::new(SIZE, 1);
    disk.write_at(&[5; 3000], at(0)).unwrap();
    disk.discard(at(1000), 1000).unwrap();
    assert_eq!(contents(&disk, 0, 1000), [5; 1000]);
    assert_eq!(contents(&disk, 2000, 1000), [5; 1000]);
    assert!(contents(&disk, 1000, 1000).iter().filter(|byte| **byte != 5).count() > 900);
}

/// A child process has such a copy until it executes its program.
#[test]
#[cfg(target_os = "linux")]
fn a_file_is_free_when_it_is_closed_though_somebody_has_a_copy_of_its_descriptor() {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let folder = disk_folder();
    let path = file(folder.path(), "d", SIZE);
    let device = open_exclusive(&path, Access::Cached).unwrap();
    let number = std::fs::read_dir("/proc/self/fd").unwrap().flatten().find_map(|fd| {
        let is_it = std::fs::read_link(fd.path()).is_ok_and(|open| open == path);
        fd.file_name().to_str()?.parse::<i32>().ok().filter(|_| is_it)
    });
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let copy = pidfd_getfd(own, number.unwrap(), PidfdGetfdFlags::empty()).unwrap();
    assert!(open_exclusive(&path, Access::Cached).unwrap_err().is_busy());
    drop(device);
    assert_eq!(open_exclusive(&path, Access::Cached).err(), None);
    drop(copy);
}
