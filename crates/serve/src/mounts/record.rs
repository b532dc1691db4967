//! What this server, and those before it that had its state folder, have mounted and made: so that what a
//! server that has died left behind is known from what belongs to others.
//!
//! # What always holds
//! - A place is in the record before anything is mounted there, and with the number of its device as soon as
//!   it is.
//! - A mount leaves the record when it was seen to be gone, not when a server tried to end it.
//! - Only mounts in the record are detached: those that stand there with their device belong to a server that
//!   is gone or going, as one server at a time has a state folder, so that they need not show that no server
//!   answers. One that answers is another server's, which was given the number of the device. Of a place
//!   without one it is not known whether it came to a mount: it must show that its server is gone.
//! - Folders that were made for mounts are known by path and inode number.
//! - What was mounted by hand, where no property says, stays in the record when a server ends: the next
//!   mounts it again.
//!
//! # The file
//! Entries, each ended by a zero byte; the later one holds. `+PATH`: something will be mounted there.
//! `@MAJOR:MINOR PATH`: it is, with this device. `-MAJOR:MINOR PATH`: it is gone. `dNUMBER PATH`: a folder
//! was made. `rNUMBER PATH`: it was removed. `hLENGTH LENGTH DATASET WORDS PATH`: a user has mounted this
//! dataset there by hand, with what the words say (the lengths are theirs, in bytes). `f0 PATH`: that is no
//! longer so. An entry that begins with `/` is a place, from earlier versions. It is written anew when most
//! of it is old.

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

/// Entries that a file may have beside twice as many as count.
const OLD_MAX: usize = 1024;
/// Rounds over the table of mounts: each detaches what the one before has uncovered.
const ROUNDS_MAX: usize = 64;
/// Connections that are ended after one look at the table.
const ENDED_AT_ONCE: usize = 256;

/// Number of a device: major and minor.
type Device = (u32, u32);

/// A file of what was mounted and made. Clones share it.
#[derive(Debug, Clone)]
pub struct Record {
    file: PathBuf,
    known: Arc<Mutex<Option<Known>>>,
}

/// A mount that a user made where no property says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByHand {
    pub(super) dataset: String,
    pub(super) at: PathBuf,
    /// Options that were given beside the properties.
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

/// Contents of the file.
#[derive(Debug, Default)]
struct Known {
    mounts: BTreeSet<(PathBuf, Option<Device>)>,
    /// Folders, and their inode numbers.
    made: BTreeMap<PathBuf, u64>,
    /// In the order in which they were mounted.
    by_hand: Vec<ByHand>,
    /// Number of entries in the file, old ones included.
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

    /// Applies one entry. An entry that cannot be read is left out.
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
    /// The record in this file, which need not be there yet.
    #[must_use]
    pub fn new(file: PathBuf) -> Record {
        Record { file, known: Arc::default() }
    }

    /// Something is about to be mounted there.
    ///
    /// # Errors
    /// If that cannot be written down: it would be left behind if this server died.
    pub fn note(&self, at: &Path) -> io::Result<()> {
        self.add(&entry("+", at))
    }

    /// Notes that something is mounted at a place, with this device.
    pub(super) fn mounted(&self, at: &Path, device: Device) -> io::Result<()> {
        self.add(&mounted_entry('@', at, device))
    }

    /// Notes that a mount was seen to be gone.
    pub(super) fn gone(&self, at: &Path, device: Device) -> io::Result<()> {
        self.add(&mounted_entry('-', at, device))
    }

    /// A folder was made for a mount.
    pub(super) fn made(&self, at: &Path, node: u64) -> io::Result<()> {
        self.add(&entry(&format!("d{node} "), at))
    }

    /// Notes that a folder was removed.
    pub(super) fn removed(&self, at: &Path, node: u64) -> io::Result<()> {
        self.add(&entry(&format!("r{node} "), at))
    }

    /// Notes a mount that a user made by hand.
    pub(super) fn mounted_by_hand(&self, mount: &ByHand) -> io::Result<()> {
        self.add(&mount.write())
    }

    /// Notes that what was mounted there by hand is not to be there again.
    pub(super) fn not_by_hand(&self, at: &Path) -> io::Result<()> {
        if self.by_hand().iter().any(|known| known.at == at) { self.add(&entry("f0 ", at)) } else { Ok(()) }
    }

