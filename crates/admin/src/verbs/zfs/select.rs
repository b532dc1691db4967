//! The common part of `zfs list` and `zfs get`: which datasets a request selects, in which order, and the value of a
//! property of each.
//!
//! # What always holds
//! - A selection names each dataset once: by name, snapshots behind their dataset and in the order in which they were
//!   taken.
//! - An operand that cannot be opened does not keep the others from being selected.

use super::lines;
use super::operand::{self, NotOpened, Operand, Unopened};
use crate::datasets::{self, Entry, Walk};
use crate::edit;
use crate::verbs::{Denied, Reason, Refused};
use crate::{AdminError, Kind, OpenPool, Property, Session, Source, Value, pool_property};
use crate::{Owner, identity};
use format::prop;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// All kinds, in the order of the commands.
pub(super) const ALL_KINDS: [Kind; 4] = [Kind::Filesystem, Kind::Volume, Kind::Snapshot, Kind::Bookmark];

/// How far below its operands a selection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Depth {
    /// The operands themselves.
    #[default]
    Own,
    /// So many levels below; snapshots and bookmarks are one level below their dataset (`-d`).
    Levels(u64),
    /// All the way (`-r`).
    All,
}

/// Which datasets a request is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Where it begins; none: the root file systems of all pools, and everything below them.
    pub operands: Vec<Operand>,
    /// The kinds that are wanted (`-t`); `None`: those that the verb shows by itself.
    pub kinds: Option<Vec<Kind>>,
    /// How far below.
    pub depth: Depth,
}

/// A dataset, snapshot or bookmark with properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRow {
    /// Full name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Name of its pool.
    pub pool: String,
    /// Txg of its creation; of a bookmark, that of its snapshot.
    pub create_txg: u64,
    /// The properties that were asked for, by name, in that order. One that does not apply to the dataset or has no
    /// value is [`Value::Absent`].
    pub properties: Vec<(String, Property)>,
}

impl DatasetRow {
    pub(super) fn new(entry: &Entry, properties: Vec<(String, Property)>) -> DatasetRow {
        DatasetRow {
            name: entry.name().to_owned(),
            kind: entry.kind(),
            pool: entry.pool_name().to_owned(),
            create_txg: entry.create_txg(),
            properties,
        }
    }
}

/// Why nothing was listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// Something that is there cannot be read: a list without it would not be whole.
    #[error("{}{}{reason}", lines(unopened), name.as_ref().map_or(String::new(), |name| format!("{name}: ")))]
    Unreadable {
        /// What could not be opened by then.
        unopened: Vec<Unopened>,
        /// Full name of the dataset whose property cannot be read; `None`: the list of datasets.
        name: Option<String>,
        /// Why.
        reason: Reason,
    },
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::Denied(denied.into())
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Unreadable { reason, .. } => reason.clone(),
        }
    }
}

/// What cannot be read: the dataset, if it is a property of one, and the error.
pub(super) type Unreadable = (Option<String>, AdminError);

/// The verb that selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// `zfs list`.
    List,
    /// `zfs get`: bookmarks may be named without asking for their kind, and snapshots of an operand that is itself
    /// wanted are not selected.
    Get,
}

/// The datasets of a selection.
#[derive(Default)]
pub(super) struct Selected {
    pub(super) entries: Vec<Entry>,
    /// What could not be opened, in the order in which it was tried.
    pub(super) unopened: Vec<Unopened>,
    /// The pools stay open as long as their datasets are looked at.
    pools: Vec<OpenPool>,
}

impl Selected {
    /// Sorts the datasets, and drops all but one of those that several operands have selected.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_cached_key(place);
        self.entries.dedup_by(|a, b| a.name() == b.name());
    }

    /// Reads their properties.
    pub(super) fn properties<'a, 'p>(&'a self, session: &'a Session<'p>) -> Properties<'a, 'p> {
        Properties { session, pools: &self.pools }
    }

    /// The refusal where something cannot be read.
    pub(super) fn unreadable(self, (name, error): Unreadable) -> Refusal {
        Refusal::Unreadable { unopened: self.unopened, name, reason: error.into() }
    }
}

/// Place of a dataset in a listing.
fn place(entry: &Entry) -> (String, bool, u64, String) {
    match entry.name().split_once('@') {
        Some((base, snapshot)) => (base.to_owned(), true, entry.create_txg(), snapshot.to_owned()),
        None => (entry.name().to_owned(), false, 0, String::new()),
    }
}

