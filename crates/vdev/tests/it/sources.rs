//! One suite over every source of devices: opening, exclusion, listing, identity.
#![allow(clippy::disallowed_types)]

use cenote_vdev::device::file::Access;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::sim::SimDisk;
use cenote_vdev::device::{Device, DeviceError, Holder};
use cenote_vdev::source::named::NamedDevices;
use cenote_vdev::source::system::SystemDevices;
use cenote_vdev::source::{Candidate, DeviceSource, Mode};
use format::DeviceOffset;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIZE: u64 = 1 << 20;

fn open(source: &dyn DeviceSource, path: &Path, mode: Mode) -> Result<Arc<dyn Device>, DeviceError> {
    source.open(path, mode, Access::Cached)
}

fn first_byte(device: &dyn Device) -> u8 {
    let mut byte = [0];
    device.read_at(&mut byte, DeviceOffset(0)).unwrap();
    byte[0]
}

/// What every source does with two devices, `a` and `b`, in one folder.
fn suite(source: &dyn DeviceSource, folder: &Path) {
    let [a, b, none] = ["a", "b", "none"].map(|name| folder.join(name));
    let writer = open(source, &a, Mode::Exclusive).unwrap();
    assert_eq!((writer.size(), writer.path(), writer.is_read_only()), (SIZE, Some(&*a), false));
    writer.write_at(&[7], DeviceOffset(0)).unwrap();
    writer.flush().unwrap();
    // Readers are not kept away, and write nothing.
    let reader = open(source, &a, Mode::Read).unwrap();
    assert_eq!((first_byte(&*reader), reader.is_read_only()), (7, true));
    assert_eq!(reader.write_at(&[1], DeviceOffset(0)), Err(DeviceError::ReadOnly));
    // One writer at a time.
    assert!(open(source, &a, Mode::Exclusive).unwrap_err().is_busy());
    assert_eq!((source.is_held(&a), source.is_held(&b)), (Ok(true), Ok(false)));
    assert!(writer.is_at(&a) && !writer.is_at(&b) && !writer.is_at(&none));
    drop(writer);
    assert_eq!(source.is_held(&a), Ok(false));
    open(source, &a, Mode::Exclusive).unwrap();
    // Names that lead nowhere.
    assert_eq!(open(source, &none, Mode::Read).unwrap_err(), DeviceError::NotFound);
    assert_eq!(source.is_held(&none), Err(DeviceError::NotFound));
    assert_eq!(source.identity(&none), None);
    assert!(source.identity(&a).is_some() && source.identity(&a) != source.identity(&b));
    // A folder, then one device of it by its own name: each is listed once.
    let listing = source.list(&[folder.to_owned(), a.clone(), none.clone()]);
    let listed = |path: &PathBuf| Candidate { path: path.clone(), is_named: false };
    assert_eq!(listing.candidates, [listed(&a), listed(&b)]);
    assert_eq!(listing.problems, [(none, DeviceError::NotFound)]);
    let listing = source.list(std::slice::from_ref(&b));
    assert_eq!(listing.candidates, [Candidate { path: b, is_named: true }]);
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::File::create(folder.path().join(name)).unwrap().set_len(SIZE).unwrap();
    }
    suite(&SystemDevices, folder.path());
    let [a, link] = ["a", "link"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink(&a, &link).unwrap();
    assert_eq!(SystemDevices.identity(&a), SystemDevices.identity(&link));
    assert_eq!(open(&SystemDevices, folder.path(), Mode::Read).unwrap_err(), DeviceError::IsFolder);
    assert_eq!(
        open(&SystemDevices, Path::new("/dev/null"), Mode::Read).unwrap_err(),
        DeviceError::NotADevice
    );
}

#[test]
fn memory_and_simulated_disks() {
    let devices = NamedDevices::new();
    let folder = Path::new("/memory");
    devices.insert(folder.join("a"), Arc::new(MemoryDevice::new(SIZE)));
    devices.insert(folder.join("b"), Arc::new(SimDisk::new(SIZE, 1)));
    suite(&devices, folder);
    assert_eq!(devices.list(&[]).candidates.len(), 2);
}

#[test]
fn a_handle_stays_with_its_device_when_names_move() {
    let devices = NamedDevices::new();
    let [a, b] = ["a", "b"].map(Path::new);
    devices.insert(a, Arc::new(MemoryDevice::new(SIZE)));
    let writer = open(&devices, a, Mode::Exclusive).unwrap();
    let busy = DeviceError::Busy { holder: Some(Holder::SameSource) };
    assert!(devices.rename(a, b) && !devices.rename(a, b));
    assert!(writer.is_at(b) && !writer.is_at(a) && !writer.is_removed());
    assert_eq!(open(&devices, b, Mode::Exclusive).unwrap_err(), busy);
    // Another device takes the old name: it is nobody's yet.
    devices.insert(a, Arc::new(MemoryDevice::from_bytes(&[9; 512])));
    assert_eq!(first_byte(&*open(&devices, a, Mode::Exclusive).unwrap()), 9);
    // Without a name the device goes on working for those who have it.
    devices.remove(b).unwrap();
    assert!(writer.is_removed() && !writer.is_at(b));
    writer.write_at(&[3], DeviceOffset(0)).unwrap();
    assert_eq!(first_byte(&*writer), 3);
    assert_eq!(open(&devices, b, Mode::Read).unwrap_err(), DeviceError::NotFound);
}

#[test]
fn a_process_that_has_locked_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let mut child = match std::process::Command::new("python3")
        .arg("-c")
        .arg("import fcntl, sys\nf = open(sys.argv[1], 'r+')\nfcntl.lockf(f, fcntl.LOCK_EX)\nprint('locked', flush=True)\nsys.stdin.read()")
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(_) => return testkit::skip("no python3"),
    };
    let mut line = [0; 7];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let error = open(&SystemDevices, &path, Mode::Exclusive).unwrap_err();
    assert_eq!(error, DeviceError::Busy { holder: Some(Holder::Process(child.id())) });
    drop(child.stdin.take());
    child.wait().unwrap();
    open(&SystemDevices, &path, Mode::Exclusive).unwrap();
}
