//! The datasets of a package, with the snapshots of each that are sent.

use super::from::Start;
use super::plan::{self, Planner};
use super::{Misuse, Refusal, Skipped, refusal};
use dsl::{Dataset, Dir, DslError};
use format::ObjectId;
use std::collections::{BTreeSet, HashSet};

/// The datasets of a package.
#[derive(Default)]
pub(super) struct Tree {
    /// Parents first.
    pub(super) members: Vec<Member>,
    /// Datasets that lack the snapshot.
    pub(super) skipped: Vec<Skipped>,
    /// Full names of snapshots that are later than it.
    pub(super) later: Vec<String>,
}

/// A dataset of a package.
pub(super) struct Member {
    pub(super) dir: Dir,
    pub(super) head: Dataset,
    /// The last snapshot that is sent.
    pub(super) to: Dataset,
    /// Snapshots that belong to the package, oldest first: `to` is the last.
    snapshots: Vec<Dataset>,
    /// The start of the increment, a snapshot of this dataset.
    from: Option<Dataset>,
    /// What its first part begins with otherwise.
    origin: Option<Dataset>,
    /// Snapshots between the first and the last are sent too.
    is_each: bool,
    /// It is listed, and not sent.
    is_excluded: bool,
    /// Guid of the start in the parent, or of its last snapshot; 0 at the top.
    pub(super) parent_guid: u64,
}

/// A part: a snapshot, and the start of an increment up to it.
type Step = (Dataset, Option<Start>);

impl Member {
    /// Guid that descendants refer to.
    fn guid(&self) -> u64 {
        self.from.as_ref().unwrap_or(&self.to).phys().guid
    }

    /// Name of the start of the increment, if it is a snapshot of this dataset.
    pub(super) fn start_name(&self) -> Option<&str> {
        self.from.as_ref().and_then(Dataset::snapshot_name)
    }

    /// The snapshots that belong to the package.
    pub(super) fn listed(&self) -> &[Dataset] {
        &self.snapshots
    }

    /// The parts of this dataset, in order.
    ///
    /// # Errors
    /// The start is not earlier than the end.
    pub(super) fn parts(&self) -> Result<Vec<Step>, Refusal> {
        let end = self.to.phys().creation_txg;
        if let Some(from) = self.from.as_ref().filter(|from| from.phys().creation_txg >= end) {
            let (name, from) = (self.to.name().to_owned(), from.name().to_owned());
            return Err(Refusal::SourceNotEarlier { name, from });
        }
        let mut before = self.from.as_ref().or(self.origin.as_ref()).cloned();
        let begin = self.from.as_ref().map(|from| from.phys().creation_txg);
        let is_sent = |one: &&Dataset| match self.is_each {
            true => begin.is_none_or(|txg| one.phys().creation_txg > txg),
            false => one.id() == self.to.id(),
        };
        let mut parts = Vec::new();
        for one in self.snapshots.iter().filter(is_sent) {
            let start = before.replace(one.clone()).map(|from| Start::of(from, one)).transpose();
            let start = start.map_err(|error| refusal::unreadable(one.name(), error))?;
            parts.push((one.clone(), start.map(Start::in_package)));
        }
        Ok(parts)
    }
}

/// The datasets of a package.
///
/// # Errors
/// One that lacks the snapshot, if that is not permitted; permissions; starts that do not exist.
pub(super) fn find(planner: &Planner<'_>) -> Result<Tree, Refusal> {
    let walk = Walk { planner, excluded: planner.request.exclude.iter().map(String::as_str).collect() };
    let mut tree = Tree::default();
    let mut stack = vec![(planner.to.dir().clone(), 0, false)];
    while let Some((dir, parent_guid, above_is_excluded)) = stack.pop() {
        planner.session.step();
        let is_excluded = above_is_excluded || (!walk.is_top(&dir) && walk.excluded.contains(dir.name()));
        let Some(head) = dir.head().map_err(|error| refusal::unreadable(dir.name(), error))? else {
            continue;
        };
        let Some(mut member) = walk.member(&dir, head.clone(), parent_guid, &mut tree.later)? else {
            tree.skipped.extend(walk.skip(&head, is_excluded)?);
            continue;
        };
        member.is_excluded = is_excluded;
        if planner.request.replicate {
            let mut children = dir.children().map_err(|error| refusal::unreadable(dir.name(), error))?;
            children.reverse();
            stack.extend(children.into_iter().map(|child| (child, member.guid(), is_excluded)));
        }
        tree.members.push(member);
    }
    Ok(tree)
}

struct Walk<'a> {
    planner: &'a Planner<'a>,
    excluded: BTreeSet<&'a str>,
}

