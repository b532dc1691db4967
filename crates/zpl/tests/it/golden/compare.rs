//! Comparison of a whole dataset with its manifest.

use cenote_zpl::{FileKind, Filesystem, Node, SpaceKind, SpaceRow, Time, Volume, ZplError};
use dmu::ObjSet;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::{Dataset, Entry, EntryKind};

/// Bytes read at a time: not a multiple of a block, so that reads cross block boundaries at any offset.
const PIECE: usize = 300_007;

/// The root of a mounted snapshot has this number minus that of its dataset.
const FIRST_SNAPSHOT: u64 = 0xFFFF_FFFF_FFFC;

/// Differences found, in words.
#[derive(Default)]
pub(crate) struct Differences(pub(crate) Vec<String>);

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, of: &str, what: &str, have: &T, want: &T) {
        if have != want {
            let text = format!("{of}: {what}: have {have:?}, want {want:?}");
            self.0.push(text.chars().take(400).collect());
        }
    }
}

/// All files of a file system by path, the root as `.`.
pub(crate) fn walk(fs: &Arc<Filesystem>) -> Result<BTreeMap<Vec<u8>, Node>, ZplError> {
    let root = fs.node(fs.root())?;
    let mut all = BTreeMap::new();
    let mut stack = vec![(Vec::new(), root.clone())];
    all.insert(b".".to_vec(), root);
    while let Some((path, dir)) = stack.pop() {
        for entry in dir.entries()? {
            let entry = entry?;
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            let node = fs.node(entry.id)?;
            assert!(entry.kind_hint.is_none_or(|kind| kind == node.kind()));
            if node.is_dir() {
                stack.push((below.clone(), node.clone()));
            }
            all.insert(below, node);
        }
    }
    Ok(all)
}

/// Compares a file system with its manifest entries.
pub(crate) fn filesystem(objset: Arc<ObjSet>, want: &[Entry], out: &mut Differences) -> Result<(), ZplError> {
    let number = objset.number();
    let fs = Filesystem::open(objset)?;
    let mut have = walk(&fs)?;
    // A mount adds the `.zfs` of a root, and other inode numbers for the roots of snapshots.
    let shows_snapshots = want.iter().any(|entry| entry.path == b".zfs");
    for entry in want.iter().filter(|entry| !entry.path.starts_with(b".zfs")) {
        let mut entry = entry.clone();
        if entry.path == b"." {
            entry.nlink -= u64::from(shows_snapshots);
            entry.ino = entry.ino.map(|ino| if ino == FIRST_SNAPSHOT - number { fs.root().0 } else { ino });
        }
        let entry = &entry;
        let of = format!("{}/{}", entry.ds, entry.path_lossy());
        match have.remove(&entry.path) {
            Some(node) => {
                attributes(&of, &node, entry, out);
                if let Err(error) = content(&of, &node, entry, out) {
                    out.0.push(format!("{of}: {error}: {:?}", std::error::Error::source(&error)));
                }
                if entry.path != b"." && !entry.path.contains(&b'/') {
                    lookups(&of, &fs, entry, &node, out)?;
                }
            }
            None => out.0.push(format!("{of}: not there")),
        }
    }
    for path in have.keys() {
        out.0.push(format!("{}: not in the manifest", String::from_utf8_lossy(path)));
    }
    Ok(())
}

/// Checks that each name is found, and that the path back is the same.
fn lookups(
    of: &str,
    fs: &Arc<Filesystem>,
    entry: &Entry,
    node: &Node,
    out: &mut Differences,
) -> Result<(), ZplError> {
    let root = fs.node(fs.root())?;
    out.check(of, "lookup", &fs.lookup(&root, &entry.path)?, &Some(node.id()));
    // The parent of a file that lost one of several names may be the directory of the lost name.
    let path = fs.path_of(node.id())?;
    if node.is_dir() || (node.attrs().links == 1 && path.is_some()) {
        out.check(of, "path", &path, &Some([b"/", &entry.path[..]].concat()));
    }
    Ok(())
}

fn nanos(time: Time) -> i64 {
    time.secs * 1_000_000_000 + i64::from(time.nanos)
}

fn kind(kind: EntryKind) -> FileKind {
    match kind {
        EntryKind::File => FileKind::Regular,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Link => FileKind::Symlink,
        EntryKind::Char => FileKind::CharDevice,
        EntryKind::Block => FileKind::BlockDevice,
        EntryKind::Pipe => FileKind::Fifo,
        EntryKind::Socket => FileKind::Socket,
    }
}

