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

/// Maximum number of attempts of a task that has to wait for the next txg.
const AGAIN_MAX: usize = 16;

/// Why a verb is refused or has failed. The texts are those of OpenZFS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The property, or this value, cannot be set.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The pool does not exist.
    #[error("no such pool '{pool}'")]
    NoPool {
        /// Name of the pool.
        pool: String,
    },
    /// The dataset does not exist.
    #[error("dataset does not exist")]
    NoDataset {
        /// Full name of the dataset.
        name: String,
    },
    /// The dataset exists already.
    #[error("dataset already exists")]
    Exists {
        /// Full name of the dataset.
        name: String,
    },
    /// The parent of a new dataset does not exist.
    #[error("parent does not exist")]
    NoParent {
        /// Full name of the new dataset.
        name: String,
    },
    /// The parent of a new dataset is a volume.
    #[error("parent is not a filesystem")]
    ParentNotFilesystem {
        /// Full name of the new dataset.
        name: String,
    },
    /// The dataset is of another kind than the verb needs.
    #[error("operation not applicable to datasets of this type")]
    WrongKind {
        /// Full name of the dataset.
        name: String,
    },
    /// The property does not apply to this kind of dataset.
    #[error("property doesn't apply to datasets of this type")]
    NotApplicable,
    /// The caller lacks a permission.
    #[error("permission denied")]
    Denied,
    /// The pool's property `delegation` is off: only the administrator has permissions.
    #[error("delegated administration is disabled on pool")]
    DelegationOff,
    /// The dataset is in use.
    #[error("dataset is busy")]
    Busy {
        /// Full name of the dataset.
        name: String,
    },
    /// There is not enough space, or not enough to reserve.
    #[error("out of space")]
    NoSpace,
    /// Unwritten data of the dataset's mount could not be written to the pool.
    #[error("what programs have written could not be written back: {why}")]
    NotHandedOver {
        /// The reason, as a message.
        why: String,
    },
    /// This version of Cenote does not support the request.
    #[error("{what} is not supported by this version of Cenote")]
    Unsupported {
        /// The unsupported request.
        what: &'static str,
    },
    /// Another error of the dataset layer. Its text omits the dataset's name, which the command prints.
    #[error("{}", refusal(.0))]
    Refused(DslError),
    /// The pool cannot be opened for change.
    #[error(transparent)]
    Open(ChangeError),
    /// A layer below failed.
    #[error("{}", super::chain(.0))]
    Failed(Error),
}

impl EditError {
    /// True if the pool can be read but not changed.
    pub fn is_read_only(&self) -> bool {
        matches!(self, EditError::Open(ChangeError::ImportedReadOnly | ChangeError::ReadOnly { .. }))
    }
}

/// True if the error is about a snapshot with holds.
pub fn is_held(error: &DslError) -> bool {
    matches!(error, DslError::Held { .. })
}

/// True if the error is about an invalid name.
pub fn is_bad_name(error: &DslError) -> bool {
    matches!(error, DslError::BadName { .. })
}

/// True if the error is about a permission that does not exist.
pub fn is_bad_permission(error: &DslError) -> bool {
    matches!(error, DslError::BadPermission { .. })
}

/// Name of the dataset that an error is about.
pub fn about(error: &DslError) -> Option<&str> {
    match error {
        DslError::Held { name } | DslError::HasClones { name, .. } | DslError::Busy { name } => Some(name),
        _ => None,
    }
}

/// The part of an error's text after the name of its dataset.
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
            // A limit on the number of datasets is reported like a limit on space.
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

/// The datasets as of the last txg on disk.
pub(crate) fn view(pool: &PoolWriter) -> Result<Pool, EditError> {
    Ok(pool.view()?)
}

/// The user on whose behalf a verb runs, for limits on the number of datasets.
fn caller(pool: &PoolWriter) -> Caller {
    let caller = pool.caller();
    if caller.is_admin() { Caller::Root } else { Caller::User(caller.delegate()) }
}

/// Runs a sync task. A task that cannot be done in this txg is tried again in the next.
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

/// Name of the pool of a dataset: the first part of the dataset's name.
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or_default()
}
