//! Two threads change one file, and the log sees the changes in order: the last record of an attribute has
//! its final value, and no change of a file is logged before its creation.

use super::world::{MemoryBacking, World};
use cenote_zpl::FileKind;
use cenote_zpl::{Backing, BeginError, Cost, Fs, FsOptions, IntentLog, NewAttrs, NewFile, WriteHow};
use dmu::log::LogData;
use dmu::{LiveSet, Tx};
use format::ObjectId;
use format::zil::{Body, SetAttr, mask};
use format::znode::Time;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Create(ObjectId),
    Mode(u64),
    Mtime(u64),
    Write(ObjectId),
    Link,
    Remove,
}

#[derive(Default)]
struct Seen {
    told: Vec<Told>,
    /// Condition under which a logging thread waits, so that another one goes first.
    held: Option<fn(&Told) -> bool>,
    is_waiting: bool,
}

/// A log that delays threads for a while, so that others go first; the others may depend on the delayed
/// thread.
#[derive(Default)]
struct Slow(Mutex<Seen>, Condvar);

impl Slow {
    fn tell(&self, told: &[Told]) {
        let mut seen = self.0.lock().expect("whole");
        if let Some(held) = seen.held
            && told.iter().any(held)
        {
            (seen.held, seen.is_waiting) = (None, true);
            let before = seen.told.len();
            self.1.notify_all();
            let patience = Duration::from_millis(300);
            let wait = self.1.wait_timeout_while(seen, patience, |seen| seen.told.len() == before);
            seen = wait.expect("whole").0;
        }
        seen.told.extend_from_slice(told);
        self.1.notify_all();
    }

    /// Runs `first`, and starts `second` when `first` is about to log a record that is `held`. Returns the
    /// records logged since.
    fn race(
        &self,
        held: fn(&Told) -> bool,
        first: impl FnOnce() + Send,
        second: impl FnOnce() + Send,
    ) -> Vec<Told> {
        let mut seen = self.0.lock().expect("whole");
        *seen = Seen { held: Some(held), ..Seen::default() };
        drop(seen);
        std::thread::scope(|scope| {
            scope.spawn(first);
            let seen = self.0.lock().expect("whole");
            drop(self.1.wait_while(seen, |seen| !seen.is_waiting).expect("whole"));
            second();
        });
        std::mem::take(&mut self.0.lock().expect("whole").told)
    }
}

fn of_attrs(set: &SetAttr) -> Vec<Told> {
    let mode = (set.mask & mask::MODE != 0).then_some(Told::Mode(set.mode));
    let mtime = (set.mask & mask::MTIME != 0).then_some(Told::Mtime(set.mtime.secs));
    mode.into_iter().chain(mtime).collect()
}

impl IntentLog for Slow {
    fn log(&self, _: &Tx, record: Body) {
        match record {
            Body::SetAttr(set) => self.tell(&of_attrs(&set)),
            Body::Create(create) => self.tell(&[Told::Create(create.object)]),
            Body::Link { .. } => self.tell(&[Told::Link]),
            Body::Remove { .. } => self.tell(&[Told::Remove]),
            _ => {}
        }
    }

    fn log_write(&self, _: &Tx, object: ObjectId, _: u64, _: LogData, mtime: Option<Time>) {
        let mtime = mtime.map(|mtime| Told::Mtime(mtime.secs.cast_unsigned()));
        let told: Vec<Told> = [Told::Write(object)].into_iter().chain(mtime).collect();
        self.tell(&told);
    }

    fn log_by_txg(&self, _: &Tx, _: ObjectId) {}
}

fn world() -> (World, Arc<Slow>, ObjectId) {
    let world = World::new(FsOptions::default());
    let made = world.fs.create(world.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o4755));
    let id = made.expect("made").id;
    world.fs.write(id, 0, &[1; 100], &WriteHow::default()).expect("written");
    let log = Arc::<Slow>::default();
    world.fs.set_log(Arc::clone(&log) as Arc<dyn IntentLog>);
    (world, log, id)
}

fn set(fs: &Fs, id: ObjectId, new: NewAttrs) {
    fs.set_attrs(id, &new).expect("changed");
}

fn last(told: &[Told], which: fn(&Told) -> Option<u64>) -> Option<u64> {
    told.iter().rev().find_map(which)
}

fn mode(told: &Told) -> Option<u64> {
    if let Told::Mode(mode) = told { Some(*mode) } else { None }
}

fn mtime(told: &Told) -> Option<u64> {
    if let Told::Mtime(mtime) = told { Some(*mtime) } else { None }
}

#[test]
fn a_mode_that_is_set_while_set_id_bits_go_is_the_last_that_is_logged() {
    let clear = WriteHow { clear_set_ids: true, ..WriteHow::default() };
    for is_write in [true, false] {
        let (world, log, id) = world();
        let fs = &world.fs;
        let told = log.race(
            |told| mode(told).is_some(),
            || match is_write {
                true => _ = fs.write(id, 0, &[2; 100], &clear).expect("written"),
                false => fs.truncate(id, 10, true).expect("cut"),
            },
            || set(fs, id, NewAttrs { mode: Some(0o700), ..NewAttrs::default() }),
        );
        assert_eq!(fs.attrs(id).expect("there").mode & 0o7777, 0o700);
        assert_eq!(last(&told, mode), Some(0o700), "{told:?}");
    }
}

