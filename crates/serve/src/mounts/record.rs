//! The record of mounts and folders that this server and earlier ones with the same state folder have made.
//! It distinguishes what a dead server has left behind from mounts of other programs.
//!
//! # What always holds
//! - A place is in the record before anything is mounted there, and has its device number as soon as the
//!   mount exists.
//! - A mount leaves the record when it was seen to be gone, not when a server tried to end it.
//! - Only recorded mounts are detached. A mount at a recorded place with the recorded device belongs to a
//!   server that has ended or is ending, because only one server at a time has a state folder: it need not be
//!   shown that its server is dead. If it replies, it belongs to another server that got the same device
//!   number. For a place without a device it is not known whether the mount was made: it is detached only if
//!   its server is gone.
//! - Folders that were made for mounts are identified by path and inode number.
//! - Mounts that users made by hand, at paths that no property names, stay in the record when a server ends:
//!   the next server makes them again.
//!
//! # The file
//! A list of entries, each ended by a zero byte; a later entry replaces earlier ones. `+PATH`: something will
//! be mounted there. `@MAJOR:MINOR PATH`: it is mounted, with this device. `-MAJOR:MINOR PATH`: it is gone.
//! `dNUMBER PATH`: a folder was made. `rNUMBER PATH`: the folder was removed. `hLENGTH LENGTH DATASET WORDS
//! PATH`: a user has mounted this dataset there by hand, with the options in the words (the lengths are those
//! of dataset and words, in bytes). `f0 PATH`: that mount is not to be made again. An entry that begins with
//! `/` is a place, from earlier versions. The file is rewritten when most of it is obsolete.

use super::kernel::{self, Line, Sign};
use super::walk::MountPoint;
use admin::sync::lock;
use rustix::fs::{Mode, OFlags, open};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Entries that a file may have besides twice the number of valid ones.
const OLD_MAX: usize = 1024;
/// Most rounds over the table of mounts: each round detaches what the one before has uncovered.
const ROUNDS_MAX: usize = 64;
/// Most connections that are aborted after one look at the table.
const ENDED_AT_ONCE: usize = 256;

/// Device number: major and minor.
type Device = (u32, u32);

/// A record file. Clones share it.
#[derive(Debug, Clone)]
pub struct Record {
    file: PathBuf,
    known: Arc<Mutex<Option<Known>>>,
}

/// A mount that a user made at a path that no property names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByHand {
    pub(super) dataset: String,
    pub(super) at: PathBuf,
    /// Options that were given on the command line.
    pub(super) words: String,
}

impl ByHand {
    fn read(text: &[u8]) -> Option<ByHand> {
        let mut parts = text.splitn(3, |byte| *byte == b' ');
        let mut len = || std::str::from_utf8(parts.next()?).ok()?.parse::<usize>().ok();
        let lens = (len()?, len()?);
        let rest = parts.next()?;
        let (dataset, rest) = rest.split_at_checked(lens.0)?;
        let (words, at) = rest.strip_prefix(b" ")?.split_at_checked(lens.1)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let at = PathBuf::from(OsStr::from_bytes(at.strip_prefix(b" ")?));
        Some(ByHand { dataset: text(dataset)?, at, words: text(words)? })
    }

    fn write(&self) -> Vec<u8> {
        let ByHand { dataset, at, words } = self;
        entry(&format!("h{} {} {dataset} {words} ", dataset.len(), words.len()), at)
    }
}

/// The decoded contents of the file.
#[derive(Debug, Default)]
struct Known {
    mounts: BTreeSet<(PathBuf, Option<Device>)>,
    /// Folders that were made for mounts, and their inode numbers.
    made: BTreeMap<PathBuf, u64>,
    /// Mounts by hand, in the order in which they were made.
    by_hand: Vec<ByHand>,
    /// Number of entries in the file, obsolete ones included.
    entries: usize,
}

