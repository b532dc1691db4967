//! All properties of every dataset and pool among the golden pools equal the output of `zfs get -Hp all` and
//! `zpool get -Hp all`.
//!
//! The manifests were made with the pools imported for writing, which first wrote a few metadata blocks. So
//! the space of the MOS differs, and with it the used and available bytes of the root; the test checks that
//! their sum is the same.

use crate::common::{load_keys, open};
use cenote_pool::space::{Class, VdevSpace};
use cenote_pool::{Pool, dedup, props};
use dsl::prop;
use std::collections::BTreeMap;
use testkit::{Dataset, Fixture, Manifest};

/// Properties of the root that count the MOS.
const ROOT_SPACE: [&str; 4] = ["used", "usedbychildren", "compressratio", "logicalused"];
/// Properties that change when the intent log is replayed or an unclean pool is rolled forward.
const REPLAYED: [&str; 9] = [
    "used",
    "referenced",
    "compressratio",
    "refcompressratio",
    "usedbydataset",
    "usedbychildren",
    "written",
    "logicalused",
    "logicalreferenced",
];
/// These pools free blocks one txg late, so the live pool had some deferred.
const DEFERRED_FREES: [&str; 3] = ["legacy", "version1", "version10"];

type Values = BTreeMap<String, (String, String)>;

fn values_of(pool: &Pool, name: &str) -> Values {
    let values = if name.contains('#') {
        pool.dsl().bookmark(name).and_then(|mark| prop::all_of_bookmark(&mark))
    } else {
        pool.dsl().dataset(name).and_then(|dataset| prop::all(&dataset))
    };
    let values = values.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    values.into_iter().map(|(n, v)| (n.clone(), (prop::exact(&n, &v.raw), v.source.text()))).collect()
}

fn may_differ(manifest: &Manifest, dataset: &Dataset, property: &str) -> bool {
    let is_root = dataset.name == manifest.pool;
    property == "available"
        || (is_root && ROOT_SPACE.contains(&property))
        || (manifest.is_unclean() && REPLAYED.contains(&property))
}

fn compare(manifest: &Manifest, dataset: &Dataset, ours: &Values) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = &dataset.name;
    for property in dataset.properties.keys().chain(ours.keys()) {
        let theirs = dataset.properties.get(property).map(|p| (p.value.clone(), p.source.clone()));
        let ours = ours.get(property).cloned();
        let same = match (&ours, &theirs) {
            // The same state, compressed by another program.
            (Some(a), Some(b)) if property == "receive_resume_token" => {
                dsl::resume::decode(&a.0).unwrap() == dsl::resume::decode(&b.0).unwrap()
            }
            (Some(a), Some(b)) if may_differ(manifest, dataset, property) => a.1 == b.1,
            (a, b) => a == b,
        };
        if !same {
            wrong.push(format!("{name} {property}: {ours:?}, expected {theirs:?}"));
        }
    }
    wrong
}

fn number(values: &Values, property: &str) -> u64 {
    values[property].0.parse().unwrap()
}

