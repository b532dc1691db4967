//! Power cuts while the guid of a pool is being changed.
#![allow(missing_docs)]

use crate::support::create;
use cenote_crash::disks::{Disks, Layout};
use cenote_crash::run::{POOL, env, host, open_fs};
use pool::ImportOptions;
use pool::LivePool;
use pool::Which;
use std::sync::Arc;
use vdev::device::sim::{Fate, OpKind};
use vdev::tree::VdevState;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

fn import(disks: &Disks) -> Arc<LivePool> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    LivePool::import(&disks.found(), &Which::Name(POOL.to_owned()), &options, env(2)).expect("imported")
}

/// At whichever operation the cut comes, the pool has the old or the new guid, all of its devices, and can be
/// changed.
#[test]
fn a_pool_whose_guid_was_being_changed_has_all_its_devices_after_a_power_cut() {
    for name in ["mirror", "raidz1"] {
        let layout: Layout = name.parse().expect("a layout");
        let disks = Disks::new(layout.disks(), 11);
        let (pool, fs) = create(&disks, name);
        let file = fs.fs.create(fs.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
        fs.fs.write(file, 0, &[7; 5000], &WriteHow::default()).expect("written");
        pool.sync().expect("synced");
        let before = disks.after_cut(Fate::Kept, 1);
        let old = pool.guid();
        disks.record();
        let new = pool.reguid(None).expect("changed");
        let operations = disks.take_record();
        let mut found = [0; 2];
        for cut in 0..=operations.len() {
            // After a write that is lost, the disks are as before it.
            let is_lost = cut == 0 || operations[cut - 1].1.kind != OpKind::Write;
            let fates = [Fate::Kept, Fate::Random].into_iter().chain(is_lost.then_some(Fate::Lost));
            for fate in fates {
                let disks = before.after_cut(Fate::Kept, 1);
                operations.iter().take(cut).for_each(|(disk, op)| disks.apply(*disk, op));
                if let Some((disk, op)) = operations.get(cut) {
                    disks.apply_half(*disk, op);
                }
                let disks = disks.after_cut(fate, cut as u64);
                let pool = import(&disks);
                let which = [old, new].iter().position(|guid| *guid == pool.guid());
                found[which.expect("one of both")] += 1;
                let state = pool.tree().status().state;
                assert_eq!(state, VdevState::Online, "{name}, cut {cut}, {fate:?}");
                let fs = open_fs(&pool, 1).expect("opened");
                let mut bytes = vec![0; 5000];
                fs.fs.node(file).expect("there").read_at(0, &mut bytes).expect("readable");
                assert_eq!(bytes, [7; 5000]);
                drop(fs);
                pool.sync().expect("synced");
            }
        }
        assert!(found[0] > 2 && found[1] > 2, "{name}: {found:?}");
    }
}

/// A leaf without its new label would never be recognized as one of this pool again.
#[test]
fn a_pool_keeps_its_guid_while_a_leaf_takes_no_writes_that_nothing_has_noticed() {
    let disks = Disks::new(2, 12);
    let (pool, _fs) = create(&disks, "mirror");
    let old = pool.guid();
    disks.disks()[1].vanish();
    assert_eq!(pool.tree().status().state, VdevState::Online, "it was not noticed yet");
    assert!(pool.reguid(None).is_err());
    disks.disks()[1].come_back();
    pool.clear(None, None).expect("cleared");
    assert_eq!(pool.guid(), old);
    assert_ne!(pool.reguid(None).expect("all are there"), old);
}
