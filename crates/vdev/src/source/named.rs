//! Devices under names that the caller gives them: memory, simulated disks, or any other [`Device`].
//!
//! A name may be removed or given to another device while handles are open, as when an administrator pulls
//! and swaps disks: a handle stays on the device that it was opened on.

use super::interface::{Candidate, DeviceId, DeviceSource, Listing, Mode};
use crate::device::file::Access;
use crate::device::{Device, DeviceError, Holder, RawTarget, ReadRequest, WriteRequest};
use crate::sync::lock;
use format::DeviceOffset;
use std::collections::{BTreeMap, HashSet};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A table of devices by name. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct NamedDevices {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Number of the device and the device, by name.
    devices: BTreeMap<PathBuf, (u64, Arc<dyn Device>)>,
    /// Numbers of devices that are open exclusively.
    held: HashSet<u64>,
    next_number: u64,
}

impl Table {
    fn number_at(&self, path: &Path) -> Option<u64> {
        self.devices.get(path).map(|(number, _)| *number)
    }
}

impl NamedDevices {
    /// A table that has no devices yet.
    pub fn new() -> NamedDevices {
        NamedDevices::default()
    }

    /// Gives a device a name, which no longer names its former device.
    pub fn insert(&self, path: impl Into<PathBuf>, device: Arc<dyn Device>) {
        let mut table = lock(&self.table);
        let number = table.next_number;
        table.next_number += 1;
        table.devices.insert(path.into(), (number, device));
    }

    /// Removes a name and returns its device. Open handles of the device keep working.
    pub fn remove(&self, path: &Path) -> Option<Arc<dyn Device>> {
        lock(&self.table).devices.remove(path).map(|(_, device)| device)
    }

    /// Renames the device at `from` to `to`; it stays the same device for its open handles. Returns false,
    /// and does nothing, if `from` does not exist.
    pub fn rename(&self, from: &Path, to: impl Into<PathBuf>) -> bool {
        let mut table = lock(&self.table);
        let moved = table.devices.remove(from);
        moved.map(|device| table.devices.insert(to.into(), device)).is_some()
    }
}

impl DeviceSource for NamedDevices {
    fn open(&self, path: &Path, mode: Mode, _: Access) -> Result<Arc<dyn Device>, DeviceError> {
        let mut table = lock(&self.table);
        let (number, base) = table.devices.get(path).cloned().ok_or(DeviceError::NotFound)?;
        if mode == Mode::Exclusive && !table.held.insert(number) {
            return Err(DeviceError::Busy { holder: Some(Holder::SameSource) });
        }
        let table = Arc::clone(&self.table);
        Ok(Arc::new(Handle { base, number, path: path.to_owned(), mode, table }))
    }

    fn list(&self, places: &[PathBuf]) -> Listing {
        let table = lock(&self.table);
        let mut listing = Listing::default();
        let below = |folder: &Path| {
            let inside = table.devices.keys().filter(|path| path.starts_with(folder));
            inside.map(|path| Candidate { path: path.clone(), is_named: false }).collect::<Vec<_>>()
        };
        if places.is_empty() {
            listing.candidates = below(Path::new(""));
        }
        for place in places {
            if table.devices.contains_key(place) {
                listing.candidates.push(Candidate { path: place.clone(), is_named: true });
                continue;
            }
            let inside = below(place);
            if inside.is_empty() {
                listing.problems.push((place.clone(), DeviceError::NotFound));
            }
            listing.candidates.extend(inside);
        }
        let mut seen = HashSet::new();
        listing.candidates.retain(|candidate| seen.insert(table.number_at(&candidate.path)));
        listing
    }

    fn identity(&self, path: &Path) -> Option<DeviceId> {
        Some(DeviceId::new(lock(&self.table).number_at(path)?.to_string()))
    }

    fn is_held(&self, path: &Path) -> Result<bool, DeviceError> {
        let table = lock(&self.table);
        let number = table.number_at(path).ok_or(DeviceError::NotFound)?;
        Ok(table.held.contains(&number))
    }
}

/// An open device of a table.
#[derive(Debug)]
struct Handle {
    base: Arc<dyn Device>,
    number: u64,
    path: PathBuf,
    mode: Mode,
    table: Arc<Mutex<Table>>,
}

impl Handle {
    fn writable(&self) -> Result<&dyn Device, DeviceError> {
        if self.is_read_only() { Err(DeviceError::ReadOnly) } else { Ok(&*self.base) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.mode == Mode::Exclusive {
            lock(&self.table).held.remove(&self.number);
        }
    }
}

impl Device for Handle {
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
        self.base.read_at(buf, at)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.base.read_many(requests);
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.writable()?.write_at(buf, at)
    }

    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        self.writable()?.write_parts(parts, at)
    }

    fn write_many(&self, requests: &mut [WriteRequest<'_>]) {
        match self.writable() {
            Ok(device) => device.write_many(requests),
            Err(error) => requests.iter_mut().for_each(|request| request.result = Err(error.clone())),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.is_read_only() { Ok(()) } else { self.base.flush() }
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        self.writable()?.discard(at, len)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_at(&self, path: &Path) -> bool {
        lock(&self.table).number_at(path) == Some(self.number)
    }

    fn is_removed(&self) -> bool {
        !lock(&self.table).devices.values().any(|(number, _)| *number == self.number)
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.base.sector_sizes()
    }

    fn reread_partitions(&self) -> Result<(), DeviceError> {
        self.base.reread_partitions()
    }

    fn is_read_only(&self) -> bool {
        self.mode == Mode::Read || self.base.is_read_only()
    }

    fn raw_target(&self) -> Option<RawTarget<'_>> {
        self.base.raw_target()
    }
}
