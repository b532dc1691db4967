//! The listing commands on the golden pools, compared with the output of OpenZFS 2.3.2 for each of them.
//!
//! Images are in other folders here, so the first column has another width; everything else is compared
//! unchanged. Every intended difference is named with its reason.

use crate::common;
use std::collections::BTreeMap;
use testkit::Fixture;

/// Output of a command in `state.txt`.
fn section(text: &str, command: &str) -> Option<String> {
    let start = text.find(&format!("$ {command} "))?;
    let body = &text[start..];
    let body = &body[body.find('\n')? + 1..];
    Some(body[..body.find("\n$ ").unwrap_or(body.len())].to_owned())
}

/// The text with the first column of its table cut to its contents, because its width depends on the paths of
/// images. The first column ends `back` characters before the header `second`.
fn unpadded(text: &str, second: &str, back: usize) -> String {
    let mut width = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("NAME") {
            width = line.find(second).map(|at| at - back);
        }
        match width.filter(|w| line.len() >= *w && line.is_char_boundary(*w)) {
            Some(width) => lines.push(format!("{}|{}", line[..width].trim_end(), &line[width..])),
            None => lines.push(line.to_owned()),
        }
        if line.is_empty() && !lines.last().is_some_and(|l| l.contains('|')) && lines.len() > 2 {
            width = None;
        }
    }
    lines.join("\n")
}

/// [`unpadded`] with the present paths of the images.
fn moved(fixture: &Fixture, text: &str) -> String {
    let made_in = fixture.manifest().extra.get("created_in").and_then(|v| v.as_str()).expect("a folder");
    let here = format!("{}/", fixture.dir().display());
    // For a missing device, only the path in the configuration is known.
    text.replace(&format!("{made_in}/"), &here).replace(&format!("was {here}"), &format!("was {made_in}/"))
}

fn run(fixture: &Fixture, words: &[&str]) -> String {
    let ran = common::run(fixture.dir(), words);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}: {words:?}", fixture.name());
    ran.out
}

fn report(fixture: &Fixture, what: &str, expected: &str, found: &str, wrong: &mut Vec<String>) {
    let (expected, found): (Vec<&str>, Vec<&str>) =
        (expected.trim_end().lines().collect(), found.trim_end().lines().collect());
    if expected == found {
        return;
    }
    let mut text = format!("{}: {what}", fixture.name());
    for i in 0..expected.len().max(found.len()) {
        let (e, f) = (expected.get(i), found.get(i));
        if e != f {
            text.push_str(&format!("\n  - {}\n  + {}", e.unwrap_or(&""), f.unwrap_or(&"")));
        }
    }
    wrong.push(text);
}

fn finish(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether the import by OpenZFS changed the images before it printed the listings.
fn is_changed_by_import(fixture: &Fixture) -> bool {
    // Unclean pools were rolled forward, logs replayed, expansions resumed.
    fixture.manifest().is_unclean()
}

/// Whether `state.txt` was printed after a scrub, while the images are the damaged ones.
fn is_printed_after_scrub(fixture: &Fixture) -> bool {
    let scrubbed = ["heal-", "labels-", "lost-block", "missing-disk", "silent-disk", "uberblock-torn"];
    scrubbed.iter().any(|name| fixture.name().starts_with(name))
}

/// Whether the labels name devices (`/dev/vdb1`), which are images here.
fn is_whole_disk(fixture: &Fixture) -> bool {
    fixture.name() == "wholedisk"
}

#[test]
fn status_as_printed_by_openzfs() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_whole_disk(f)) {
        // In silent-disk, the import read bad blocks that this command does not read.
        if is_changed_by_import(&fixture) || fixture.name() == "silent-disk" {
            continue;
        }
        let text = match is_printed_after_scrub(&fixture) {
            true => fixture.text("status-after-import.txt"),
            false => section(&fixture.text("state.txt"), "zpool status -vP").expect("there"),
        };
        let found = run(&fixture, &["zpool", "status", "-vP", &fixture.manifest().pool]);
        let cut = |text: &str| unpadded(text, "STATE", 2);
        report(&fixture, "zpool status -vP", &moved(&fixture, &cut(&text)), &cut(&found), &mut wrong);
    }
    finish(&wrong);
}

