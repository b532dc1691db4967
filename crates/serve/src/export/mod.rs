//! Export: the files and snapshots of a dataset, for any protocol.
//!
//! An adapter of a protocol (`fuse`) decodes a message, calls an export, and encodes the answer.
//! [`LiveExport`] is a file system that is open for writing, with its snapshots in `.zfs`, and with contents
//! that can be replaced (a rollback) while clients use it. [`PoolView`] is a read-only view of a dataset, its
//! snapshots and, on request, its children.
//!
//! # What always holds
//! - The export knows no protocol: no message, no error number, no cache of a client. Answers say how they
//!   may become wrong ([`Stability`]); the adapter decides what a client may remember of them. Errors are
//!   [`ExportError`]. A test of this module checks this.
//! - While a client knows a node number, it stands for one file: an object in one generation (`identity`).
//! - Directory cookies are stateless (`attr_map`).
//!
//! # Parts
//! `live` is the file system by node; `access` the rules that the server enforces; `unlinked` the files that
//! have lost their last name; `replace` the contents and their replacement; `snapshots` is `.zfs`;
//! `live_export` joins these. `view` is the interface of a read-only file system, `pool_view` its
//! implementation for a pool.

mod access;
mod attr_map;
mod caller;
mod error;
mod identity;
mod live;
mod live_export;
mod pool_view;
mod replace;
mod seek;
mod set_ids;
mod snapshots;
mod types;
mod unlinked;
mod view;

pub use caller::Caller;
pub use error::ExportError;
pub use live::LiveFs;
pub use live_export::LiveExport;
pub(crate) use live_export::{Names, names_to};
pub use pool_view::PoolView;
pub(crate) use pool_view::SNAPSHOTS;
pub(crate) use seek::{Found, Hole};
pub(crate) use set_ids::lends_rights;
pub use types::{
    Attr, CopyRange, DirItem, DirLine, DirSink, Entry, Kind, Known, NewNode, NewTime, Seek, SetAttr,
    SpaceInfo, Stability, Time,
};
pub(crate) use types::{ROOT, Rename, Write, WriteSource};
pub(crate) use unlinked::FileId;
pub use view::View;
pub(crate) use view::{entry_stability, list};

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn export_names_no_protocol_and_no_error_number() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export");
        let words = [
            ["crate::", "fuse"].concat(),
            ["rustix::io::", "Errno"].concat(),
            ["super::super::", "fuse"].concat(),
        ];
        let mut files = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for word in &words {
                assert!(!text.contains(word), "{} names {word}", path.display());
            }
            files += 1;
        }
        assert!(files > 10, "the folder was read");
    }
}
