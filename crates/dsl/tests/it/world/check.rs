//! Recomputes all accounted sums from the blocks themselves (docs/on-disk/22-mos-dsl.md, section 4).

use super::dsl::Space;
use super::dsl::block_space::of_pointer;
use super::dsl::bpobj::Bpobj;
use super::dsl::dataset::Dataset;
use super::dsl::dir::Dir;
use super::dsl::{Dsl, prop};
use dmu::traverse::{self, Bookmark, Step, Visitor};
use dmu::{DmuError, KeyState, ObjSet};
use format::dnode::Dnode;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use zio::Zio;

/// Identity of a block: place and birth.
type Key = (u64, u64, u64);

fn key(bp: &BlockPtr) -> Key {
    let w = bp.words();
    (w[0] >> 32, w[1], bp.accounting_birth().0)
}

/// The blocks of an object set.
#[derive(Default)]
struct Blocks {
    /// Blocks on vdevs, by identity.
    placed: HashMap<Key, Space>,
    /// All blocks, each with its birth.
    all: Vec<(Txg, Space)>,
}

impl Blocks {
    fn total(&self, after: Txg) -> Space {
        let born = self.all.iter().filter(|(birth, _)| *birth > after);
        born.fold(Space::default(), |sum, (_, space)| sum.plus(*space))
    }
}

struct Collect<'a> {
    zio: &'a Arc<Zio>,
    blocks: Blocks,
}

impl Visitor for Collect<'_> {
    fn block(&mut self, _: &Bookmark, bp: &BlockPtr, _: Option<&Dnode>) -> Step {
        let space = of_pointer(self.zio, true, bp);
        self.blocks.all.push((bp.accounting_birth(), space));
        if !bp.is_embedded() {
            let old = self.blocks.placed.insert(key(bp), space);
            assert!(old.is_none(), "{bp} is in one set twice");
        }
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        panic!("{at} {bp}: {error}");
    }
}

fn blocks_of_set(set: &Arc<ObjSet>) -> Blocks {
    let mut collect = Collect { zio: set.store().zio(), blocks: Blocks::default() };
    traverse::walk(set, Txg(0), &mut collect);
    collect.blocks
}

fn blocks_of(dataset: &Dataset) -> Blocks {
    if dataset.phys().bp.is_hole() {
        return Blocks::default();
    }
    blocks_of_set(&dataset.objset(KeyState::None).expect("an object set"))
}

struct Pool {
    dsl: Dsl,
    /// All datasets, by object number.
    datasets: BTreeMap<ObjectId, (Dataset, Blocks)>,
}

fn all_dirs(dsl: &Dsl) -> Vec<Dir> {
    let mut all = Vec::new();
    let mut stack = vec![dsl.root().expect("a root")];
    while let Some(dir) = stack.pop() {
        stack.extend(dir.children().expect("children"));
        stack.extend(dir.hidden_children().expect("children"));
        all.push(dir);
    }
    all
}

/// Checks all sums of datasets and directories. Returns the bytes that the MOS, all datasets together and the
/// waiting blocks take.
pub fn check(dsl: Dsl) -> u64 {
    let mut datasets = BTreeMap::new();
    let dirs = all_dirs(&dsl);
    for dir in &dirs {
        let Some(head) = dir.head().expect("a head") else { continue };
        for dataset in head.snapshots().expect("snapshots").into_iter().chain([head.clone()]) {
            let blocks = blocks_of(&dataset);
            datasets.insert(dataset.id(), (dataset, blocks));
        }
    }
    let pool = Pool { dsl, datasets };
    for (dataset, blocks) in pool.datasets.values() {
        check_dataset(&pool, dataset, blocks);
        check_deadlist(&pool, dataset, blocks);
        check_links(&pool, dataset);
    }
    for dir in &dirs {
        check_dir(&pool, dir);
    }
    check_special(&pool)
}

