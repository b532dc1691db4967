//! Compares a pool with its manifest.

pub(crate) use cenote::error::chain;
use cenote::{Dataset, Filesystem, Node, OpenOptions, Pool, Volume};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use testkit::{Entry, EntryKind, Fixture, Manifest, keys};

/// How to open and compare a fixture.
#[derive(Default)]
pub(crate) struct Open {
    /// Directory of the manifest below the fixture's; empty: the fixture's own.
    pub(crate) manifest: &'static str,
    /// Open the pool as of its checkpoint.
    pub(crate) checkpoint: bool,
    /// Names of images to leave out.
    pub(crate) without: Vec<&'static str>,
}

/// Opens the pool of a fixture with all keys loaded.
pub(crate) fn open(fixture: &Fixture, how: &Open) -> Pool {
    let mut options = OpenOptions::new().checkpoint(how.checkpoint).cache_bytes(32 << 20);
    for image in fixture.images() {
        let name = image.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        if !how.without.iter().any(|left_out| name.starts_with(left_out)) {
            options = options.search(image);
        }
    }
    let pool =
        Pool::open(&fixture.manifest().pool, &options).unwrap_or_else(|error| panic!("{}", chain(&error)));
    for dataset in &fixture.manifest().datasets {
        let root = dataset.property("encryptionroot") == Some(dataset.name.as_str());
        let format = dataset.property("keyformat").and_then(keys::material);
        if let (true, Some(material)) = (root, format) {
            pool.load_key(&dataset.name, &material).unwrap_or_else(|error| panic!("{}", chain(&error)));
        }
    }
    pool
}

pub(crate) fn check(name: &str) {
    let pool = check_with(name, &Open::default());
    assert_eq!(faults(&pool), 0, "{name}: a healthy pool has no faults");
}

/// Number of errors counted on all devices.
pub(crate) fn faults(pool: &Pool) -> u64 {
    fn sum(vdev: &vdev::tree::VdevStatus) -> u64 {
        vdev.read_errors + vdev.checksum_errors + vdev.children.iter().map(sum).sum::<u64>()
    }
    sum(&pool.spa().tree().status())
}

/// Compares the whole pool. Returns the pool.
pub(crate) fn check_with(name: &str, how: &Open) -> Pool {
    let fixture = Fixture::open(name);
    let pool = open(&fixture, how);
    let wrong = differences(&fixture, &pool, how);
    let shown: Vec<&String> = wrong.iter().take(40).collect();
    assert!(wrong.is_empty(), "{name}: {} differences: {shown:#?}", wrong.len());
    pool
}

/// Differences between an open pool and its manifest.
pub(crate) fn differences(fixture: &Fixture, pool: &Pool, how: &Open) -> Vec<String> {
    let (manifest, entries) = answers(fixture, how);
    let mut wrong = Vec::new();
    datasets(pool, &manifest, &mut wrong);
    for dataset in manifest.datasets.iter().filter(|dataset| dataset.kind != "bookmark") {
        let expected = entries.get(&dataset.name);
        if let Err(error) = contents(pool, dataset, expected, &mut wrong) {
            wrong.push(format!("{}: {}", dataset.name, chain(&error)));
        }
    }
    wrong
}

type Answers = BTreeMap<String, BTreeMap<Vec<u8>, Entry>>;

fn answers(fixture: &Fixture, how: &Open) -> (Manifest, Answers) {
    let mut by_dataset: Answers = BTreeMap::new();
    let mut add = |entry: Entry| {
        by_dataset.entry(entry.ds.clone()).or_default().insert(entry.path.clone(), entry);
    };
    if how.manifest.is_empty() {
        fixture.entries().for_each(&mut add);
        return (fixture.manifest().clone(), by_dataset);
    }
    let other = fixture.variant(how.manifest);
    other.entries().for_each(&mut add);
    (other.manifest().clone(), by_dataset)
}

fn datasets(pool: &Pool, manifest: &Manifest, wrong: &mut Vec<String>) {
    let found: Vec<Dataset> = match pool.datasets() {
        Ok(found) => found,
        Err(error) => return wrong.push(chain(&error)),
    };
    let names: Vec<&str> = found.iter().map(Dataset::name).collect();
    for dataset in manifest.datasets.iter().filter(|dataset| dataset.kind != "bookmark") {
        if !names.contains(&dataset.name.as_str()) {
            wrong.push(format!("{} is missing", dataset.name));
        }
    }
    for name in names {
        if manifest.dataset(name).is_none() {
            wrong.push(format!("{name} is not in the manifest"));
        }
    }
}

