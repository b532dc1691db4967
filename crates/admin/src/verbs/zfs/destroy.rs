//! `zfs destroy`: destroys snapshots, a bookmark, or a file system or volume with what depends on it.
//!
//! # Order
//! What goes is looked up, and refused unless the request names it ([`Plan`]) -> held and used snapshots -> file
//! systems are unmounted -> the caller's permissions -> datasets are destroyed, many in one transaction group ->
//! listings of `.zfs/snapshot` that the kernel remembers are dropped.
//!
//! # What always holds
//! - A dry run answers what would be destroyed and changes nothing.
//! - Snapshots of one request are destroyed all or none, except that their clones are destroyed before.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5).

use super::operand::NotOpened;
use super::{listing, mounts};
use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::operation::{self, Operation};
use crate::edit::{self, EditError, RangeError, SnapshotRange, permit};
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Denied, Reason, Refused, Right, Stopped, Verb};
use cenote::{DatasetKind, Pool, PoolWriter};
use dsl::DslError;
use dsl::bookmark::Bookmark;
use dsl::destroy as task;
use format::nvlist::{NvList, NvValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Datasets that are destroyed in one transaction group.
const BATCH: usize = 64;

/// What is to be destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system, volume or bookmark, or a dataset with a list of snapshots: `tank@a,b%c`.
    pub name: String,
    /// Also what is below: children, and snapshots of the same names (`-r`, `-R`).
    pub recursive: bool,
    /// Also clones elsewhere, and what depends on them (`-R`).
    pub clones: bool,
    /// Snapshots that are held or have clones are destroyed with their last hold and clone (`-d`).
    pub defer: bool,
    /// Only the plan is wanted (`-n`).
    pub dry_run: bool,
    /// The plan says how much space destroying its snapshots frees (`-v`).
    pub measure: bool,
}

/// What is destroyed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Full names, in the order of destruction.
    pub names: Vec<String>,
    /// Bytes that are freed, if snapshots are destroyed and the request asks for it.
    pub reclaimed: Option<u64>,
}

/// What was destroyed; after a dry run, what would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The plan.
    pub plan: Plan,
}

/// Why nothing, or not all, was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{why}")]
pub struct Refusal {
    /// What was to be destroyed, as far as that was found out.
    pub plan: Option<Plan>,
    /// Why it was not.
    pub why: Why,
}

/// Why nothing, or not all, was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Why {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The list names no snapshot that exists.
    #[error("{}", RangeError)]
    NoSnapshots,
    /// A snapshot has clones.
    #[error("{}", listing(
        &format!("cannot destroy '{snapshot}': snapshot has dependent clones"),
        "use '-R' to destroy the following datasets:",
        dependents,
    ))]
    SnapshotHasClones {
        /// Full name of the snapshot.
        snapshot: String,
        /// Its clones and what depends on them, in the order of destruction.
        dependents: Vec<String>,
    },
    /// The snapshots stay; their clones may have gone.
    #[error("{}cannot destroy snapshots: {}", partly_lines(&stopped.done, &stopped.left), stopped.reason)]
    SnapshotsStay {
        /// Clones that were destroyed, the snapshots, and why they stay.
        stopped: Stopped,
    },
    /// The option is for snapshots and datasets.
    #[error("{option} is not supported with bookmark")]
    NotForBookmarks {
        /// The option.
        option: BookmarkOption,
    },
    /// There is no such bookmark.
    #[error("bookmark '{name}' does not exist.")]
    NoBookmark {
        /// Full name.
        name: String,
    },
    /// The bookmark stays.
    #[error("{}", match reason.is_denied() || reason.is_read_only() {
        true => format!("cannot destroy bookmark: {reason}"),
        false => format!("cannot destroy bookmark '{name}': {reason}"),
    })]
    BookmarkStays {
        /// Full name.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// The root of a pool goes with the pool only.
    #[error(
        "cannot destroy '{name}': operation does not apply to pools\n\
         use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
         use 'zpool destroy {name}' to destroy the pool itself"
    )]
    IsPool {
        /// Name of the pool.
        name: String,
    },
    /// The dataset has children or snapshots.
    #[error("{}", listing(
        &format!("cannot destroy '{name}': {} has children", kind_word(*is_volume)),
        "use '-r' to destroy the following datasets:",
        dependents,
    ))]
    HasChildren {
        /// Full name of the dataset.
        name: String,
        /// It is a volume.
        is_volume: bool,
        /// What is below it, in the order of destruction.
        dependents: Vec<String>,
    },
    /// The dataset's snapshots have clones elsewhere.
    #[error("{}", listing(
        &format!("cannot destroy '{name}': {} has dependent clones", kind_word(*is_volume)),
        "use '-R' to destroy the following datasets:",
        dependents,
    ))]
    HasClones {
        /// Full name of the dataset.
        name: String,
        /// It is a volume.
        is_volume: bool,
        /// Clones and what depends on them, in the order of destruction.
        dependents: Vec<String>,
    },
    /// The pool can only be read.
    #[error("cannot destroy '{name}': {reason}")]
    ReadOnly {
        /// Full name of the dataset that would have gone first.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// These are in the way. All else that could go may have gone.
    #[error("{}", lines_of(obstacles))]
    Obstacles {
        /// In the order in which they were met.
        obstacles: Vec<Obstacle>,
    },
    /// It stopped half-way.
    #[error("{}{}", lines_of(obstacles), partly(done, left))]
    Stopped {
        /// What it met, the reason why it stopped last.
        obstacles: Vec<Obstacle>,
        /// What was destroyed.
        done: Vec<String>,
        /// What was not.
        left: Vec<String>,
    },
}

