//! Reasons: errors of the layers below as data that can leave the process.
//!
//! The engine's errors keep their own types. A verb returns them to its caller as a [`Reason`]: a stable code to
//! branch on, the names that it concerns, and the message in the words of OpenZFS.

use super::Denied;
use crate::AdminError;
use crate::change::ChangeError;
use crate::edit::EditError;
use crate::edit::names::NameError;
use crate::edit::values::ValueError;
use crate::mounting::MountRefusal;
use dsl::DslError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Kind of the reason.
    pub code: Code,
    /// Full names of the datasets or pools that it concerns; empty if the message is complete without them.
    pub about: Vec<String>,
    /// The message in the words of OpenZFS, without the name that the caller prints before it.
    pub message: String,
}

/// Kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// The name is not valid for a dataset or pool.
    Name,
    /// The property or its value cannot be set.
    Value,
    /// There is no pool of this name.
    NoPool,
    /// There is no dataset of this name.
    NoDataset,
    /// The name is taken.
    Exists,
    /// The parent of a new dataset is missing.
    NoParent,
    /// The parent of a new dataset is a volume.
    ParentNotFilesystem,
    /// The dataset is of another kind than the verb needs.
    WrongKind,
    /// The property does not apply to this kind of dataset.
    NotApplicable,
    /// The caller lacks a permission.
    Denied,
    /// The pool's property `delegation` is off.
    DelegationOff,
    /// The dataset, pool or device is in use.
    Busy,
    /// A snapshot has holds.
    Held,
    /// A snapshot has clones.
    HasClones,
    /// A dataset has children.
    HasChildren,
    /// Space, a quota or a limit is used up.
    NoSpace,
    /// The pool is open for reading only.
    ReadOnly,
    /// The pool is suspended and does not accept writes at present.
    Suspended,
    /// The permission to be granted is not known.
    BadPermission,
    /// Unwritten data of a mount could not be written to the pool.
    NotWrittenBack,
    /// A file system could not be mounted or unmounted.
    Mount,
    /// This version of Cenote does not support it.
    Unsupported,
    /// Another refusal; the message describes it.
    Refused,
    /// A layer below failed: damaged data, a device, the operating system.
    Failed,
}

/// A verb on several targets that stopped before the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Full names of the finished targets, in order.
    pub done: Vec<String>,
    /// Full names of the other targets; the one that failed is first.
    pub left: Vec<String>,
    /// Why the first target in `left` failed.
    pub reason: Reason,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Reason {
    /// A reason with no names.
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Reason {
        Reason { code, about: Vec::new(), message: message.to_string() }
    }

    /// The message of a command that cannot open `name`. A missing pool is reported as a missing dataset.
    pub(crate) fn cannot_open(&self, name: &str) -> String {
        match self.code {
            Code::NoPool => format!("cannot open '{name}': dataset does not exist"),
            _ => format!("cannot open '{name}': {}", self.message),
        }
    }

    /// True if the pool can be read, but not changed.
    pub fn is_read_only(&self) -> bool {
        self.code == Code::ReadOnly
    }

    /// True if the caller lacks a permission, or delegation is off. Such a caller must not learn which names exist.
    pub fn is_denied(&self) -> bool {
        matches!(self.code, Code::Denied | Code::DelegationOff)
    }

    /// True if the request names something that is not valid or does not exist; some commands then print their
    /// usage. A read-only pool is not such a case.
    pub fn is_usage(&self) -> bool {
        matches!(self.code, Code::Name | Code::NoPool | Code::NoDataset | Code::WrongKind)
    }
}