fn check_dataset(pool: &Pool, dataset: &Dataset, blocks: &Blocks) {
    let (name, phys) = (dataset.name(), dataset.phys());
    let total = blocks.total(Txg(0));
    assert_eq!(
        (phys.referenced, phys.compressed, phys.uncompressed),
        (total.used, total.compressed, total.uncompressed),
        "{name}: referenced, compressed, uncompressed"
    );
    let unique = if dataset.is_snapshot() {
        let next = phys.next_snap.expect("a successor");
        let (_, next) = &pool.datasets[&next];
        let own = blocks
            .placed
            .iter()
            .filter(|(key, _)| Txg(key.2) > phys.prev_snap_txg && !next.placed.contains_key(key));
        own.map(|(_, space)| space.used).sum()
    } else {
        blocks.total(phys.prev_snap_txg).used
    };
    assert_eq!(phys.unique, unique, "{name}: unique");
}

fn check_deadlist(pool: &Pool, dataset: &Dataset, blocks: &Blocks) {
    let name = dataset.name();
    let Some(list) = dataset.deadlist().expect("a deadlist") else { panic!("{name} has no deadlist") };
    let mut expected: HashMap<Key, Space> = HashMap::new();
    if let Some((_, previous)) = dataset.phys().prev_snap.and_then(|id| pool.datasets.get(&id)) {
        expected = previous
            .placed
            .iter()
            .filter(|(key, _)| !blocks.placed.contains_key(*key))
            .map(|(key, space)| (*key, *space))
            .collect();
    }
    let mut found: HashSet<Key> = HashSet::new();
    let mut sum = Space::default();
    let buckets = list.buckets();
    let is_first = dataset.phys().prev_snap.is_none();
    assert!(is_first || !buckets.is_empty(), "{name}: keys of the deadlist");
    assert!(buckets.first().is_none_or(|(key, _)| *key == Txg(0)), "{name}: first key of the deadlist");
    for (i, (from, id)) in buckets.iter().enumerate() {
        let until = buckets.get(i + 1).map_or(Txg(u64::MAX), |(key, _)| *key);
        let bpobj = Bpobj::open(pool.dsl.mos(), *id).expect("a bpobj");
        let mut own = Space::default();
        bpobj
            .for_each(&mut |bp, _| {
                let birth = bp.accounting_birth();
                assert!(birth > *from && birth <= until, "{name}: {bp} under the key {from}");
                own = own.plus(of_pointer(pool.dsl.mos().store().zio(), true, bp));
                if !bp.is_embedded() {
                    assert!(found.insert(key(bp)), "{name}: {bp} is dead twice");
                }
                Ok(())
            })
            .expect("readable");
        assert_eq!(bpobj.space(), own, "{name}: space under the key {from}");
        sum = sum.plus(own);
    }
    assert_eq!(list.space(), sum, "{name}: space of the deadlist");
    let expected: HashSet<Key> = expected.into_keys().collect();
    assert_eq!(found, expected, "{name}: deadlist");
}

fn check_links(pool: &Pool, dataset: &Dataset) {
    let (name, phys) = (dataset.name(), dataset.phys());
    if let Some((previous, _)) = phys.prev_snap.and_then(|id| pool.datasets.get(&id)) {
        assert_eq!(previous.phys().creation_txg, phys.prev_snap_txg, "{name}: txg of the one before");
        let clones = members(pool, previous.phys().next_clones);
        let is_next = previous.phys().next_snap == Some(dataset.id());
        assert!(is_next != clones.contains(&dataset.id()), "{name}: successor or clone");
    }
    if dataset.is_snapshot() {
        let clones = members(pool, phys.next_clones);
        assert_eq!(phys.num_children, 1 + clones.len() as u64, "{name}: children");
        for clone in clones {
            assert_eq!(pool.datasets[&clone].0.phys().prev_snap, Some(dataset.id()), "{name}: a clone");
        }
    }
}

fn members(pool: &Pool, set: Option<ObjectId>) -> HashSet<ObjectId> {
    let Some(id) = set else { return HashSet::new() };
    let zap = dmu::zap::Zap::open(&pool.dsl.mos().object(id).expect("a set")).expect("a ZAP");
    zap.entries().map(|entry| ObjectId(entry.expect("readable").u64().expect("a number"))).collect()
}

