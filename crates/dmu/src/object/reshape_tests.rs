//! Objects that get another shape while they have a tree of blocks: all blocks of the old one are freed.

use crate::{KeyState, Ledger, Limits, LiveSet, NewObject, ObjSet, SetPolicy, Store, SyncTx, Txgs};
use format::objset::ObjsetType;
use format::{BlockId, BlockPtr, ObjType, Txg};
use std::collections::BTreeSet;
use zio::testing::memory_pool;

/// The addresses of all blocks of a set. Killed ones are freed.
struct Blocks<'a> {
    live: &'a mut BTreeSet<[u64; 2]>,
    set: &'a LiveSet,
    tx: &'a SyncTx,
}

fn place(bp: &BlockPtr) -> [u64; 2] {
    [bp.words()[0], bp.words()[1]]
}

impl Ledger for Blocks<'_> {
    fn born(&mut self, bp: &BlockPtr) {
        assert!(self.live.insert(place(bp)), "a block that is there already");
    }

    fn killed(&mut self, bp: &BlockPtr) {
        assert!(self.live.remove(&place(bp)), "a block that is not there");
        self.set.store().zio().free(bp, self.tx).expect("it was allocated");
    }
}

#[test]
fn another_shape_frees_the_old_tree() {
    let file = NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE) };
    let shapes = [
        NewObject { indirect_shift: 12, ..NewObject::of(ObjType::DIRECTORY) },
        NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE).with_block_size(1024) },
        NewObject::of(ObjType::DIRECTORY).with_bonus(ObjType::SA, vec![1; 100]),
    ];
    for (at, shape) in shapes.into_iter().enumerate() {
        // Written again, freed in the txg of the change, or freed later.
        for end in 0..3 {
            let store = Store::new(memory_pool(1 << 28), 1 << 20);
            let txgs = Txgs::new(Txg(3), Limits::default());
            let tx = txgs.begin().expect("open");
            let policy = SetPolicy { embed: false, ..SetPolicy::dataset() };
            let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, policy, &tx);
            let object = set.allocate(&file, &tx).expect("made");
            let id = object.id();
            for blkid in 0..200 {
                object.put_block(BlockId(blkid), vec![1; 512], &tx).expect("put");
            }
            drop(tx);
            let mut live = BTreeSet::new();
            let mut sync = || {
                let tx = txgs.quiesce();
                set.sync(&tx, &mut Blocks { live: &mut live, set: &set, tx: &tx }).expect("synced");
                txgs.finish(tx);
                live.len()
            };
            assert!(sync() > 200);
            let tx = txgs.begin().expect("open");
            object.reclaim(&shape, false, &tx).expect("reclaimed");
            assert_eq!(object.block(BlockId(7)).expect("read").map(|_| ()), None);
            match end {
                0 => object.put_block(BlockId(0), vec![2; object.block_size() as usize], &tx).expect("put"),
                1 => set.free(id, &tx).expect("freed"),
                _ => {}
            }
            drop(tx);
            sync();
            if end == 2 {
                let tx = txgs.begin().expect("open");
                set.free(id, &tx).expect("freed");
                drop(tx);
            }
            let left = sync();
            // The root, and the dnodes with six levels of pointers to them; or the root alone.
            assert!(left <= if end == 0 { 8 } else { 1 }, "shape {at}, end {end}: {left} blocks");
            let read = ObjSet::open(&store, &set.root_bp(), 7, KeyState::None).expect("readable");
            let block = read.object(id).ok().map(|object| object.block(BlockId(0)).expect("read"));
            let bytes = block.flatten().map(|block| block.bytes()[0]);
            assert_eq!(bytes, (end == 0).then_some(2), "shape {at}, end {end}");
        }
    }
}

/// An increment describes all objects of a block of dnodes in which one has changed.
#[test]
fn an_object_that_is_described_as_it_is_is_not_written() {
    let store = Store::new(memory_pool(1 << 28), 1 << 20);
    let txgs = Txgs::new(Txg(3), Limits::default());
    let tx = txgs.begin().expect("open");
    let policy = SetPolicy { embed: false, ..SetPolicy::dataset() };
    let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, policy, &tx);
    let new = NewObject::of(ObjType::PLAIN_FILE).with_bonus(ObjType::SA, vec![1; 100]);
    let object = set.allocate(&new, &tx).expect("made");
    object.set_spill(Some(vec![3; 512]), &tx);
    drop(tx);
    let mut live = BTreeSet::new();
    // The blocks that are new in a txg.
    let mut sync = || {
        let before = live.clone();
        let tx = txgs.quiesce();
        set.sync(&tx, &mut Blocks { live: &mut live, set: &set, tx: &tx }).expect("synced");
        txgs.finish(tx);
        live.difference(&before).count()
    };
    assert!(sync() > 0);
    let mut written = |new: &NewObject, keeps_spill| {
        let tx = txgs.begin().expect("open");
        object.reclaim(new, keeps_spill, &tx).expect("reclaimed");
        drop(tx);
        sync() > 0
    };
    assert!(!written(&new, true), "nothing is different");
    assert!(written(&new.clone().with_bonus(ObjType::SA, vec![2; 100]), true), "the bonus is");
    assert!(written(&new, true), "it is as at first again");
    let described = NewObject { compress: 3, ..new.clone() };
    assert!(written(&described, true) && !written(&described, true), "the compression is");
    let described = NewObject { checksum: 7, ..described };
    assert!(written(&described, true) && !written(&described, true), "the checksum is");
    assert!(
        object.has_spill() && written(&described, false) && !object.has_spill(),
        "the spill block is gone"
    );
    assert!(!written(&described, false), "it has been gone before");
}
