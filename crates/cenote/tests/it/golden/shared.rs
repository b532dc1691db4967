//! Differences between the counts of dedup tables and the pointers found are reported, for both kinds of tables.

use cenote::inspect::{Check, CountedBy, Space, blocks};
use cenote::{OpenOptions, Pool};
use dmu::zap::ZapValue;
use dsl::DslError;
use dsl::TaskCtx;
use format::ddt::{DdtClass, DdtKey, DdtPhys, DdtValue, LogHeader, LogRecord};
use format::{Endian, ObjectId, Txg};
use pool::LivePool;
use pool::Which;
use pool::{ImportOptions, Leave};
use testkit::{Fixture, Scratch};
use vdev::env::Env;
use vdev::scan::Search;

/// A value as a little-endian machine writes it, not compressed.
fn packed(value: &DdtValue) -> Vec<u8> {
    let mut bytes = vec![format::CompressionId::Off.id() | 0x80];
    bytes.extend(value.encode(Endian::Little));
    bytes
}

fn edit(value: &mut DdtValue, change: impl Fn(&mut DdtPhys)) {
    let slots = match value {
        DdtValue::Legacy(slots) => &mut slots[..],
        DdtValue::Flat { phys, .. } => std::slice::from_mut(phys),
    };
    slots.iter_mut().filter(|slot| slot.birth.0 != 0).for_each(change);
}

/// An entry of a dedup table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    zap: ObjectId,
    key: DdtKey,
    value: DdtValue,
}

impl Entry {
    fn put(&self, ctx: &TaskCtx<'_>) -> Result<(), DslError> {
        let words = self.key.to_words();
        Ok(ctx.m().zap(self.zap)?.upsert_words(&words, ZapValue::Bytes(&packed(&self.value)))?)
    }

    fn with(mut self, change: impl Fn(&mut DdtPhys)) -> Entry {
        edit(&mut self.value, change);
        self
    }
}

struct World {
    name: String,
    scratch: Scratch,
}

impl World {
    fn new(fixture: &str) -> World {
        let fixture = Fixture::open(fixture);
        World { name: fixture.manifest().pool.clone(), scratch: fixture.scratch() }
    }

    fn open(&self) -> Pool {
        Pool::open(&self.name, &OpenOptions::new().search(self.scratch.dir())).expect("opens")
    }

    fn space(&self) -> Space {
        let report = blocks(&self.open(), Check::Nothing, true).expect("counted");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        report.space.expect("compared")
    }

    /// The reported differences, as (counted, found).
    fn told(&self) -> Vec<(u64, u64)> {
        let space = self.space();
        assert!(space.miscounted.iter().all(|one| one.by == CountedBy::DedupTable), "{space}");
        assert_eq!(space.matches(), space.miscounted.is_empty(), "{space}");
        space.miscounted.iter().map(|one| (one.counted, one.found)).collect()
    }

    /// The first entry of a class.
    fn find(&self, class: DdtClass) -> Option<Entry> {
        let (pool, mut first) = (self.open(), None);
        for table in pool.spa().dedup_tables().expect("readable") {
            for (_, zap) in table.classes.iter().filter(|(of, _)| *of == class) {
                let mut visit = |_, key, value| _ = first.get_or_insert(Entry { zap: *zap, key, value });
                pool.spa().each_dedup_entry(*zap, &mut visit).expect("readable");
            }
        }
        first
    }

    fn duplicate(&self) -> Entry {
        self.find(DdtClass::Duplicate).expect("blocks are shared")
    }

    fn logs(&self) -> Vec<ObjectId> {
        let tables = self.open().spa().dedup_tables().expect("readable");
        tables.iter().flat_map(|table| table.logs.clone()).collect()
    }

    fn change(&self, change: impl FnOnce(&mut TaskCtx<'_>) -> Result<(), DslError> + Send + 'static) {
        let found = Search::in_paths([self.scratch.dir()]).run();
        let options = ImportOptions { partly_supported: true, ..ImportOptions::default() };
        let pool = LivePool::import(&found, &Which::Name(self.name.clone()), &options, Env::system());
        let pool = pool.expect("imported");
        pool.run(change).expect("changed");
        pool.export(Leave::Exported).expect("exported");
    }
}

/// A pool with a legacy table, and one with logs.
const TABLES: [&str; 2] = ["dedup-legacy", "dedup-fast"];

#[test]
fn a_reference_too_many_in_a_dedup_table_is_told() {
    for fixture in TABLES {
        let world = World::new(fixture);
        assert_eq!(world.told(), [], "{fixture}");
        let entry = world.duplicate();
        let found = entry.value.refcount();
        let wrong = entry.with(|phys| phys.refcount += 1);
        world.change(move |ctx| wrong.put(ctx));
        assert_eq!(world.told(), [(found + 1, found)], "{fixture}");
        let wrong = entry.with(|phys| phys.refcount = 1);
        world.change(move |ctx| wrong.put(ctx));
        assert_eq!(world.told(), [(1, found)], "{fixture}");
    }
}

#[test]
fn an_entry_of_a_free_block_is_told() {
    for fixture in TABLES {
        let world = World::new(fixture);
        let mut entry = world.duplicate().with(|phys| phys.birth = Txg(phys.birth.0 - 1));
        let counted = entry.value.refcount();
        entry.key.checksum.0[0] ^= 1 << 20;
        world.change(move |ctx| entry.put(ctx));
        assert_eq!(world.told(), [(counted, 0)], "{fixture}");
    }
}

#[test]
fn a_deduplicated_block_without_an_entry_is_told_unless_it_may_have_been_pruned() {
    use DdtClass::{Duplicate, Unique};
    for (fixture, class, may_lack) in [
        ("dedup-legacy", Duplicate, false),
        ("dedup-legacy", Unique, false),
        ("dedup-fast", Duplicate, false),
        ("dedupmix", Unique, true),
    ] {
        let world = World::new(fixture);
        let entry = world.find(class).expect("an entry of this class");
        world.change(move |ctx| Ok(ctx.m().zap(entry.zap)?.remove_words(&entry.key.to_words())?));
        let told = if may_lack { vec![] } else { vec![(0, entry.value.refcount())] };
        assert_eq!(world.told(), told, "{fixture}, {class:?}");
    }
}

#[test]
fn what_a_log_says_of_a_block_is_newer_than_its_entry() {
    let world = World::new("dedup-fast");
    let entry = world.duplicate();
    let (log, wrong) = (world.logs()[0], entry.with(|phys| phys.refcount += 5));
    let put_log = move |ctx: &TaskCtx<'_>, value: DdtValue| {
        let record = LogRecord { key: entry.key, value, stored_in: Some(DdtClass::Duplicate) };
        let object = ctx.m().object(log)?;
        let mut block = record.encode(Endian::Little);
        block.resize(object.block_size() as usize, 0);
        object.write_at(0, &block, ctx.m().tx)?;
        let length = object.block_size();
        let header = LogHeader { flushing: false, length, first_txg: ctx.txg(), checkpoint: None };
        object.set_bonus(&header.encode(Endian::Little), ctx.m().tx);
        Ok(())
    };
    world.change(move |ctx| {
        wrong.put(ctx)?;
        put_log(ctx, entry.value)
    });
    assert_eq!(world.told(), []);
    let found = entry.value.refcount();
    world.change(move |ctx| {
        entry.put(ctx)?;
        put_log(ctx, wrong.value)
    });
    assert_eq!(world.told(), [(found + 5, found)]);
}