fn attributes(of: &str, node: &Node, want: &Entry, out: &mut Differences) {
    let have = node.attrs();
    out.check(of, "kind", &node.kind(), &kind(want.kind));
    out.check(of, "mode", &(have.mode & 0o7777), &want.mode);
    out.check(of, "uid", &have.posix_uid(), &want.uid);
    out.check(of, "gid", &have.posix_gid(), &want.gid);
    out.check(of, "size", &have.size, &want.size);
    out.check(of, "links", &have.links, &want.nlink);
    if let Some(ino) = want.ino {
        out.check(of, "number", &node.id().0, &ino);
    }
    out.check(of, "mtime", &nanos(have.mtime), &want.mtime_ns);
    out.check(of, "ctime", &nanos(have.ctime), &want.ctime_ns);
    out.check(of, "blocks", &node.blocks_512(), &want.blocks);
    out.check(of, "project", &have.projid, &want.projid.unwrap_or(0));
    out.check(of, "flags", &u64::from(have.linux_flags()), &want.xflags.unwrap_or(0));
    if let Some(rdev) = want.rdev {
        out.check(of, "device", &have.rdev, &rdev);
    }
}

fn content(of: &str, node: &Node, want: &Entry, out: &mut Differences) -> Result<(), ZplError> {
    let have: BTreeMap<String, Vec<u8>> = node
        .xattr_values()?
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
        .collect();
    out.check(of, "attributes", &have, &want.xattr);
    let acl = node.acl()?;
    if acl.aces.is_empty() {
        out.0.push(format!("{of}: no access control list"));
    }
    match want.kind {
        EntryKind::Link if want.readlink_errno.is_some() => {
            out.check(of, "readlink fails", &node.readlink().is_err(), &true);
        }
        EntryKind::Link => {
            out.check(of, "target", &node.readlink().map(Some)?, &want.target);
        }
        EntryKind::File if want.read_errno.is_some() => {
            out.check(of, "reading fails", &hash(node, &[(0, want.size)]).is_err(), &true);
        }
        EntryKind::File => {
            let have = segments(node)?;
            let whole = if want.size == 0 { vec![] } else { vec![(0, want.size)] };
            let sizes: Vec<_> = have.iter().map(|(start, end)| (*start, end - start)).collect();
            out.check(of, "segments", &sizes, want.segs.as_ref().unwrap_or(&whole));
            let hashed = if want.hashes_segments() { have } else { whole };
            out.check(of, "sha256", &Some(hash(node, &hashed)?), &want.sha256);
        }
        _ => {}
    }
    Ok(())
}

fn segments(node: &Node) -> Result<Vec<(u64, u64)>, ZplError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = node.next_data(at)? {
        at = node.next_hole(start)?.expect("data before the end");
        found.push((start, at));
    }
    Ok(found)
}

fn hash(node: &Node, ranges: &[(u64, u64)]) -> Result<String, ZplError> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            let len = piece.len().min((end - at) as usize);
            let len = node.read_at(at, &mut piece[..len])?;
            assert_ne!(len, 0, "no bytes before the end");
            hash.update(&piece[..len]);
            at += len as u64;
        }
    }
    Ok(testkit::hex(&hash.finalize()))
}

/// Compares a volume.
pub(crate) fn volume(objset: &Arc<ObjSet>, want: &Dataset, out: &mut Differences) -> Result<(), ZplError> {
    let volume = Volume::open(objset)?;
    out.check(&want.name, "size", &Some(volume.size()), &want.volume_bytes);
    let block_size = want.property("volblocksize").map(|size| size.parse().expect("a number"));
    if let Some(block_size) = block_size {
        out.check(&want.name, "block size", &volume.block_size(), &block_size);
    }
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < volume.size() {
        let len = piece.len().min((volume.size() - at) as usize);
        volume.read_at(at, &mut piece[..len])?;
        hash.update(&piece[..len]);
        at += len as u64;
    }
    out.check(&want.name, "sha256", &Some(testkit::hex(&hash.finalize())), &want.volume_sha256);
    out.check(&want.name, "read beyond", &volume.read_at(volume.size(), &mut [0]).is_err(), &true);
    Ok(())
}

/// Compares space by user, group and project.
pub(crate) fn space(objset: Arc<ObjSet>, want: &Dataset, out: &mut Differences) -> Result<(), ZplError> {
    let fs = Filesystem::open(objset)?;
    let kinds = [
        (SpaceKind::User, &want.userspace),
        (SpaceKind::Group, &want.groupspace),
        (SpaceKind::Project, &want.projectspace),
    ];
    for (kind, rows) in kinds {
        // In these manifests an empty list means that none was recorded.
        if rows.is_empty() {
            continue;
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let want_rows: Vec<SpaceRow> = rows
            .iter()
            .map(|[_, id, used, quota, objects, objquota]| SpaceRow {
                id: number(id).expect("an id"),
                used: number(used).unwrap_or(0),
                objects: number(objects),
                quota: number(quota).unwrap_or(0),
                objquota: number(objquota).unwrap_or(0),
            })
            .collect();
        out.check(&want.name, &format!("{kind:?} space"), &fs.space(kind)?, &want_rows);
    }
    Ok(())
}
