//! Walks a directory tree of a pool, which may be damaged or hostile. The walk always ends.
//!
//! # What always holds
//! - A directory is entered once. A second entry for it, or an entry in a directory that is not its parent, is
//!   reported as damage.
//! - Entries with impossible names, which `zpl` leaves out, are counted and reported as damage.
//! - Memory is bounded by the depth of the tree, a batch of entries for each level, and about one bit for each
//!   object of the file system.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use zpl::{DirEntries, DirEntry, Filesystem, Node, ZplError};

/// Number of entries that are read from a directory at a time.
const BATCH: usize = 512;
/// Maximum depth of the tree. Linux limits paths to 4096 bytes, but programs can create deeper trees.
const DEPTH_MAX: usize = 16 << 10;

/// Position of a walk: the entry that is visited.
#[derive(Debug, Clone, Copy)]
pub struct Position<'a> {
    /// Path from the start of the walk, which is itself the empty path.
    pub path: &'a [u8],
    /// Last component; empty at the start.
    pub name: &'a [u8],
    /// Levels below the start.
    pub depth: usize,
}

/// How the walk continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Continue, and enter the directory.
    Into,
    /// Continue without entering the directory; [`Visitor::leave`] is not called for it.
    Over,
    /// End the walk.
    Stop,
}

/// Why a file or directory could not be visited, or only in part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The file or directory cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ZplError),
    /// A child dataset cannot be opened.
    #[error(transparent)]
    Dataset(AnyError),
    /// Entries of a directory are damaged or could not be read.
    #[error("{missing} of {all} entries of the directory are damaged")]
    Entries {
        /// Number of entries that are missing.
        missing: u64,
        /// Number of entries that the directory counts.
        all: u64,
    },
    /// The directory was visited before, or its parent is another directory.
    #[error("a directory in a place that is not its own: damage")]
    Misplaced,
    /// The tree is too deep.
    #[error("too many levels of directories")]
    TooDeep,
}

