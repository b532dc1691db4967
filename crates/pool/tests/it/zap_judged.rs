//! ZAPs of every kind, written into a new pool and read by `zdb`.

use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, Layout, LeafSpec, Leave, TopSpec};
use dmu::NewObject;
use dmu::zap::{Match, ZapKey, ZapMut, ZapValue};
use dsl::DslError;
use format::zap::{
    FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY, NORM_CANONICAL, NORM_COMPOSE, NORM_UPPER,
};
use format::{ObjType, ObjectId};
use std::path::Path;
use std::sync::{Arc, Mutex};
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;

/// A ZAP to be created, and the changes made to it.
struct Case {
    name: &'static str,
    normalization: u64,
    /// Block shift and flags of a ZAP that is fat from the start.
    fat: Option<(u32, u64)>,
    fill: fn(&ZapMut<'_>) -> Result<(), DslError>,
}

fn numbers(zap: &ZapMut<'_>, count: u64) -> Result<(), DslError> {
    (0..count).try_for_each(|i| zap.insert(format!("entry number {i}").as_bytes(), i)).map_err(DslError::from)
}

const CASES: [Case; 13] = [
    Case { name: "empty", normalization: 0, fat: None, fill: |_| Ok(()) },
    Case { name: "one", normalization: 0, fat: None, fill: |zap| numbers(zap, 1) },
    Case { name: "eight", normalization: 0, fat: None, fill: |zap| numbers(zap, 8) },
    Case { name: "last-micro", normalization: 0, fat: None, fill: |zap| numbers(zap, 2047) },
    Case { name: "first-fat", normalization: 0, fat: None, fill: |zap| numbers(zap, 2048) },
    Case { name: "many", normalization: 0, fat: None, fill: |zap| numbers(zap, 30_000) },
    Case { name: "small-blocks", normalization: 0, fat: Some((9, 0)), fill: |zap| numbers(zap, 3_000) },
    Case { name: "hash64", normalization: 0, fat: Some((12, FLAG_HASH64)), fill: |zap| numbers(zap, 5_000) },
    Case { name: "values", normalization: 0, fat: None, fill: fill_values },
    Case {
        name: "normalized",
        normalization: NORM_CANONICAL | NORM_COMPOSE | NORM_UPPER,
        fat: None,
        fill: |zap| {
            for i in 0..3000_u64 {
                zap.insert_matching(format!("Stra\u{df}e \u{e9}{i}").as_bytes(), i, Match::Normalized)?;
                zap.insert(format!("STRA\u{df}E \u{e9}{i}").as_bytes(), i)?;
            }
            Ok(())
        },
    },
    Case {
        name: "words",
        normalization: 0,
        fat: Some((12, FLAG_UINT64_KEY | FLAG_HASH64)),
        fill: |zap| {
            (0..2000_u64).try_for_each(|i| zap.insert_words(&[i, i << 40], i).map_err(DslError::from))
        },
    },
    Case {
        name: "pre-hashed",
        normalization: 0,
        fat: Some((15, FLAG_UINT64_KEY | FLAG_HASH64 | FLAG_PRE_HASHED_KEY)),
        fill: |zap| {
            let key = |i: u64| [i.wrapping_mul(0x9E37_79B9_7F4A_7C15), i, 3, 4, 5];
            (0..4000_u64).try_for_each(|i| {
                zap.insert_words(&key(i), ZapValue::Bytes(&[7; 40])).map_err(DslError::from)
            })
        },
    },
    Case {
        name: "emptied",
        normalization: 0,
        fat: None,
        fill: |zap| {
            numbers(zap, 6000)?;
            (0..6000)
                .filter(|i| i % 50 != 0)
                .try_for_each(|i| zap.remove(format!("entry number {i}").as_bytes()).map_err(DslError::from))
        },
    },
];

fn fill_values(zap: &ZapMut<'_>) -> Result<(), DslError> {
    zap.insert(b"string", "text")?;
    zap.insert(b"bytes", ZapValue::Bytes(&[9; 8192]))?;
    zap.insert(b"halves", ZapValue::U16s(&[1, 2, 3]))?;
    zap.insert(b"words", ZapValue::U32s(&[1 << 30, 2]))?;
    zap.insert(b"longs", ZapValue::U64s(&[u64::MAX; 24]))?;
    zap.insert(b"nothing", ZapValue::U64s(&[]))?;
    zap.insert(&[b'l'; 255], 5)?;
    (0..500_u64)
        .try_for_each(|i| zap.insert(format!("filler {i}").as_bytes(), ZapValue::Bytes(&[1; 300])))?;
    zap.update(b"string", "another text, much longer than the first")?;
    zap.update(b"bytes", 1)?;
    Ok(())
}

/// Creates all of them in the MOS. Returns their numbers.
fn make(pool: &LivePool) -> Vec<ObjectId> {
    let made = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&made);
    pool.run(move |ctx| {
        let m = ctx.m();
        for (case, salt) in CASES.iter().zip(0x1234_5677_u64..) {
            let object = m.allocate(&NewObject::of(ObjType::ZAP_METADATA))?;
            match case.fat {
                None => object.create_zap(m.tx, salt, case.normalization)?,
                Some((shift, flags)) => {
                    object.create_fat_zap(m.tx, shift, salt, case.normalization, flags)?
                }
            }
            (case.fill)(&object.zap(m.tx)?)?;
            m.set_entry(&format!("org.cenote:{}", case.name), object.id().0)?;
            into.lock().unwrap().push(object.id());
        }
        Ok(())
    })
    .unwrap();
    let made = made.lock().unwrap();
    made.clone()
}

