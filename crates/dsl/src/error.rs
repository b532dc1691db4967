//! What can go wrong in the dataset layer.

use crate::keys::KeyError;
use dmu::DmuError;
use format::{DecodeError, ObjType, ObjectId};

/// An error of the dataset layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DslError {
    /// An object of the MOS could not be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// A structure in the MOS is not what it should be.
    #[error("object {object} of the MOS")]
    Decode {
        /// The object that holds it.
        object: ObjectId,
        /// What is wrong.
        #[source]
        cause: DecodeError,
    },
    /// A name that no dataset can have.
    #[error("'{name}': {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such dataset, snapshot or bookmark.
    #[error("cannot open '{name}': dataset does not exist")]
    NotFound {
        /// Its full name.
        name: String,
    },
    /// A name stored on disk is damaged.
    #[error("object {map} names object {object} with the illegal name '{name}'")]
    StoredName {
        /// The ZAP that holds the name.
        map: ObjectId,
        /// What the name leads to.
        object: ObjectId,
        /// The name, made printable.
        name: String,
    },
    /// An object is not of the type that the reference to it implies.
    #[error("object {object} is no {expected}: its bonus is of type {found}")]
    WrongType {
        /// The object.
        object: ObjectId,
        /// What it should be.
        expected: &'static str,
        /// Type of its bonus.
        found: ObjType,
    },
    /// Two objects that refer to each other do not agree.
    #[error("{what}: object {object} says {found}, expected {expected}")]
    Mismatch {
        /// What they disagree about.
        what: &'static str,
        /// The object that was looked at.
        object: ObjectId,
        /// What it says.
        found: u64,
        /// What the other one says.
        expected: u64,
    },
    /// A chain of references does not end.
    #[error("{what} of object {object} does not end within {limit} steps")]
    Endless {
        /// The chain.
        what: &'static str,
        /// Where it starts.
        object: ObjectId,
        /// How far it was followed.
        limit: usize,
    },
    /// A stored value has another size or type than it must have.
    #[error("entry '{key}' of object {object} has {found} integers of {int_size} bytes")]
    StoredValue {
        /// The ZAP.
        object: ObjectId,
        /// The entry.
        key: String,
        /// How many integers it has.
        found: usize,
        /// Bytes of each.
        int_size: u8,
    },
    /// The property does not exist.
    #[error("invalid property '{name}'")]
    NoProperty {
        /// Its name.
        name: String,
    },
    /// The bookmark does not lie before the dataset, so nothing was written since it.
    #[error("'{since}' is not an earlier point in the history of '{name}'")]
    NotAncestor {
        /// The dataset.
        name: String,
        /// The snapshot or bookmark.
        since: String,
    },
    /// A key is missing or wrong.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl DslError {
    pub(crate) fn decode(object: ObjectId) -> impl FnOnce(DecodeError) -> DslError {
        move |cause| DslError::Decode { object, cause }
    }

    pub(crate) fn not_found(name: impl Into<String>) -> DslError {
        DslError::NotFound { name: name.into() }
    }
}
