//! Files with more blocks than are freed in one transaction: cut and punched in steps.

use super::world::{MemoryBacking, World, sync};
use cenote_zpl::FileKind;
use cenote_zpl::replay;
use cenote_zpl::{
    Allocate, Backing, BeginError, Cost, Fs, FsOptions, IntentLog, NewAttrs, NewFile, WriteHow,
};
use dmu::Store;
use dmu::log::LogData;
use dmu::{LiveSet, Tx};
use format::zil::Body;
use format::znode::Time;
use format::{BlockPtr, ObjectId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Blocks of 512 bytes: three transactions.
const SIZE: u64 = 35 << 20;

/// Records since the last sync.
#[derive(Default)]
pub(crate) struct Records(pub(crate) Mutex<Vec<Body>>);

impl IntentLog for Records {
    fn log(&self, _: &Tx, record: Body) {
        self.0.lock().expect("whole").push(record);
    }

    fn log_write(&self, _: &Tx, object: ObjectId, offset: u64, data: LogData, _: Option<Time>) {
        let (length, data) = (data.len(), Some(data.to_vec()));
        let record = Body::Write { object, offset, length, bp: BlockPtr::HOLE, data };
        self.0.lock().expect("whole").push(record);
    }

    fn log_by_txg(&self, _: &Tx, _: ObjectId) {}
}

/// A backing that writes a txg before every second transaction, and allows a limited number of transactions.
struct Short {
    home: Arc<MemoryBacking>,
    store: Arc<Store>,
    log: Arc<Records>,
    left: AtomicUsize,
}

impl Backing for Short {
    fn set(&self) -> &Arc<LiveSet> {
        &self.home.set
    }

    fn is_suspended(&self) -> bool {
        self.home.is_suspended()
    }

    fn begin(&self, cost: Cost) -> Result<Tx, BeginError> {
        let take = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let left = left.map_err(|_| BeginError::NoSpace(None))?;
        if left.is_multiple_of(2) {
            sync(&self.store, &self.home);
            self.log.0.lock().expect("whole").clear();
        }
        self.home.begin(cost)
    }
}

fn content(fs: &Fs, id: ObjectId) -> Vec<u8> {
    let mut bytes = vec![0; fs.attrs(id).expect("there").size as usize];
    assert_eq!(fs.read(id, 0, &mut bytes).expect("readable"), bytes.len());
    bytes
}

/// The written data, in which no byte is zero, with zeros in a range.
fn model(size: u64, zeros: std::ops::Range<u64>) -> Vec<u8> {
    // Large slices are copied and filled: a loop over bytes is slow in programs that are built for tests.
    let pattern: Vec<u8> = (1..=251).collect();
    let mut bytes = pattern.repeat((size as usize).div_ceil(pattern.len()));
    bytes.truncate(size as usize);
    let within = |at: u64| at.min(size) as usize;
    bytes[within(zeros.start)..within(zeros.end)].fill(0);
    bytes
}

/// Runs `change` with a limited number of transactions, each time on a new file, until it succeeds. When it
/// is stopped, the file is in an intermediate state, and a crash keeps that state.
fn in_steps(change: impl Fn(&Fs, ObjectId) -> bool, range: std::ops::Range<u64>, size_after: u64) {
    let options = FsOptions { record_size: 512, ..FsOptions::default() };
    let mut stopped = 0;
    for left in 1.. {
        let mut world = World::new(options.clone());
        let id =
            world.fs.create(world.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
        world.fs.write(id, 0, &model(SIZE, 0..0), &WriteHow::default()).expect("written");
        world.sync();
        let log = Arc::<Records>::default();
        let home = Arc::new(Short {
            home: Arc::clone(&world.home),
            store: Arc::clone(&world.store),
            log: Arc::clone(&log),
            left: AtomicUsize::new(left),
        });
        let fs =
            Fs::open(Arc::clone(&home) as Arc<dyn Backing>, options.clone(), &world.env).expect("opened");
        fs.set_log(Arc::clone(&log) as Arc<dyn IntentLog>);
        let is_done = change(&fs, id);
        let now = content(&fs, id);
        if is_done {
            assert_eq!(now.len() as u64, size_after);
            assert!(now == model(size_after, range.clone()), "content");
        } else {
            stopped += 1;
            let changed = &now[range.start as usize..range.end as usize];
            let from = range.start + changed.partition_point(|byte| *byte != 0) as u64;
            assert!(now == model(SIZE, from..range.end), "a state on the way, from {from}");
        }
        let records = std::mem::take(&mut *log.0.lock().expect("whole"));
        drop(fs);
        let again = world.remounted(options.clone());
        for record in &records {
            let tx = world.home.txgs.begin().expect("open");
            replay(&again, record, None, &tx).unwrap_or_else(|error| panic!("{record:?}: {error}"));
        }
        assert!(content(&again, id) == now, "after a crash and {} records", records.len());
        assert!(change(&again, id), "once more");
        world.sync();
        let read = world.reopened().node(id).expect("there");
        let mut bytes = vec![1; size_after as usize];
        read.read_at(0, &mut bytes).expect("readable");
        assert!(bytes == model(size_after, range.clone()), "in the end");
        if is_done {
            break;
        }
    }
    assert!(stopped >= 2, "it takes several transactions");
}

#[test]
fn a_large_file_is_cut_in_steps() {
    in_steps(|fs, id| fs.truncate(id, 1000, false).is_ok(), 1000..SIZE, 1000);
}

#[test]
fn attributes_and_size_of_a_large_file_change_in_steps() {
    let new = NewAttrs { size: Some(3 << 20), mode: Some(0o600), ..NewAttrs::default() };
    in_steps(|fs, id| fs.set_attrs(id, &new).is_ok(), 3 << 20..SIZE, 3 << 20);
}

#[test]
fn a_large_file_is_punched_in_steps() {
    let (from, to) = (700, SIZE - 300);
    in_steps(|fs, id| fs.fallocate(id, from, to - from, Allocate::Punch).is_ok(), from..to, SIZE);
}

#[test]
fn holes_are_not_walked() {
    let world = World::new(FsOptions { record_size: 512, ..FsOptions::default() });
    let fs = &world.fs;
    let id = fs.create(fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let size = 1 << 62;
    fs.truncate(id, size, false).expect("grown");
    for at in [0, 1 << 30, 1 << 45, size - 2] {
        fs.write(id, at, b"xy", &WriteHow::default()).expect("written");
    }
    world.sync();
    fs.fallocate(id, 1, size - 2, Allocate::Punch).expect("punched");
    let mut last = [0; 2];
    fs.read(id, size - 2, &mut last).expect("readable");
    assert_eq!(last, *b"\0y");
    assert_eq!(fs.next_data(id, 512).expect("readable"), Some(size - 512));
    world.sync();
    fs.truncate(id, 0, false).expect("cut");
    world.sync();
    assert_eq!(world.reopened().node(id).expect("there").next_data(0).expect("readable"), None);
}