/// Options that do not go with a bookmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BookmarkOption {
    /// `-n`.
    DryRun,
    /// `-d`.
    Defer,
    /// `-r` or `-R`.
    Recursive,
}

impl fmt::Display for BookmarkOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BookmarkOption::DryRun => "dryrun",
            BookmarkOption::Defer => "defer destroy",
            BookmarkOption::Recursive => "recursive",
        })
    }
}

/// Something that keeps a dataset from being destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Obstacle {
    /// A snapshot has holds.
    #[error(
        "cannot destroy snapshot {snapshot}: it's being held. Run 'zfs holds -r {snapshot}' to see holders."
    )]
    Held {
        /// Full name of the snapshot.
        snapshot: String,
    },
    /// A snapshot is mounted, or programs use it through `.zfs`.
    #[error("cannot destroy snapshot {snapshot}: dataset is busy")]
    InUse {
        /// Full name of the snapshot.
        snapshot: String,
    },
    /// A file system cannot be unmounted.
    #[error("{0}")]
    Mounted(MountRefusal),
    /// A dataset cannot be destroyed.
    #[error("cannot destroy '{name}': {reason}")]
    Refused {
        /// Full name of the dataset.
        name: String,
        /// Why.
        reason: Reason,
    },
}

impl Obstacle {
    fn reason(&self) -> Reason {
        let busy = |code, snapshot: &String| Reason {
            code,
            about: vec![snapshot.clone()],
            message: "dataset is busy".into(),
        };
        match self {
            Obstacle::Held { snapshot } => busy(Code::Held, snapshot),
            Obstacle::InUse { snapshot } => busy(Code::Busy, snapshot),
            Obstacle::Mounted(refusal) => refusal.into(),
            Obstacle::Refused { reason, .. } => reason.clone(),
        }
    }
}

fn lines_of(obstacles: &[Obstacle]) -> String {
    obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn kind_word(is_volume: bool) -> &'static str {
    if is_volume { "volume" } else { "filesystem" }
}

/// Lines about what was destroyed and what was not, each behind a line break; none if nothing was destroyed.
pub(super) fn partly(done: &[String], left: &[String]) -> String {
    match done {
        [] => String::new(),
        done => format!("\ndestroyed: {}\nnot destroyed: {}", done.join(" "), left.join(" ")),
    }
}

