//! Compares two states of a file system: the data of `zfs diff`.
//!
//! An object whose dnode is in a block that both states share is equal in both. Therefore the dnode block trees are
//! compared from their roots, and shared subtrees are skipped: the work depends on the number of changes, not on
//! the size of the file system.
//!
//! # What always holds
//! - Changes are in the order of object numbers.
//! - A removed file, and a new file with the same object number, are two changes.
//! - Files without a name (unlinked while open) are not reported.

use super::AdminError;
use crate::debug::Paths;
use cenote::{Dataset, Error};
use dmu::{DmuError, Object};
use format::znode::Time;
use format::{BlockId, BlockPtr, Level, ObjectId};
use serde::{Deserialize, Serialize};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use zpl::{FileKind, Filesystem, Node, ZplError};

/// One file that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Kind of change, with its details.
    pub what: What,
    /// What kind of file it is, or was.
    #[serde(with = "FileKindData")]
    pub kind: FileKind,
    /// When its inode last changed; of a removed file, before it was.
    #[serde(with = "TimeData")]
    pub ctime: Time,
    /// Where it is, or was; beginning with `/`.
    pub path: Vec<u8>,
}

/// What happened to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The file was removed.
    Removed,
    /// The file was created.
    Added,
    /// Content or attributes have changed.
    Modified {
        /// Difference of the link counts; 0 for directories.
        links: i64,
    },
    /// The file was renamed.
    Renamed {
        /// Its path in the earlier state.
        from: Vec<u8>,
    },
}

