//! Errors of the dataset layer.

mod bookmark;
mod hold;
mod key;
mod prop;
mod receive;

pub use bookmark::BookmarkError;
pub use hold::HoldError;
pub use key::KeyError;
pub(crate) use prop::ITERATIONS_MIN;
pub use prop::PropError;
pub use receive::ReceiveRefusal;

use dmu::{DmuError, TxError};
use format::{DecodeError, ObjType, ObjectId, Txg};
use zio::ZioError;

/// An error of the dataset layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DslError {
    /// An object of the MOS could not be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// A structure in the MOS is malformed.
    #[error("object {object} of the MOS")]
    Decode {
        /// Number of the object in the MOS.
        object: ObjectId,
        /// How the bytes are malformed.
        #[source]
        cause: DecodeError,
    },
    /// A name that no dataset can have.
    #[error("'{name}': {why}")]
    BadName {
        /// Name as it was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such dataset, snapshot or bookmark.
    #[error("cannot open '{name}': dataset does not exist")]
    NotFound {
        /// Full name of the dataset.
        name: String,
    },
    /// A name stored on disk is damaged.
    #[error("object {map} names object {object} with the illegal name '{name}'")]
    StoredName {
        /// The ZAP that holds the name.
        map: ObjectId,
        /// The object that the name leads to.
        object: ObjectId,
        /// Name with unprintable bytes escaped.
        name: String,
    },
    /// An object is not of the type that the reference to it implies.
    #[error("object {object} is no {expected}: its bonus is of type {found}")]
    WrongType {
        /// Number of the object in the MOS.
        object: ObjectId,
        /// Kind of object that was expected.
        expected: &'static str,
        /// Type of the bonus that was found.
        found: ObjType,
    },
    /// Two objects that refer to each other do not agree.
    #[error("{what}: object {object} says {found}, expected {expected}")]
    Mismatch {
        /// Field or relation that disagrees.
        what: &'static str,
        /// The object whose value disagrees.
        object: ObjectId,
        /// Value in that object.
        found: u64,
        /// Value that the other object implies.
        expected: u64,
    },
    /// A chain of references does not end.
    #[error("{what} of object {object} does not end within {limit} steps")]
    Endless {
        /// Kind of chain that does not end.
        what: &'static str,
        /// Object at which the chain starts.
        object: ObjectId,
        /// Number of links that were followed.
        limit: usize,
    },
    /// A stored value has another size or type than it must have.
    #[error("entry '{key}' of object {object} has {found} integers of {int_size} bytes")]
    StoredValue {
        /// Number of the object that is the ZAP.
        object: ObjectId,
        /// Key of the entry in the ZAP.
        key: String,
        /// Number of integers in the value.
        found: usize,
        /// Bytes of each integer: 1, 2, 4 or 8.
        int_size: u8,
    },
    /// The property does not exist.
    #[error("invalid property '{name}'")]
    NoProperty {
        /// Name that was looked up.
        name: String,
    },
    /// The snapshot or bookmark is no earlier point in the history of the dataset.
    #[error("'{since}' is not an earlier point in the history of '{name}'")]
    NotAncestor {
        /// Full name of the dataset.
        name: String,
        /// Name of the snapshot or bookmark.
        since: String,
    },
    /// A key is missing or wrong.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A dataset, snapshot or bookmark of this name exists.
    #[error("'{name}': dataset already exists")]
    Exists {
        /// Full name of the dataset.
        name: String,
    },
    /// The dataset above a new name does not exist.
    #[error("'{name}': parent does not exist")]
    NoParent {
        /// Full name that was asked for.
        name: String,
    },
    /// The dataset above a new name is a volume.
    #[error("'{name}': parent is not a filesystem")]
    ParentNotFilesystem {
        /// Full name that was asked for.
        name: String,
    },
    /// The dataset is in use.
    #[error("'{name}': dataset is busy")]
    Busy {
        /// Full name of the dataset.
        name: String,
    },
    /// The dataset has children or snapshots, which the operation would orphan.
    #[error("'{name}': filesystem has children")]
    HasChildren {
        /// Full name of the dataset.
        name: String,
        /// Full names of children and snapshots.
        children: Vec<String>,
    },
    /// Clones depend on the snapshot.
    #[error("'{name}': snapshot has dependent clones")]
    HasClones {
        /// Full name of the snapshot.
        name: String,
        /// Full names of the clones.
        clones: Vec<String>,
    },
    /// The snapshot has holds.
    #[error("'{name}': it's being held")]
    Held {
        /// Full name of the snapshot.
        name: String,
    },
    /// Only a clone can be promoted.
    #[error("'{name}': not a cloned filesystem")]
    NotClone {
        /// Full name of the dataset.
        name: String,
    },
    /// Newer snapshots or bookmarks exist between the head and the snapshot to roll back to.
    #[error("'{name}': more recent snapshots or bookmarks exist")]
    NotNewest {
        /// Full name of the snapshot.
        name: String,
        /// Full names of the newer snapshots and bookmarks.
        newer: Vec<String>,
    },
    /// The new name is below the old one.
    #[error("'{name}': New dataset name cannot be a descendant of current dataset name")]
    Descendant {
        /// Full name that was asked for.
        name: String,
    },
    /// Two names of an operation are not in the same pool or dataset.
    #[error("'{name}': {why}")]
    Crosses {
        /// The name in another pool or dataset.
        name: String,
        /// What the names must have in common.
        why: &'static str,
    },
    /// The operation does not apply to this kind of dataset.
    #[error("'{name}': {why}")]
    WrongKind {
        /// Full name of the dataset.
        name: String,
        /// Kind of dataset that would be needed.
        why: &'static str,
    },
    /// A receive or a destroy of the dataset is under way.
    #[error("'{name}': dataset is inconsistent")]
    Inconsistent {
        /// Full name of the dataset.
        name: String,
    },
    /// Encrypted datasets cannot be changed in this way.
    #[error("'{name}': {why}")]
    Encrypted {
        /// Full name of the dataset.
        name: String,
        /// The refused operation, as the message has it.
        why: &'static str,
    },
    /// The contents of the dataset are read, and not changed.
    #[error("'{name}': {why}")]
    Unwritten {
        /// Full name of the dataset.
        name: String,
        /// What prevents a change.
        why: &'static str,
    },
    /// A quota, of the dataset or of one above it, is used up.
    #[error("'{name}': quota exceeded: {used} bytes of {quota} are used")]
    Quota {
        /// Object of the dataset or directory with the quota.
        name: String,
        /// Bytes in use below the quota.
        used: u64,
        /// Bytes that the quota allows.
        quota: u64,
        /// Txg after which a retry may succeed: changes that are not written yet were counted at their worst.
        after: Option<Txg>,
    },
    /// The pool lacks the space for a change or for a reservation.
    #[error("out of space: {needed} bytes are needed, {available} are available")]
    Space {
        /// Bytes that the change needs.
        needed: u64,
        /// Bytes that are available for it.
        available: u64,
        /// Txg after which a retry may succeed.
        after: Option<Txg>,
    },
    /// A quota below the used or reserved bytes, or a reservation above the quota.
    #[error("'{name}': {why}")]
    BadLimit {
        /// Full name of the dataset.
        name: String,
        /// Rule that the limit breaks.
        why: &'static str,
    },
    /// A hidden directory that every pool has is missing.
    #[error("the pool has no directory '{name}'")]
    NoSpecial {
        /// Name of the directory: `$FREE`, `$MOS`, `$ORIGIN`.
        name: &'static str,
    },
    /// A feature that this needs is not enabled.
    #[error("feature '{name}' is not enabled")]
    FeatureDisabled {
        /// Short name of the feature.
        name: &'static str,
    },
    /// The operation is possible only once per txg: retry in the next one.
    #[error("'{name}': try again in the next transaction group")]
    Again {
        /// Name of the dataset or feature.
        name: String,
    },
    /// A limit on the number of file systems or snapshots below a directory is exceeded.
    #[error("{prop} of directory {dir} is {limit}, and there are {used}")]
    CountLimit {
        /// The directory with the limit.
        dir: ObjectId,
        /// The limiting property: `filesystem_limit` or `snapshot_limit`.
        prop: &'static str,
        /// Number of datasets that count already.
        used: u64,
        /// Number of datasets that the limit allows.
        limit: u64,
    },
    /// A permission that cannot be delegated.
    #[error("invalid permission '{name}'")]
    BadPermission {
        /// Name of the permission or set.
        name: String,
    },
    /// A hold cannot be made or released.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// A bookmark cannot be created or destroyed.
    #[error(transparent)]
    Bookmark(#[from] BookmarkError),
    /// A property cannot have this value, or cannot be set.
    #[error(transparent)]
    Prop(#[from] PropError),
    /// A stream cannot be received into the dataset.
    #[error(transparent)]
    Receive(#[from] ReceiveRefusal),
    /// The contents of a new dataset could not be created.
    #[error("the contents of a new dataset cannot be made")]
    Fill {
        /// Cause in the layer that fills the dataset.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No transaction can begin: the pool is suspended or closed.
    #[error(transparent)]
    Tx(#[from] TxError),
    /// A block could not be freed.
    #[error(transparent)]
    Zio(#[from] ZioError),
}

impl DslError {
    pub(crate) fn decode(object: ObjectId) -> impl FnOnce(DecodeError) -> DslError {
        move |cause| DslError::Decode { object, cause }
    }

    pub(crate) fn not_found(name: impl Into<String>) -> DslError {
        DslError::NotFound { name: name.into() }
    }

    /// Whether the same may succeed in the next transaction group: it is possible once in each, or space is being freed.
    pub fn is_for_now(&self) -> bool {
        matches!(
            self,
            DslError::Again { .. }
                | DslError::Space { after: Some(_), .. }
                | DslError::Quota { after: Some(_), .. }
        )
    }
}