#[test]
fn dedup_tables_as_printed_by_openzfs() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_whole_disk(f)) {
        if is_changed_by_import(&fixture) || is_printed_after_scrub(&fixture) {
            continue;
        }
        let text = section(&fixture.text("state.txt"), "zpool status -DD").expect("there");
        let found = run(&fixture, &["zpool", "status", "-DD", &fixture.manifest().pool]);
        let cut = |text: &str| unpadded(text, "STATE", 2);
        report(&fixture, "zpool status -DD", &moved(&fixture, &cut(&text)), &cut(&found), &mut wrong);
    }
    finish(&wrong);
}

/// A line of `zpool list -v` with question marks for values that the import before it was printed has
/// changed: allocated and free space, fragmentation, used share.
fn masked(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let (name, cells) = line.split_once('|').unwrap_or((line, ""));
        let mut cells = cells.to_owned();
        for changed in [7..14, 14..21, 40..47, 47..54] {
            let is_number =
                cells.get(changed.clone()).is_some_and(|c| c.contains(|c: char| c.is_ascii_digit()));
            if is_number {
                cells.replace_range(changed, "      ?");
            }
        }
        lines.push(format!("{name}|{cells}"));
    }
    lines.join("\n")
}

#[test]
fn pools_as_listed_by_openzfs() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_whole_disk(f)) {
        if is_changed_by_import(&fixture) || is_printed_after_scrub(&fixture) {
            continue;
        }
        let text = section(&fixture.text("state.txt"), "zpool list -vP").expect("there");
        let mut found = run(&fixture, &["zpool", "list", "-vP", &fixture.manifest().pool]);
        let mut text = text;
        // Cenote does not use cache devices, so their allocated space differs.
        for text in [&mut text, &mut found] {
            let lines = text.lines().filter(|line| !line.contains("/c0.img"));
            *text = lines.collect::<Vec<_>>().join("\n");
        }
        let cut = |text: &str| masked(&unpadded(text, "SIZE", 3));
        report(&fixture, "zpool list -vP", &moved(&fixture, &cut(&text)), &cut(&found), &mut wrong);
    }
    finish(&wrong);
}

#[test]
fn datasets_as_listed_by_openzfs() {
    for fixture in Fixture::all() {
        if is_changed_by_import(&fixture) || is_printed_after_scrub(&fixture) {
            continue;
        }
        let text = section(&fixture.text("state.txt"), "zfs list").expect("there");
        let columns = "name,type,used,referenced,written,compressratio,origin";
        let pool = fixture.manifest().pool.clone();
        let found = run(&fixture, &["zfs", "list", "-r", "-t", "all", "-o", columns, &pool]);
        // The space of the meta object set, charged to the root, changed with the import before this was
        // printed.
        let root = format!("{pool} ");
        let without = |text: &str| -> String {
            text.lines().filter(|line| !line.starts_with(&root)).collect::<Vec<_>>().join("\n")
        };
        let (text, found) = (without(&text), without(&found));
        // Names are the same here, and so is the layout.
        assert_eq!(text.trim_end(), found.trim_end(), "{}", fixture.name());
    }
}

/// Value and source by name, of one object, from `get -Hp`.
type Properties = BTreeMap<String, (String, String)>;

/// The reason why a dataset property may differ; `None`: it may not.
fn dataset_exception(_: &Fixture, name: &str, property: &str) -> Option<&'static str> {
    let is_root = !name.contains(['/', '@']);
    match property {
        "keystatus" => Some("the keys were loaded when the manifest was made"),
        "receive_resume_token" => Some("another deflate packs the same list in other bytes"),
        "available" => Some("checked against `used` of the root in `room_is_what_the_root_leaves`"),
        "used" | "usedbychildren" | "logicalused" | "compressratio" if is_root => {
            Some("the pool's own objects are charged to the root, and the import before changed them")
        }
        _ => None,
    }
}

