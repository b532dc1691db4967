//! Requests that wait for locks whose holders wait for a txg: when their callers are interrupted, the
//! requests end without a change.

use super::world::World;
use cenote_zpl::{FileKind, ZplError};
use cenote_zpl::{Fs, FsOptions, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow};
use dmu::TxError;
use dmu::interrupt::Interrupt;
use format::ObjectId;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time within which an interrupted request must end.
const SOON: Duration = Duration::from_secs(1);
/// Time within which a started thread has begun to wait.
const MOMENT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a case: two directories with a file each.
#[derive(Clone, Copy)]
struct Ground {
    one: ObjectId,
    two: ObjectId,
    file: ObjectId,
}

type Step = fn(&Fs, Ground) -> Result<(), ZplError>;

/// A request that holds a lock while it waits, a request that waits for that lock, and a check whether the
/// latter was done.
struct Case {
    name: &'static str,
    holds: Step,
    waits: Step,
    was_done: fn(&Fs, Ground) -> bool,
}

fn make(fs: &Fs, dir: ObjectId, name: &[u8]) -> Result<(), ZplError> {
    fs.create(dir, name, &NewFile::of(FileKind::Regular, 0o644)).map(drop)
}

fn has(fs: &Fs, dir: ObjectId, name: &[u8]) -> bool {
    fs.lookup(dir, name).expect("readable").is_some()
}

const CASES: [Case; 5] = [
    Case {
        name: "names of a directory",
        holds: |fs, ground| make(fs, ground.one, b"held"),
        waits: |fs, ground| make(fs, ground.one, b"late"),
        was_done: |fs, ground| has(fs, ground.one, b"late"),
    },
    Case {
        name: "a listing",
        holds: |fs, ground| make(fs, ground.one, b"held"),
        waits: |fs, ground| fs.read_dir(ground.one, 0, 10).map(drop),
        was_done: |_, _| false,
    },
    Case {
        name: "renames between directories",
        holds: |fs, ground| fs.rename(ground.one, b"a", ground.two, b"held", RenameHow::NoReplace),
        waits: |fs, ground| fs.rename(ground.two, b"b", ground.one, b"late", RenameHow::NoReplace),
        was_done: |fs, ground| has(fs, ground.one, b"late"),
    },
    Case {
        name: "a range",
        holds: |fs, ground| {
            fs.write(ground.file, 0, b"held", &WriteHow { append: true, ..WriteHow::default() }).map(drop)
        },
        waits: |fs, ground| fs.write(ground.file, 0, b"late", &WriteHow::default()).map(drop),
        was_done: |fs, ground| {
            let mut bytes = [0; 4];
            fs.read(ground.file, 0, &mut bytes).expect("readable");
            bytes == *b"late"
        },
    },
    Case {
        name: "settings",
        holds: |fs, ground| fs.set_xattr(ground.file, b"user.held", b"x", XattrHow::Either),
        waits: |fs, ground| {
            fs.set_attrs(ground.file, &NewAttrs { mode: Some(0o600), ..NewAttrs::default() }).map(drop)
        },
        was_done: |fs, ground| fs.attrs(ground.file).expect("there").mode & 0o777 == 0o600,
    },
];

fn ground(fs: &Fs) -> Ground {
    let dir =
        |name: &[u8]| fs.create(fs.root(), name, &NewFile::of(FileKind::Directory, 0o755)).expect("made").id;
    let (one, two) = (dir(b"one"), dir(b"two"));
    make(fs, one, b"a").expect("made");
    make(fs, two, b"b").expect("made");
    let file = fs.create(fs.root(), b"file", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    fs.write(file, 0, b"first", &WriteHow::default()).expect("written");
    Ground { one, two, file }
}

/// Runs a step on a thread of its own, which reports its end.
fn go(
    fs: &Arc<Fs>,
    ground: Ground,
    step: Step,
    interrupt: Option<Arc<Interrupt>>,
) -> mpsc::Receiver<Result<(), ZplError>> {
    let (tell, told) = mpsc::channel();
    let fs = Arc::clone(fs);
    std::thread::spawn(move || {
        let done = match interrupt {
            Some(interrupt) => interrupt.during(|| step(&fs, ground)),
            None => step(&fs, ground),
        };
        let _ = tell.send(done);
    });
    told
}

fn is_ended(told: &mpsc::Receiver<Result<(), ZplError>>, name: &str) {
    let done = told.recv_timeout(SOON).unwrap_or_else(|_| panic!("{name}: it still waits"));
    assert!(done.as_ref().is_err_and(ZplError::is_interrupted), "{name}: {done:?}");
}

#[test]
fn whoever_waits_behind_a_request_that_waits_for_a_suspended_pool_can_give_up() {
    for case in CASES {
        for is_killed in [true, false] {
            let world = World::new(FsOptions::default());
            let ground = ground(&world.fs);
            world.home.txgs.suspend(TxError::Suspended { why: "no device".to_owned() }, true);
            let held = go(&world.fs, ground, case.holds, None);
            std::thread::sleep(MOMENT);
            let interrupt = Interrupt::new(1, if is_killed { |_| true } else { |_| false });
            let late = go(&world.fs, ground, case.waits, Some(Arc::clone(&interrupt)));
            assert!(late.recv_timeout(MOMENT).is_err(), "{}: it is to wait", case.name);
            interrupt.signal();
            is_ended(&late, case.name);
            assert!(interrupt.has_ended());
            assert!(held.try_recv().is_err(), "{}: who holds the lock waits on", case.name);
            world.home.txgs.resume();
            held.recv_timeout(PATIENCE).expect("it goes on").expect("done");
            assert!(!(case.was_done)(&world.fs, ground), "{}: what ended has changed nothing", case.name);
            (case.waits)(&world.fs, ground).expect("nothing of it is left in the way");
        }
    }
}

#[test]
fn who_waits_behind_a_slow_request_gives_up_only_when_it_is_killed() {
    for case in CASES {
        let world = World::new(FsOptions::default());
        let ground = ground(&world.fs);
        // A txg is closing, and one of its holders is slow.
        let slow = world.home.txgs.begin().expect("open");
        let txgs = Arc::clone(&world.home.txgs);
        let closing = std::thread::spawn(move || {
            let tx = txgs.quiesce();
            txgs.finish(tx);
        });
        std::thread::sleep(MOMENT);
        let held = go(&world.fs, ground, case.holds, None);
        std::thread::sleep(MOMENT);
        let (killed, signalled) = (Interrupt::new(1, |_| true), Interrupt::new(1, |_| false));
        let late = go(&world.fs, ground, case.waits, Some(Arc::clone(&killed)));
        let other =
            go(&world.fs, ground, |fs, ground| make(fs, ground.one, b"other"), Some(Arc::clone(&signalled)));
        std::thread::sleep(MOMENT);
        killed.signal();
        signalled.signal();
        is_ended(&late, case.name);
        assert!(
            other.recv_timeout(2 * MOMENT).is_err(),
            "{}: databases take EINTR for a lost disk",
            case.name
        );
        drop(slow);
        closing.join().expect("closed");
        held.recv_timeout(PATIENCE).expect("it goes on").expect("done");
        other.recv_timeout(PATIENCE).expect("it goes on").expect("done");
        assert!(!(case.was_done)(&world.fs, ground), "{}", case.name);
    }
}