#[test]
fn datasets_have_the_properties_that_zfs_get_printed() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all() {
        let pool = open(&fixture);
        load_keys(&pool);
        let manifest = fixture.manifest();
        for dataset in &manifest.datasets {
            let ours = values_of(&pool, &dataset.name);
            wrong.extend(compare(manifest, dataset, &ours));
        }
        let root = manifest.datasets.first().unwrap();
        let ours = values_of(&pool, &root.name);
        let theirs = |p: &str| root.property(p).unwrap().parse::<u64>().unwrap();
        let sum = number(&ours, "used") + number(&ours, "available");
        let clones_replayed = fixture.name() == "zil-raidz";
        if !clones_replayed
            && !DEFERRED_FREES.contains(&fixture.name())
            && sum != theirs("used") + theirs("available")
        {
            wrong.push(format!("{}: used + available is {sum}", root.name));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn quotas_and_reservations_bound_what_is_available() {
    let fixture = Fixture::open("properties");
    let pool = open(&fixture);
    let available = |name: &str| number(&values_of(&pool, name), "available");
    let root = available("t_properties");
    // Unused reservation of `a`, plus the unused refreservation of its head: OpenZFS printed values for `a`
    // and `a/b` that exceed those of the root by the same amounts.
    let theirs = |name: &str| -> u64 {
        fixture.manifest().dataset(name).unwrap().property("available").unwrap().parse().unwrap()
    };
    for name in ["t_properties/a", "t_properties/a/b", "t_properties/a/b/c", "t_properties/limits/x"] {
        assert_eq!(available(name) - root, theirs(name) - theirs("t_properties"), "{name}");
    }
}

#[test]
fn pools_have_the_properties_that_zpool_get_printed() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all() {
        let (pool, manifest) = (open(&fixture), fixture.manifest());
        // A scrub was run after the damage was done, before the properties were printed.
        let scrubbed_later =
            std::fs::exists(testkit::fixtures_root().join(fixture.name()).join("damage.txt")).unwrap();
        for (name, value) in pool.properties().unwrap() {
            let theirs = &manifest.pool_properties[&name];
            let ours = props::exact(&name, value.as_ref());
            let skip = match name.as_str() {
                "readonly" | "load_guid" | "allocated" | "free" | "capacity" | "fragmentation" => true,
                "last_scrubbed_txg" => scrubbed_later,
                _ => name.starts_with("bclone") && manifest.is_unclean(),
            };
            if !skip && ours != theirs.value {
                wrong.push(format!("{}: {name} is {ours}, expected {}", fixture.name(), theirs.value));
            }
            if let Some(value) = value
                && value.source.text() != theirs.source
            {
                wrong.push(format!("{}: source of {name} is {:?}", fixture.name(), value.source));
            }
        }
        for (feature, state) in &manifest.features {
            let replayed =
                manifest.is_unclean() && ["zilsaxattr", "block_cloning"].contains(&feature.as_str());
            let ours = pool.features().state_of(feature).name();
            if ours != state && !replayed {
                wrong.push(format!("{}: {feature} is {ours}, expected {state}", fixture.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Pools whose root is charged for more or less than the allocated bytes: reservations, intent log blocks,
/// deferred frees.
const CHARGED_OTHERWISE: [&str; 7] =
    ["encryption", "properties", "zvol", "holes", "legacy", "version1", "version10"];

#[test]
fn every_allocated_byte_is_charged_to_the_root() {
    for fixture in Fixture::all() {
        let pool = open(&fixture);
        if CHARGED_OTHERWISE.contains(&fixture.name()) || fixture.manifest().is_after_replay() {
            continue;
        }
        let space = pool.space().unwrap();
        assert_eq!(space.size, space.allocated + space.free);
        let data = |v: &VdevSpace| v.class != Class::Log;
        let deflated = |v: &VdevSpace| v.allocated / 512 * pool.tree().deflate_ratio(v.vdev);
        let taken: u64 = pool.vdev_spaces().unwrap().iter().filter(|v| data(v)).map(deflated).sum();
        let shared = dedup::saved(&pool.dedup_histogram().unwrap().total());
        let cloned: u64 = pool.clone_tables().unwrap().iter().map(|table| table.phys.saved).sum();
        let charged = pool.dsl().root().unwrap().phys().used;
        assert_eq!(taken + shared + cloned, charged + space.checkpoint, "{}", fixture.name());
    }
}

#[test]
fn space_is_close_to_what_the_live_pool_had() {
    for fixture in Fixture::all() {
        let (space, manifest) = (open(&fixture).space().unwrap(), fixture.manifest());
        let theirs = |name: &str| manifest.pool_properties[name].value.clone();
        let allocated: u64 = theirs("allocated").parse().unwrap();
        let margin = (2 << 20) + allocated / 10;
        assert!(space.allocated.abs_diff(allocated) < margin, "{}: {}", fixture.name(), space.allocated);
        let same_metaslabs = ["single", "mirror", "checksum", "compression", "lost-block", "removed-vdev"];
        if same_metaslabs.contains(&fixture.name()) {
            let fragmentation = space.fragmentation.unwrap().to_string();
            assert_eq!(fragmentation, theirs("fragmentation"), "{}", fixture.name());
        }
    }
}

#[test]
fn holds_and_delegation() {
    let snapshots = open(&Fixture::open("snapshots"));
    let held = snapshots.dsl().dataset("t_snapshots/fs@two").unwrap().holds().unwrap();
    assert_eq!(held.iter().map(|h| h.tag.as_str()).collect::<Vec<_>>(), ["keep", "keep2"]);

    let pool = open(&Fixture::open("properties"));
    let allowed = pool.dsl().dir("t_properties/a").unwrap().allowed().unwrap();
    let shown: Vec<String> =
        allowed.iter().map(|a| format!("{:?} {:?} {}", a.who, a.scope, a.permissions.join(","))).collect();
    assert_eq!(
        shown,
        [
            "CreateTime NotApplicable destroy",
            "User(1000) Local create,mount,snapshot",
            "User(1000) Descendent create,mount,snapshot",
            "Group(2000) Local @set1",
            "Everyone Local send",
            "Everyone Descendent send",
        ]
    );
}

#[test]
fn snapshots_come_in_the_order_of_their_making() {
    let pool = open(&Fixture::open("snapshots"));
    let fs = pool.dsl().dataset("t_snapshots/fs").unwrap();
    let names: Vec<String> = fs.snapshots().unwrap().iter().map(|s| s.name().to_owned()).collect();
    assert_eq!(
        names,
        ["t_snapshots/fs@one", "t_snapshots/fs@two", "t_snapshots/fs@three", "t_snapshots/fs@renamed"]
    );
    let newest = fs.previous().unwrap().unwrap();
    assert_eq!(newest.name(), "t_snapshots/fs@renamed");
    // The chain continues below the first snapshot to the empty origin of all datasets.
    let chain: Vec<_> = fs.chain().collect::<Result<_, _>>().unwrap();
    assert_eq!(chain.len(), 5);
    let one = pool.dsl().dataset("t_snapshots/fs@one").unwrap();
    let mark = pool.dsl().bookmark("t_snapshots/fs#mark-one").unwrap();
    assert_eq!(mark.phys().guid, one.phys().guid);
}

#[test]
fn written_since_a_point_adds_up() {
    let pool = open(&Fixture::open("snapshots"));
    let fs = pool.dsl().dataset("t_snapshots/fs").unwrap();
    let get = |name: &str| prop::get(&fs, name).unwrap().and_then(|v| v.raw.number());
    assert_eq!(get("written@renamed"), get("written"));
    // Since the first snapshot at least as much was written as since any later one.
    let since: Vec<u64> =
        ["one", "two", "three", "renamed"].iter().map(|s| get(&format!("written@{s}")).unwrap()).collect();
    assert!(since.windows(2).all(|pair| pair[0] >= pair[1]), "{since:?}");
    assert_eq!(get("written#mark-one"), get("written@one"));
    assert_eq!(get("written#mark-two"), get("written@two"));
    assert!(prop::get(&fs, "written@nosuch").is_err());
    let clone = pool.dsl().dataset("t_snapshots/clone").unwrap();
    assert!(prop::get(&clone, "written@t_snapshots/fs@two").unwrap().is_some());
    assert!(prop::get(&clone, "written@t_snapshots/fs@three").is_err());
}
