//! The mounts of the process that runs a command, and what is told of a file system that is not where it belongs.

use crate::out::Out;
use admin::mounting::Mounting;
use std::path::Path;

/// The mounts that commands are about; without a daemon nothing can be mounted.
pub(crate) fn mounting() -> Option<Mounting> {
    Mounting::of(&crate::search::from_env())
}

/// Says where a file system is mounted whose mount point, which was just set, only root mounts on.
pub(crate) fn tell_elsewhere(dataset: &str, wanted: &str, out: &Out) {
    let at = mounting().filter(|_| wanted.starts_with('/')).and_then(|mounting| mounting.elsewhere(dataset));
    at.iter().for_each(|at| print_elsewhere(dataset, at, wanted, out));
}

/// Says that a file system is mounted on `at`, not on its mount point.
pub(crate) fn print_elsewhere(dataset: &str, at: &Path, wanted: &str, out: &Out) {
    let (at, dataset) = (at.to_string_lossy(), out.cell(dataset));
    let (at, wanted) = (out.cell(&at), out.cell(wanted));
    out.print(&format!("{dataset} is mounted on {at}: only root mounts on {wanted}\n"));
}