impl From<EditError> for Reason {
    fn from(error: EditError) -> Reason {
        let message = error.to_string();
        let (code, about) = match error {
            EditError::Name(_) => (Code::Name, vec![]),
            EditError::Value(_) => (Code::Value, vec![]),
            EditError::NoPool { pool } => (Code::NoPool, vec![pool]),
            EditError::NoDataset { name } => (Code::NoDataset, vec![name]),
            EditError::Exists { name } => (Code::Exists, vec![name]),
            EditError::NoParent { name } => (Code::NoParent, vec![name]),
            EditError::ParentNotFilesystem { name } => (Code::ParentNotFilesystem, vec![name]),
            EditError::WrongKind { name } => (Code::WrongKind, vec![name]),
            EditError::NotApplicable => (Code::NotApplicable, vec![]),
            EditError::Denied => (Code::Denied, vec![]),
            EditError::DelegationOff => (Code::DelegationOff, vec![]),
            EditError::Busy { name } => (Code::Busy, vec![name]),
            EditError::NoSpace => (Code::NoSpace, vec![]),
            EditError::Unsupported { .. } => (Code::Unsupported, vec![]),
            EditError::Refused(refusal) => of_dsl(refusal),
            EditError::Open(error) => return error.into(),
            EditError::NotHandedOver(_) => (Code::NotWrittenBack, vec![]),
            EditError::Failed(_) => (Code::Failed, vec![]),
        };
        Reason { code, about, message }
    }
}

/// Code and names of an error of the dataset layer.
fn of_dsl(refusal: DslError) -> (Code, Vec<String>) {
    match refusal {
        DslError::Held { name } => (Code::Held, vec![name]),
        DslError::HasClones { name, clones } => {
            (Code::HasClones, std::iter::once(name).chain(clones).collect())
        }
        DslError::HasChildren { name, children } => {
            (Code::HasChildren, std::iter::once(name).chain(children).collect())
        }
        DslError::Busy { name } => (Code::Busy, vec![name]),
        DslError::BadName { name, .. } => (Code::Name, vec![name]),
        DslError::BadPermission { .. } => (Code::BadPermission, vec![]),
        DslError::WrongKind { name, .. } => (Code::WrongKind, vec![name]),
        _ => (Code::Refused, vec![]),
    }
}

impl From<ChangeError> for Reason {
    fn from(error: ChangeError) -> Reason {
        let code = match &error {
            ChangeError::NoPool => Code::NoPool,
            ChangeError::Exists => Code::Exists,
            ChangeError::Name(_) => Code::Name,
            ChangeError::DeviceBusy { .. } | ChangeError::Busy { .. } | ChangeError::InUse => Code::Busy,
            ChangeError::ImportedReadOnly | ChangeError::ReadOnly { .. } | ChangeError::FixedName => {
                Code::ReadOnly
            }
            ChangeError::Suspended => Code::Suspended,
            ChangeError::Denied => Code::Denied,
            ChangeError::NoSpace => Code::NoSpace,
            ChangeError::Property(_) => Code::Value,
            ChangeError::Unsupported { .. } => Code::Unsupported,
            ChangeError::Failed(_)
            | ChangeError::Admin(_)
            | ChangeError::Device { .. }
            | ChangeError::Partitions { .. } => Code::Failed,
            _ => Code::Refused,
        };
        Reason::new(code, error)
    }
}

impl From<cenote::Error> for Reason {
    fn from(error: cenote::Error) -> Reason {
        EditError::from(error).into()
    }
}

impl From<AdminError> for Reason {
    fn from(error: AdminError) -> Reason {
        let message = error.to_string();
        let (code, about) = match error {
            AdminError::Cenote(error) => {
                let Reason { code, about, .. } = Reason::from(*error);
                (code, about)
            }
            AdminError::NoPool { name } => (Code::NoPool, vec![name]),
            AdminError::NoDataset { name } => (Code::NoDataset, vec![name]),
            AdminError::BadName { name, .. } => (Code::Name, vec![name]),
            AdminError::NotAFilesystem { name } => (Code::WrongKind, vec![name]),
            AdminError::NotEarlier { name } => (Code::Refused, vec![name]),
            AdminError::NotInPool { .. } => (Code::Refused, vec![]),
            AdminError::CacheFile(_) => (Code::Failed, vec![]),
        };
        Reason { code, about, message }
    }
}

impl From<NameError> for Reason {
    fn from(error: NameError) -> Reason {
        Reason::new(Code::Name, error)
    }
}

impl From<ValueError> for Reason {
    fn from(error: ValueError) -> Reason {
        Reason::new(Code::Value, error)
    }
}

impl From<&MountRefusal> for Reason {
    fn from(refusal: &MountRefusal) -> Reason {
        Reason { code: Code::Mount, about: vec![refusal.what.clone()], message: refusal.why.to_string() }
    }
}

impl From<Denied> for Reason {
    fn from(denied: Denied) -> Reason {
        Reason::new(Code::Denied, denied)
    }
}
