//! Verbs that change datasets: create, destroy, snapshot, clone and rename them, and change their properties,
//! holds, bookmarks and permissions.
//!
//! Names and values are checked here, with the messages of OpenZFS ([`names`], [`values`]); the changes themselves
//! are sync tasks of `dsl`. Nothing is printed: an [`EditError`] has the text after the colon, and the command adds
//! what precedes it (`cannot create 'p/a': …`).
//!
//! # What always holds
//! - A verb on one target is done completely or not at all.
//! - A verb makes all its checks before its first change.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

mod bookmark;
mod create;
mod delegate;
mod dependents;
mod descendants;
mod error;
pub mod names;
mod open;
pub(crate) mod operation;
pub(crate) mod permit;
mod set;
mod task;
mod upgrade;
pub mod values;
mod volume;

pub use bookmark::bookmark;
pub use create::{CloneSpec, NewDataset, NewKind, clone, create, create_ancestors};
pub(crate) use delegate::allowed;
pub use delegate::{Grant, allow, owner_id, unallow};
pub use dependents::{Dependents, RangeError, SnapshotRange, reclaimed};
pub(crate) use dependents::{dependents, select_snapshots};
pub use descendants::with_descendants;
pub use dsl::delegation::{Scope, Who};
pub use error::{EditError, about, is_bad_name, is_held};
pub use names::pool_of;
pub(crate) use open::has_special;
pub use open::open_pool;
pub(crate) use permit::may;
pub use set::{kind_of, set, subject};
pub(crate) use task::{run, view};
pub use upgrade::FilesystemVersion;
pub(crate) use upgrade::filesystem_versions;
pub use volume::AutoReservation;
pub(crate) use volume::DEFAULT_VOLUME_BLOCK;
