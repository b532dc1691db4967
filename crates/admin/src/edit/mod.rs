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
pub mod names;
mod open;
pub(crate) mod operation;
pub(crate) mod permit;
mod set;
mod upgrade;
pub mod values;
mod volume;

pub use bookmark::bookmark;
pub use create::{CloneSpec, NewDataset, NewKind, clone, create, create_ancestors};
pub(crate) use delegate::allowed;
pub use delegate::{Grant, allow, owner_id, unallow};
pub use dependents::{Dependents, RangeError, SnapshotRange, dependents, reclaimed, select_snapshots};
pub use descendants::with_descendants;
pub use dsl::delegation::{Scope, Who};
pub use open::{has_special, open_pool};
pub(crate) use permit::may;
pub use set::{kind_of, set, subject};
pub use upgrade::FilesystemVersion;
pub(crate) use upgrade::filesystem_versions;
pub use volume::{AutoReservation, DEFAULT_VOLUME_BLOCK};

use super::change::ChangeError;
use ::pool::PoolError;
use cenote::{Error, Pool, PoolWriter};
use dsl::DslError;
use dsl::prop::change::PropError;
use dsl::{Caller, TaskCtx};
use names::NameError;
use std::sync::Arc;
use values::ValueError;

/// Tries of a task that had to wait for the next txg.
const AGAIN_MAX: usize = 16;

/// Why a verb is refused or has failed. The texts are those of OpenZFS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// A name that cannot be.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A property that cannot be set, or not to this value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// There is no such pool.
    #[error("no such pool '{pool}'")]
    NoPool {
        /// Its name.
        pool: String,
    },
    /// There is no such dataset.
    #[error("dataset does not exist")]
    NoDataset {
        /// Its name.
        name: String,
    },
    /// There is a dataset of this name.
    #[error("dataset already exists")]
    Exists {
        /// Its name.
        name: String,
    },
    /// The dataset above a new one is missing.
    #[error("parent does not exist")]
    NoParent {
        /// The new name.
        name: String,
    },
    /// The dataset above a new one is a volume.
    #[error("parent is not a filesystem")]
    ParentNotFilesystem {
        /// The new name.
        name: String,
    },
    /// The dataset is of another kind than the verb needs.
    #[error("operation not applicable to datasets of this type")]
    WrongKind {
        /// Its name.
        name: String,
    },
    /// The property is none of this kind of dataset.
    #[error("property doesn't apply to datasets of this type")]
    NotApplicable,
    /// Nobody may do that.
    #[error("permission denied")]
    Denied,
    /// Nobody but the administrator may do anything: the pool's property `delegation` is off.
    #[error("delegated administration is disabled on pool")]
    DelegationOff,
    /// Somebody uses the dataset.
    #[error("dataset is busy")]
    Busy {
        /// Its name.
        name: String,
    },
    /// There is no room, or not as much as is to be reserved.
    #[error("out of space")]
    NoSpace,
    /// What programs have written to a mount of it could not be taken along.
    #[error("what programs have written could not be written back: {why}")]
    NotHandedOver {
        /// Why.
        why: String,
    },
    /// This version does not do it.
    #[error("{what} is not supported by this version of Cenote")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// Another refusal of the dataset layer; its text is without the name that the command has told.
    #[error("{}", refusal(.0))]
    Refused(DslError),
    /// The pool cannot be opened for change.
    #[error(transparent)]
    Open(ChangeError),
    /// Something below failed.
    #[error("{}", super::chain(.0))]
    Failed(Error),
}

impl EditError {
    /// The pool is there and can be read, but not changed.
    pub fn is_read_only(&self) -> bool {
        matches!(self, EditError::Open(ChangeError::ImportedReadOnly | ChangeError::ReadOnly { .. }))
    }
}

/// The refusal is about a snapshot that is held.
pub fn is_held(error: &DslError) -> bool {
    matches!(error, DslError::Held { .. })
}

/// The refusal is about a name that cannot be given.
pub fn is_bad_name(error: &DslError) -> bool {
    matches!(error, DslError::BadName { .. })
}

/// The refusal is about a permission that does not exist.
pub fn is_bad_permission(error: &DslError) -> bool {
    matches!(error, DslError::BadPermission { .. })
}