/// The same, each line with a line break behind it.
fn partly_lines(done: &[String], left: &[String]) -> String {
    let text = partly(done, left);
    text.strip_prefix('\n').map_or_else(String::new, |lines| format!("{lines}\n"))
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal { plan: None, why: Why::Denied(denied.into()) }
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        let about = |code, names: &[String], message: &str| Reason {
            code,
            about: names.to_vec(),
            message: message.to_owned(),
        };
        match &self.why {
            Why::Denied(reason)
            | Why::Open(NotOpened { reason, .. })
            | Why::BookmarkStays { reason, .. }
            | Why::ReadOnly { reason, .. } => reason.clone(),
            Why::NoSnapshots => Reason::new(Code::NoDataset, RangeError),
            Why::SnapshotsStay { stopped } => stopped.reason.clone(),
            Why::NotForBookmarks { .. } => Reason::new(Code::Refused, &self.why),
            Why::NoBookmark { name } => {
                about(Code::NoDataset, std::slice::from_ref(name), "bookmark does not exist")
            }
            Why::IsPool { name } => {
                about(Code::WrongKind, std::slice::from_ref(name), "operation does not apply to pools")
            }
            Why::HasChildren { dependents, .. } => {
                about(Code::HasChildren, dependents, "filesystem has children")
            }
            Why::SnapshotHasClones { dependents, .. } | Why::HasClones { dependents, .. } => {
                about(Code::HasClones, dependents, "snapshot has dependent clones")
            }
            Why::Obstacles { obstacles } | Why::Stopped { obstacles, .. } => {
                let first = obstacles.first().map(Obstacle::reason);
                first.unwrap_or_else(|| Reason::new(Code::Refused, "dataset is busy"))
            }
        }
    }
}

