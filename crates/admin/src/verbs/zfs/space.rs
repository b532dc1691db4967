//! `zfs userspace`, `groupspace` and `projectspace`: what users, groups and projects use of a file system, and may use.
//!
//! The answer is collected, because it is sorted: a row for each owner, not for each file.
//!
//! # Order
//! The file system is found -> the caller's permissions for each kind of owner -> the numbers are read -> owners get
//! their names -> the rows are sorted.
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 5), 20-dmu.md (section 8).

use super::lines;
use super::operand::{self, NotOpened, Operand};
use crate::datasets::Entry;
use crate::edit::{self, EditError};
use crate::verbs::{Code, Reason, Refused, Right, Verb, Warning};
use crate::{AdminError, Kind, OpenPool, Owner, Problem, Session, SpaceRow, owner_names};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Owners whose space is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A file system or a snapshot of one.
    pub filesystem: Operand,
    /// Owners of these kinds.
    #[serde(default)]
    pub kinds: Vec<OwnerKind>,
    /// Owners are not given names (`-n`).
    #[serde(default)]
    pub numeric: bool,
    /// What the rows are sorted by, the first key first; then by kind and name, owners without a name last and by
    /// number.
    #[serde(default)]
    pub sort: Vec<SortKey>,
}

/// Kinds of owners, in the order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    /// A group with a number.
    PosixGroup,
    /// A user with a number.
    PosixUser,
    /// A group with a Windows identity.
    SmbGroup,
    /// A user with a Windows identity.
    SmbUser,
    /// A project.
    Project,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortKey {
    /// The column.
    pub field: Field,
    /// The greatest first (`-S`).
    pub descending: bool,
}

/// A column of the listing. Numbers that are not known count as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Kind of the owner.
    Kind,
    /// Name or number of the owner.
    Name,
    /// Bytes used.
    Used,
    /// Bytes allowed.
    Quota,
    /// Objects used.
    Objects,
    /// Objects allowed.
    ObjectQuota,
}

/// The owners.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// In order.
    pub rows: Vec<Row>,
}

/// What one owner uses and may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What kind of owner it is.
    pub kind: OwnerKind,
    /// The name of the user or group on this machine, or the Windows identity; `None`: the number is all there is.
    pub name: Option<String>,
    /// The owner and the numbers.
    pub space: SpaceRow,
}

/// Why nothing is answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The file system was not found, and pools or devices could not be opened.
    #[error("{}", lines(.0).trim_end())]
    Closed(Vec<Problem>),
    /// The file system cannot be opened, or is none.
    #[error("{0}")]
    Open(NotOpened),
    /// The caller lacks a permission, or the numbers cannot be read.
    #[error("cannot get used/quota for {name}: {reason}")]
    Space {
        /// The operand as it was written.
        name: String,
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
            | Refusal::Space { reason, .. } => reason.clone(),
            Refusal::Closed(problems) => {
                problems.first().map_or_else(|| Reason::new(Code::Failed, self), |first| first.reason.clone())
            }
        }
    }
}

impl OwnerKind {
    /// Whose space it is.
    pub(crate) fn owner(self) -> Owner {
        match self {
            OwnerKind::PosixUser | OwnerKind::SmbUser => Owner::User,
            OwnerKind::PosixGroup | OwnerKind::SmbGroup => Owner::Group,
            OwnerKind::Project => Owner::Project,
        }
    }

    fn of(row: &SpaceRow) -> OwnerKind {
        match (row.owner, row.domain.is_some()) {
            (Owner::User, false) => OwnerKind::PosixUser,
            (Owner::User, true) => OwnerKind::SmbUser,
            (Owner::Group, false) => OwnerKind::PosixGroup,
            (Owner::Group, true) => OwnerKind::SmbGroup,
            (Owner::Project, _) => OwnerKind::Project,
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs userspace";
    /// The permissions `userused`, `userquota`, `userobjused` and `userobjquota`, or those of groups or projects, are
    /// asked for at the file system.
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let (pools, problems) = operand::pools(session, std::slice::from_ref(&self.filesystem));
        let problems: Vec<Problem> = operand::told(problems).collect();
        let entry = match operand::find(session, &pools, &self.filesystem) {
            Ok(entry) => entry,
            Err(_) if !problems.is_empty() => return Err(Refusal::Closed(problems)),
            Err(error) => return Err(self.not_opened(error)),
        };
        for problem in problems {
            session.warn(Warning::Problem { message: problem.to_string() });
        }
        if !matches!(entry.kind(), Kind::Filesystem | Kind::Snapshot) || entry.is_volume_snapshot() {
            return Err(self.not_opened(AdminError::NotAFilesystem { name: entry.name().to_owned() }));
        }
        Ok(Answer { rows: self.sorted(self.read(session, &pools, &entry)?) })
    }
}

impl Request {
    fn not_opened(&self, error: AdminError) -> Refusal {
        Refusal::Open(NotOpened::new(self.filesystem.text.as_str(), error))
    }