#[test]
fn dataset_properties_as_openzfs_gets_them() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_changed_by_import(f)) {
        let pool = fixture.manifest().pool.clone();
        let text = run(&fixture, &["zfs", "get", "-Hp", "-r", "-t", "all", "all", &pool]);
        let mut found: BTreeMap<String, Properties> = BTreeMap::new();
        for line in text.lines() {
            let mut cells = line.split('\t').map(str::to_owned);
            let mut next = || cells.next().expect("four cells");
            found.entry(next()).or_default().insert(next(), (next(), next()));
        }
        for dataset in &fixture.manifest().datasets {
            let Some(ours) = found.remove(&dataset.name) else {
                wrong.push(format!("{}: {} is not listed", fixture.name(), dataset.name));
                continue;
            };
            let theirs: Properties = dataset
                .properties
                .iter()
                .map(|(name, p)| (name.clone(), (p.value.clone(), p.source.clone())))
                .collect();
            compare(&fixture, &dataset.name, &theirs, &ours, &dataset_exception, &mut wrong);
        }
        let marks = found.keys().filter(|name| !name.contains('#'));
        wrong.extend(marks.map(|name| format!("{}: {name} is in no manifest", fixture.name())));
    }
    finish(&wrong);
}

fn compare(
    fixture: &Fixture,
    name: &str,
    theirs: &Properties,
    ours: &Properties,
    exception: &dyn Fn(&Fixture, &str, &str) -> Option<&'static str>,
    wrong: &mut Vec<String>,
) {
    let names = theirs.keys().chain(ours.keys().filter(|k| !theirs.contains_key(*k)));
    for property in names {
        let (a, b) = (theirs.get(property), ours.get(property));
        if a != b && exception(fixture, name, property).is_none() {
            wrong.push(format!("{}: {name} {property}: {a:?}, found {b:?}", fixture.name()));
        }
    }
}

/// The reason why a pool property may differ; `None`: it may not.
fn pool_exception(_: &Fixture, _: &str, property: &str) -> Option<&'static str> {
    match property {
        "readonly" => Some("opened read-only here"),
        "load_guid" => Some("drawn anew by each import"),
        "free" | "allocated" | "capacity" | "fragmentation" | "last_scrubbed_txg" => {
            Some("the pool's own objects changed with the import and scrub before the manifest was made")
        }
        _ => None,
    }
}

/// Value of one property of one object from `get -Hp`.
fn number(fixture: &Fixture, words: &[&str]) -> i128 {
    run(fixture, &[words, &["-Hpo", "value"]].concat()).trim().parse().expect("a number")
}

/// Free and used space may have changed with the import before the manifest was made, but their sum has not.
#[test]
fn room_is_what_the_root_leaves() {
    for fixture in Fixture::all().filter(|f| !is_changed_by_import(f)) {
        let manifest = fixture.manifest();
        let root = manifest.dataset(&manifest.pool).expect("the root");
        let theirs =
            |name: &str| -> i128 { root.property(name).and_then(|v| v.parse().ok()).expect("a number") };
        let ours = |name: &str| number(&fixture, &["zfs", "get", name, &manifest.pool]);
        let shift = ours("available") + ours("used") - theirs("available") - theirs("used");
        // Without log space maps, blocks freed late in a txg wait one txg: there were a few when the manifest
        // was made.
        let waiting =
            if manifest.features.get("log_spacemap").is_none_or(|s| s != "active") { 1 << 18 } else { 0 };
        assert!(shift.abs() <= waiting, "{}: {shift}", fixture.name());
        let pool = |name: &str| number(&fixture, &["zpool", "get", name, &manifest.pool]);
        assert_eq!(pool("allocated") + pool("free"), pool("size"), "{}", fixture.name());
    }
}

#[test]
fn pool_properties_as_openzfs_gets_them() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_changed_by_import(f)) {
        let manifest = fixture.manifest();
        let mut ours = Properties::new();
        for line in run(&fixture, &["zpool", "get", "-Hp", "all", &manifest.pool]).lines() {
            let mut cells = line.split('\t').map(str::to_owned);
            let mut next = || cells.next().expect("four cells");
            next();
            ours.insert(next(), (next(), next()));
        }
        let stored = manifest.pool_properties.iter();
        let mut theirs: Properties =
            stored.map(|(name, p)| (name.clone(), (p.value.clone(), p.source.clone()))).collect();
        let features = manifest.features.iter();
        theirs.extend(
            features.map(|(name, state)| (format!("feature@{name}"), (state.clone(), "local".into()))),
        );
        compare(&fixture, &manifest.pool, &theirs, &ours, &pool_exception, &mut wrong);
    }
    finish(&wrong);
}