pub(crate) fn contents(
    pool: &Pool,
    expected: &testkit::Dataset,
    entries: Option<&BTreeMap<Vec<u8>, Entry>>,
    wrong: &mut Vec<String>,
) -> Result<(), cenote::Error> {
    let dataset = pool.dataset(&expected.name)?;
    if let Some(sum) = &expected.volume_sha256 {
        let volume = dataset.volume()?;
        if Some(volume.size()) != expected.volume_bytes {
            wrong.push(format!("{}: size {}", expected.name, volume.size()));
        }
        let found = hash_volume(&volume, sum)?;
        if found != *sum {
            wrong.push(format!("{}: sha256 {found}, expected {sum}", expected.name));
        }
        return Ok(());
    }
    let Some(entries) = entries else { return Ok(()) };
    let files = dataset.filesystem()?;
    let found = tree(&files)?;
    // A mount with `snapdir=visible` shows a directory that is not stored.
    let stored = |path: &[u8]| path != b".zfs" && !path.starts_with(b".zfs/");
    let control_dir = entries.keys().any(|path| !stored(path));
    for (path, entry) in entries.iter().filter(|(path, _)| stored(path)) {
        let mut entry = entry.clone();
        if path == b"." {
            // The root of a mounted snapshot has an inode number of the mount; `.zfs` counts as a subdirectory.
            entry.ino = entry.ino.filter(|_| !expected.is_snapshot());
            entry.nlink -= u64::from(control_dir);
        }
        let entry = &entry;
        match found.get(path) {
            Some(node) => compare(node, entry, wrong),
            None => wrong.push(format!("{}/{}: missing", entry.ds, entry.path_lossy())),
        }
    }
    for path in found.keys().filter(|path| !entries.contains_key(*path)) {
        wrong.push(format!("{}/{}: not in the manifest", expected.name, path.escape_ascii()));
    }
    Ok(())
}

/// All files below the root, by path.
fn tree(fs: &Arc<Filesystem>) -> Result<BTreeMap<Vec<u8>, Node>, cenote::Error> {
    let root = fs.node(fs.root())?;
    let mut all = BTreeMap::new();
    let mut todo = vec![(Vec::new(), root)];
    while let Some((path, dir)) = todo.pop() {
        for entry in dir.entries()? {
            let entry = entry?;
            let mut below: Vec<u8> = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            let node = fs.node(entry.id)?;
            if node.is_dir() {
                todo.push((below, node));
            } else {
                all.insert(below, node);
            }
        }
        let name = if path.is_empty() { b".".to_vec() } else { path };
        all.insert(name, dir);
    }
    Ok(all)
}

fn compare(node: &Node, entry: &Entry, wrong: &mut Vec<String>) {
    let at = format!("{}/{}", entry.ds, entry.path_lossy());
    let mut same = |what: &str, found: String, expected: String| {
        if found != expected {
            wrong.push(format!("{at}: {what} {found}, expected {expected}"));
        }
    };
    let attrs = node.attrs();
    let kind = match entry.kind {
        EntryKind::File => 0o10,
        EntryKind::Directory => 0o04,
        EntryKind::Link => 0o12,
        EntryKind::Char => 0o02,
        EntryKind::Block => 0o06,
        EntryKind::Pipe => 0o01,
        EntryKind::Socket => 0o14,
    };
    same("type", format!("{:o}", attrs.mode >> 12), format!("{kind:o}"));
    same("mode", format!("{:o}", attrs.mode & 0o7777), format!("{:o}", entry.mode));
    same("uid", attrs.posix_uid().to_string(), entry.uid.to_string());
    same("gid", attrs.posix_gid().to_string(), entry.gid.to_string());
    same("size", attrs.size.to_string(), entry.size.to_string());
    same("nlink", attrs.links.to_string(), entry.nlink.to_string());
    if let Some(ino) = entry.ino {
        same("ino", node.id().to_string(), ino.to_string());
    }
    let nanos = |time: zpl::Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    same("mtime", nanos(attrs.mtime).to_string(), entry.mtime_ns.to_string());
    same("ctime", nanos(attrs.ctime).to_string(), entry.ctime_ns.to_string());
    same("blocks", node.blocks_512().to_string(), entry.blocks.to_string());
    if let Some(rdev) = entry.rdev {
        same("rdev", format!("{:?}", attrs.rdev), format!("{rdev:?}"));
    }
    if let Some(projid) = entry.projid {
        same("projid", attrs.projid.to_string(), projid.to_string());
    }
    if let Some(xflags) = entry.xflags {
        same("xflags", format!("{:x}", attrs.linux_flags()), format!("{xflags:x}"));
    }
    let xattrs = node.xattr_values().map(|all| {
        let text = |(name, value): (Vec<u8>, Vec<u8>)| (name.escape_ascii().to_string(), value);
        all.into_iter().map(text).collect::<BTreeMap<_, _>>()
    });
    match xattrs {
        Ok(xattrs) => {
            let expected: BTreeMap<String, Vec<u8>> = entry
                .xattr
                .iter()
                .map(|(name, value)| (name.as_bytes().escape_ascii().to_string(), value.clone()))
                .collect();
            same("xattrs", format!("{xattrs:?}"), format!("{expected:?}"));
        }
        Err(error) => same("xattrs", chain(&error), String::new()),
    }
    match entry.kind {
        EntryKind::Link => {
            let target = node.readlink().map(|t| t.escape_ascii().to_string());
            let target = target.unwrap_or_else(|error| chain(&error));
            let expected = entry.target.as_ref().map_or_else(String::new, |t| t.escape_ascii().to_string());
            if entry.readlink_errno.is_none() {
                same("target", target, expected);
            }
        }
        EntryKind::File => file(node, entry, &mut same),
        _ => {}
    }
}

