//! Verbs that change datasets: making, destroying, snapshotting, cloning, renaming them, and their
//! properties, holds, bookmarks and permissions.
//!
//! Names and values are checked here with the words of OpenZFS ([`names`], [`values`]); the changes
//! themselves are tasks of `dsl`, run in syncing context. Nothing is printed: what a command says
//! around a refusal (`cannot create 'p/a': …`) is its own affair, what comes behind it is the text of
//! an [`EditError`].
//!
//! # What always holds
//! - A verb on one target is done as a whole or not at all.
//! - Everything that can be refused is refused before the first change.
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
mod project;
mod set;
mod task;
mod upgrade;
pub mod values;
mod volume;

pub use bookmark::bookmark;
pub use create::{CloneSpec, NewDataset, NewKind, clone, create, create_ancestors};
pub use delegate::{Grant, allow, allowed, owner_id, unallow};
pub use dependents::{Dependents, RangeError, SnapshotRange, dependents, reclaimed, select_snapshots};
pub use descendants::with_descendants;
pub use dsl::delegation::{Allow as Permit, Scope, Who};
pub use error::{EditError, about, is_bad_name, is_bad_permission, is_held};
pub use names::pool_of;
pub use open::{has_special, open_pool};
pub use permit::may;
pub use project::{ProjectChange, ProjectNode, Reach, change_project, projects};
pub use set::{kind_of, set, subject};
pub(crate) use task::{run, view};
pub use upgrade::{FilesystemVersion, filesystem_versions};
pub use volume::{AutoReservation, DEFAULT_VOLUME_BLOCK};