impl Walk<'_> {
    fn is_top(&self, dir: &Dir) -> bool {
        dir.id() == self.planner.to.dir().id()
    }

    /// Name of the snapshot that is sent, in each dataset.
    fn snapshot(&self) -> &str {
        self.planner.to.snapshot_name().unwrap_or_default()
    }

    /// What to tell of a dataset without the snapshot. One that is newer cannot have it.
    fn skip(&self, head: &Dataset, is_excluded: bool) -> Result<Option<Skipped>, Refusal> {
        let (dataset, snapshot) = (head.name().to_owned(), self.snapshot().to_owned());
        let is_newer = head.phys().creation_txg > self.planner.to.phys().creation_txg;
        match self.planner.request.skip_missing || is_newer {
            _ if is_excluded => Ok(None),
            true => Ok(Some(Skipped { dataset, snapshot, is_newer })),
            false => Err(Refusal::Missing { root: self.planner.to.name().to_owned(), dataset, snapshot }),
        }
    }

    /// A dataset with its snapshots; `None`: it lacks the one that is sent. Later ones are added to `later`.
    fn member(
        &self,
        dir: &Dir,
        head: Dataset,
        parent_guid: u64,
        later: &mut Vec<String>,
    ) -> Result<Option<Member>, Refusal> {
        let request = self.planner.request;
        let failed = |error: DslError| refusal::unreadable(dir.name(), error);
        let Some(to) = head.snapshot(self.snapshot()).map_err(failed)? else { return Ok(None) };
        if !self.planner.dry {
            plan::ask(self.planner.session, self.planner.pool, dir.name(), request.raw)?;
        }
        let end = to.phys().creation_txg;
        let mut snapshots = head.snapshots().map_err(failed)?;
        let (from, origin) = match self.start(dir, &to, &snapshots)? {
            Some(start) if start.dir().id() == dir.id() => (Some(start), None),
            None if request.replicate => (None, dir.origin().map_err(failed)?),
            origin => (None, origin),
        };
        if request.replicate {
            let is_later = |one: &&Dataset| one.phys().creation_txg > end;
            later.extend(snapshots.iter().filter(is_later).map(|one| one.name().to_owned()));
        }
        let since = from.as_ref().map(|from| from.phys().creation_txg).filter(|_| !request.replicate);
        snapshots.retain(|one| match request.is_several() {
            true => {
                let txg = one.phys().creation_txg;
                txg <= end && since.is_none_or(|since| txg >= since)
            }
            false => one.id() == to.id(),
        });
        let is_each = request.intermediate || request.from.is_none();
        let (dir, is_excluded) = (dir.clone(), false);
        Ok(Some(Member { dir, head, to, snapshots, from, origin, is_each, is_excluded, parent_guid }))
    }

    /// The start of the increment of a dataset: a snapshot of it, or its origin. `None`: all is sent, because the
    /// dataset is newer; or the package has one snapshot, whose start is not listed.
    fn start(&self, dir: &Dir, to: &Dataset, snapshots: &[Dataset]) -> Result<Option<Dataset>, Refusal> {
        let request = self.planner.request;
        let Some(text) = request.from.as_ref().filter(|_| request.is_several()) else { return Ok(None) };
        let name = self.planner.source_name(text);
        let (dataset, short) = name.split_once('@').unwrap_or((&name, ""));
        let is_same = dataset == self.planner.to.dir().name();
        let own = snapshots.iter().find(|one| is_same && one.snapshot_name() == Some(short));
        match (own, self.is_top(dir)) {
            (Some(own), _) => return Ok(Some(own.clone())),
            (None, false) => return Ok(None),
            (None, true) if is_same => return Err(refusal::no_dataset(&name)),
            (None, true) => {}
        }
        let origin = dir.origin().map_err(|error| refusal::unreadable(to.name(), error))?;
        match origin.filter(|origin| origin.name() == name) {
            None => Err(Misuse::OtherSource.into()),
            origin => Ok(origin),
        }
    }
}

/// The members that are sent, in their order: parents first, and clones after the dataset of their origin.
pub(super) fn order(members: &[Member]) -> Vec<&Member> {
    let mut left: Vec<&Member> = members.iter().filter(|member| !member.is_excluded).collect();
    let mut waiting: HashSet<ObjectId> = left.iter().map(|member| member.dir.id()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let origin_waits = |member: &&Member| {
            let origin = member.origin.as_ref().map(|origin| origin.dir().id());
            origin.is_some_and(|dir| dir != member.dir.id() && waiting.contains(&dir))
        };
        let parent_waits =
            |member: &&Member| member.dir.phys().parent.is_some_and(|parent| waiting.contains(&parent));
        let ready = left.iter().position(|member| !origin_waits(member) && !parent_waits(member));
        // A clone may be the parent of its origin: the origin goes first.
        let next = ready.or_else(|| left.iter().position(|member| !origin_waits(member))).unwrap_or(0);
        let member = left.remove(next);
        waiting.remove(&member.dir.id());
        order.push(member);
    }
    order
}
