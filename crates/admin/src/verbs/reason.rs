//! Reasons: why a layer below refused something, as data that crosses processes.
//!
//! The engine's errors keep their own types. Where a verb gives one to its caller, it becomes a [`Reason`]: a stable
//! code to branch on, the names that it is about, and the message in the words of OpenZFS.

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

/// Why something was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What kind of reason it is.
    pub code: Code,
    /// Full names of the datasets or pools that it is about; none where the message says all.
    pub about: Vec<String>,
    /// The message, in the words of OpenZFS, without the name that the caller has said already.
    pub message: String,
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// A name that no dataset or pool can have.
    Name,
    /// A property that cannot be set, or not to this value.
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
    /// The pool can be read, not changed.
    ReadOnly,
    /// The pool does not take writes at present.
    Suspended,
    /// The permission to be granted does not exist.
    BadPermission,
    /// What programs have written to a mount could not be brought into the pool.
    NotWrittenBack,
    /// A file system could not be mounted or unmounted.
    Mount,
    /// This version of Cenote does not do it.
    Unsupported,
    /// Another refusal; its message says which.
    Refused,
    /// A layer below failed: damage, a device, the system.
    Failed,
}

/// A verb on several targets that stopped half-way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Full names of the targets that were done, in order.
    pub done: Vec<String>,
    /// Full names of the rest, the one that failed first.
    pub left: Vec<String>,
    /// Why it stopped.
    pub reason: Reason,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Reason {
    /// A reason that is about no further name.
    pub fn new(code: Code, message: impl fmt::Display) -> Reason {
        Reason { code, about: Vec::new(), message: message.to_string() }
    }

    /// The line of a command that cannot open what `name` names. A pool that does not exist is told as a missing
    /// dataset.
    pub fn cannot_open(&self, name: &str) -> String {
        match self.is_missing() {
            true => format!("cannot open '{name}': dataset does not exist"),
            false => format!("cannot open '{name}': {}", self.message),
        }
    }

    /// True if the pool can be read, but not changed.
    pub fn is_read_only(&self) -> bool {
        self.code == Code::ReadOnly
    }

    /// True if the caller lacks a permission, or permissions are off in the pool: such a caller learns no names.
    pub fn is_denied(&self) -> bool {
        matches!(self.code, Code::Denied | Code::DelegationOff)
    }

    /// True if the caller has named what cannot be, or does not exist: some commands then tell how they are used. A pool
    /// that cannot be changed is no such matter.
    pub fn is_usage(&self) -> bool {
        matches!(self.code, Code::Name | Code::NoPool | Code::NoDataset | Code::WrongKind)
    }

    /// True if the pool or dataset does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self.code, Code::NoPool | Code::NoDataset)
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
            EditError::NotHandedOver { .. } => (Code::NotWrittenBack, vec![]),
            EditError::Failed(_) => (Code::Failed, vec![]),
        };
        Reason { code, about, message }
    }
}

/// Code and names of a refusal of the dataset layer.
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
            ChangeError::ImportedReadOnly | ChangeError::ReadOnly { .. } => Code::ReadOnly,
            ChangeError::Suspended => Code::Suspended,
            ChangeError::Denied => Code::Denied,
            ChangeError::NoSpace => Code::NoSpace,
            ChangeError::Property(_) => Code::Value,
            ChangeError::Unsupported { .. } => Code::Unsupported,
            ChangeError::Failed(_) | ChangeError::Admin(_) | ChangeError::Device { .. } => Code::Failed,
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
            AdminError::CacheFile { .. } => (Code::Failed, vec![]),
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
        Reason { code: Code::Mount, about: vec![refusal.what.clone()], message: refusal.why.clone() }
    }
}

impl From<Denied> for Reason {
    fn from(denied: Denied) -> Reason {
        Reason::new(Code::Denied, denied)
    }
}