impl Known {
    fn read(bytes: &[u8]) -> Known {
        let mut known = Known::default();
        for entry in bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            known.entries += 1;
            known.take(entry);
        }
        known
    }

    /// Applies one entry. `None`: the entry is malformed, and ignored.
    fn take(&mut self, entry: &[u8]) -> Option<()> {
        let (kind, rest) = entry.split_first()?;
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let numbered = || {
            let at = rest.iter().position(|byte| *byte == b' ')?;
            let number = std::str::from_utf8(rest.get(..at)?).ok()?;
            Some((number, path(rest.get(at + 1..)?)))
        };
        let with_device = || {
            let (number, path) = numbered()?;
            let (major, minor) = number.split_once(':')?;
            Some((path, (major.parse().ok()?, minor.parse().ok()?)))
        };
        match kind {
            b'/' => drop(self.mounts.insert((path(entry), None))),
            b'+' => drop(self.mounts.insert((path(rest), None))),
            b'@' => {
                let (path, device) = with_device()?;
                self.mounts.remove(&(path.clone(), None));
                self.mounts.insert((path, Some(device)));
            }
            b'-' => {
                let (path, device) = with_device()?;
                self.mounts.remove(&(path, Some(device)));
            }
            b'd' => {
                let (number, path) = numbered()?;
                self.made.insert(path, number.parse().ok()?);
            }
            b'r' => {
                let (_, path) = numbered()?;
                self.made.remove(&path);
            }
            b'h' => {
                let new = ByHand::read(rest)?;
                self.by_hand.retain(|known| known.at != new.at);
                self.by_hand.push(new);
            }
            b'f' => {
                let (_, path) = numbered()?;
                self.by_hand.retain(|known| known.at != path);
            }
            _ => {}
        }
        Some(())
    }

    fn write(&self) -> Vec<u8> {
        let mounts = self.mounts.iter().map(|(path, device)| match device {
            Some(device) => mounted_entry('@', path, *device),
            None => entry("+", path),
        });
        let made = self.made.iter().map(|(path, node)| entry(&format!("d{node} "), path));
        mounts.chain(made).chain(self.by_hand.iter().map(ByHand::write)).flatten().collect()
    }

    fn counting(&self) -> usize {
        self.mounts.len() + self.made.len() + self.by_hand.len()
    }
}

fn entry(head: &str, path: &Path) -> Vec<u8> {
    [head.as_bytes(), path.as_os_str().as_bytes(), &[0]].concat()
}

fn mounted_entry(kind: char, path: &Path, (major, minor): Device) -> Vec<u8> {
    entry(&format!("{kind}{major}:{minor} "), path)
}

impl Record {
    /// A record in this file, which need not exist yet.
    #[must_use]
    pub fn new(file: PathBuf) -> Record {
        Record { file, known: Arc::default() }
    }

    /// Records that something is about to be mounted at a place.
    ///
    /// # Errors
    /// The record cannot be written: the mount would be left behind if this server died.
    pub fn note(&self, at: &Path) -> io::Result<()> {
        self.add(&entry("+", at))
    }

    /// Records that something is mounted at a place, with its device number.
    pub(super) fn mounted(&self, at: &Path, device: Device) -> io::Result<()> {
        self.add(&mounted_entry('@', at, device))
    }

    /// Records that a mount was seen to be gone.
    pub(super) fn gone(&self, at: &Path, device: Device) -> io::Result<()> {
        self.add(&mounted_entry('-', at, device))
    }

    /// Records that a folder was made for a mount.
    pub(super) fn made(&self, at: &Path, node: u64) -> io::Result<()> {
        self.add(&entry(&format!("d{node} "), at))
    }

    /// Records that a folder was removed.
    pub(super) fn removed(&self, at: &Path, node: u64) -> io::Result<()> {
        self.add(&entry(&format!("r{node} "), at))
    }

    /// Records a mount that a user made by hand.
    pub(super) fn mounted_by_hand(&self, mount: &ByHand) -> io::Result<()> {
        self.add(&mount.write())
    }

    /// Records that a mount by hand is not to be made again.
    pub(super) fn not_by_hand(&self, at: &Path) -> io::Result<()> {
        if self.by_hand().iter().any(|known| known.at == at) { self.add(&entry("f0 ", at)) } else { Ok(()) }
    }

    /// The mounts by hand, in the order in which they were made.
    pub(super) fn by_hand(&self) -> Vec<ByHand> {
        self.known().ok().and_then(|known| Some(known.as_ref()?.by_hand.clone())).unwrap_or_default()
    }

