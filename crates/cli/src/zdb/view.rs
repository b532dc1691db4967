//! How the objects of one object set are printed.

use super::Options;
use admin::debug::Paths;
use std::cell::{Cell, RefCell};
use std::io::{self, Write};

/// The heading of the object table.
const HEADER: &str = "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type";

/// How the objects of one object set are printed.
pub(super) struct View<'a> {
    pub(super) options: &'a Options,
    /// Number of `-d`.
    pub(super) detail: usize,
    /// Paths in the file system, if it is one and can be read.
    pub(super) paths: Option<RefCell<Paths>>,
    /// How data is compressed where the object does not say.
    pub(super) compression: String,
    /// Files without a path.
    pub(super) leaked: Cell<u64>,
    /// The heading was not printed yet. With the contents of objects in between, each line has its own.
    pub(super) header: Cell<bool>,
}

impl View<'_> {
    pub(super) fn print_header(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.header.replace(self.detail > 3) { writeln!(out, "{HEADER}") } else { Ok(()) }
    }

    pub(super) fn number(&self, n: u64) -> String {
        self.options.number(n)
    }
}
