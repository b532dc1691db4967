//! The interface of a read-only file system that can be exported.
//!
//! # What always holds
//! - Node 1 is the root. A node stands for the same file as long as the view exists, because a view shows a
//!   snapshot or a pool that is opened for reading only: a client may cache every answer without limit.
//! - A view keeps no state for an open file or directory: a directory cookie is a number that stays valid.

use super::error::ExportError;
use super::types::{Attr, DirItem, DirLine, DirSink, Entry, Seek, SpaceInfo, Stability};

/// A read-only file system that can be exported.
///
/// # Errors
/// Every call returns [`ExportError::Stale`] for a node that the view has not given out,
/// [`ExportError::Damaged`] where the pool cannot be read, and [`ExportError::NoKey`] for a dataset whose key
/// is not loaded.
pub trait View: Send + Sync + 'static {
    /// Attributes of a node.
    ///
    /// # Errors
    /// See [`View`].
    fn attr(&self, node: u64) -> Result<Attr, ExportError>;

    /// The file called `name` in a directory; `None` if there is none.
    ///
    /// # Errors
    /// See [`View`]; [`ExportError::NotDir`]; [`ExportError::TooMany`] if no slot is left for the snapshot.
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Entry>, ExportError>;

    /// Passes the lines of a directory after the cookie `from` (0: all, with `.` and `..`) to `sink`, until
    /// it returns `false`.
    ///
    /// # Errors
    /// See [`View`]; [`ExportError::NotDir`].
    fn read_dir(&self, dir: u64, from: u64, sink: &mut dyn FnMut(DirItem) -> bool)
    -> Result<(), ExportError>;

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// See [`View`]; [`ExportError::Invalid`] for other files.
    fn read_link(&self, node: u64) -> Result<Vec<u8>, ExportError>;

    /// Reads from a file into `buf` and returns the number of bytes, which is less than `buf` has only at the
    /// end.
    ///
    /// # Errors
    /// See [`View`]; [`ExportError::IsDir`].
    fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Result<usize, ExportError>;

    /// Position of the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// See [`View`]; [`ExportError::BeyondEnd`].
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Result<u64, ExportError>;

    /// Names of the extended attributes of a file.
    ///
    /// # Errors
    /// See [`View`].
    fn xattr_names(&self, node: u64) -> Result<Vec<Vec<u8>>, ExportError>;

    /// Value of an extended attribute; `None` if there is none of that name.
    ///
    /// # Errors
    /// See [`View`].
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, ExportError>;

    /// Space of the dataset that a node belongs to.
    ///
    /// # Errors
    /// See [`View`].
    fn space(&self, node: u64) -> Result<SpaceInfo, ExportError>;
}

/// Stability of the attributes in an entry for a client that takes them with the entry. An entry carries one
/// number only: if the inode number is not the node, the client has to ask for the attributes.
pub(crate) fn entry_stability(entry: &Entry) -> Stability {
    if entry.attr.ino == entry.node { Stability::Stable } else { Stability::Volatile }
}

/// Passes the lines of a directory of a view after the cookie `from` to `sink` until no more fit, with the
/// attributes that `sink` wants. A file that cannot be read is listed without attributes, and `report` is
/// called with the error.
///
/// # Errors
/// As [`View::read_dir`].
pub(crate) fn list(
    view: &(impl View + ?Sized),
    dir: u64,
    from: u64,
    sink: &mut dyn DirSink,
    report: &dyn Fn(u64, &ExportError),
) -> Result<(), ExportError> {
    view.read_dir(dir, from, &mut |item| {
        // For `.` and `..` a client takes no attributes, and forgets no node.
        let is_dot = matches!(&item.name[..], b"." | b"..");
        let attr = (sink.wants_attrs() && !is_dot).then(|| view.attr(item.node));
        let attr = attr.and_then(|attr| attr.inspect_err(|error| report(item.node, error)).ok());
        let file = attr.map(|attr| {
            let entry = Entry { node: item.node, attr };
            (entry, entry_stability(&entry))
        });
        sink.line(&DirLine { node: item.node, kind: item.kind, name: &item.name, next: item.next, file })
    })
}