/// Reads properties of selected datasets for a caller.
pub(super) struct Properties<'a, 'p> {
    session: &'a Session<'p>,
    pools: &'a [OpenPool],
}

impl Properties<'_, '_> {
    /// A property of a dataset, or [`Value::Absent`] where it does not apply, has no value, or is a number of an owner
    /// that the caller may not see.
    pub(super) fn of(&self, entry: &Entry, name: &str) -> Result<Property, Unreadable> {
        if name == "name" {
            return Ok(Property::computed(entry.name()));
        }
        let absent = Property { value: Value::Absent, source: Source::None, received: None };
        if let Some((prefix, owner)) = prop::per_owner(name)
            && !self.may_see(entry, prefix, owner)
        {
            return Ok(absent);
        }
        let failed = |error| (Some(entry.name().to_owned()), error);
        match entry.property(name).map_err(failed)? {
            Some(found) => Ok(found),
            None => Ok(Property { received: entry.received(name).map_err(failed)?, ..absent }),
        }
    }

    /// True if the caller may see the number `prefix` (`userused@`) of an owner: of himself and of his groups, or of
    /// anyone with the permission of that name.
    fn may_see(&self, entry: &Entry, prefix: &str, owner: &str) -> bool {
        let search = self.session.search();
        let Some(caller) = search.caller.as_ref().filter(|caller| !caller.is_admin()) else { return true };
        let own = |owner, text: &str, ids: &[u32]| {
            let found = identity::parse(owner, text);
            matches!(found, Some((None, id)) if ids.iter().any(|own| u64::from(*own) == id))
        };
        let is_own = match prefix {
            p if p.starts_with("user") => own(Owner::User, owner, &[caller.uid]),
            p if p.starts_with("group") => {
                own(Owner::Group, owner, &[caller.gid]) || own(Owner::Group, owner, &caller.groups)
            }
            _ => false,
        };
        let permission = prefix.trim_end_matches('@');
        let may = |pool: &OpenPool| edit::may(search, pool.pool(), entry.name(), &[permission]).is_ok();
        is_own || operand::pool_of_entry(self.pools, entry).is_some_and(may)
    }
}

impl Selection {
    /// Opens the pools and selects.
    pub(super) fn select(&self, session: &mut Session<'_>, reader: Reader) -> Result<Selected, Refusal> {
        let (pools, problems) = operand::pools(session, &self.operands);
        let mut selected = Selected { pools, ..Selected::default() };
        selected.unopened.extend(operand::told(problems).map(Unopened::Pool));
        match self.collect(session, reader, &mut selected) {
            Ok(()) => {
                selected.sort();
                Ok(selected)
            }
            Err(error) => Err(selected.unreadable((None, error))),
        }
    }

    fn collect(
        &self,
        session: &Session<'_>,
        reader: Reader,
        selected: &mut Selected,
    ) -> Result<(), AdminError> {
        let Selected { entries, unopened, pools } = selected;
        if self.operands.is_empty() {
            for pool in &*pools {
                let depth = match self.depth {
                    Depth::Levels(levels) => Some(levels),
                    Depth::Own | Depth::All => None,
                };
                let walk = Walk { kinds: self.pool_kinds(reader, pool)?, depth };
                entries.extend(datasets::walk(pool, pool.name(), &walk)?);
            }
        }
        let mut selects = HashSet::new();
        for operand in &self.operands {
            session.step();
            // An operand selects what it selects once, however often it is named.
            if selects.contains(&(&operand.text, &operand.path)) {
                continue;
            }
            let found = match self.unexpected(reader, operand) {
                Some(why) => {
                    Err(not_opened(operand, AdminError::BadName { name: operand.text.clone(), why }))
                }
                None => operand::find(session, pools, operand)
                    .map_err(|error| not_found(session, pools, operand, error)),
            };
            match found {
                Ok(entry) => {
                    let Some(pool) = operand::pool_of_entry(pools, &entry) else { continue };
                    match self.below(reader, pool, entry)? {
                        Some(found) => {
                            entries.extend(found);
                            selects.insert((&operand.text, &operand.path));
                        }
                        None => {
                            let name = operand.text.clone();
                            unopened.push(not_opened(operand, AdminError::NotAFilesystem { name }));
                        }
                    }
                }
                Err(missing) => unopened.push(missing),
            }
        }
        Ok(())
    }