    fn read(
        &self,
        session: &Session<'_>,
        pools: &[OpenPool],
        entry: &Entry,
    ) -> Result<Vec<SpaceRow>, Refusal> {
        let refused = |reason| Refusal::Space { name: self.filesystem.text.clone(), reason };
        let mut rows = Vec::new();
        for (owner, word) in [(Owner::User, "user"), (Owner::Group, "group"), (Owner::Project, "project")] {
            if !self.kinds.iter().any(|kind| kind.owner() == owner) {
                continue;
            }
            let needed = ["used", "quota", "objused", "objquota"].map(|what| format!("{word}{what}"));
            let needed = needed.each_ref().map(String::as_str);
            let may = operand::pool_of_entry(pools, entry)
                .map_or(Ok(()), |pool| edit::may(session.search(), pool.pool(), entry.name(), &needed));
            if let Err(error @ (EditError::Denied | EditError::DelegationOff)) = may {
                return Err(refused(error.into()));
            }
            rows.extend(entry.space(owner).map_err(|error| refused(error.into()))?);
        }
        rows.retain(|row| self.kinds.contains(&OwnerKind::of(row)));
        Ok(rows)
    }

    /// The rows with the names of their owners, in order.
    fn sorted(&self, rows: Vec<SpaceRow>) -> Vec<Row> {
        let names = [Owner::User, Owner::Group, Owner::Project].map(|owner| (owner, owner_names(owner)));
        let name_of = |row: &SpaceRow| {
            let known = names.iter().find(|(owner, _)| *owner == row.owner).filter(|_| !self.numeric);
            known.and_then(|(_, names)| names.get(&row.id)).cloned()
        };
        let named = |space: SpaceRow| {
            let name = match &space.domain {
                Some(domain) => Some(format!("{domain}-{}", space.id)),
                None => name_of(&space),
            };
            Row { kind: OwnerKind::of(&space), name, space }
        };
        let mut rows: Vec<Row> = rows.into_iter().map(named).collect();
        rows.sort_by(|a, b| {
            let by = self.sort.iter().map(|key| key.compare(a, b)).fold(Ordering::Equal, Ordering::then);
            by.then(a.kind.cmp(&b.kind)).then_with(|| by_name(a, b))
        });
        rows
    }
}

impl SortKey {
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let numbers = |number: fn(&SpaceRow) -> Option<u64>| {
            number(&a.space).unwrap_or(0).cmp(&number(&b.space).unwrap_or(0))
        };
        let by = match self.field {
            Field::Kind => a.kind.cmp(&b.kind),
            Field::Name => by_name(a, b),
            Field::Used => numbers(|row| row.used),
            Field::Quota => numbers(|row| row.quota),
            Field::Objects => numbers(|row| row.objects),
            Field::ObjectQuota => numbers(|row| row.object_quota),
        };
        if self.descending { by.reverse() } else { by }
    }
}

/// Owners with a name before those without, which are in the order of their numbers.
fn by_name(a: &Row, b: &Row) -> Ordering {
    match (&a.name, &b.name) {
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => a.space.id.cmp(&b.space.id),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    fn row(owner: Owner, domain: Option<&str>, id: u64, used: Option<u64>) -> SpaceRow {
        let domain = domain.map(str::to_owned);
        SpaceRow { owner, domain, id, used, quota: used, objects: None, object_quota: None }
    }

    fn request(sort: &[(Field, bool)]) -> Request {
        Request {
            filesystem: Operand::name("tank/a"),
            kinds: vec![OwnerKind::PosixUser, OwnerKind::SmbUser],
            numeric: true,
            sort: sort.iter().map(|&(field, descending)| SortKey { field, descending }).collect(),
        }
    }

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        let request = request(&[(Field::ObjectQuota, true)]);
        carried(&request);
        carried(&Answer { rows: request.sorted(vec![row(Owner::User, Some("S-1-5-21-7"), 513, Some(1))]) });
        let reason = Reason::new(Code::Failed, "damaged");
        let problems = vec![Problem { what: "tank".into(), reason: reason.clone() }];
        let refusal = Refusal::Closed(problems);
        assert_eq!(carried(&refusal).to_string(), "cannot open 'tank': damaged");
        assert_eq!(refusal.reason(), reason);
        let refusal = Refusal::Space { name: "tank/a".into(), reason: EditError::Denied.into() };
        assert_eq!(carried(&refusal).to_string(), "cannot get used/quota for tank/a: permission denied");
        assert!(refusal.reason().is_denied());
    }

    #[test]
    fn rows_are_sorted_by_keys_then_by_kind_and_name() {
        let rows = [
            row(Owner::User, None, 10, Some(5)),
            row(Owner::User, Some("S-1-5-21-7"), 2, Some(7)),
            row(Owner::User, None, 9, None),
            row(Owner::Group, None, 11, Some(5)),
        ];
        let ids = |sort: &[(Field, bool)]| -> Vec<u64> {
            request(sort).sorted(rows.to_vec()).iter().map(|row| row.space.id).collect()
        };
        assert_eq!(ids(&[]), [11, 9, 10, 2]);
        assert_eq!(ids(&[(Field::Used, true)]), [2, 11, 10, 9]);
        assert_eq!(ids(&[(Field::Used, false), (Field::Name, true)]), [9, 11, 10, 2]);
        assert_eq!(ids(&[(Field::Kind, true)]), [2, 9, 10, 11]);
    }
}