impl Request {
    /// One dataset without dependents, a list of snapshots, or a bookmark.
    pub fn of(name: impl Into<String>) -> Request {
        Request { name: name.into(), ..Request::default() }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs destroy";
    const RIGHT: Right = Right::Delegated(&["destroy", "mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut plan = None;
        let outcome = match self.name.split_once('@') {
            Some((dataset, list)) => self.snapshots(session, dataset, list, &mut plan),
            None if self.name.contains('#') => self.bookmark(session, &mut plan),
            None => self.dataset(session, &mut plan),
        };
        match outcome {
            Ok(()) => Ok(Answer { plan: plan.unwrap_or_default() }),
            Err(why) => Err(Refusal { plan, why }),
        }
    }
}

/// The refusal of a dataset that cannot be opened.
fn closed(name: &str, error: impl Into<EditError>) -> Why {
    Why::Open(NotOpened::new(name, Into::<EditError>::into(error)))
}

fn snapshots_stay(error: EditError) -> Why {
    let stopped = Stopped { done: Vec::new(), left: Vec::new(), reason: error.into() };
    Why::SnapshotsStay { stopped }
}

// ---- snapshots ------------------------------------------------------------------------------

impl Request {
    fn snapshots(
        &self,
        session: &mut Session<'_>,
        dataset: &str,
        list: &str,
        plan: &mut Option<Plan>,
    ) -> Result<(), Why> {
        let refused = |error: EditError| closed(dataset, error);
        names::check(dataset, Form::Head).map_err(|error| refused(error.into()))?;
        let view = session.view(dataset).map_err(refused)?;
        view.dataset(dataset).map_err(|error| refused(error.into()))?;
        let items = SnapshotRange::parse_list(list).map_err(|RangeError| Why::NoSnapshots)?;
        let names = edit::select_snapshots(&view, dataset, &items, self.recursive).map_err(refused)?;
        if names.is_empty() {
            return Err(Why::NoSnapshots);
        }
        let mut clones = Vec::new();
        let mut refusal = None;
        for name in names.iter().filter(|_| !self.defer || self.clones) {
            let dependents = edit::dependents(&view, name).map_err(refused)?.all;
            match self.clones {
                true => clones.extend(dependents),
                false if dependents.is_empty() => {}
                false => {
                    refusal.get_or_insert(Why::SnapshotHasClones { snapshot: name.clone(), dependents });
                }
            }
        }
        let reclaimed = match self.measure && refusal.is_none() {
            true => Some(edit::reclaimed(&view, &names).map_err(refused)?),
            false => None,
        };
        *plan = Some(Plan { names: names.clone(), reclaimed });
        match refusal {
            Some(why) => Err(why),
            None if self.dry_run => Ok(()),
            None => self.destroy_snapshots(session, &view, &names, &clones),
        }
    }

    fn destroy_snapshots(
        &self,
        session: &mut Session<'_>,
        view: &Pool,
        names: &[String],
        clones: &[String],
    ) -> Result<(), Why> {
        let defer = self.defer && !self.clones;
        let first = names.first().map_or("", String::as_str);
        let pool = session.writer(first).map_err(|error| match error.is_read_only() {
            true => snapshots_stay(error),
            false => closed(first, error),
        })?;
        // Before holds and users, which the caller may not have to know.
        ask(&pool, names).and_then(|()| ask(&pool, clones)).map_err(snapshots_stay)?;
        if !defer {
            let mut obstacles: Vec<Obstacle> = held(view, names.iter().chain(clones))?;
            for names in [names, clones] {
                if obstacles.is_empty() {
                    obstacles = in_use(session, names);
                }
            }
            if !obstacles.is_empty() {
                return Err(Why::Obstacles { obstacles });
            }
        }
        let (clones, mounted) = mounts::unmount_before_destroy(session, clones);
        let outcome = destroy_all(&pool, clones);
        if !clones.is_empty() {
            session.note_change(first);
        }
        finish(outcome, mounted)?;
        destroy_snapshots(&pool, names, defer).map_err(|error| match error {
            // It is being sent.
            EditError::Busy { name } if clones.is_empty() && names.contains(&name) => {
                Why::Obstacles { obstacles: vec![Obstacle::InUse { snapshot: name }] }
            }
            error => Why::SnapshotsStay {
                stopped: Stopped { done: clones.to_vec(), left: names.to_vec(), reason: error.into() },
            },
        })?;
        session.note_change(first);
        mounts::snapshots_changed(session, names);
        Ok(())
    }
}

/// The refusal of a destruction that stopped half-way, or of which a file system was still mounted.
fn finish(outcome: Result<(), Stopped>, mounted: Option<MountRefusal>) -> Result<(), Why> {
    let mut obstacles: Vec<Obstacle> = mounted.into_iter().map(Obstacle::Mounted).collect();
    match outcome {
        Ok(()) if obstacles.is_empty() => Ok(()),
        Ok(()) => Err(Why::Obstacles { obstacles }),
        Err(Stopped { done, left, reason }) => {
            let name = left.first().cloned().unwrap_or_default();
            obstacles.push(match reason.code {
                Code::Held => Obstacle::Held { snapshot: name },
                _ => Obstacle::Refused { name, reason },
            });
            Err(Why::Stopped { obstacles, done, left })
        }
    }
}

/// Those of these names that are snapshots with holds. To be asked before anything is destroyed: the view does not
/// outlive many changes.
fn held_of<'n>(view: &Pool, names: impl IntoIterator<Item = &'n String>) -> Result<Vec<&'n String>, Why> {
    let mut held = Vec::new();
    for name in names.into_iter().filter(|name| name.contains('@')) {
        let dataset = view.dataset(name).map_err(|error| closed(name, error))?;
        let holds = dataset.dsl().holds().map_err(|error| closed(name, error))?;
        if !holds.is_empty() {
            held.push(name);
        }
    }
    Ok(held)
}

fn held<'n>(view: &Pool, names: impl IntoIterator<Item = &'n String>) -> Result<Vec<Obstacle>, Why> {
    let held = held_of(view, names)?;
    Ok(held.into_iter().map(|name| Obstacle::Held { snapshot: name.clone() }).collect())
}

fn in_use(session: &Session<'_>, names: &[String]) -> Vec<Obstacle> {
    let used = mounts::snapshots_in_use(session, names).into_iter();
    used.map(|snapshot| Obstacle::InUse { snapshot }).collect()
}