    /// The datasets that an operand, which is `entry`, selects; `None`: it is of none of the kinds.
    fn below(&self, reader: Reader, pool: &OpenPool, entry: Entry) -> Result<Option<Vec<Entry>>, AdminError> {
        let mut kinds = self.pool_kinds(reader, pool)?;
        let is_head = matches!(entry.kind(), Kind::Filesystem | Kind::Volume);
        let levels = match self.depth {
            Depth::All => None,
            Depth::Levels(levels) => Some(levels),
            // Snapshots and bookmarks that were asked for are those of the operand.
            Depth::Own
                if is_head
                    && self.wants_points()
                    && !(reader == Reader::Get && kinds.contains(&entry.kind())) =>
            {
                kinds.retain(|kind| matches!(kind, Kind::Snapshot | Kind::Bookmark) || *kind == entry.kind());
                return datasets::points(pool, &entry, &Walk { kinds, depth: Some(0) }).map(Some);
            }
            Depth::Own => Some(0),
        };
        if is_head && levels != Some(0) {
            return datasets::walk(pool, entry.name(), &Walk { kinds, depth: levels }).map(Some);
        }
        Ok(if kinds.contains(&entry.kind()) || self.kinds.is_none() {
            Some(vec![entry])
        } else if is_head && self.depth != Depth::Own {
            Some(Vec::new())
        } else {
            None
        })
    }

    /// The kinds that are wanted of every pool.
    fn kinds(&self, reader: Reader) -> &[Kind] {
        match (&self.kinds, reader) {
            (Some(kinds), _) => kinds,
            (None, Reader::List) if self.goes_below() => &[Kind::Filesystem, Kind::Volume],
            (None, _) => &ALL_KINDS,
        }
    }

    /// It is not about the operands alone.
    fn goes_below(&self) -> bool {
        self.operands.is_empty() || self.depth != Depth::Own
    }

    /// The kinds that are wanted of a pool: snapshots are listed too where its `listsnapshots` says so.
    fn pool_kinds(&self, reader: Reader, pool: &OpenPool) -> Result<Vec<Kind>, AdminError> {
        let mut kinds = self.kinds(reader).to_vec();
        if reader == Reader::List && self.kinds.is_none() && self.goes_below() {
            let set = pool_property(pool, "listsnapshots")?;
            if set.and_then(|property| property.value.number()) == Some(1) {
                kinds.push(Kind::Snapshot);
            }
        }
        Ok(kinds)
    }

    /// Snapshots or bookmarks were asked for.
    fn wants_points(&self) -> bool {
        let is_point = |kind: &Kind| matches!(kind, Kind::Snapshot | Kind::Bookmark);
        self.kinds.as_ref().is_some_and(|kinds| kinds.iter().any(is_point))
    }

    /// What an operand has in it that can be in no name of the kinds that were asked for.
    fn unexpected(&self, reader: Reader, operand: &Operand) -> Option<&'static str> {
        let wants = |kind| self.kinds(reader).contains(&kind);
        let is_given = self.kinds.is_some();
        if operand.path.is_some() {
            return None;
        }
        if operand.text.contains('#') && !(wants(Kind::Bookmark) && (is_given || reader == Reader::Get)) {
            return Some("bookmark delimiter '#' is not expected here");
        }
        let is_refused = operand.text.contains('@') && is_given && !wants(Kind::Snapshot);
        is_refused.then_some("snapshot delimiter '@' is not expected here")
    }
}

fn not_opened(operand: &Operand, error: AdminError) -> Unopened {
    Unopened::Dataset(NotOpened::new(operand.text.clone(), error))
}

/// What is told of an operand that is not found.
fn not_found(session: &Session<'_>, pools: &[OpenPool], operand: &Operand, error: AdminError) -> Unopened {
    let text = operand.text.as_str();
    let is_outside = matches!(error, AdminError::NotInPool { .. });
    let is_missing = matches!(error, AdminError::NoDataset { .. });
    let has_base = |(base, _): (&str, &str)| operand::find_name(session, pools, base).is_ok();
    let mut unopened = NotOpened::new(text, error);
    if is_outside {
        if session.is_administrator() && Path::new(text).try_exists().is_ok_and(|found| found) {
            return Unopened::NotInPool { path: text.to_owned() };
        }
        "No such file or directory".clone_into(&mut unopened.reason.message);
    } else if is_missing && text.split_once('#').is_some_and(has_base) {
        // A missing bookmark is told apart from a missing dataset.
        "no such pool or dataset".clone_into(&mut unopened.reason.message);
    }
    Unopened::Dataset(unopened)
}
