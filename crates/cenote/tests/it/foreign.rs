//! Pools that were not made for these tests: the images of OpenZFS's own tests (package `zfs-test`: versions 1 to
//! 15, some from SPARC), pools of a killed `ztest`, and golden pools that were copied badly, truncated or moved.
//!
//! The expected numbers for images are those of `zdb -bcc` of OpenZFS 2.3.2.

// The images under test are host files that are created and damaged here.
#![allow(clippy::disallowed_types)]

use cenote::inspect::{Check, blocks};
use cenote::verify::{Options, Report, verify};
use cenote::{Dataset, Error, OpenOptions, Pool};
use format::label::{CONFIG_OFFSET, CONFIG_SIZE, LABELS, RING_OFFSET, RING_SIZE, label_offset, verifier};
use format::{DeviceOffset, NvList};
use pool::PoolError;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testkit::{Fixture, Scratch, need_file, need_tool};
use vdev::tree::VdevState;

/// Directory of the images of `zfs-test`.
const IMAGES: &str = "/usr/share/zfs/zfs-tests/tests/functional/cli_root";

/// Directory of further tests of `zfs-test`.
const FUNCTIONAL: &str = "/usr/share/zfs/zfs-tests/tests/functional";

/// Unpacks images of `zfs-test` into a new directory. `None`: they are not installed; the test is reported as
/// skipped.
fn unpacked(images: &[&str]) -> Option<TempDir> {
    let bunzip2 = need_tool("bunzip2")?;
    let folder = TempDir::new().expect("a folder");
    for image in images {
        let group = if image.starts_with("zfs-") { "zpool_upgrade" } else { "zpool_import" };
        let packed = format!("{IMAGES}/{group}/blockfiles/{image}.dat.bz2");
        if !need_file(&packed) {
            return None;
        }
        let mut run =
            Command::new(&bunzip2).arg("-kc").arg(&packed).stdout(Stdio::piped()).spawn().expect("bunzip2");
        write_sparse(
            &mut run.stdout.take().expect("its output"),
            &folder.path().join(format!("{image}.dat")),
        );
        assert!(run.wait().expect("bunzip2").success(), "{packed}");
    }
    Some(folder)
}

/// Unpacks one image of a test's directory with a command that writes it to standard output.
fn unpacked_from(packed: &str, command: &[&str]) -> Option<TempDir> {
    let path = format!("{FUNCTIONAL}/{packed}");
    let (program, options) = command.split_first()?;
    let program = need_tool(program)?;
    if !need_file(&path) {
        return None;
    }
    let folder = TempDir::new().expect("a folder");
    let mut run =
        Command::new(program).args(options).arg(&path).stdout(Stdio::piped()).spawn().expect("unpacks");
    write_sparse(&mut run.stdout.take().expect("its output"), &folder.path().join("image"));
    assert!(run.wait().expect("unpacks").success(), "{packed}");
    Some(folder)
}

/// Writes a sparse file: most of an image is zeros.
fn write_sparse(from: &mut dyn Read, path: &Path) {
    let mut file = File::create(path).expect("an image");
    let mut piece = vec![0; 1 << 16];
    let zeros = piece.clone();
    let mut len = 0;
    loop {
        let n = from.read(&mut piece).expect("unpacked");
        if n == 0 {
            break;
        }
        if piece[..n] != zeros[..n] {
            file.seek(SeekFrom::Start(len)).and_then(|_| file.write_all(&piece[..n])).expect("written");
        }
        len += n as u64;
    }
    file.set_len(len).expect("its size");
}

fn open(name: &str, folder: &Path) -> Result<Pool, Error> {
    Pool::open(name, &OpenOptions::new().search(folder))
}