fn check_dir(pool: &Pool, dir: &Dir) {
    let (name, phys) = (dir.name(), dir.phys());
    let parts = phys.breakdown;
    let origin = dir.origin_txg().expect("an origin");
    let head = dir.head().expect("a head");
    let children: Vec<Dir> =
        dir.children().expect("children").into_iter().chain(dir.hidden_children().expect("hidden")).collect();
    let sum = parts.head + parts.snap + parts.child + parts.child_reservation + parts.ref_reservation;
    assert_eq!(phys.used, sum, "{name}: sum of the parts {parts:?}");
    let child: u64 = children.iter().map(|c| c.phys().used).sum();
    let charged: u64 = children.iter().map(|c| c.phys().used.max(c.phys().reserved)).sum();
    assert_eq!((parts.child, parts.child_reservation), (child, charged - child), "{name}: children");
    let below: u64 = children.iter().map(|c| c.phys().compressed).sum();
    let below_plain: u64 = children.iter().map(|c| c.phys().uncompressed).sum();
    let Some(head) = head else { return };
    let (_, blocks) = &pool.datasets[&head.id()];
    assert_eq!(parts.head, blocks.total(origin).used, "{name}: HEAD");
    let mut union: HashMap<Key, Space> = HashMap::new();
    let (mut dead, mut dead_plain) = (0, 0);
    for (dataset, blocks) in pool.datasets.values().filter(|(d, _)| d.dir().id() == dir.id()) {
        let list = dataset.deadlist().expect("a deadlist").expect("one");
        let since = list.space_between(origin, Txg(u64::MAX)).expect("readable");
        dead += since.used;
        dead_plain += since.uncompressed;
        union.extend(blocks.placed.iter().filter(|(key, _)| Txg(key.2) > origin).map(|(k, s)| (*k, *s)));
    }
    assert_eq!(parts.snap, dead, "{name}: SNAP");
    assert_eq!(parts.head + parts.snap, union.values().map(|s| s.used).sum::<u64>(), "{name}: all blocks");
    assert_eq!(
        phys.compressed,
        below + union.values().map(|s| s.compressed).sum::<u64>(),
        "{name}: compressed"
    );
    let plain = below_plain + blocks.total(origin).uncompressed + dead_plain;
    assert_eq!(phys.uncompressed, plain, "{name}: uncompressed");
    let reserved = prop::stored_number(&head, "refreservation").expect("a number");
    assert_eq!(parts.ref_reservation, reserved.saturating_sub(head.unique()), "{name}: REFRSRV");
    let clones: HashSet<ObjectId> = pool
        .datasets
        .values()
        .filter(|(d, _)| !d.is_snapshot() && d.id() != head.id())
        .filter(|(d, _)| {
            let origin = d.dir().phys().origin.and_then(|id| pool.datasets.get(&id));
            origin.is_some_and(|(origin, _)| origin.dir().id() == dir.id())
        })
        .map(|(d, _)| d.id())
        .collect();
    assert_eq!(members(pool, phys.clones), clones, "{name}: clones");
}

fn check_special(pool: &Pool) -> u64 {
    let root = pool.dsl.root().expect("a root");
    let hidden = root.hidden_children().expect("children");
    let dir = |name: &str| hidden.iter().find(|d| d.component() == name).expect("there");
    let mos = blocks_of_set(pool.dsl.mos()).total(Txg(0));
    let phys = dir("$MOS").phys().clone();
    assert_eq!((phys.used, phys.breakdown.head), (mos.used, mos.used), "$MOS");
    assert_eq!(phys.compressed, mos.compressed, "$MOS compressed");
    let free = dir("$FREE").phys().used;
    let mut union: HashMap<Key, Space> = HashMap::new();
    for (_, blocks) in pool.datasets.values() {
        union.extend(blocks.placed.iter().map(|(key, space)| (*key, *space)));
    }
    mos.used + union.values().map(|space| space.used).sum::<u64>() + free
}