/// The kinds of files, for serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FileKind", rename_all = "kebab-case")]
enum FileKindData {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

/// A point in time, for serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Time")]
struct TimeData {
    secs: i64,
    nanos: u32,
}

/// Tells `sink` what has changed from a snapshot to a later state of the same file system: another snapshot, the
/// file system, a clone. It may break off. Paths are those from the root of the file system; that of the root is `/`.
///
/// # Errors
/// [`AdminError::NotEarlier`] if the first is no snapshot from which the second has come, or what could not be read.
pub fn diff(
    from: &Dataset,
    to: &Dataset,
    sink: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> Result<(), AdminError> {
    if !descends(from, to)? {
        return Err(AdminError::NotEarlier { name: from.name().to_owned() });
    }
    let mut states = States::new(from, to)?;
    let (old, new) = (states.old.dnodes(), states.new.dnodes());
    let mut visit = |ids: Range<u64>| {
        for id in ids {
            for change in states.object(ObjectId(id))? {
                if sink(change).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    };
    changed(&old, &new, &mut visit).map(drop)
}

/// Callback for ranges of object numbers; it can end the walk or fail.
type Visit<'a> = &'a mut dyn FnMut(Range<u64>) -> Result<ControlFlow<()>, AdminError>;

fn failed(error: impl Into<Error>) -> AdminError {
    AdminError::from(error.into())
}

/// True if `from` is an earlier snapshot in the history of `to`.
fn descends(from: &Dataset, to: &Dataset) -> Result<bool, AdminError> {
    let (from, to) = (from.dsl(), to.dsl());
    if !from.is_snapshot() {
        return Ok(false);
    }
    for step in to.chain() {
        if step.map_err(failed)?.0 == from.id() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One of the two states.
struct State {
    fs: Arc<Filesystem>,
    paths: Paths,
}

impl State {
    fn new(dataset: &Dataset) -> Result<State, AdminError> {
        let files = dataset.filesystem().map_err(failed)?;
        let fs = Arc::clone(files.filesystem());
        Ok(State { paths: Paths::new(Arc::clone(&fs)), fs })
    }

    /// The object of the set that holds the dnodes.
    fn dnodes(&self) -> Object {
        self.fs.objset().meta_object()
    }

    /// The file with this object number and its path, if it exists and has a name.
    fn file(&mut self, id: ObjectId) -> Result<Option<(Node, Vec<u8>)>, AdminError> {
        let node = match self.fs.node(id) {
            Ok(node) => node,
            Err(ZplError::Dmu(DmuError::NoObject { .. }) | ZplError::NotAFile { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if node.attrs().links == 0 {
            return Ok(None);
        }
        Ok(self.paths.of(id).map_err(failed)?.map(|path| (node, path)))
    }
}

struct States {
    old: State,
    new: State,
}

impl States {
    fn new(from: &Dataset, to: &Dataset) -> Result<States, AdminError> {
        Ok(States { old: State::new(from)?, new: State::new(to)? })
    }

    /// The changes of an object: none, one, or two if the number belongs to another file now.
    fn object(&mut self, id: ObjectId) -> Result<Vec<Change>, AdminError> {
        let (old, new) = (self.old.file(id)?, self.new.file(id)?);
        let change = |what, node: &Node, path: Vec<u8>| Change {
            what,
            kind: node.kind(),
            ctime: node.attrs().ctime,
            path,
        };
        Ok(match (old, new) {
            (None, None) => Vec::new(),
            (Some((old, path)), None) => vec![change(What::Removed, &old, path)],
            (None, Some((new, path))) => vec![change(What::Added, &new, path)],
            (Some((old, from)), Some((new, path))) if !is_same_file(&old, &new) => {
                vec![change(What::Removed, &old, from), change(What::Added, &new, path)]
            }
            (Some((old, from)), Some((new, path))) => {
                let links = new.attrs().links.cast_signed().wrapping_sub(old.attrs().links.cast_signed());
                let what = if links != 0 && !new.is_dir() {
                    What::Modified { links }
                } else if from != path {
                    What::Renamed { from }
                } else if is_changed(&old, &new) {
                    What::Modified { links: 0 }
                } else {
                    return Ok(Vec::new());
                };
                vec![change(what, &new, path)]
            }
        })
    }
}

fn is_same_file(old: &Node, new: &Node) -> bool {
    old.attrs().generation == new.attrs().generation && old.kind() == new.kind()
}

/// True if anything but the access time differs.
fn is_changed(old: &Node, new: &Node) -> bool {
    let attrs = |node: &Node| zpl::Attrs { atime: Time { secs: 0, nanos: 0 }, ..*node.attrs() };
    attrs(old) != attrs(new) || old.object().dnode().blkptrs != new.object().dnode().blkptrs
}

/// Visits, in ascending order, the object numbers whose dnodes are not in shared blocks.
fn changed(old: &Object, new: &Object, visit: Visit<'_>) -> Result<ControlFlow<()>, AdminError> {
    let per_block = new.block_size() / format::dnode::SLOT_SIZE as u64;
    let last = old.dnode().maxblkid.0.max(new.dnode().maxblkid.0);
    if old.block_size() != new.block_size() || old.dnode().epbs() != new.dnode().epbs() {
        // Trees of different shapes cannot be compared by subtree.
        let end = old.logical_end().max(new.logical_end()) / format::dnode::SLOT_SIZE as u64;
        return visit(1..end.max(1));
    }
    let mut trees = Trees { old, new, last, per_block, visit };
    let top = old.dnode().nlevels.max(new.dnode().nlevels).saturating_sub(1);
    let width = old.dnode().blkptrs.len().max(new.dnode().blkptrs.len()) as u64;
    for index in 0..width {
        if trees.compare(Level(top), index)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Two block trees with equal block sizes, whose heights may differ.
struct Trees<'a> {
    old: &'a Object,
    new: &'a Object,
    /// Last block of the longer tree.
    last: u64,
    /// Object numbers per block.
    per_block: u64,
    visit: Visit<'a>,
}

impl Trees<'_> {
    fn compare(&mut self, level: Level, index: u64) -> Result<ControlFlow<()>, AdminError> {
        let epbs = self.new.dnode().epbs();
        let first = index.checked_shl(epbs * u32::from(level.0)).unwrap_or(u64::MAX);
        if first > self.last {
            return Ok(ControlFlow::Continue(()));
        }
        let (old, new) = (pointer(self.old, level, index)?, pointer(self.new, level, index)?);
        if let (Some(old), Some(new)) = (old, new)
            && (old == new || (old.is_hole() && new.is_hole()))
        {
            return Ok(ControlFlow::Continue(()));
        }
        if level.0 == 0 {
            let first = index.saturating_mul(self.per_block);
            return (self.visit)(first.max(1)..first.saturating_add(self.per_block));
        }
        for child in 0..1u64 << epbs {
            if self.compare(Level(level.0 - 1), index << epbs | child)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The pointer at this place. `None` if the tree is lower than that level.
fn pointer(object: &Object, level: Level, index: u64) -> Result<Option<BlockPtr>, AdminError> {
    let top = object.dnode().nlevels.saturating_sub(1);
    if level.0 > top && index == 0 {
        return Ok(None);
    }
    object.block_ptr(level, BlockId(index)).map(Some).map_err(failed)
}