/// Reads all files by name. Returns their number, including the root.
fn count_files(dataset: &Dataset) -> usize {
    let fs = dataset.filesystem().expect("a file system");
    let mut todo = vec![fs.node(fs.root()).expect("the root")];
    let mut count = 0;
    while let Some(node) = todo.pop() {
        count += 1;
        node.xattr_values().expect("attributes");
        node.acl().expect("the ACL");
        if node.is_dir() {
            for entry in node.entries().expect("a directory") {
                todo.push(fs.node(entry.expect("an entry").id).expect("a file"));
            }
        } else if node.kind() == zpl::FileKind::Regular {
            let mut content = vec![0; node.attrs().size as usize];
            assert_eq!(node.read_at(0, &mut content).expect("content"), content.len());
        }
    }
    count
}

/// Checks that every copy of every block is good, and that the blocks found are the allocated ones: this many
/// bytes.
fn check_blocks(pool: &Pool, allocated: u64) -> Report {
    let report = verify(pool, &Options::default(), &());
    assert!(report.is_whole(), "{}: {report:?}", pool.name());
    let space = blocks(pool, Check::Nothing, true).expect("counted").space.expect("everything was looked at");
    assert_eq!((space.found, space.allocated), (allocated, allocated), "{}", pool.name());
    assert!(space.matches(), "{}: {space:?}", pool.name());
    report
}

/// Checks version, allocated bytes, and number of files of the only dataset.
fn check_image(pool: &str, images: &[&str], version: u64, allocated: u64, files: usize) {
    let Some(folder) = unpacked(images) else { return };
    let pool = open(pool, folder.path()).expect("opens");
    assert_eq!(pool.spa().version(), version, "{}", pool.name());
    assert!(check_blocks(&pool, allocated).is_clean(), "{}", pool.name());
    let datasets = pool.datasets().expect("datasets");
    assert_eq!(datasets.len(), 1);
    assert_eq!(count_files(&datasets[0]), files, "{}", pool.name());
}

#[test]
fn one_disk_of_each_version() {
    let pools: [(u64, u64, usize); 15] = [
        (1, 529_408, 302), // written on SPARC, as are 2 and 3
        (2, 117_248, 2),
        (3, 121_856, 2),
        (4, 167_424, 2),
        (5, 171_008, 6),
        (6, 167_936, 2),
        (7, 167_936, 2),
        (8, 167_936, 2),
        (9, 75_264, 1),
        (10, 75_264, 1),
        (11, 81_408, 1),
        (12, 81_408, 1),
        (13, 81_408, 1),
        (14, 81_408, 1),
        (15, 84_480, 1),
    ];
    for (version, allocated, files) in pools {
        check_image(
            &format!("v{version}-pool"),
            &[&format!("zfs-pool-v{version}")],
            version,
            allocated,
            files,
        );
    }
}

#[test]
fn layouts_of_versions_one_to_three() {
    for (layout, version, allocated, files) in [
        ("v1mirror", 1, 536_576, 302),
        ("v1raidz", 1, 885_760, 302),
        ("v1stripe", 1, 536_576, 302),
        ("v2mirror", 2, 314_368, 302),
        ("v2raidz", 2, 574_464, 302),
        ("v2stripe", 2, 183_808, 102),
        ("v3mirror", 3, 126_976, 2),
        ("v3raidz", 3, 208_896, 2),
        ("v3raidz2", 3, 370_176, 2),
        ("v3stripe", 3, 123_392, 2),
        ("v3hotspare", 3, 335_872, 1),
    ] {
        let images: Vec<String> = (1..=3).map(|i| format!("zfs-pool-{layout}{i}")).collect();
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        check_image(&format!("pool-{layout}"), &images, version, allocated, files);
    }
}

/// Old pools without as many disks as their redundancy allows.
#[test]
fn old_pools_without_disks() {
    for (layout, spare, allocated) in
        [("v1mirror", 2, 536_576), ("v1raidz", 1, 885_760), ("v3raidz2", 2, 370_176)]
    {
        for kept in 1..=3 {
            let images: Vec<String> = match spare {
                2 => vec![format!("zfs-pool-{layout}{kept}")],
                _ => (1..=3).filter(|i| *i != kept).map(|i| format!("zfs-pool-{layout}{i}")).collect(),
            };
            let images: Vec<&str> = images.iter().map(String::as_str).collect();
            let Some(folder) = unpacked(&images) else { return };
            let pool = open(&format!("pool-{layout}"), folder.path()).expect("opens");
            let report = check_blocks(&pool, allocated);
            assert_eq!(report.devices.len(), spare, "{layout} with {kept}");
        }
    }
}

