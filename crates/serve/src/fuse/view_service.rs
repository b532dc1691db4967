//! The kernel's questions about a read-only [`FsView`].
//!
//! # What always holds
//! - Nothing of a view can change, so attributes, entries and the absence of entries are cached by the kernel
//!   without end, and files are not even opened here: `open` and `opendir` answer "not needed", and the kernel stops asking.
//! - No request keeps anything in this process: there are no handles, and forgetting is free.
//! - A damaged block is an input/output error to the one who reads it, is told to whoever mounted,
//!   and stops nothing else.

use super::flag;
use super::service::{Answer, Caller, Known, Life, Lines, Service};
use crate::errno::errno;
use crate::view::{Attr, Entry, FsView, Seek, SpaceInfo, ViewError};
use rustix::io::Errno;
use std::sync::Arc;

/// Told of what could not be read: the node and the error.
pub type Reporter = Box<dyn Fn(u64, &ViewError) + Send + Sync>;

/// Serves a view.
pub struct ViewService {
    view: Arc<dyn FsView>,
    posix_acl: bool,
    reporter: Option<Reporter>,
}

impl ViewService {
    /// Serves `view`; the kernel evaluates POSIX ACLs if `posix_acl`; `reporter` hears of damage.
    pub fn new(view: Arc<dyn FsView>, posix_acl: bool, reporter: Option<Reporter>) -> ViewService {
        ViewService { view, posix_acl, reporter }
    }

    fn told<T>(&self, node: u64, answer: Result<T, ViewError>) -> Answer<T> {
        answer.map_err(|error| {
            if let (ViewError::Damaged(_), Some(reporter)) = (&error, &self.reporter) {
                reporter(node, &error);
            }
            errno(&error)
        })
    }
}

/// How long the kernel may keep an entry's attributes: not at all when the number to show is not
/// the node, because an entry can only carry one of the two; asking for the attributes sets it right.
fn attr_life(entry: &Entry) -> Life {
    if entry.attr.ino == entry.node { Life::Ever } else { Life::None }
}

impl Service for ViewService {
    fn abilities(&self, _: u64) -> u64 {
        let acl = if self.posix_acl { flag::POSIX_ACL } else { 0 };
        flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::CACHE_SYMLINKS
            | flag::NO_OPEN_SUPPORT
            | flag::NO_OPENDIR_SUPPORT
            // Pages stay cached until told otherwise, and nobody will.
            | flag::EXPLICIT_INVAL_DATA
            | acl
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let found = self.told(dir, self.view.lookup(dir, name))?;
        Ok(found.map(|entry| Known { entry, name: Life::Ever, attr: attr_life(&entry) }))
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Life)> {
        self.told(node, self.view.attr(node)).map(|attr| (attr, Life::Ever))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        self.told(node, self.view.read_link(node))
    }

    fn flush(&self, _: u64, _: u64) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    fn read(&self, node: u64, _: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.told(node, self.view.read(node, offset, buf))
    }

    fn read_dir(&self, node: u64, from: u64, lines: &mut dyn Lines) -> Answer<()> {
        let listed = self.view.read_dir(node, from, &mut |item| {
            // The name of a file that cannot be read is listed all the same; whoever looks closer gets the error. Of the
            // first two the kernel takes none, and forgets none.
            let is_dot = matches!(&item.name[..], b"." | b"..");
            let file = if lines.wants_files() && !is_dot {
                let attr = self.told(item.node, self.view.attr(item.node)).ok();
                attr.map(|attr| Entry { node: item.node, attr })
            } else {
                None
            };
            let file = file.map(|entry| (entry, attr_life(&entry)));
            lines.line(item.node, item.kind, &item.name, item.next, file)
        });
        self.told(node, listed)
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        self.told(node, self.view.space(node))
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        self.told(node, self.view.xattr_names(node))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.told(node, self.view.xattr(node, name))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        self.told(node, self.view.seek(node, offset, what))
    }
}