    /// Mounts that were made by hand, in their order.
    pub(super) fn by_hand(&self) -> Vec<ByHand> {
        self.known().ok().and_then(|known| Some(known.as_ref()?.by_hand.clone())).unwrap_or_default()
    }

    /// The inode number of a folder that was made for a mount.
    pub(super) fn folder(&self, at: &Path) -> Option<u64> {
        self.known().ok()?.as_ref()?.made.get(at).copied()
    }

    /// Whether a mount is in the record.
    pub(super) fn has(&self, at: &Path, device: Device) -> bool {
        self.known().is_ok_and(|known| {
            known.as_ref().is_some_and(|known| known.mounts.contains(&(at.to_owned(), Some(device))))
        })
    }

    /// Contents of the file, read once.
    fn known(&self) -> io::Result<MutexGuard<'_, Option<Known>>> {
        // Changed by one entry at a time.
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

    /// The old file stays until the new one is whole.
    fn write_anew(&self, known: &mut Known) -> io::Result<()> {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, known.write())?;
        std::fs::rename(&beside, &self.file)?;
        known.entries = known.counting();
        Ok(())
    }

    /// Ends the connections of the mounts of a server that was killed and cannot die, because a thread of it
    /// waits in the kernel for an answer of that server's own: it, and every other program that waits for
    /// one, gets an error. Returns how many were ended. `is_dying`: whether the server is still there. One
    /// that follows may have mounts in the same places with the same numbers: what is ended was there before
    /// this is asked.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn end_connections(&self, is_dying: impl Fn() -> bool) -> io::Result<usize> {
        let guard = self.known()?;
        let Some(known) = guard.as_ref() else { return Ok(0) };
        let is_known = |line: &&Line| known.mounts.contains(&(line.at.clone(), Some(line.device)));
        let mut ended = 0;
        let table = kernel::table();
        let of_server: Vec<&Line> =
            table.iter().filter(|line| line.kind == kernel::KIND).filter(is_known).collect();
        for some in of_server.chunks(ENDED_AT_ONCE) {
            let switches: Vec<_> = some.iter().map(|line| kernel::Switch::of(line.device)).collect();
            // A number is given to others as soon as its mount is gone: what is still there now was there
            // when the switch was opened.
            let still = kernel::table();
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

    /// Detaches the mounts of the servers before this one: what is below them answers nothing but errors. To
    /// be called before anything is mounted. Returns where they were; those that could not be detached stay
    /// in the record.
    ///
    /// # Errors
    /// If the record cannot be read or written.
    pub fn detach_dead(&self) -> io::Result<Vec<PathBuf>> {
        let mut guard = self.known()?;
        let Some(known) = guard.as_mut() else { return Ok(Vec::new()) };
        let mut detached = Vec::new();
        let mut table = kernel::table();
        let mut asks = true;
        for _ in 0..ROUNDS_MAX {
            let before = detached.len();
            known.detach_some(&table, &mut detached, &mut asks);
            table = kernel::table();
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
    /// Those above first: what is below goes with them, and cannot be reached through them. `asks`: none was
    /// silent yet. After one that was, their server is going, and no time is spent on the others.
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
            // What something else covers is reached when that is gone.
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

    /// A mount that is never answered, as that of a server that is still dying.
    fn silent_mount(at: &Path) -> OwnedFd {
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("opened");
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).expect("text");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("p", at, kernel::KIND, flags, data.as_c_str()).expect("mounted");
        device
    }

    /// Answers the greeting, and how much room there is, until the mount is gone.
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

    /// It was unmounted after its server had died, and another server has mounted there: devices get the
    /// first free number.
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
        let stays = kernel::table().iter().any(|line| line.at == at);
        let _ = place.unmount(true);
        server.join().expect("it ends");
        assert_eq!(detached.expect("read"), Vec::<PathBuf>::new());
        assert!(stays);
    }

    /// A thread that asks its own server cannot be killed, and the process keeps the connection until it is:
    /// as long as nobody else ends that.
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
        // Of this one it is not known what is there, and it does not say that its server is gone.
        record.note(&others).expect("written");
        let detached = Record::new(record.file.clone()).detach_dead();
        let is_mounted = |at: &Path| kernel::table().iter().any(|line| line.at == at);
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