/// One side of the mirror is smaller than the minimum size of a leaf.
#[test]
fn a_mirror_with_a_cut_side_is_degraded() {
    let Some(folder) = unpacked(&["zfs-broken-mirror1", "zfs-broken-mirror2"]) else { return };
    let pool = open("zfs-broken-mirror", folder.path()).expect("opens");
    check_blocks(&pool, 242_688);
    assert_eq!(pool.spa().tree().status().state, VdevState::Degraded);
}

#[test]
fn a_version_of_the_future_is_named_and_refused() {
    let Some(folder) = unpacked(&["zfs-pool-v999"]) else { return };
    match open("v999-pool", folder.path()) {
        Err(Error::Pool(error @ PoolError::Version { version: 999 })) => {
            assert!(error.to_string().contains("unsupported ZFS version (999)"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

/// Keys of the first version of encryption; received snapshots that lack initialization vectors.
#[test]
fn encryption_of_early_releases() {
    let Some(folder) = unpacked(&["cryptv0", "missing_ivset"]) else { return };
    for (name, allocated) in [("cryptv0", 3_032_064), ("missing_ivset", 514_048)] {
        let pool = open(name, folder.path()).expect("opens");
        for dataset in ["testfs", "testvol"] {
            let dataset = format!("{name}/{dataset}");
            assert!(pool.load_key(&dataset, b"passwort").is_err());
            pool.load_key(&dataset, b"password").expect("the right key");
        }
        let report = check_blocks(&pool, allocated);
        assert!(report.is_clean());
        let verified = |name: &str| {
            let set = report.datasets.iter().find(|set| set.name == name).expect("listed");
            assert_eq!(set.encryption, cenote::verify::Encryption::Verified, "{name}");
        };
        for dataset in pool.datasets().expect("datasets") {
            if dataset.name() == name {
                count_files(&dataset);
                continue;
            }
            verified(dataset.name());
            match dataset.volume() {
                Ok(volume) => volume.read_at(0, &mut vec![0; 1 << 20]).expect("read"),
                Err(_) => drop(count_files(&dataset)),
            }
        }
    }
}

#[test]
fn a_pool_that_was_not_exported() {
    check_image("unclean_export", &["unclean_export"], 5000, 107_008, 1);
}

/// Pools that moved from SPARC and from i386, with the expected output of `zpool history`.
#[test]
fn pools_that_moved_between_machines() {
    for (image, pool, allocated, files) in [
        ("sparc.migratedpool.DAT", "history_pool", 128_000, 1),
        ("i386.migratedpool.DAT", "history_pool", 128_000, 1),
        ("zfs-pool-v4.dat", "zfs-pool-v4", 125_952, 1),
    ] {
        let Some(folder) = unpacked_from(&format!("history/{image}.Z"), &["gzip", "-dc"]) else { return };
        let pool = open(pool, folder.path()).expect("opens");
        assert_eq!(pool.spa().version(), 4, "{image}");
        assert!(check_blocks(&pool, allocated).is_clean(), "{image}");
        let datasets = pool.datasets().expect("datasets");
        assert_eq!(datasets.iter().map(count_files).collect::<Vec<_>>(), [files], "{image}");
        let records = pool.spa().history().expect("readable").into_iter();
        let records: Vec<_> = records.collect::<Result<_, _>>().expect("records");
        let commands: Vec<&str> = records.iter().filter_map(|record| record.str("history command")).collect();
        assert!(commands.first().is_some_and(|first| first.starts_with("zpool create")), "{commands:?}");
        let Some((machine, _)) = image.split_once(".migrated") else { continue };
        let original = fs::read_to_string(format!("{FUNCTIONAL}/history/{machine}.orig_history.txt"));
        let original = original.expect("the commands");
        // Each line has date and command. The image was exported after the lines were written.
        let lines: Vec<&str> = original.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
        let lines: Vec<&str> = lines.into_iter().filter(|line| line.starts_with('z')).collect();
        assert!(!lines.is_empty() && commands.len() > lines.len(), "{commands:?}");
        assert_eq!(commands[..lines.len()], lines, "{image}");
    }
}

/// zstd data written by little-endian Linux and by big-endian FreeBSD, in one pool.
#[test]
fn zstd_of_both_byte_orders() {
    let Some(folder) = unpacked_from("compression/testpool_zstd.tar.gz", &["tar", "-xzOf"]) else {
        return;
    };
    let pool = open("testpool_zstd", folder.path()).expect("opens");
    assert!(check_blocks(&pool, 681_984).is_clean());
    let file = |dataset: &str| {
        let fs = pool.dataset(dataset).expect("listed").filesystem().expect("a file system");
        let node = fs.open(b"/zstd").expect("there");
        let mut content = vec![0; node.attrs().size as usize];
        assert_eq!(node.read_at(0, &mut content).expect("content"), content.len());
        content
    };
    // One program for each machine.
    let (little, big) = (file("testpool_zstd/x86_64"), file("testpool_zstd/ppc64_fbsd"));
    assert_eq!((&little[..6], &big[..6]), (&b"\x7fELF\x02\x01"[..], &b"\x7fELF\x02\x02"[..]));
    let count: usize = pool.datasets().expect("datasets").iter().map(count_files).sum();
    assert_eq!(count, 7);
}

/// The space accounting of a raw received file system cannot be authenticated: its files can be read.
#[test]
fn encrypted_without_authenticated_accounting() {
    let Some(folder) = unpacked_from("userquota/13709_reproducer.bz2", &["bunzip2", "-kc"]) else { return };
    let pool = open("testpool_13709", folder.path()).expect("opens");
    pool.load_key("testpool_13709/encroot", b"password").expect("the right key");
    let report = check_blocks(&pool, 612_352);
    assert!(report.is_clean());
    let verified =
        report.datasets.iter().filter(|set| set.encryption == cenote::verify::Encryption::Verified);
    assert_eq!(verified.count(), 4);
    for dataset in pool.datasets().expect("datasets") {
        count_files(&dataset);
    }
}

/// Every packed image of the package is opened by a test here, or is not a pool.
#[test]
fn no_image_is_left_out() {
    let Some(find) = need_tool("find") else { return };
    if !need_file(FUNCTIONAL) {
        return;
    }
    // Tables of dRAID, send streams, archives of files, the image of a volume.
    let no_pools = [
        "draidcfg.gz",
        "dedup.zsend.bz2",
        "dedup_encrypted_zvol.zsend.bz2",
        "dedup_encrypted_zvol.bz2",
        "fs.tar.gz",
    ];
    let tests = include_str!("foreign.rs");
    let listing = Command::new(find)
        .arg(FUNCTIONAL)
        .args(["-name", "*.bz2", "-o", "-name", "*.gz", "-o", "-name", "*.xz", "-o", "-name", "*.Z"])
        .output()
        .expect("find");
    let listing = String::from_utf8(listing.stdout).expect("names");
    assert!(listing.lines().count() > 60, "{listing}");
    for path in listing.lines() {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.split(".dat.").next().unwrap_or(name).trim_end_matches(".Z");
        // In the tables above, numbers of versions and of disks follow the names.
        let stem = match stem.strip_prefix("zfs-pool-") {
            Some(rest) if rest.starts_with('v') && rest[1..].parse::<u32>().is_ok() => "zfs-pool-v",
            Some(rest) => rest.strip_suffix(['1', '2', '3']).unwrap_or(rest),
            None => stem,
        };
        assert!(no_pools.contains(&name) || tests.contains(stem), "{name} is not tested: {stem}");
    }
}

/// With all images in one directory, each pool is found.
#[test]
fn several_pools_in_one_folder() {
    let images =
        ["zfs-pool-v1", "zfs-pool-v3hotspare3", "zfs-pool-v999", "zfs-pool-vBROKEN", "unclean_export"];
    let Some(folder) = unpacked(&images) else { return };
    fs::write(folder.path().join("note"), "not a pool").expect("written");
    for name in ["v1-pool", "v3-pool.dat", "unclean_export"] {
        open(name, folder.path()).expect("opens");
    }
    match open("tank", folder.path()) {
        Err(error) => assert!(error.to_string().contains("no such pool available: 'tank'"), "{error}"),
        Ok(_) => panic!("opened"),
    }
}

// Golden pools with damage.

fn refused(name: &str, folder: &Path) -> Error {
    match open(name, folder) {
        Err(error) => error,
        Ok(pool) => panic!("{} opened at txg {}", pool.name(), pool.spa().txg()),
    }
}

fn newest_txg(fixture: &Fixture) -> u64 {
    open(&fixture.manifest().pool, fixture.dir()).expect("opens").spa().txg().0
}

fn fill(image: &Path, at: u64, len: usize, byte: u8) {
    let file = fs::OpenOptions::new().write(true).open(image).expect("an image");
    file.write_all_at(&vec![byte; len], at).expect("written");
}

fn cut(image: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(image).and_then(|file| file.set_len(len)).expect("cut");
}

fn label_at(image: &Path, label: usize) -> u64 {
    label_offset(label, fs::metadata(image).expect("an image").len()).0
}

fn images(scratch: &Scratch) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(scratch.dir()).expect("a folder").map(|e| e.expect("a file").path()).collect();
    all.sort();
    all
}

#[test]
fn any_one_label_is_enough() {
    let fixture = Fixture::open("single");
    for lost in 0..1 << LABELS {
        let scratch = fixture.scratch();
        let image = scratch.image("d0.img");
        for label in (0..LABELS).filter(|label| lost & (1 << label) != 0) {
            fill(&image, label_at(&image, label), format::label::LABEL_SIZE as usize, 0);
        }
        match open("t_single", scratch.dir()) {
            Ok(pool) => assert_eq!(pool.spa().txg().0, newest_txg(&fixture), "{lost:04b}"),
            Err(_) => assert_eq!(lost, 0b1111),
        }
    }
}

/// The labels name the newest txg, but its uberblock is missing: the previous state is not shown as if it were the
/// newest.
#[test]
fn an_older_state_is_not_shown_silently() {
    let fixture = Fixture::open("mirror");
    let newest = newest_txg(&fixture);
    let scratch = fixture.scratch();
    for image in images(&scratch) {
        let file = fs::OpenOptions::new().read(true).write(true).open(&image).expect("an image");
        for label in 0..LABELS {
            let ring = label_at(&image, label) + RING_OFFSET;
            for at in (ring..ring + RING_SIZE as u64).step_by(1024) {
                let mut head = [0; 24];
                file.read_exact_at(&mut head, at).expect("read");
                if head[16..] == newest.to_le_bytes() {
                    file.write_all_at(&[0; 1024], at).expect("written");
                }
            }
        }
    }
    match refused("t_mirror", scratch.dir()) {
        Error::Pool(PoolError::LostUberblocks { labels, newest: left, .. }) => {
            assert!(labels.0 == newest && left < labels);
        }
        other => panic!("{other}"),
    }
    let recovered =
        Pool::open("t_mirror", &OpenOptions::new().search(scratch.dir()).recover(true)).expect("opens");
    assert!(recovered.spa().txg().0 < newest);
}

#[test]
fn a_cut_image_says_so() {
    let fixture = Fixture::open("single");
    let scratch = fixture.scratch();
    cut(&scratch.image("d0.img"), 40 << 20);
    let error = refused("t_single", scratch.dir()).to_string();
    assert!(error.contains("d0.img") && error.contains("its end is missing"), "{error}");
    // A larger pool may also lack only its end.
    let fixture = Fixture::open("big-labels");
    let scratch = fixture.scratch();
    let largest = images(&scratch)
        .into_iter()
        .max_by_key(|path| fs::metadata(path).expect("an image").len())
        .expect("one");
    cut(&largest, 66 << 20);
    let error = refused(&fixture.manifest().pool, scratch.dir()).to_string();
    assert!(error.contains("too small, it has 69206016 bytes"), "{error}");
}

/// Half of a mirror is sufficient, whatever the other half contains.
#[test]
fn a_mirror_with_a_spoilt_side() {
    let fixture = Fixture::open("mirror");
    type Spoil = fn(&Path);
    let ways: [(&str, Spoil); 5] = [
        ("cut", |image| cut(image, 66_060_288)),
        ("empty", |image| cut(image, 0)),
        ("without labels", |image| {
            (0..LABELS).for_each(|label| fill(image, label_at(image, label), 1 << 18, 0))
        }),
        ("overwritten", |image| fill(image, 4 << 20, 32 << 20, 0xa5)),
        ("renamed", |image| fs::rename(image, image.with_file_name("an other\nname")).expect("renamed")),
    ];
    for (what, spoil) in ways {
        let scratch = fixture.scratch();
        spoil(&scratch.image("d0.img"));
        let pool = open("t_mirror", scratch.dir()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(pool.spa().txg().0, newest_txg(&fixture));
        let report = verify(&pool, &Options::default(), &());
        assert!(report.is_whole(), "{what}: {report:?}");
        assert_eq!(report.is_clean(), what == "renamed", "{what}");
    }
}

#[test]
fn links_copies_and_junk_do_not_matter() {
    let scratch = Fixture::open("mirror").scratch();
    let at = |name: &str| scratch.dir().join(name);
    fs::copy(at("d0.img"), at("copy")).expect("copied");
    fs::hard_link(at("d0.img"), at("hard")).expect("linked");
    std::os::unix::fs::symlink("d1.img", at("soft")).expect("linked");
    std::os::unix::fs::symlink(".", at("loop")).expect("linked");
    std::os::unix::fs::symlink("nowhere", at("dangling")).expect("linked");
    fs::create_dir(at("folder")).expect("made");
    fs::write(at("text"), "hello").expect("written");
    File::create(at("sparse")).and_then(|file| file.set_len(8 << 40)).expect("made");
    let twice = OpenOptions::new().search(scratch.dir()).search(at("d0.img")).search(at("hard"));
    for options in [OpenOptions::new().search(scratch.dir()), twice] {
        let pool = Pool::open("t_mirror", &options).expect("opens");
        assert!(verify(&pool, &Options::default(), &()).is_clean());
    }
}

/// Changes the guid of the pool in the labels of an image.
fn change_guid(image: &Path, guid: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(image).expect("an image");
    for label in 0..LABELS {
        let at = label_at(image, label) + CONFIG_OFFSET;
        let mut region = vec![0; CONFIG_SIZE];
        file.read_exact_at(&mut region, at).expect("read");
        let mut config = NvList::decode(&region).expect("a configuration");
        config.set("pool_guid", guid);
        let packed = config.encode_xdr();
        region.fill(0);
        region[..packed.len()].copy_from_slice(&packed);
        codec::checksum::write_trailer(&mut region, verifier(DeviceOffset(at))).expect("large enough");
        file.write_all_at(&region, at).expect("written");
    }
}

#[test]
fn two_pools_of_one_name_are_told_apart_by_guid() {
    let fixture = Fixture::open("single");
    let (first, second) = (fixture.scratch(), fixture.scratch());
    change_guid(&second.image("d0.img"), 4711);
    let both = OpenOptions::new().search(first.dir()).search(second.dir());
    let guid = match Pool::open("t_single", &both) {
        Err(Error::Pool(PoolError::Ambiguous { guids, .. })) => {
            assert_eq!(guids.len(), 2);
            guids.into_iter().find(|guid| guid.0 != 4711).expect("the real one")
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    };
    let pool = Pool::open(&guid.to_string(), &both).expect("opens");
    assert_eq!(pool.guid(), guid);
}

#[test]
fn missing_top_level_devices_are_named() {
    let fixture = Fixture::open("stripe-added");
    for gone in ["d0.img", "d1.img"] {
        let scratch = fixture.scratch();
        fs::remove_file(scratch.image(gone)).expect("removed");
        match refused(&fixture.manifest().pool, scratch.dir()) {
            Error::Pool(error @ PoolError::MissingTops { .. }) => {
                let error = error.to_string();
                assert!(error.contains("one or more devices is currently unavailable"), "{error}");
                assert!(error.contains(gone) || error.contains("no device of top-level vdev 0"), "{error}");
            }
            other => panic!("{gone}: {other}"),
        }
    }
}

// Pools left by ztest.

/// Runs ztest for some seconds in a new directory and kills it.
fn killed_ztest(seconds: u64, options: &[&str]) -> Option<TempDir> {
    let ztest = need_tool("ztest")?;
    let folder = TempDir::new().expect("a folder");
    // `timeout` also kills the processes that ztest starts, and is gone before they are: one can still be inside a
    // write. The pipes are at their end only when no process of ztest is left.
    let output = Command::new("timeout")
        .args(["-s", "KILL", &seconds.to_string()])
        .arg(ztest)
        .args(["-T", "600", "-P", "300", "-f"])
        .arg(folder.path())
        .args(options)
        .current_dir(folder.path())
        .output()
        .expect("ztest");
    assert!(!output.status.success(), "ztest ended by itself");
    Some(folder)
}

/// The counts of `zdb`.
struct Counted {
    blocks: u64,
    bytes: u64,
    no_leaks: bool,
}

/// Runs `zdb`, which must find all blocks good. Returns their number, and whether their sum is the allocated space.
fn zdb_counts(folder: &Path) -> Option<Counted> {
    let zdb = need_tool("zdb")?;
    let output =
        testkit::hurried(zdb).arg("-e").arg("-p").arg(folder).args(["-bcc", "ztest"]).output().expect("zdb");
    assert!(
        output.status.success() || output.status.code() == Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout);
    let number = |label: &str| {
        let line = said.lines().find_map(|line| line.trim_start().strip_prefix(label));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {label} in {said}"))
    };
    Some(Counted {
        blocks: number("bp count:"),
        bytes: number("bp allocated:"),
        no_leaks: said.contains("No leaks"),
    })
}

/// A pool under random load, killed at an arbitrary moment: every block is checked, then again with as many missing
/// devices as the redundancy allows.
#[test]
fn pools_of_a_killed_ztest() {
    let Some(folder) = killed_ztest(
        8,
        &[
            "-K",
            "raidz",
            "-R",
            "2",
            "-r",
            "5",
            "-m",
            "1",
            "-a",
            "12",
            "-s",
            "256M",
            "-v",
            "1",
            "-C",
            "special=off",
        ],
    ) else {
        return;
    };
    let pool = open("ztest", folder.path()).expect("opens");
    let report = verify(&pool, &Options::default(), &());
    assert!(report.is_clean(), "{report:?}");
    let counted = blocks(&pool, Check::Nothing, true).expect("counted");
    let total = counted.tally.total();
    let space = counted.space.expect("everything was looked at");
    if let Some(zdb) = zdb_counts(folder.path()) {
        assert_eq!((total.blocks, total.asize), (zdb.blocks, zdb.bytes));
        assert_eq!(space.found == space.allocated, zdb.no_leaks, "{space:?}");
    }
    let leaves: Vec<PathBuf> = pool
        .spa()
        .tree()
        .status()
        .walk()
        .iter()
        .filter(|v| v.is_open)
        .filter_map(|v| v.path.clone())
        .collect();
    drop(pool);
    for gone in leaves.iter().take(2) {
        fs::remove_file(gone).expect("removed");
    }
    let pool = open("ztest", folder.path()).expect("opens");
    let report = verify(&pool, &Options::default(), &());
    assert!(report.is_whole(), "{report:?}");
}