#[test]
fn space_by_owner_as_openzfs_counts_it() {
    let mut wrong = Vec::new();
    for fixture in Fixture::all().filter(|f| !is_changed_by_import(f)) {
        for dataset in &fixture.manifest().datasets {
            // The keys are not loaded here.
            let encrypted = dataset.property("encryption").is_some_and(|e| e != "off");
            if encrypted || dataset.kind != "filesystem" {
                continue;
            }
            let kinds = [
                ("userspace", &dataset.userspace),
                ("groupspace", &dataset.groupspace),
                ("projectspace", &dataset.projectspace),
            ];
            for (verb, rows) in kinds.into_iter().filter(|(_, rows)| !rows.is_empty()) {
                let numeric: &[&str] = if verb == "projectspace" { &[] } else { &["-n"] };
                let words = [&["zfs", verb, "-Hp"], numeric, &[&dataset.name]].concat();
                let expected: Vec<String> = rows.iter().map(|row| row.join("\t")).collect();
                let found = run(&fixture, &words);
                if expected != found.lines().collect::<Vec<_>>() {
                    wrong.push(format!(
                        "{}: {words:?}\n{}\n found\n{found}",
                        fixture.name(),
                        expected.join("\n")
                    ));
                }
            }
        }
    }
    finish(&wrong);
}

#[test]
fn holds_are_listed() {
    let fixture = Fixture::open("snapshots");
    for dataset in fixture.manifest().datasets.iter().filter(|d| d.is_snapshot()) {
        let found = run(&fixture, &["zfs", "holds", "-H", &dataset.name]);
        let tags: Vec<&str> = found.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        assert_eq!(tags, dataset.holds, "{}", dataset.name);
    }
}

/// Output of `zpool import` for a folder, without paths.
fn import_list(dir: &std::path::Path) -> (String, i32) {
    let ran = common::run("/dev/null".as_ref(), &["zpool", "import", "-d", dir.to_str().expect("a path")]);
    (format!("{}{}", ran.err, ran.out).replace(&format!("{}/", dir.display()), ""), ran.code)
}

#[test]
fn importable_pools_are_listed_with_what_they_lack() {
    let fixture = Fixture::open("mirror");
    let guid = fixture.manifest().pool_properties["guid"].value.clone();
    let (text, code) = import_list(fixture.dir());
    let (head, config) = text.split_once("config:\n\n").expect("a configuration");
    let expected = format!(
        "  pool: t_mirror\n    id: {guid}\n state: ONLINE\n\
         action: The pool can be imported using its name or numeric identifier.\n"
    );
    assert_eq!((head, code), (expected.as_str(), 0));
    let lines: Vec<Vec<&str>> = config.lines().map(|l| l.split_whitespace().collect()).collect();
    let healthy = |name| vec![name, "ONLINE"];
    assert_eq!(lines, ["t_mirror", "mirror-0", "d0.img", "d1.img"].map(healthy));

    let half = fixture.scratch_of(&["d0.img"]);
    let (text, code) = import_list(half.dir());
    let (head, config) = text.split_once("config:\n\n").expect("a configuration");
    let expected = format!(
        "  pool: t_mirror\n    id: {guid}\n state: DEGRADED\n\
         status: One or more devices are missing from the system.\n\
         action: The pool can be imported despite missing or damaged devices.  The\n\
         \tfault tolerance of the pool may be compromised if imported.\n   \
         see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q\n"
    );
    assert_eq!((head, code), (expected.as_str(), 0));
    assert!(config.contains("UNAVAIL  cannot open\n"), "{config}");
}

#[test]
fn a_pool_that_cannot_be_opened_is_an_error_beside_those_that_can() {
    let two = Fixture::open("raid10").scratch_of(&["d0.img"]);
    let other = Fixture::open("single");
    let devices = format!("{}\n{}", two.dir().display(), other.dir().display());
    let ran = common::run(devices.as_ref(), &["zpool", "list", "-Ho", "name"]);
    assert_eq!((ran.out.as_str(), ran.code), ("t_single\n", 1), "{}", ran.err);
    assert!(ran.err.contains("cannot open 't_raid10'"), "{}", ran.err);
}