// ---- bookmarks ------------------------------------------------------------------------------

impl Request {
    fn bookmark(&self, session: &mut Session<'_>, plan: &mut Option<Plan>) -> Result<(), Why> {
        let option = match self {
            Request { dry_run: true, .. } => Some(BookmarkOption::DryRun),
            Request { defer: true, .. } => Some(BookmarkOption::Defer),
            Request { recursive: true, .. } => Some(BookmarkOption::Recursive),
            _ => None,
        };
        if let Some(option) = option {
            return Err(Why::NotForBookmarks { option });
        }
        let name = self.name.as_str();
        let missing = || Why::NoBookmark { name: name.to_owned() };
        let view = session.view(name).map_err(|error| match error {
            EditError::NoPool { .. } => missing(),
            other => closed(name, other),
        })?;
        if names::check(name, Form::Bookmark).is_err() || view.dsl().bookmark(name).is_err() {
            return Err(missing());
        }
        *plan = Some(Plan { names: vec![name.to_owned()], reclaimed: None });
        let stays = |error: EditError| Why::BookmarkStays { name: name.to_owned(), reason: error.into() };
        let pool = session.writer(name).map_err(|error| match error.is_read_only() {
            true => stays(error),
            false => closed(name, error),
        })?;
        destroy_bookmark(&pool, name).map_err(stays)?;
        session.note_change(name);
        Ok(())
    }
}

// ---- file systems and volumes ---------------------------------------------------------------

impl Request {
    fn dataset(&self, session: &mut Session<'_>, plan: &mut Option<Plan>) -> Result<(), Why> {
        let name = self.name.as_str();
        let form = if self.defer { Form::Snapshot } else { Form::Head };
        names::check(name, form).map_err(|error| closed(name, error))?;
        let view = session.view(name).map_err(|error| closed(name, error))?;
        let mut all = self.with_dependents(&view)?;
        *plan = Some(Plan { names: all.clone(), reclaimed: None });
        if self.dry_run {
            return Ok(());
        }
        let pool = session.writer(name).map_err(|error| match error.is_read_only() {
            true if all.iter().any(|name| name.contains('@')) => snapshots_stay(error),
            true => Why::ReadOnly {
                name: all.first().map_or(name, String::as_str).to_owned(),
                reason: error.into(),
            },
            false => closed(name, error),
        })?;
        // The root of a pool goes with the pool only.
        all.retain(|name| name.contains(['/', '@']));
        let held: BTreeSet<&String> = held_of(&view, &all)?.into_iter().collect();
        if !held.is_empty() || !mounts::snapshots_in_use(session, &all).is_empty() {
            session.note_change(name);
            return Err(Why::Obstacles { obstacles: destroy_around(session, &pool, &held, &all) });
        }
        let was_mounted = mounts::mounted(session, &all);
        let (gone, mounted) = mounts::unmount_before_destroy(session, &all);
        let outcome = destroy_all(&pool, gone);
        mounts::snapshots_changed(session, gone);
        if let Err(stopped) = &outcome {
            let stay: Vec<String> =
                was_mounted.into_iter().filter(|name| stopped.left.contains(name)).collect();
            // Why it was not destroyed is told; a mount that fails besides is seen in the list of mounts.
            let _ = mounts::mount_new(session, &stay);
        }
        if outcome.as_ref().err().is_none_or(|stopped| !stopped.done.is_empty()) {
            session.note_change(name);
        }
        finish(outcome, mounted)
    }

    /// The dataset and all that depends on it, in the order of destruction.
    fn with_dependents(&self, view: &Pool) -> Result<Vec<String>, Why> {
        let name = self.name.clone();
        let kind = view.dataset(&name).and_then(|dataset| dataset.kind());
        let is_volume = kind.map_err(|error| closed(&name, error))? == DatasetKind::Volume;
        if !name.contains('/') && !self.recursive {
            return Err(Why::IsPool { name });
        }
        let found = edit::dependents(view, &name).map_err(|error| closed(&name, error))?;
        if !self.recursive && !found.below.is_empty() {
            return Err(Why::HasChildren { name, is_volume, dependents: found.below });
        }
        if !self.clones && !found.clones.is_empty() {
            return Err(Why::HasClones { name, is_volume, dependents: found.clones });
        }
        let mut all = found.all;
        all.push(name);
        Ok(all)
    }
}

