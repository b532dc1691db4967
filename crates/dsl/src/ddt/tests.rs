//! Model test of dedup tables of both forms, with and without a log, against maps of counts.

use crate::MosTx;
use crate::ddt::Tables;
use crate::error::DslError;
use crate::testing::{Rng, World};
use dmu::NewObject;
use dmu::zap::{Zap, ZapKey, ZapValue};
use format::ddt::{
    DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtValue, LogHeader, LogRecord, directory_name, log_name,
    zap_name,
};
use format::zap::{FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY};
use format::{BlockPtr, ChecksumId, Endian, ObjType, ObjectId, Txg};
use std::collections::BTreeMap;

const SHA256: ChecksumId = ChecksumId::Sha256;

/// A pointer with the dedup bit, to a block that need not exist.
fn block(n: u64) -> BlockPtr {
    let mut bp = crate::testing::pointer(n, 5, 1 + n % 8)
        .with_prop_bits(40, 8, u64::from(SHA256.id()))
        .with_prop_bits(62, 1, 1);
    for word in 12..16 {
        bp = bp.with_word(word, (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + word as u64));
    }
    bp
}

fn value(n: u64, refcount: u64, flat: bool) -> DdtValue {
    let bp = block(n);
    let mut dva_words = [0; 6];
    dva_words.copy_from_slice(&bp.words()[..6]);
    let phys = DdtPhys { dva_words, refcount, birth: Txg(5) };
    if flat {
        DdtValue::Flat { phys, class_start: 77 }
    } else {
        let mut slots = [DdtPhys::default(); 4];
        slots[1] = phys;
        DdtValue::Legacy(slots)
    }
}

fn class(refcount: u64) -> DdtClass {
    if refcount > 1 { DdtClass::Duplicate } else { DdtClass::Unique }
}

/// Inserts an entry as other implementations may write it: not compressed, big-endian.
fn insert(m: MosTx<'_>, home: ObjectId, n: u64, refcount: u64, flat: bool) -> Result<(), DslError> {
    let name = zap_name(SHA256, class(refcount));
    let zap = match m.zap(home)?.lookup_u64(name.as_bytes())? {
        Some(id) => ObjectId(id),
        None => {
            let object = m.allocate(&NewObject::of(ObjType::DDT_ZAP))?;
            let flags = FLAG_HASH64 | FLAG_UINT64_KEY | FLAG_PRE_HASHED_KEY;
            object.create_fat_zap(m.tx, 12, 3, 0, flags)?;
            m.zap(home)?.insert(name.as_bytes(), object.id().0)?;
            object.id()
        }
    };
    let mut bytes = vec![2];
    bytes.extend(value(n, refcount, flat).encode(Endian::Big));
    Ok(m.zap(zap)?.insert_words(&DdtKey::of(&block(n)).to_words(), ZapValue::Bytes(&bytes))?)
}

fn make_home(m: MosTx<'_>, flat: bool) -> Result<ObjectId, DslError> {
    if !flat {
        return Ok(ObjectId(1));
    }
    let home = m.create_plain_zap(ObjType::ZAP_METADATA)?;
    m.zap(home)?.insert(b"version", 1)?;
    m.zap(home)?.insert(b"flags", 3)?;
    m.set_entry(&directory_name(SHA256), home.0)?;
    Ok(home)
}

/// Releases references at random, and updates the counts.
fn release_at_random(world: &mut World, counts: &mut BTreeMap<u64, u64>, rng: &mut Rng, times: u64) {
    world.txg(|m, _| {
        let mut tables = Tables::default();
        for _ in 0..times {
            let n = rng.below(60);
            let expected = counts.get(&n).copied().unwrap_or(0);
            assert_eq!(tables.release(m, &block(n))?, expected > 0, "block {n}");
            if expected > 0 {
                *counts.entry(n).or_default() -= 1;
            }
        }
        counts.retain(|_, count| *count > 0);
        tables.finish(m)
    });
}

/// Checks that the tables on disk and their histograms have these counts.
fn check(world: &World, flat: bool, counts: &BTreeMap<u64, u64>) {
    let view = world.reopened();
    let directory = crate::mos::zap(&view, ObjectId(1)).expect("directory");
    let find = |zap: &Zap, name: &str| zap.lookup_u64(name.as_bytes()).expect("readable").map(ObjectId);
    let home = if flat {
        let id = find(&directory, &directory_name(SHA256)).expect("there");
        crate::mos::zap(&view, id).expect("a ZAP")
    } else {
        directory.clone()
    };
    let statistics = find(&directory, "DDT-statistics").map(|id| crate::mos::zap(&view, id).expect("a ZAP"));
    let mut seen = 0;
    for (class_wanted, name) in [DdtClass::Duplicate, DdtClass::Unique].map(|c| (c, zap_name(SHA256, c))) {
        let wanted = counts.iter().filter(|(_, count)| class(**count) == class_wanted);
        let Some(id) = find(&home, &name) else {
            assert_eq!(wanted.count(), 0);
            continue;
        };
        let zap = crate::mos::zap(&view, id).expect("a ZAP");
        for (n, count) in wanted.clone() {
            let key = DdtKey::of(&block(*n)).to_words();
            let found = zap.entries().map(|entry| entry.expect("readable"));
            let mut found = found.filter(|entry| matches!(&entry.key, ZapKey::Words(words) if *words == key));
            assert!(found.next().is_some(), "block {n} of {count}");
            seen += 1;
        }
        assert_eq!(zap.count().expect("counted"), wanted.clone().count() as u64);
        let entry = statistics.as_ref().and_then(|zap| zap.lookup(name.as_bytes()).expect("readable"));
        let total = DdtHistogram::from_words(&entry.expect("there").u64s()).expect("a histogram").total();
        assert_eq!(
            (total.blocks, total.ref_blocks),
            (wanted.clone().count() as u64, wanted.map(|(_, n)| n).sum())
        );
    }
    assert_eq!(seen, counts.len());
}

