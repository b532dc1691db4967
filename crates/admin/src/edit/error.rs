//! Why a verb on datasets is refused, in the words of OpenZFS.

use super::names::NameError;
use super::values::ValueError;
use crate::change::ChangeError;
use ::pool::{NotHandedOver, PoolError};
use cenote::Error;
use dsl::DslError;
use dsl::prop::change::PropError;

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
    /// No caller may do that.
    #[error("permission denied")]
    Denied,
    /// Only the administrator may do anything: the pool's property `delegation` is off.
    #[error("delegated administration is disabled on pool")]
    DelegationOff,
    /// The dataset is in use.
    #[error("dataset is busy")]
    Busy {
        /// Its name.
        name: String,
    },
    /// There is no room, or not as much as is to be reserved.
    #[error("out of space")]
    NoSpace,
    /// What programs have written to a mount of it could not be taken along.
    #[error("what programs have written could not be written back: {0}")]
    NotHandedOver(NotHandedOver),
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
    #[error("{}", crate::chain(.0))]
    Failed(Error),
}

impl EditError {
    /// The pool is there and can be read, but not changed.
    pub(crate) fn is_read_only(&self) -> bool {
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
        | DslError::Unwritten { why, .. }
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
            | DslError::Unwritten { .. }
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