/// Destroys what can be destroyed although snapshots are held or in use: a dataset with such a snapshot stays, with all
/// its snapshots and all datasets above it.
fn destroy_around(
    session: &Session<'_>,
    pool: &PoolWriter,
    held: &BTreeSet<&String>,
    all: &[String],
) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for group in all.split_inclusive(|name| !name.contains('@')) {
        let mut own: Vec<Obstacle> = group
            .iter()
            .filter(|name| held.contains(name))
            .map(|name| Obstacle::Held { snapshot: name.clone() })
            .collect();
        if own.is_empty() {
            own = in_use(session, group);
        }
        if !own.is_empty() {
            obstacles.append(&mut own);
            continue;
        }
        let (gone, mounted) = mounts::unmount_before_destroy(session, group);
        obstacles.extend(mounted.map(Obstacle::Mounted));
        if let Err(stopped) = destroy_all(pool, gone) {
            let name = stopped.left.first().cloned().unwrap_or_default();
            obstacles.push(Obstacle::Refused { name, reason: stopped.reason });
        }
        mounts::snapshots_changed(session, gone);
    }
    obstacles
}

// ---- changes --------------------------------------------------------------------------------

/// Destroys snapshots, all or none; names that do not exist are passed over. With `defer`, those that are held
/// or have clones are destroyed with their last hold and clone.
fn destroy_snapshots(pool: &PoolWriter, names: &[String], defer: bool) -> Result<(), EditError> {
    ask(pool, names)?;
    let (operation, wanted) = (Operation::begin("destroy_snaps"), names.to_vec());
    edit::run(pool, move |ctx| task::destroy_snapshots(ctx, &wanted, defer))?;
    operation.done(pool, input(names, defer))
}

/// The input of the operation that destroys snapshots, for the history.
pub(super) fn input<'n>(names: impl IntoIterator<Item = &'n String>, defer: bool) -> NvList {
    let mut input = operation::pair("snaps", operation::names(names));
    if defer {
        input.push("defer", NvValue::Boolean);
    }
    input
}

/// Destroys datasets and snapshots, one after the other in this order; what has gone already is passed over.
pub(super) fn destroy_all(pool: &PoolWriter, names: &[String]) -> Result<(), Stopped> {
    let stopped = |error: EditError| Stopped { done: Vec::new(), left: names.to_vec(), reason: error.into() };
    ask(pool, names).map_err(stopped)?;
    let mut done = 0;
    while let Some(rest) = names.get(done..).filter(|rest| !rest.is_empty()) {
        let operation = Operation::begin("destroy_snaps");
        let error = match destroy_batch(pool, rest.iter().take(BATCH).cloned().collect()) {
            Ok((count, error)) => {
                let mut snapshots = rest.iter().take(count).filter(|name| name.contains('@')).peekable();
                let recorded = match snapshots.peek() {
                    Some(_) => operation.done(pool, input(snapshots, false)),
                    None => Ok(()),
                };
                done += count;
                match error.map(EditError::from).or(recorded.err()) {
                    Some(error) => error,
                    None => continue,
                }
            }
            Err(error) => error,
        };
        let (done, left) = names.split_at(done);
        return Err(Stopped { done: done.to_vec(), left: left.to_vec(), reason: error.into() });
    }
    Ok(())
}