#[test]
fn set_id_bits_that_a_truncation_clears_stay_cleared() {
    let (world, log, id) = world();
    let fs = &world.fs;
    set(fs, id, NewAttrs { mode: Some(0o755), ..NewAttrs::default() });
    // The times are set while the truncation is running.
    let told = log.race(
        |told| mode(told).is_some(),
        || set(fs, id, NewAttrs { mode: Some(0o4755), ..NewAttrs::default() }),
        || fs.truncate(id, 10, true).expect("cut"),
    );
    let now = u64::from(fs.attrs(id).expect("there").mode & 0o7777);
    assert_eq!(last(&told, mode), Some(now), "{told:?}");
}

#[test]
fn a_time_that_is_set_while_data_are_written_is_the_last_that_is_logged() {
    let (world, log, id) = world();
    let fs = &world.fs;
    let time = Time { secs: 1_000_000, nanos: 0 };
    let utimes = || set(fs, id, NewAttrs { mtime: Some(time), ..NewAttrs::default() });
    let write = || _ = fs.write(id, 0, &[2; 100], &WriteHow::default()).expect("written");
    let told = log.race(|told| matches!(told, Told::Write(_)), write, utimes);
    assert_eq!(last(&told, mtime), Some(time.secs.cast_unsigned()), "{told:?}");
    // The reverse order.
    let told = log.race(|told| mtime(told).is_some(), utimes, write);
    let now = fs.attrs(id).expect("there").mtime.secs;
    assert_eq!(last(&told, mtime), Some(now.cast_unsigned()), "{told:?}");
}

#[test]
fn what_is_written_to_a_new_file_is_logged_after_the_file() {
    let (world, log, _) = world();
    let (fs, root) = (&world.fs, world.fs.root());
    let told = log.race(
        |told| matches!(told, Told::Create(_)),
        || _ = fs.create(root, b"new", &NewFile::of(FileKind::Regular, 0o644)).expect("made"),
        || {
            let id = fs.lookup(root, b"new").expect("readable").expect("it has its name");
            fs.write(id, 0, &[1; 100], &WriteHow::default()).expect("written");
        },
    );
    assert!(matches!(told.first(), Some(Told::Create(_))), "{told:?}");
    // Likewise for files created in a directory.
    let told = log.race(
        |told| matches!(told, Told::Create(_)),
        || _ = fs.create(root, b"dir", &NewFile::of(FileKind::Directory, 0o755)).expect("made"),
        || {
            let dir = fs.lookup(root, b"dir").expect("readable").expect("it has its name");
            fs.create(dir, b"below", &NewFile::of(FileKind::Regular, 0o644)).expect("made");
        },
    );
    let dir = fs.lookup(root, b"dir").expect("readable").expect("made");
    assert_eq!(told.first(), Some(&Told::Create(dir)), "{told:?}");
}

/// A replay that removes the only name of a file frees it, so the new name would lead nowhere.
#[test]
fn the_new_name_of_a_file_is_logged_before_its_old_one_goes() {
    let (world, log, id) = world();
    let (fs, root) = (&world.fs, world.fs.root());
    let dir = fs.create(root, b"dir", &NewFile::of(FileKind::Directory, 0o755)).expect("made").id;
    let told = log.race(
        |told| *told == Told::Link,
        || _ = fs.link(id, dir, b"new").expect("linked"),
        || fs.unlink(root, b"f").expect("removed"),
    );
    assert_eq!(told, [Told::Link, Told::Remove]);
    assert_eq!(fs.attrs(id).expect("there").links, 1);
}

/// A dataset that lets other threads run when a long name is in its directory, but nothing else of the file
/// exists.
struct Slower {
    base: Arc<MemoryBacking>,
    go: mpsc::SyncSender<()>,
    done: Mutex<mpsc::Receiver<()>>,
}

impl Backing for Slower {
    fn set(&self) -> &Arc<LiveSet> {
        self.base.set()
    }

    fn begin(&self, cost: Cost) -> Result<Tx, BeginError> {
        self.base.begin(cost)
    }

    fn is_suspended(&self) -> bool {
        self.base.is_suspended()
    }

    fn uses_feature(&self, name: &'static str, _: &Tx) {
        if name == "longname" {
            self.go.send(()).expect("somebody waits");
            // The other threads may have to wait for the file.
            _ = self.done.lock().expect("whole").recv_timeout(Duration::from_millis(300));
        }
    }
}

#[test]
fn whoever_finds_a_new_name_has_the_file_that_was_made() {
    let mut world = World::new(FsOptions::default());
    world.sync();
    let ((go, went), (finish, done)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
    let home = Slower { base: Arc::clone(&world.home), go, done: Mutex::new(done) };
    let options = FsOptions { long_names: true, ..FsOptions::default() };
    world.fs = Fs::open(Arc::new(home), options, &world.env).expect("opened");
    let (fs, root, name) = (&world.fs, world.fs.root(), [b'n'; 256]);
    let id = std::thread::scope(|scope| {
        scope.spawn(|| fs.create(root, &name, &NewFile::of(FileKind::Regular, 0o644)).expect("made"));
        went.recv().expect("it is being made");
        let id = fs.lookup(root, &name).expect("readable").expect("it has its name");
        fs.write(id, 0, &[7; 10], &WriteHow::default()).expect("written");
        finish.send(()).expect("somebody waited");
        id
    });
    assert_eq!(fs.attrs(id).expect("there").size, 10);
}
