//! `zfs allow`: gives permissions at a dataset to users, groups or everyone. Without permissions the command asks which
//! there are: [`super::allowed`].
//!
//! Source: docs/on-disk/33-cli.md (section 8).

use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit::{self, EditError, Grant};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
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

/// A holder of permissions, in the order of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// A set of permissions, by its name with `@` in front.
    Set(String),
    /// The user that makes a dataset below.
    Creator,
    /// A user, by its number.
    User(u64),
    /// A group, by its number.
    Group(u64),
    /// Every user.
    Everyone,
}

impl From<Who> for Holder {
    fn from(who: Who) -> Holder {
        match who {
            Who::User(id) => Holder::User(id),
            Who::Group(id) => Holder::Group(id),
            Who::Everyone => Holder::Everyone,
            Who::CreateTime => Holder::Creator,
            Who::Set(name) => Holder::Set(name),
        }
    }
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
    #[error("{0}")]
    Open(NotOpened),
    /// The pool cannot be opened for change.
    #[error("{0}")]
    Unwritable(NotOpened),
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
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::Unwritable(NotOpened { reason, .. })
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

/// Changes permissions at a dataset that exists.
pub(super) fn change(
    session: &mut Session<'_>,
    dataset: &str,
    change: impl FnOnce(&cenote::PoolWriter) -> Result<(), EditError>,
) -> Result<(), Refusal> {
    operand::open_head(session, dataset).map_err(Refusal::Open)?;
    let name = || dataset.to_owned();
    let pool = session.writer(dataset).map_err(|error| match error.is_read_only() {
        true => Refusal::NotSet { dataset: name(), reason: error.into() },
        false => Refusal::Unwritable(NotOpened::new(dataset, error)),
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