fn model(seed: u64, flat: bool) {
    let mut rng = Rng(seed);
    let mut world = World::new();
    let mut counts: BTreeMap<u64, u64> = (0..40).map(|n| (n, 1 + n % 5)).collect();
    world.txg(|m, _| {
        let home = make_home(m, flat)?;
        for (n, count) in &counts {
            insert(m, home, *n, *count, flat)?;
        }
        Ok(())
    });
    // There was no histogram: an empty one must not be decremented.
    world.txg(|m, _| {
        let mut tables = Tables::default();
        tables.recount_all(m, SHA256)?;
        tables.finish(m)
    });
    for _ in 0..12 {
        release_at_random(&mut world, &mut counts, &mut rng, 20);
        check(&world, flat, &counts);
    }
}

#[test]
fn references_go_one_by_one() {
    for seed in 1..=3 {
        model(seed, false);
        model(seed, true);
    }
}

#[test]
fn logs_are_brought_to_the_tables_first() {
    let mut world = World::new();
    let mut counts: BTreeMap<u64, u64> = (0..30).map(|n| (n, 1 + n % 3)).collect();
    world.txg(|m, _| {
        let home = make_home(m, true)?;
        for (n, count) in &counts {
            insert(m, home, *n, *count, true)?;
        }
        // The log being flushed gives blocks 0 to 19 two references more. The active log gives blocks 10 to
        // 14 three, removes block 15, and has some that are in no table.
        let old = (0..20).map(|n| (n, counts[&n] + 2, Some(class(counts[&n]))));
        let new = (10..15).map(|n| (n, 3, Some(class(counts[&n]))));
        let gone = [(15, 0, Some(class(counts[&15])))];
        let fresh = (40..45).map(|n| (n, n - 39, None));
        write_log(m, home, 0, true, &old.collect::<Vec<_>>())?;
        write_log(m, home, 1, false, &new.chain(gone).chain(fresh).collect::<Vec<_>>())
    });
    for n in 0..20 {
        *counts.entry(n).or_default() += 2;
    }
    counts.extend((10..15).map(|n| (n, 3)));
    counts.remove(&15);
    counts.extend((40..45).map(|n| (n, n - 39)));
    release_at_random(&mut world, &mut counts, &mut Rng(1), 1);
    check(&world, true, &counts);
    release_at_random(&mut world, &mut counts, &mut Rng(2), 50);
    check(&world, true, &counts);
}

type Logged = (u64, u64, Option<DdtClass>);

fn write_log(
    m: MosTx<'_>,
    home: ObjectId,
    which: u8,
    flushing: bool,
    all: &[Logged],
) -> Result<(), DslError> {
    let mut bytes = Vec::new();
    for (n, refcount, stored_in) in all {
        let key = DdtKey::of(&block(*n));
        let mut value = value(*n, *refcount, true);
        if *refcount == 0
            && let DdtValue::Flat { phys, .. } = &mut value
        {
            *phys = DdtPhys::default();
        }
        bytes.extend(LogRecord { key, value, stored_in: *stored_in }.encode(Endian::Little));
    }
    bytes.resize(128 << 10, 0);
    let header = LogHeader { flushing, length: bytes.len() as u64, first_txg: Txg(4), checkpoint: None };
    let new = NewObject::of(ObjType::U64_METADATA)
        .with_bonus(ObjType::U64_METADATA, header.encode(Endian::Little))
        .with_block_size(128 << 10);
    let object = m.allocate(&new)?;
    object.write_at(0, &bytes, m.tx)?;
    Ok(m.zap(home)?.insert(log_name(SHA256, which).as_bytes(), object.id().0)?)
}

#[test]
fn what_no_table_knows_is_freed_like_any_other_block() {
    let mut world = World::new();
    world.txg(|m, _| {
        assert!(!Tables::default().release(m, &block(1))?);
        let home = make_home(m, true)?;
        insert(m, home, 2, 1, true)?;
        assert!(!Tables::default().release(m, &block(1))?);
        // Written again since: the entry belongs to another block.
        assert!(!Tables::default().release(m, &block(2).with_word(10, 9))?);
        Ok(())
    });
}
