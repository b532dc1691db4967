//! One suite over every source of devices: opening, exclusion, listing, identity.
#![allow(clippy::disallowed_types)]

use cenote_vdev::device::file::Access;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::sim::SimDisk;
use cenote_vdev::device::{Cause, Device, DeviceError, Holder, IoOp, ReadRequest, SourceError};
use cenote_vdev::source::named::NamedDevices;
use cenote_vdev::source::system::SystemDevices;
use cenote_vdev::source::{Candidate, DeviceId, DeviceSource, Devices, Listing, Mode};
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

/// The required behaviour of every source with two devices, `a` and `b`, in one folder.
fn suite(source: &dyn DeviceSource, folder: &Path) {
    let [a, b, none] = ["a", "b", "none"].map(|name| folder.join(name));
    let writer = open(source, &a, Mode::Exclusive).unwrap();
    assert_eq!((writer.size(), writer.path(), writer.is_read_only()), (SIZE, Some(&*a), false));
    writer.write_at(&[7], DeviceOffset(0)).unwrap();
    writer.flush().unwrap();
    // Readers are admitted, and cannot write.
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
    // Names that do not exist.
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
    // Another device takes the old name, and is not held.
    devices.insert(a, Arc::new(MemoryDevice::from_bytes(&[9; 512])));
    assert_eq!(first_byte(&*open(&devices, a, Mode::Exclusive).unwrap()), 9);
    // A device without a name keeps working for its handles.
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

/// The refusal of an object store.
#[derive(Debug, thiserror::Error)]
#[error("403 Forbidden: {object}")]
struct Forbidden {
    object: String,
}

/// A bucket of an object store, with each object a read-only device. It is implemented with the public
/// interface of the crate.
#[derive(Debug)]
struct Bucket {
    objects: Vec<(PathBuf, Vec<u8>)>,
    /// An object that the caller may not read.
    forbidden: PathBuf,
}

#[derive(Debug)]
struct Object {
    bytes: Vec<u8>,
    is_forbidden: bool,
}

impl Device for Object {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        if self.is_forbidden {
            let cause = SourceError::new(Forbidden { object: "b".to_owned() }).into();
            return Err(DeviceError::Io { op: IoOp::Read, at, len: buf.len(), cause });
        }
        let from = at.0 as usize;
        let out_of_range = DeviceError::OutOfRange { at, len: buf.len() as u64, size: self.size() };
        buf.copy_from_slice(self.bytes.get(from..from + buf.len()).ok_or(out_of_range)?);
        Ok(())
    }
}

impl DeviceSource for Bucket {
    fn open(&self, path: &Path, mode: Mode, _: Access) -> Result<Arc<dyn Device>, DeviceError> {
        let (_, bytes) = self.objects.iter().find(|(name, _)| name == path).ok_or(DeviceError::NotFound)?;
        if mode == Mode::Exclusive {
            let object = path.display().to_string();
            return Err(DeviceError::Open { cause: SourceError::new(Forbidden { object }).into() });
        }
        Ok(Arc::new(Object { bytes: bytes.clone(), is_forbidden: *path == self.forbidden }))
    }

    fn list(&self, _: &[PathBuf]) -> Listing {
        let all = self.objects.iter().map(|(path, _)| Candidate { path: path.clone(), is_named: false });
        Listing { candidates: all.collect(), problems: Vec::new() }
    }

    fn identity(&self, path: &Path) -> Option<DeviceId> {
        self.objects.iter().any(|(name, _)| name == path).then(|| DeviceId::new(path))
    }
}

#[test]
fn a_source_outside_of_the_crate_reports_errors_of_its_own() {
    let [a, b] = ["a", "b"].map(PathBuf::from);
    let objects = vec![(a.clone(), vec![1; 512]), (b.clone(), vec![2; 512])];
    let source = Devices::new(Bucket { objects, forbidden: b.clone() });
    let readable = open(&*source, &a, Mode::Read).unwrap();
    // A batch on a device that implements only single reads.
    let mut bufs = [[0; 2]; 3];
    let mut requests: Vec<ReadRequest<'_>> =
        bufs.iter_mut().zip([0, 510, 511]).map(|(buf, at)| ReadRequest::new(DeviceOffset(at), buf)).collect();
    readable.read_many(&mut requests);
    assert_eq!(
        requests.iter().map(|request| request.result.is_ok()).collect::<Vec<_>>(),
        [true, true, false]
    );
    let error = open(&*source, &a, Mode::Exclusive).unwrap_err();
    assert_eq!(error.to_string(), "403 Forbidden: a");
    assert!(
        source.is_held(&a).is_err()
            && source.identity(&a).is_some()
            && source.identity(Path::new("c")).is_none()
    );
    let error = open(&*source, &b, Mode::Read).unwrap().read_at(&mut [0], DeviceOffset(3)).unwrap_err();
    let DeviceError::Io { op: IoOp::Read, at: DeviceOffset(3), len: 1, cause: Cause::Source(_) } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(source.list(&[]).candidates.len(), 2);
}
