//! `zfs allow`: gives permissions at a dataset to users, groups or everyone, or tells which there are.
//!
//! Source: docs/on-disk/33-cli.md (section 8).

use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::{self, EditError, Grant, Permit};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::Pool;
use dsl::delegation::{Scope, Who};
use serde::{Deserialize, Serialize};

/// Permissions to give.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system or volume.
    pub dataset: String,
    /// The permissions, their holders, and where they hold.
    pub grant: Grants,
}

/// Permissions, their holders, and where they hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants {
    /// Who holds the permissions.
    pub holders: Vec<Holder>,
    /// They hold at the dataset itself.
    pub local: bool,
    /// They hold at the datasets below it.
    pub descendent: bool,
    /// Names of permissions, and with `@` in front of sets. To be taken back: none means all.
    pub permissions: Vec<String>,
}

/// A holder of permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// A user, by its number.
    User(u64),
    /// A group, by its number.
    Group(u64),
    /// Every user.
    Everyone,
    /// The user that makes a dataset below.
    Creator,
    /// A set of permissions, by its name with `@` in front.
    Set(String),
}

impl From<&Holder> for Who {
    fn from(holder: &Holder) -> Who {
        match holder {
            Holder::User(id) => Who::User(*id),
            Holder::Group(id) => Who::Group(*id),
            Holder::Everyone => Who::Everyone,
            Holder::Creator => Who::CreateTime,
            Holder::Set(name) => Who::Set(name.clone()),
        }
    }
}

impl From<&Grants> for Grant {
    fn from(grants: &Grants) -> Grant {
        let scopes = [(grants.local, Scope::Local), (grants.descendent, Scope::Descendent)];
        Grant {
            who: grants.holders.iter().map(Who::from).collect(),
            scopes: scopes.into_iter().filter(|(holds, _)| *holds).map(|(_, scope)| scope).collect(),
            permissions: grants.permissions.clone(),
        }
    }
}

/// Why no permission was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{}", reason.cannot_open(dataset))]
    Open {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        reason: Reason,
    },
    /// The pool cannot be opened for change.
    #[error("{}", reason.cannot_open(dataset))]
    Unwritable {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        reason: Reason,
    },
    /// The permissions cannot be changed.
    #[error("cannot set permissions on '{dataset}': {reason}")]
    NotSet {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open { reason, .. }
            | Refusal::Unwritable { reason, .. }
            | Refusal::NotSet { reason, .. } => reason.clone(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs allow";
    const RIGHT: Right = Right::Delegated(&["allow"]);
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        change(session, &self.dataset, |pool| edit::allow(pool, &self.dataset, &(&self.grant).into()))
    }
}

/// The permissions that hold at a dataset, nearest first: full name of the dataset that has them, and they.
///
/// # Errors
/// [`Refusal::Open`].
pub fn allowed(session: &mut Session<'_>, dataset: &str) -> Result<Vec<(String, Vec<Permit>)>, Refusal> {
    let view = open(session, dataset)?;
    edit::allowed(&view, dataset)
        .map_err(|error| Refusal::Open { dataset: dataset.to_owned(), reason: error.into() })
}

fn open(session: &mut Session<'_>, dataset: &str) -> Result<Pool, Refusal> {
    let closed = |error: EditError| Refusal::Open { dataset: dataset.to_owned(), reason: error.into() };
    names::check(dataset, Form::Head).map_err(|error| closed(error.into()))?;
    let view = session.view(dataset).map_err(closed)?;
    view.dataset(dataset).map_err(|error| closed(error.into()))?;
    Ok(view)
}

/// Changes permissions at a dataset that exists.
pub(super) fn change(
    session: &mut Session<'_>,
    dataset: &str,
    change: impl FnOnce(&cenote::PoolWriter) -> Result<(), EditError>,
) -> Result<(), Refusal> {
    open(session, dataset)?;
    let name = || dataset.to_owned();
    let pool = session.writer(dataset).map_err(|error| match error.is_read_only() {
        true => Refusal::NotSet { dataset: name(), reason: error.into() },
        false => Refusal::Unwritable { dataset: name(), reason: error.into() },
    })?;
    change(&pool).map_err(|error| {
        let mut reason = Reason::from(error);
        if reason.code == Code::BadPermission {
            "operation not applicable to datasets of this type".clone_into(&mut reason.message);
        }
        Refusal::NotSet { dataset: name(), reason }
    })?;
    session.note_change(dataset);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cross_a_process() {
        let grant = Grants {
            holders: vec![Holder::User(7), Holder::Set("@ops".into()), Holder::Creator],
            local: true,
            descendent: false,
            permissions: vec!["snapshot".into()],
        };
        let request = Request { dataset: "p/a".into(), grant };
        let text = serde_json::to_string(&request).expect("data");
        assert_eq!(serde_json::from_str::<Request>(&text).expect("data"), request);
        let grant = Grant::from(&request.grant);
        assert_eq!(grant.scopes, [Scope::Local]);
        assert_eq!(grant.who.len(), 3);
    }
}