fn file(node: &Node, entry: &Entry, same: &mut dyn FnMut(&str, String, String)) {
    if let Some(errno) = entry.read_errno {
        let found = if for_each_piece(node, None, &mut |_| {}).is_err() { "fails" } else { "can be read" };
        return same("reading", found.to_owned(), format!("fails{}", if errno == 0 { "?" } else { "" }));
    }
    let segments = segments(node).unwrap_or_else(|error| {
        same("segments", chain(&error), String::new());
        Vec::new()
    });
    let whole = if entry.size == 0 { Vec::new() } else { vec![(0, entry.size)] };
    let expected = entry.segs.clone().unwrap_or(whole);
    same("segments", format!("{segments:?}"), format!("{expected:?}"));
    if let Some(sum) = &entry.sha256 {
        let of = entry.hashes_segments().then_some(&segments[..]);
        let found = sum_of(sum, |piece| for_each_piece(node, of, piece));
        let found = found.unwrap_or_else(|error| chain(&error));
        same("sha256", found, sum.clone());
    }
}

fn segments(node: &Node) -> Result<Vec<(u64, u64)>, zpl::ZplError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = node.next_data(at)? {
        let end = node.next_hole(start)?.unwrap_or(node.attrs().size);
        found.push((start, end - start));
        at = end;
    }
    Ok(found)
}

/// BLAKE3 of contents that had the SHA-256 of their manifests, by that.
static KNOWN: Mutex<BTreeMap<String, blake3::Hash>> = Mutex::new(BTreeMap::new());

/// The SHA-256 of what `read` passes to its argument, which should be `expected`.
///
/// Tests with damaged disks read the same contents again and again. BLAKE3 takes a fraction of the time, and tells
/// whether a content is one that had the expected sum. Every content is read once: a second reading may be right
/// because the first one healed the disk.
fn sum_of(
    expected: &str,
    read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), zpl::ZplError>,
) -> Result<String, zpl::ZplError> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fast = blake3::Hasher::new();
    let earlier = known().get(expected).copied();
    if let Some(earlier) = earlier {
        read(&mut |piece| {
            fast.update(piece);
        })?;
        let found = fast.finalize();
        return Ok(if found == earlier { expected.to_owned() } else { format!("another: BLAKE3 {found}") });
    }
    let mut hash = Sha256::new();
    read(&mut |piece| {
        fast.update(piece);
        hash.update(piece);
    })?;
    let found = testkit::hex(&hash.finalize());
    known().insert(found.clone(), fast.finalize());
    Ok(found)
}

/// Reads a file, or parts of it.
fn for_each_piece(
    node: &Node,
    segments: Option<&[(u64, u64)]>,
    piece: &mut dyn FnMut(&[u8]),
) -> Result<(), zpl::ZplError> {
    let whole = [(0, node.attrs().size)];
    let longest = segments.unwrap_or(&whole).iter().map(|(_, len)| *len).max();
    let mut buf = vec![0; longest.map_or(0, |len| len.min(1 << 20) as usize)];
    for (start, len) in segments.unwrap_or(&whole) {
        let (mut at, end) = (*start, *start + *len);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buf.len());
            let n = node.read_at(at, &mut buf[..want])?;
            assert!(n > 0, "a read of nothing at {at}");
            piece(&buf[..n]);
            at += n as u64;
        }
    }
    Ok(())
}

fn hash_volume(volume: &Volume, expected: &str) -> Result<String, zpl::ZplError> {
    sum_of(expected, |piece| {
        let mut buf = vec![0; 1 << 20];
        let mut at = 0;
        while at < volume.size() {
            let want = usize::try_from(volume.size() - at).unwrap_or(usize::MAX).min(buf.len());
            volume.read_at(at, &mut buf[..want])?;
            piece(&buf[..want]);
            at += want as u64;
        }
        Ok(())
    })
}
