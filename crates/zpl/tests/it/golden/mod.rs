//! Golden pools: the files of every file system, and every volume, equal the manifest.

mod compare;

use cenote_zpl::Filesystem;
use compare::Differences;
use dsl::Dsl;
use pool::{OpenOptions, Pool, Which};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::{Entry, Fixture, keys};
use vdev::scan::Search;

/// Opens the pool of a fixture, with all its keys.
fn open(fixture: &Fixture) -> Arc<Pool> {
    let found = Search::in_paths([fixture.dir()]).run();
    let which = Which::Name(fixture.manifest().pool.clone());
    let pool = Pool::open(found, &which, &OpenOptions::default()).expect("the pool opens");
    for dataset in &fixture.manifest().datasets {
        let is_root = dataset.property("encryptionroot") == Some(dataset.name.as_str());
        if let (true, Some(format)) = (is_root, dataset.property("keyformat")) {
            let root = pool.dsl().dir(&dataset.name).expect("the directory is there");
            let material = keys::material(format).expect("a key");
            pool.dsl().keyring().load(&root, &material).expect("the key fits");
        }
    }
    pool
}

fn check(name: &str) {
    let fixture = Fixture::open(name);
    check_datasets(&fixture, open(&fixture).dsl());
}

fn check_datasets(fixture: &Fixture, dsl: &Dsl) {
    let mut entries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in fixture.entries() {
        entries.entry(entry.ds.clone()).or_default().push(entry);
    }
    let mut out = Differences::default();
    let datasets = fixture.manifest().datasets.iter().filter(|dataset| !dataset.name.contains('#'));
    for want in datasets {
        let dataset = dsl.dataset(&want.name).expect("the dataset is there");
        let objset = dataset.open_objset().expect("the object set opens");
        let done = if want.volume_sha256.is_some() {
            compare::volume(&objset, want, &mut out)
        } else if let Some(entries) = entries.remove(&want.name) {
            compare::space(objset.clone(), want, &mut out)
                .and_then(|()| compare::filesystem(objset, &entries, &mut out))
        } else {
            Ok(())
        };
        if let Err(error) = done {
            out.0.push(format!("{}: {error}: {:?}", want.name, std::error::Error::source(&error)));
        }
    }
    let shown: Vec<&String> = out.0.iter().take(40).collect();
    assert!(out.0.is_empty(), "{}: {} differences\n{shown:#?}", fixture.name(), out.0.len());
    assert!(entries.is_empty(), "datasets not looked at: {:?}", entries.keys());
}

macro_rules! golden {
    ($($test:ident = $name:literal;)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*
    };
}
golden! {
    names = "names";
    posix_acls = "posixacl";
    large_dnodes_and_spill = "dnodes";
    long_names = "longname";
    holes = "holes";
    large_directories = "manyfiles";
    deep_directories = "deeptree";
    legacy_znodes = "version1";
    flags_and_projects = "fileflags";
    quotas = "properties";
    volumes = "zvol";
    pools_of_version_28 = "legacy";
    one_disk = "single";
    snapshots = "snapshots";
    lost_blocks = "lost-block";
    encrypted = "encryption";
}

/// (file system, name asked for, name found)
const NAMES: [(&str, &str, Option<&str>); 25] = [
    ("insensitive", "FILE", Some("file")),
    ("insensitive", "readme", Some("README")),
    ("insensitive", "É", Some("é")),
    ("insensitive", "E\u{301}", Some("e\u{301}")),
    ("insensitive", "üNÏCÖDÉ", Some("Ünïcödé")),
    ("insensitive", "A\u{30A}", None),
    ("mac", "É", Some("e\u{301}")),
    ("mac", "å", Some("Å")),
    ("mac", "\u{212B}", Some("Å")),
    ("mac", "fi", None),
    ("formC", "é", Some("e\u{301}")),
    ("formC", "A\u{30A}", Some("Å")),
    ("formC", "readme", None),
    ("formC", "fi", None),
    ("formD", "U\u{308}nïcödé", Some("Ünïcödé")),
    ("formKC", "fi", Some("ﬁ")),
    ("formKC", "ﬁle", Some("file")),
    ("formKC", "\u{212A}", Some("K")),
    ("formKD", "fi", Some("ﬁ")),
    ("formKD", "FI", None),
    ("mixed", "FILE", None),
    ("mixed", "ReadMe", Some("ReadMe")),
    ("utf8", "é", Some("é")),
    ("utf8", "A\u{30A}", None),
    ("utf8", "file", Some("file")),
];

#[test]
fn names_match_by_the_rules_of_their_file_system() {
    let fixture = Fixture::open("names");
    let pool = open(&fixture);
    let filesystem = |name: &str| {
        let dataset = pool.dsl().dataset(&format!("t_names/{name}")).expect("there");
        Filesystem::open(dataset.open_objset().expect("opens")).expect("a file system")
    };
    for (name, asked, found) in NAMES {
        let fs = filesystem(name);
        let root = fs.node(fs.root()).expect("a root");
        let id = fs.lookup(&root, asked.as_bytes()).expect("readable");
        let path = id.map(|id| fs.path_of(id).expect("readable").expect("a path"));
        let path = path.map(|path| String::from_utf8(path[1..].to_vec()).expect("text"));
        assert_eq!(path.as_deref(), found, "{name}: {asked}");
    }
    let mixed = filesystem("mixed");
    let root = mixed.node(mixed.root()).expect("a root");
    let file = mixed.lookup(&root, b"file").expect("readable");
    assert_eq!(mixed.lookup_with(&root, b"FILE", true).expect("readable"), file);
    assert_eq!(mixed.lookup(&root, b"..").expect("readable"), Some(mixed.root()));
    assert!(mixed.resolve(b"/Dir/X").expect("readable").is_some());
    assert!(mixed.resolve(b"file/X").expect("readable").is_none());
}

#[test]
fn listing_goes_on_from_any_cursor() {
    let fixture = Fixture::open("manyfiles");
    let pool = open(&fixture);
    let dataset = pool.dsl().dataset(&fixture.manifest().datasets[0].name).expect("there");
    let fs = Filesystem::open(dataset.open_objset().expect("opens")).expect("a file system");
    let root = fs.node(fs.root()).expect("a root");
    for dir in root.entries().expect("a directory") {
        let dir = fs.node(dir.expect("sound").id).expect("a node");
        if !dir.is_dir() {
            continue;
        }
        let all: Vec<_> = dir.entries().expect("a directory").map(|entry| entry.expect("sound")).collect();
        assert_eq!(all.len() as u64, dir.entry_count().expect("a count"));
        for (i, entry) in all.iter().enumerate().step_by(97) {
            let rest = dir.entries_from(entry.cursor).expect("a directory");
            let next = rest.take(3).map(|entry| entry.expect("sound")).collect::<Vec<_>>();
            assert_eq!(next, all[i + 1..all.len().min(i + 4)]);
            assert_eq!(fs.lookup(&dir, &entry.name).expect("readable"), Some(entry.id));
        }
    }
}