    /// Inode number of a folder that was made for a mount.
    pub(super) fn folder(&self, at: &Path) -> Option<u64> {
        self.known().ok()?.as_ref()?.made.get(at).copied()
    }

    /// Whether a mount with this device is in the record.
    pub(super) fn has(&self, at: &Path, device: Device) -> bool {
        self.known().is_ok_and(|known| {
            known.as_ref().is_some_and(|known| known.mounts.contains(&(at.to_owned(), Some(device))))
        })
    }

    /// The contents of the file, which is read once.
    fn known(&self) -> io::Result<MutexGuard<'_, Option<Known>>> {
        // Entries are applied one at a time, so the data is consistent.
        let mut known = lock(&self.known);
        if known.is_none() {
            *known = Some(match std::fs::read(&self.file) {
                Ok(bytes) => Known::read(&bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Known::default(),
                Err(error) => return Err(error),
            });
        }
        Ok(known)
    }

    fn add(&self, line: &[u8]) -> io::Result<()> {
        let mut guard = self.known()?;
        let Some(known) = guard.as_mut() else { return Ok(()) };
        known.take(line.strip_suffix(&[0]).unwrap_or(line));
        known.entries += 1;
        if known.entries > 2 * known.counting() + OLD_MAX {
            return self.write_anew(known);
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let file = open(&self.file, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::io::write(&file, line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Rewrites the file. The old one stays until the new one is complete.
    fn write_anew(&self, known: &mut Known) -> io::Result<()> {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, known.write())?;
        std::fs::rename(&beside, &self.file)?;
        known.entries = known.counting();
        Ok(())
    }

    /// Aborts the connections of a server that was killed and cannot end, because one of its threads waits in
    /// the kernel for a reply of the server itself. That thread, and every other program that waits for a
    /// reply, gets an error. Returns the number of aborted connections. `is_dying`: whether the server still
    /// exists. Its successor may have mounts in the same places with the same numbers, so each connection is
    /// looked up before `is_dying` is asked.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn end_connections(&self, is_dying: impl Fn() -> bool) -> io::Result<usize> {
        let guard = self.known()?;
        let Some(known) = guard.as_ref() else { return Ok(0) };
        let is_known = |line: &&Line| known.mounts.contains(&(line.at.clone(), Some(line.device)));
        let mut ended = 0;
        let table = kernel::table()?;
        let of_server: Vec<&Line> =
            table.iter().filter(|line| line.kind == kernel::KIND).filter(is_known).collect();
        for some in of_server.chunks(ENDED_AT_ONCE) {
            let switches: Vec<_> = some.iter().map(|line| kernel::Switch::of(line.device)).collect();
            // A device number is reused as soon as its mount is gone: a mount that is still there now was
            // there when the control file was opened.
            let still = kernel::table()?;
            if !is_dying() {
                break;
            }
            for (line, switch) in some.iter().zip(switches) {
                let Some(switch) = switch.ok().filter(|_| still.contains(line)) else { continue };
                ended += usize::from(switch.abort().is_ok());
            }
        }
        Ok(ended)
    }

    /// Detaches the mounts of earlier servers, which return only errors. Must be called before anything is
    /// mounted. Returns the places; those that could not be detached stay in the record.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn detach_dead(&self) -> io::Result<Vec<PathBuf>> {
        let mut guard = self.known()?;
        let Some(known) = guard.as_mut() else { return Ok(Vec::new()) };
        let mut detached = Vec::new();
        let mut table = kernel::table()?;
        let mut asks = true;
        for _ in 0..ROUNDS_MAX {
            let before = detached.len();
            known.detach_some(&table, &mut detached, &mut asks);
            table = kernel::table()?;
            if detached.len() == before {
                break;
            }
        }
        let is_there = |at: &Path, device: Option<Device>| {
            let same = |line: &&Line| device.map_or(line.at == at, |device| line.device == device);
            table.iter().filter(|line| line.kind == kernel::KIND).any(|line| same(&line))
        };
        known.mounts.retain(|(at, device)| is_there(at, *device));
        self.write_anew(known)?;
        Ok(detached)
    }
}

impl Known {
    /// Detaches uppermost mounts first: mounts below go with them, and cannot be reached through them.
    /// `asks`: no server has failed to reply yet. After the first silent one their server is known to be
    /// ending, and no time is spent on the others.
    fn detach_some(&self, table: &[Line], detached: &mut Vec<PathBuf>, asks: &mut bool) {
        let first = detached.len();
        for line in table.iter().filter(|line| line.kind == kernel::KIND) {
            let is_within_detached = |above: &PathBuf| kernel::is_within(&line.at, above);
            if detached.iter().skip(first).any(is_within_detached) {
                continue;
            }
            let is_known = self.mounts.contains(&(line.at.clone(), Some(line.device)));
            let may_be = || {
                let is_meant = |(at, device): &(PathBuf, Option<Device>)| {
                    device.map_or(*at == line.at, |d| d == line.device)
                };
                self.mounts.iter().any(is_meant) && kernel::sign_of_life(&line.at) == Sign::Gone
            };
            if !is_known && !may_be() {
                continue;
            }
            let Ok(place) = MountPoint::find(&line.at) else { continue };
            // A covered mount is reached after the one above it is gone.
            let is_on_top = place.top().is_ok_and(|top| top.is_of(line));
            let lives = is_known && is_on_top && *asks && {
                let sign = kernel::sign_of_life(&line.at);
                *asks = sign != Sign::Nothing;
                sign == Sign::Lives
            };
            if is_on_top && !lives && place.unmount(true).is_ok() {
                detached.push(line.at.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[test]
    fn what_was_noted_is_forgotten_when_nothing_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let record = Record::new(dir.path().join("mounts"));
        assert!(record.detach_dead().expect("read").is_empty());
        record.note(Path::new("/nothing/is/mounted\nhere")).expect("written");
        record.note(Path::new("/b")).expect("written");
        assert_eq!(std::fs::read(&record.file).expect("there"), b"+/nothing/is/mounted\nhere\0+/b\0");
        let again = Record::new(record.file.clone());
        assert!(again.detach_dead().expect("read").is_empty());
        assert!(std::fs::read(&record.file).expect("there").is_empty());
    }

    #[test]
    fn a_record_says_what_was_said_last() {
        let known = Known::read(
            b"/old\0+/a\0@0:7 /a\0+/b\0@0:8 /b c\0-0:7 /a\0d12 /made\0d13 /x y\0r13 /x y\0?\0@:\0\
              h5 6 p/a b ro,dev /c d\0h1 0 p  /e\0f0 /e\0h9 9 p /\0h",
        );
        let by_hand = ByHand { dataset: "p/a b".into(), at: "/c d".into(), words: "ro,dev".into() };
        assert_eq!(known.by_hand, [by_hand]);
        let mounts: Vec<_> =
            known.mounts.iter().map(|(at, device)| (at.to_str().unwrap(), *device)).collect();
        assert_eq!(mounts, [("/b", None), ("/b c", Some((0, 8))), ("/old", None)]);
        assert_eq!(known.made, BTreeMap::from([(PathBuf::from("/made"), 12)]));
        let again = Known::read(&known.write());
        assert_eq!((again.mounts, again.made, again.by_hand), (known.mounts, known.made, known.by_hand));
    }

    #[test]
    fn a_record_does_not_grow_for_good() {
        let dir = tempfile::tempdir().expect("a folder");
        let record = Record::new(dir.path().join("mounts"));
        for n in 0..2 * OLD_MAX {
            record.mounted(Path::new("/a"), (0, n as u32)).expect("written");
            record.gone(Path::new("/a"), (0, n as u32)).expect("written");
        }
        assert!(std::fs::metadata(&record.file).expect("there").len() < 32 * OLD_MAX as u64);
    }

    /// A mount whose requests are never answered, like that of a server that is still dying.
    fn silent_mount(at: &Path) -> OwnedFd {
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("opened");
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).expect("text");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("p", at, kernel::KIND, flags, data.as_c_str()).expect("mounted");
        device
    }

    /// Answers `INIT` and `STATFS` until the mount is gone.
    fn answer(device: &OwnedFd) {
        let mut request = vec![0; 2 << 20];
        while let Ok(len) = rustix::io::retry_on_intr(|| rustix::io::read(device, &mut request[..])) {
            assert!(len >= 40);
            let (code, body) = match u32::from_ne_bytes(request[4..8].try_into().expect("four")) {
                26 => (0, [&7_u32.to_ne_bytes()[..], &31_u32.to_ne_bytes(), &[0; 56]].concat()),
                17 => (0, vec![0; 80]),
                2 | 36 | 42 => continue,
                _ => (-38_i32, Vec::new()),
            };
            let len = u32::try_from(16 + body.len()).expect("short");
            let head = [&len.to_ne_bytes()[..], &code.to_ne_bytes(), &request[8..16]].concat();
            let _ = rustix::io::write(device, &[head, body].concat());
        }
    }

    /// The recorded mount was unmounted after its server had died, and another server has mounted there: a
    /// device gets the first free number.
    #[test]
    fn a_mount_that_answers_is_somebody_elses() {
        if !rustix::process::geteuid().is_root() || !testkit::need_file("/dev/fuse") {
            return testkit::skip("only root mounts");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().canonicalize().expect("there").join("others");
        std::fs::create_dir(&at).expect("made");
        let device = silent_mount(&at);
        let server = std::thread::spawn(move || answer(&device));
        let record = Record::new(dir.path().join("mounts"));
        let place = MountPoint::find(&at).expect("there");
        record.mounted(&at, place.top().expect("known").device).expect("written");
        let detached = Record::new(record.file.clone()).detach_dead();
        let stays = kernel::table().expect("read").iter().any(|line| line.at == at);
        let _ = place.unmount(true);
        server.join().expect("it ends");
        assert_eq!(detached.expect("read"), Vec::<PathBuf>::new());
        assert!(stays);
    }

    /// A thread that waits for its own server cannot be killed, and the process keeps the connection until
    /// the thread ends: for as long as no other process aborts the connection.
    #[test]
    fn who_waits_for_a_server_that_cannot_die_is_released() {
        if !rustix::process::geteuid().is_root() || !testkit::need_file("/dev/fuse") {
            return testkit::skip("only root mounts");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().canonicalize().expect("there").join("own");
        std::fs::create_dir(&at).expect("made");
        let device = silent_mount(&at);
        let record = Record::new(dir.path().join("mounts"));
        let number = MountPoint::find(&at).expect("there").top().expect("known").device;
        record.mounted(&at, number).expect("written");
        let asked = at.clone();
        let asking = std::thread::spawn(move || rustix::fs::statfs(&asked).is_ok());
        let ended = Record::new(record.file.clone()).end_connections(|| true);
        assert!(!asking.join().expect("it ends"));
        assert_eq!(ended.expect("read"), 1);
        drop(device);
        assert_eq!(record.detach_dead().expect("read"), [at]);
    }

    #[test]
    fn mounts_of_a_server_that_is_still_dying_are_detached() {
        if !rustix::process::geteuid().is_root() || !testkit::need_file("/dev/fuse") {
            return testkit::skip("only root mounts");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().canonicalize().expect("there");
        let (own, others) = (base.join("own"), base.join("others"));
        let devices = [&own, &others].map(|at| {
            std::fs::create_dir(at).expect("made");
            silent_mount(at)
        });
        let device = |at: &Path| MountPoint::find(at).expect("there").top().expect("known").device;
        let record = Record::new(base.join("mounts"));
        record.note(&own).expect("written");
        record.mounted(&own, device(&own)).expect("written");
        // This place has no device number, and its mount does not show that its server is gone.
        record.note(&others).expect("written");
        let detached = Record::new(record.file.clone()).detach_dead();
        let is_mounted = |at: &Path| kernel::table().expect("read").iter().any(|line| line.at == at);
        let (own_stays, others_stay) = (is_mounted(&own), is_mounted(&others));
        let left = Known::read(&std::fs::read(&record.file).expect("there"));
        drop(devices);
        let rest = Record::new(record.file.clone()).detach_dead();
        assert_eq!(detached.expect("read"), [own]);
        assert!(!own_stays && others_stay);
        assert_eq!(
            left.mounts.into_iter().collect::<Vec<_>>(),
            [(others.clone(), None)],
            "what is there stays known"
        );
        assert_eq!(rest.expect("read"), [others], "its server is gone");
    }
}
