//! The adapter of read-only views: translates requests of the kernel for an [`export::View`](View).
//!
//! # What always holds
//! - A view never changes, so the kernel caches attributes, entries and the absence of entries without limit,
//!   and files are not opened: `OPEN` and `OPENDIR` return `ENOSYS`, and the kernel stops sending them.
//! - No request leaves state in this process: there are no handles, and forgetting does nothing.
//! - A damaged block is an input/output error for the program that reads it, is reported, and has no further
//!   effect.

use super::errno::errno;
use super::flag;
use super::service::{Answer, Service};
use crate::export::{
    Attr, Caller, DirSink, ExportError, Known, Seek, SpaceInfo, Stability, View, entry_stability, list,
};
use rustix::io::Errno;
use std::sync::Arc;

/// Receives damage that was found: the node and the error.
pub type Reporter = Box<dyn Fn(u64, &ExportError) + Send + Sync>;

/// The service of a read-only view.
pub struct ViewService {
    view: Arc<dyn View>,
    posix_acl: bool,
    reporter: Option<Reporter>,
}

impl ViewService {
    /// The service of `view`. The kernel evaluates POSIX ACLs if `posix_acl`; damage is reported to
    /// `reporter`.
    pub fn new(view: Arc<dyn View>, posix_acl: bool, reporter: Option<Reporter>) -> ViewService {
        ViewService { view, posix_acl, reporter }
    }

    fn report(&self, node: u64, error: &ExportError) {
        if let (ExportError::Damaged(_), Some(reporter)) = (error, &self.reporter) {
            reporter(node, error);
        }
    }

    fn reply<T>(&self, node: u64, answer: Result<T, ExportError>) -> Answer<T> {
        answer.map_err(|error| {
            self.report(node, &error);
            errno(&error)
        })
    }
}

impl Service for ViewService {
    fn abilities(&self, _: u64) -> u64 {
        let acl = if self.posix_acl { flag::POSIX_ACL } else { 0 };
        flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::CACHE_SYMLINKS
            | flag::NO_OPEN_SUPPORT
            | flag::NO_OPENDIR_SUPPORT
            // Pages stay cached until the kernel is told otherwise, which never happens.
            | flag::EXPLICIT_INVAL_DATA
            | acl
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let found = self.reply(dir, self.view.lookup(dir, name))?;
        Ok(found.map(|entry| Known { entry, name: Stability::Stable, attr: entry_stability(&entry) }))
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Stability)> {
        self.reply(node, self.view.attr(node)).map(|attr| (attr, Stability::Stable))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        self.reply(node, self.view.read_link(node))
    }

    fn flush(&self, _: u64, _: u64) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    fn read(&self, node: u64, _: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.reply(node, self.view.read(node, offset, buf))
    }

    fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let report = |node, error: &ExportError| self.report(node, error);
        self.reply(node, list(&*self.view, node, from, sink, &report))
    }

    fn space(&self, node: u64) -> Answer<SpaceInfo> {
        self.reply(node, self.view.space(node))
    }

    fn xattr_names(&self, node: u64) -> Answer<Vec<Vec<u8>>> {
        self.reply(node, self.view.xattr_names(node))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.reply(node, self.view.xattr(node, name))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        self.reply(node, self.view.seek(node, offset, what))
    }
}