/// Changes all of them in a txg of its own: removes every third entry, and adds some.
fn change(pool: &LivePool, objects: &[ObjectId], round: u64) {
    let objects = objects.to_vec();
    pool.run(move |ctx| {
        let m = ctx.m();
        for id in objects {
            let zap = m.zap(id)?;
            for entry in zap.entries()?.iter().step_by(3) {
                match &entry.key {
                    ZapKey::Name(name) => zap.remove(name)?,
                    ZapKey::Words(words) => zap.remove_words(words)?,
                }
            }
            for i in 0..200 {
                if zap.flags()? & FLAG_UINT64_KEY == 0 {
                    zap.insert(format!("round {round}: {i}").as_bytes(), i)?;
                } else {
                    zap.insert_words(&[i << 56 | round, i, round], i)?;
                }
            }
        }
        Ok(())
    })
    .unwrap();
}

/// Names that `zdb` lists in an object, in its order.
fn listed(zdb: &Path, dir: &Path, object: ObjectId) -> Vec<String> {
    let id = object.0.to_string();
    let output =
        testkit::hurried(zdb).args(["-e", "-p"]).arg(dir).args(["-dddd", "tank", &id]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let entries = text.lines().filter(|line| line.starts_with("\t\t") && line.contains(" = "));
    entries.map(|line| line.trim_start().split_once(" = ").map_or("", |(name, _)| name).to_owned()).collect()
}

#[test]
fn zdb_lists_what_was_written() {
    let Some(zdb) = testkit::need_tool("zdb") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
    file.as_file().set_len(256 << 20).unwrap();
    let path = file.path();
    let device = open_exclusive(path, Access::Cached).unwrap();
    let leaf = LeafSpec::file(path.to_str().unwrap(), device);
    let top = TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves: vec![leaf] };
    let pool = LivePool::create(CreateSpec::new("tank", vec![top]), Env::system()).unwrap();
    let objects = make(&pool);
    (0..3).for_each(|round| change(&pool, &objects, round));
    let view = pool.view().unwrap();
    let mut expected = Vec::new();
    for id in &objects {
        let zap = dmu::zap::Zap::open(&view.mos().object(*id).unwrap()).unwrap();
        let names = zap.entries().map(|entry| match entry.unwrap().key {
            ZapKey::Name(name) => Some(String::from_utf8(name).unwrap()),
            ZapKey::Words(_) => None,
        });
        expected.push(names.collect::<Vec<_>>());
    }
    drop(view);
    pool.export(Leave::Exported).unwrap();
    for ((case, object), expected) in CASES.iter().zip(&objects).zip(expected) {
        let names = listed(&zdb, dir.path(), *object);
        assert_eq!(names.len(), expected.len(), "{}", case.name);
        // The format of words is not checked.
        for (listed, written) in names.iter().zip(&expected) {
            assert!(
                written.as_ref().is_none_or(|name| name == listed),
                "{}: {listed} {written:?}",
                case.name
            );
        }
    }
    testkit::assert_zdb_clean(dir.path(), "tank");
}