/// Visitor of a walk, called for directories before their entries.
pub trait Visitor {
    /// Called for a directory, before its entries.
    fn enter(&mut self, at: Position<'_>, dir: &Node) -> Flow;
    /// Called for a directory that was entered, after its entries.
    fn leave(&mut self, at: Position<'_>, dir: &Node) -> Flow;
    /// Called for a file that is not a directory.
    fn file(&mut self, at: Position<'_>, node: &Node) -> Flow;
    /// Called for a file or directory that cannot be visited, or only in part.
    fn trouble(&mut self, at: Position<'_>, trouble: Trouble) -> Flow;
}

/// An error of any layer.
pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A child dataset, which appears as a directory in the root of its parent.
pub struct Child {
    /// Last component of the name of the dataset.
    pub name: Vec<u8>,
    /// Full name of the dataset.
    pub dataset: String,
    /// The file system, or the error of opening it.
    pub filesystem: Result<Arc<Filesystem>, AnyError>,
}

/// Returns the child file systems of the dataset with this full name.
pub type Children<'a> = dyn Fn(&str) -> Result<Vec<Child>, AnyError> + 'a;

struct Frame {
    fs: Arc<Filesystem>,
    node: Node,
    /// Length of the path before this level's name was added.
    path_len: usize,
    batch: VecDeque<DirEntry>,
    /// `None`: all entries were read.
    unread: Option<DirEntries>,
    /// Number of entries read; true if an error was reported for the others.
    seen: u64,
    failed: bool,
    /// Child datasets to visit here; their names hide entries.
    children: VecDeque<Child>,
    hidden: HashSet<Vec<u8>>,
}

/// A walk in progress.
struct Walk<'a> {
    visitor: &'a mut dyn Visitor,
    children: Option<&'a Children<'a>>,
    stack: Vec<Frame>,
    path: Vec<u8>,
    entered: Entered,
}

/// Directories that were entered, by object set and object id: one bit each, in pages.
#[derive(Default)]
struct Entered(HashMap<(u64, u64), Box<[u64; 64]>>);

impl Entered {
    /// Returns false if the directory was already in the set.
    fn insert(&mut self, objset: u64, object: u64) -> bool {
        let page = self.0.entry((objset, object >> 12)).or_insert_with(|| Box::new([0; 64]));
        let Some(word) = page.get_mut((object >> 6 & 63) as usize) else { return false };
        let bit = 1 << (object & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// The visitor ended the walk.
struct Stopped;

/// Walks the tree at `start`, a node of `fs`. With `children`, child datasets of `dataset` are walked as
/// directories of its root, if the root is in the tree.
pub fn walk(
    fs: &Arc<Filesystem>,
    start: &Node,
    dataset: &str,
    children: Option<&Children<'_>>,
    visitor: &mut dyn Visitor,
) {
    let mut walk =
        Walk { visitor, children, stack: Vec::new(), path: Vec::new(), entered: Entered::default() };
    let _ = walk.run(fs, start, dataset);
}

impl Walk<'_> {
    fn run(&mut self, fs: &Arc<Filesystem>, start: &Node, dataset: &str) -> Result<(), Stopped> {
        if !start.is_dir() {
            return self.call_visitor(|visitor, at| visitor.file(at, start)).map(|_| ());
        }
        self.enter(Arc::clone(fs), start.clone(), 0, dataset)?;
        while !self.stack.is_empty() {
            self.step()?;
        }
        Ok(())
    }

    /// Calls the visitor with the current position.
    fn call_visitor(
        &mut self,
        call: impl FnOnce(&mut dyn Visitor, Position<'_>) -> Flow,
    ) -> Result<Flow, Stopped> {
        let from = self.path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let name = self.path.get(from..).unwrap_or(&[]);
        match call(self.visitor, Position { path: &self.path, name, depth: self.stack.len() }) {
            Flow::Stop => Err(Stopped),
            flow => Ok(flow),
        }
    }

    fn trouble(&mut self, trouble: impl Into<Trouble>) -> Result<(), Stopped> {
        let trouble = trouble.into();
        self.call_visitor(|visitor, at| visitor.trouble(at, trouble)).map(|_| ())
    }

    fn enter(
        &mut self,
        fs: Arc<Filesystem>,
        node: Node,
        path_len: usize,
        dataset: &str,
    ) -> Result<(), Stopped> {
        if self.call_visitor(|visitor, at| visitor.enter(at, &node))? == Flow::Over {
            self.path.truncate(path_len);
            return Ok(());
        }
        let is_root = node.id() == fs.root();
        // Recorded here, not with the entry, because the start and the roots of datasets have no entry.
        self.entered.insert(fs.objset().number(), node.id().0);
        let children = match self.children {
            Some(children) if is_root => children(dataset),
            _ => Ok(Vec::new()),
        };
        let children = match children {
            Ok(children) => children,
            Err(error) => {
                self.trouble(Trouble::Dataset(error))?;
                Vec::new()
            }
        };
        let (unread, failed) = match node.entries() {
            Ok(entries) => (Some(entries), false),
            Err(error) => {
                self.trouble(error)?;
                (None, true)
            }
        };
        let hidden = children.iter().map(|child| child.name.clone()).collect();
        self.stack.push(Frame {
            fs,
            node,
            path_len,
            batch: VecDeque::new(),
            unread,
            seen: 0,
            failed,
            children: children.into(),
            hidden,
        });
        Ok(())
    }

    /// Visits one entry, or ends a directory.
    fn step(&mut self) -> Result<(), Stopped> {
        let Some(frame) = self.stack.last_mut() else { return Ok(()) };
        if let Some(child) = frame.children.pop_front() {
            return self.child(child);
        }
        if let Some(entry) = frame.batch.pop_front() {
            return self.entry(&entry);
        }
        if frame.unread.is_some() {
            return match frame.fill() {
                Some(trouble) => self.trouble(trouble),
                None => Ok(()),
            };
        }
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        self.call_visitor(|visitor, at| visitor.leave(at, &frame.node))?;
        self.path.truncate(frame.path_len);
        Ok(())
    }

    /// Appends a component to the path. Returns the previous length.
    fn push(&mut self, name: &[u8]) -> usize {
        let before = self.path.len();
        if before > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        before
    }

    fn child(&mut self, child: Child) -> Result<(), Stopped> {
        let before = self.push(&child.name);
        let opened: Result<_, Trouble> = child.filesystem.map_err(Trouble::Dataset).and_then(|fs| {
            let root = fs.node(fs.root())?;
            Ok((fs, root))
        });
        match opened {
            Ok((fs, root)) => self.enter(fs, root, before, &child.dataset),
            Err(trouble) => {
                self.trouble(trouble)?;
                self.path.truncate(before);
                Ok(())
            }
        }
    }

    fn entry(&mut self, entry: &DirEntry) -> Result<(), Stopped> {
        let Some(frame) = self.stack.last() else { return Ok(()) };
        if frame.hidden.contains(&entry.name) {
            return Ok(());
        }
        let fs = Arc::clone(&frame.fs);
        let before = self.push(&entry.name);
        match fs.node(entry.id) {
            Err(error) => self.trouble(error)?,
            Ok(node) if node.is_dir() => return self.directory(fs, node, before),
            Ok(node) => {
                self.call_visitor(|visitor, at| visitor.file(at, &node))?;
            }
        }
        self.path.truncate(before);
        Ok(())
    }

    fn directory(&mut self, fs: Arc<Filesystem>, node: Node, before: usize) -> Result<(), Stopped> {
        let depth = self.stack.len();
        let Some(frame) = self.stack.last() else { return Ok(()) };
        let is_parent = node.attrs().parent == frame.node.id();
        let is_new = self.entered.insert(fs.objset().number(), node.id().0);
        if !is_parent || !is_new {
            self.trouble(Trouble::Misplaced)?;
        }
        if !is_new {
            self.path.truncate(before);
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            self.trouble(Trouble::TooDeep)?;
            self.path.truncate(before);
            return Ok(());
        }
        self.enter(fs, node, before, "")
    }
}

impl Frame {
    /// Reads the next batch of entries, up to the first error; the next call continues after it.
    fn fill(&mut self) -> Option<Trouble> {
        let entries = self.unread.as_mut()?;
        while self.batch.len() < BATCH {
            match entries.next() {
                Some(Ok(entry)) => {
                    self.seen += 1;
                    self.batch.push_back(entry);
                }
                Some(Err(error)) => {
                    self.failed = true;
                    return Some(error.into());
                }
                None => {
                    self.unread = None;
                    return self.damaged_entries();
                }
            }
        }
        None
    }

    /// Reports entries that the directory counts but did not return, unless they were reported before.
    fn damaged_entries(&self) -> Option<Trouble> {
        let all = self.node.entry_count().unwrap_or(self.seen);
        let missing = all.saturating_sub(self.seen);
        (missing > 0 && !self.failed).then_some(Trouble::Entries { missing, all })
    }
}

#[cfg(test)]
mod tests {
    use super::Entered;

    #[test]
    fn each_directory_is_new_once() {
        let mut entered = Entered::default();
        for object in [0, 1, 63, 64, 4095, 4096, (1 << 48) - 1] {
            assert!(entered.insert(5, object) && !entered.insert(5, object));
            assert!(entered.insert(6, object));
        }
    }
}