#[test]
fn two_pools_of_one_name_are_told_apart_by_guid() {
    let pool = Fixture::open("single");
    // The same guid in two places is one pool; its devices are found twice.
    let copy = pool.scratch();
    let devices = format!("{}\n{}", pool.dir().display(), copy.dir().display());
    let ran = common::run(devices.as_ref(), &["zpool", "list", "-Ho", "name,health"]);
    assert_eq!((ran.out.as_str(), ran.code), ("t_single\tONLINE\n", 0), "{}", ran.err);
}

#[test]
fn vdevs_have_properties() {
    let fixture = Fixture::open("properties");
    let image = fixture.images().remove(0);
    let image = image.to_str().expect("a path");
    let value = |name: &str| {
        run(&fixture, &["zpool", "get", "-Hpo", "value", name, &fixture.manifest().pool, image])
            .trim()
            .to_owned()
    };
    assert_eq!(value("com.example:vdevprop"), "v");
    assert_eq!(value("parent"), fixture.manifest().pool);
    assert_eq!(value("path"), image);
    assert_eq!(value("ashift"), "9");
    assert_eq!(value("allocating"), "on");
    assert_eq!(value("state"), "7");
}

#[test]
fn written_since_and_quotas_by_name() {
    let fixture = Fixture::open("properties");
    let value = |name: &str, dataset: &str| {
        run(&fixture, &["zfs", "get", "-Hpo", "value", name, dataset]).trim().to_owned()
    };
    assert_eq!(value("userquota@1000", "t_properties/a"), "10485760");
    assert_eq!(value("groupquota@2000", "t_properties/a"), "20971520");
    assert_eq!(value("projectquota@42", "t_properties/a"), "15728640");
    assert_eq!(value("userobjquota@1000", "t_properties/a"), "50");
    assert_eq!(value("userused@2000", "t_properties/a"), "40960");
    let snapshots = Fixture::open("snapshots");
    let written = |name: &str| number(&snapshots, &["zfs", "get", name, "t_snapshots/fs"]);
    assert_eq!(written("written@renamed"), written("written"));
    assert!(written("written@one") > written("written@two"));
}

#[test]
fn a_path_stands_for_its_file_system() {
    let fixture = Fixture::open("properties");
    let found = run(&fixture, &["zfs", "list", "-Ho", "name", "/mnt/properties/elsewhere/c/some/file"]);
    assert_eq!(found, "t_properties/a/b/c\n");
}

#[test]
fn keys_from_the_environment_unlock_what_they_belong_to() {
    let fixture = Fixture::open("encryption");
    let folder = tempfile::tempdir().expect("a folder");
    let key_of = |root: &str| {
        let dataset = fixture.manifest().dataset(root).expect("an encryption root");
        let material =
            dataset.property("keyformat").and_then(testkit::keys::material).expect("a known format");
        let file = folder.path().join(root.replace('/', "_"));
        std::fs::write(&file, material).expect("a key file");
        format!("{root}={}\n", file.display())
    };
    for dataset in fixture.manifest().datasets.iter().filter(|d| d.property("keystatus") == Some("available"))
    {
        let keys = key_of(dataset.property("encryptionroot").expect("a root"));
        let run = |words: &[&str]| {
            let ran = common::run_with(fixture.dir(), &keys, words);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
            ran.out
        };
        assert_eq!(run(&["zfs", "get", "-Ho", "value", "keystatus", &dataset.name]).trim(), "available");
        if dataset.kind == "filesystem" && !dataset.userspace.is_empty() {
            let expected: Vec<String> = dataset.userspace.iter().map(|row| row.join("\t")).collect();
            let found = run(&["zfs", "userspace", "-Hpn", &dataset.name]);
            assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{}", dataset.name);
        }
    }
    let locked = common::run(fixture.dir(), &["zfs", "userspace", "t_encryption/raw"]);
    assert_eq!((locked.code, locked.out.as_str()), (1, ""));
    assert!(locked.err.contains("the key of 't_encryption/raw' is not loaded"), "{}", locked.err);
}