/// Destroys the first of these in one transaction group: how many, and why not the next.
fn destroy_batch(pool: &PoolWriter, batch: Vec<String>) -> Result<(usize, Option<DslError>), EditError> {
    edit::run(pool, move |ctx| {
        for (index, name) in batch.iter().enumerate() {
            let one = ctx.step(|ctx| match name.contains('@') {
                true => task::destroy_snapshots(ctx, std::slice::from_ref(name), false),
                false => task::destroy(ctx, name),
            })?;
            match one {
                // A clone takes a snapshot with it that was only waiting for that.
                Ok(()) | Err(DslError::NotFound { .. }) => {}
                Err(again @ DslError::Again { .. }) if index == 0 => return Err(again),
                // The rest is tried in the next transaction group.
                Err(DslError::Again { .. }) => return Ok((index, None)),
                // What came before it stays done, and is on disk with this transaction group.
                Err(error) => return Ok((index, Some(error))),
            }
        }
        Ok((batch.len(), None))
    })
}

/// Asks for the permissions that destroying needs, at each dataset that exists.
pub(super) fn ask(pool: &PoolWriter, names: &[String]) -> Result<(), EditError> {
    let Some(permit) = permit::of(pool)? else { return Ok(()) };
    let allowed = names.iter().map(|name| permit.ask(name, &["destroy", "mount"]));
    allowed.filter(|asked| !matches!(asked, Err(EditError::NoDataset { .. }))).collect()
}

/// Destroys a bookmark.
fn destroy_bookmark(pool: &PoolWriter, name: &str) -> Result<(), EditError> {
    permit::ask(pool, name, &["destroy"])?;
    let operation = Operation::begin("destroy_bookmarks");
    let input = operation::pair(name, NvValue::Boolean);
    let name = name.to_owned();
    edit::run(pool, move |ctx| {
        let missing = || DslError::NotFound { name: name.clone() };
        let (dataset, mark) = name.split_once('#').ok_or_else(missing)?;
        let head = ctx.dsl()?.dir(dataset)?.head()?.ok_or_else(missing)?;
        Bookmark::destroy(ctx.m(), head.id(), mark)?;
        ctx.note("remove bookmark", Some((dataset, head.id())), format!("name={mark}"));
        Ok(())
    })?;
    operation.done(pool, input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    fn text(why: Why) -> String {
        carried(&Refusal { plan: Some(Plan { names: vec!["tank/a".into()], reclaimed: Some(7) }), why })
            .to_string()
    }

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        assert_eq!(
            text(Why::Obstacles { obstacles: vec![Obstacle::Held { snapshot: "tank/home@daily".into() }] }),
            "cannot destroy snapshot tank/home@daily: it's being held. \
             Run 'zfs holds -r tank/home@daily' to see holders."
        );
        assert_eq!(
            text(Why::HasChildren {
                name: "tank/v".into(),
                is_volume: true,
                dependents: vec!["tank/v@1".into()],
            }),
            "cannot destroy 'tank/v': volume has children\n\
             use '-r' to destroy the following datasets:\ntank/v@1"
        );
        let name = "tank/a#m".to_owned();
        let stays = |reason| text(Why::BookmarkStays { name: name.clone(), reason });
        assert_eq!(stays(Denied.into()), "cannot destroy bookmark: permission denied");
        assert_eq!(stays(Reason::new(Code::Failed, "bad")), "cannot destroy bookmark 'tank/a#m': bad");
    }

    #[test]
    fn what_was_done_is_named() {
        let stopped = |done: &[&str]| Stopped {
            done: done.iter().map(|name| (*name).to_owned()).collect(),
            left: vec!["tank/b".into(), "tank/c".into()],
            reason: Reason::new(Code::Busy, "dataset is busy"),
        };
        assert_eq!(
            text(finish(Err(stopped(&["tank/a"])), None).expect_err("stopped")),
            "cannot destroy 'tank/b': dataset is busy\ndestroyed: tank/a\nnot destroyed: tank/b tank/c"
        );
        assert_eq!(
            text(Why::SnapshotsStay { stopped: stopped(&["tank/a"]) }),
            "destroyed: tank/a\nnot destroyed: tank/b tank/c\ncannot destroy snapshots: dataset is busy"
        );
        assert_eq!(
            text(Why::SnapshotsStay { stopped: stopped(&[]) }),
            "cannot destroy snapshots: dataset is busy"
        );
    }
}