/// The dataset that a refusal is about.
pub fn about(error: &DslError) -> Option<&str> {
    match error {
        DslError::Held { name } | DslError::HasClones { name, .. } | DslError::Busy { name } => Some(name),
        _ => None,
    }
}

/// The part of an error's text that follows the name of its dataset.
fn refusal(error: &DslError) -> String {
    match error {
        DslError::BadName { why, .. }
        | DslError::BadLimit { why, .. }
        | DslError::Crosses { why, .. }
        | DslError::WrongKind { why, .. }
        | DslError::Encrypted { why, .. } => (*why).to_owned(),
        DslError::HasChildren { .. } => "filesystem has children".into(),
        DslError::HasClones { .. } => "snapshot has dependent clones".into(),
        DslError::Held { .. } => "dataset is busy".into(),
        DslError::NotClone { .. } => "not a cloned filesystem".into(),
        DslError::NotNewest { .. } => "more recent snapshots or bookmarks exist".into(),
        DslError::Descendant { .. } => {
            "New dataset name cannot be a descendant of current dataset name".into()
        }
        DslError::Inconsistent { .. } => "dataset is busy".into(),
        other => other.to_string(),
    }
}

impl From<DslError> for EditError {
    fn from(error: DslError) -> EditError {
        match error {
            DslError::NotFound { name } => EditError::NoDataset { name },
            DslError::Exists { name } => EditError::Exists { name },
            DslError::NoParent { name } => EditError::NoParent { name },
            DslError::ParentNotFilesystem { name } => EditError::ParentNotFilesystem { name },
            DslError::Busy { name } | DslError::Again { name } => EditError::Busy { name },
            // A limit on the number of datasets is told like one on their size.
            DslError::Space { .. } | DslError::Quota { .. } | DslError::CountLimit { .. } => {
                EditError::NoSpace
            }
            DslError::Prop(prop) => EditError::Value(prop.into()),
            refused @ (DslError::BadName { .. }
            | DslError::BadLimit { .. }
            | DslError::Crosses { .. }
            | DslError::WrongKind { .. }
            | DslError::Encrypted { .. }
            | DslError::HasChildren { .. }
            | DslError::HasClones { .. }
            | DslError::Held { .. }
            | DslError::NotClone { .. }
            | DslError::NotNewest { .. }
            | DslError::Descendant { .. }
            | DslError::Inconsistent { .. }
            | DslError::FeatureDisabled { .. }
            | DslError::BadPermission { .. }
            | DslError::Hold(_)
            | DslError::Bookmark(_)) => EditError::Refused(refused),
            other => EditError::Failed(other.into()),
        }
    }
}

impl From<Error> for EditError {
    fn from(error: Error) -> EditError {
        match error {
            Error::Dsl(error) => error.into(),
            Error::Pool(PoolError::Dsl(error)) => error.into(),
            other => EditError::Failed(other),
        }
    }
}

impl From<PoolError> for EditError {
    fn from(error: PoolError) -> EditError {
        Error::from(error).into()
    }
}

impl From<PropError> for EditError {
    fn from(error: PropError) -> EditError {
        EditError::Value(error.into())
    }
}

/// The datasets of the last txg that is on disk.
pub(crate) fn view(pool: &PoolWriter) -> Result<Pool, EditError> {
    Ok(pool.view()?)
}

/// In whose name a verb runs, as far as limits on the number of datasets care.
fn caller(pool: &PoolWriter) -> Caller {
    let caller = pool.caller();
    if caller.is_admin() { Caller::Root } else { Caller::User(caller.delegate()) }
}

/// Runs a task in syncing context; one that cannot be done in a txg is tried again in the next.
pub(crate) fn run<T: Send + 'static>(
    pool: &PoolWriter,
    task: impl Fn(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + Sync + 'static,
) -> Result<T, EditError> {
    let (task, caller, pool) = (Arc::new(task), caller(pool), pool.live());
    for _ in 1..AGAIN_MAX {
        let once = Arc::clone(&task);
        match pool.run_as(caller.clone(), move |ctx| once(ctx)) {
            Err(PoolError::Dsl(DslError::Again { .. })) => {}
            done => return Ok(done?),
        }
    }
    Ok(pool.run_as(caller, move |ctx| task(ctx))?)
}

/// The name of the pool that a dataset's name begins with.
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or_default()
}
