//! Access control lists are kept when another attribute changes, and after a crash.

use super::steps::Records;
use super::world::{World, sync};
use cenote_zpl::FileKind;
use cenote_zpl::replay;
use cenote_zpl::{Backing, Fs, FsOptions, IntentLog, NewAttrs, NewFile, WriteHow};
use format::ObjectId;
use format::acl::Ace;
use format::zil::{Body, LoggedAcl};
use std::sync::Arc;

/// Rights of the owner, and of user 1234.
fn list() -> LoggedAcl {
    let entry = |flags: u16, mask: u32| [&[0; 2], &flags.to_le_bytes()[..], &mask.to_le_bytes()].concat();
    let aces = [entry(0x1000, 0x1f), entry(0, 0x81), 1234_u64.to_le_bytes().to_vec()].concat();
    LoggedAcl { count: 2, flags: 0, aces, fuids: Vec::new() }
}

/// Entries, and the mode with its set-id bits.
fn rights(fs: &Arc<Fs>, id: ObjectId) -> (Vec<Ace>, u32) {
    let node = fs.node(id).expect("there");
    (node.acl().expect("readable").aces, node.attrs().mode)
}

type Change = fn(&Fs, ObjectId);

#[test]
fn a_list_is_after_a_replay_what_it_was_before() {
    let changes: [(&str, bool, Change); 6] = [
        ("owner", true, |fs, id| {
            let new = NewAttrs { uid: Some(7), gid: Some(8), ..NewAttrs::default() };
            fs.set_attrs(id, &new).map(drop).expect("given away");
        }),
        // As a kernel asks that decides which bits to clear.
        ("owner and mode", true, |fs, id| {
            let new = NewAttrs { uid: Some(7), mode: Some(0o755), ..NewAttrs::default() };
            fs.set_attrs(id, &new).map(drop).expect("given away");
        }),
        ("write", true, |fs, id| {
            let how = WriteHow { clear_set_ids: true, ..WriteHow::default() };
            fs.write(id, 0, b"text", &how).map(drop).expect("written");
        }),
        ("truncate", true, |fs, id| fs.truncate(id, 9, true).expect("cut")),
        ("the same mode", false, |fs, id| {
            let new = NewAttrs { mode: Some(0o4755), ..NewAttrs::default() };
            fs.set_attrs(id, &new).map(drop).expect("changed");
        }),
        ("mode", false, |fs, id| {
            let new = NewAttrs { mode: Some(0o700), ..NewAttrs::default() };
            fs.set_attrs(id, &new).map(drop).expect("changed");
        }),
    ];
    for (name, stays, change) in changes {
        let mut world = World::new(FsOptions::default());
        let made = world.fs.create(world.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o4755));
        let id = made.expect("made").id;
        sync(&world.store, &world.home);
        let given = Body::Acl { object: id, acl: list(), domains: Vec::new() };
        {
            let tx = world.home.begin(cenote_zpl::Cost::NAMES).expect("open");
            replay(&world.fs, &given, None, &tx).expect("given a list");
        }
        world.sync();
        let before = rights(&world.fs, id).0;
        assert_eq!(before.len(), 2);
        let log = Arc::<Records>::default();
        world.fs.set_log(Arc::clone(&log) as Arc<dyn IntentLog>);
        change(&world.fs, id);
        let now = rights(&world.fs, id);
        assert_eq!(now.0 == before, stays, "{name}");
        let records = std::mem::take(&mut *log.0.lock().expect("whole"));
        let again = world.remounted(FsOptions::default());
        for record in &records {
            let tx = world.home.txgs.begin().expect("open");
            replay(&again, record, None, &tx).unwrap_or_else(|error| panic!("{record:?}: {error}"));
        }
        assert_eq!(rights(&again, id), now, "{name}: {records:?}");
    }
}
