//! The datasets of a package, with the snapshots of each that are sent.

use super::from::{self, Start};
use super::plan::{self, Planner};
use super::{Misuse, Refusal, Skipped, refusal};
use dsl::{Dataset, Dir, DslError};
use format::ObjectId;
use std::collections::{BTreeSet, HashSet};

/// A dataset of a package.
pub(super) struct Member {
    pub(super) dir: Dir,
    pub(super) head: Dataset,
    /// The last snapshot that is sent.
    pub(super) to: Dataset,
    /// Snapshots up to `to`, oldest first.
    pub(super) snapshots: Vec<Dataset>,
    /// The start of the increment among `snapshots`.
    from: Option<Dataset>,
    /// What its first part begins with, if not with a snapshot of this dataset.
    origin: Option<Dataset>,
    /// Snapshots between the first and the last are sent too.
    is_each: bool,
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

    /// The snapshots that belong to the package: of an increment of one dataset, its ends only.
    pub(super) fn listed(&self, all: bool) -> impl Iterator<Item = &Dataset> {
        let is_end = move |snapshot: &Dataset| {
            snapshot.id() == self.to.id()
                || self.from.as_ref().is_some_and(|from| snapshot.id() == from.id())
        };
        let from_txg = self.from.as_ref().map(|from| from.phys().creation_txg);
        let is_since = move |snapshot: &Dataset| from_txg.is_none_or(|txg| snapshot.phys().creation_txg >= txg);
        self.snapshots
            .iter()
            .filter(move |one| all || is_end(one) || (self.is_each && is_since(one)))
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
        let first = self.from.as_ref().or(self.origin.as_ref());
        if !self.is_each {
            let start = first.map(|from| Start::of(from.clone(), &self.to).in_package());
            return Ok(vec![(self.to.clone(), start)]);
        }
        let begin = self.from.as_ref().map(|from| from.phys().creation_txg);
        let mut before = first.cloned();
        let mut parts = Vec::new();
        for one in self.snapshots.iter().filter(|one| begin.is_none_or(|txg| one.phys().creation_txg > txg)) {
            let start = before.replace(one.clone()).map(|from| Start::of(from, one).in_package());
            parts.push((one.clone(), start));
        }
        Ok(parts)
    }
}

/// The datasets of a package, parents first, and those that lack the snapshot.
///
/// # Errors
/// One that lacks it, if that is not permitted; permissions; starts that do not exist.
pub(super) fn members(
    planner: &Planner<'_>,
    dry: bool,
) -> Result<(Vec<Member>, Vec<Skipped>), Refusal> {
    let walk = Walk { planner, excluded: planner.request.exclude.iter().map(String::as_str).collect() };
    let (mut members, mut skipped) = (Vec::new(), Vec::new());
    let mut stack = vec![(planner.to.dir().clone(), 0)];
    while let Some((dir, parent_guid)) = stack.pop() {
        planner.session.step();
        if walk.excluded.contains(dir.name()) {
            continue;
        }
        let Some(member) = walk.member(&dir, parent_guid)? else {
            skipped.push(walk.skip(&dir, dry)?);
            continue;
        };
        if planner.request.replicate {
            let mut children = dir.children().map_err(|error| refusal::unreadable(dir.name(), error))?;
            children.reverse();
            stack.extend(children.into_iter().map(|child| (child, member.guid())));
        }
        members.push(member);
    }
    Ok((members, skipped))
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

    /// A dataset without the snapshot is skipped, or refused.
    fn skip(&self, dir: &Dir, dry: bool) -> Result<Skipped, Refusal> {
        let (dataset, snapshot) = (dir.name().to_owned(), self.snapshot().to_owned());
        if self.planner.request.skip_missing || dry {
            return Ok(Skipped { dataset, snapshot });
        }
        Err(Refusal::Missing { root: self.planner.to.name().to_owned(), dataset, snapshot })
    }

    /// A dataset with its snapshots; `None`: it lacks the one that is sent.
    fn member(&self, dir: &Dir, parent_guid: u64) -> Result<Option<Member>, Refusal> {
        let request = self.planner.request;
        let failed = |error: DslError| refusal::unreadable(dir.name(), error);
        let Some(head) = dir.head().map_err(failed)? else { return Ok(None) };
        let Some(to) = head.snapshot(self.snapshot()).map_err(failed)? else { return Ok(None) };
        plan::ask(self.planner.session, self.planner.pool, dir.name(), request.raw)?;
        let end = to.phys().creation_txg;
        let mut snapshots = head.snapshots().map_err(failed)?;
        let origin = dir.origin().map_err(failed)?.filter(|_| request.replicate);
        let (from, origin) = match self.start(dir, &to, &snapshots)? {
            Some(start) if start.dir().id() == dir.id() => (Some(start), None),
            Some(start) => (None, Some(start)),
            None => (None, origin),
        };
        snapshots.retain(|one| one.phys().creation_txg <= end);
        let is_each = request.intermediate || (request.replicate && from.is_none());
        let dir = dir.clone();
        Ok(Some(Member { dir, head, to, snapshots, from, origin, is_each, parent_guid }))
    }

    /// The start of the increment of a dataset: a snapshot of it, or its origin. `None`: all is sent, because the
    /// dataset is newer.
    fn start(&self, dir: &Dir, to: &Dataset, snapshots: &[Dataset]) -> Result<Option<Dataset>, Refusal> {
        let Some(text) = &self.planner.request.from else { return Ok(None) };
        let name = self.planner.source_name(text);
        let (dataset, short) = name.split_once('@').unwrap_or((&name, ""));
        let is_same = dataset == self.planner.to.dir().name();
        let own = snapshots.iter().find(|one| is_same && one.snapshot_name() == Some(short));
        match (own, self.is_top(dir)) {
            (Some(own), _) => Ok(Some(own.clone())),
            (None, false) => Ok(None),
            (None, true) => match from::find(self.planner.pool, to, &name) {
                Ok(start) => Ok(start.snapshot),
                Err(Refusal::NotSent { reason, .. }) if !is_same && !reason.is_denied() => {
                    Err(Misuse::OtherSource.into())
                }
                Err(refusal) => Err(refusal),
            },
        }
    }
}

/// The members in the order in which they are sent: parents first, and clones after the dataset of their origin.
pub(super) fn order(members: &[Member]) -> Vec<&Member> {
    let all: HashSet<ObjectId> = members.iter().map(|member| member.dir.id()).collect();
    let mut done: HashSet<ObjectId> = HashSet::new();
    let mut left: Vec<&Member> = members.iter().collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let is_sent = |id: ObjectId| !all.contains(&id) || done.contains(&id);
        let origin_is_sent =
            |member: &&Member| member.origin.as_ref().is_none_or(|origin| is_sent(origin.dir().id()));
        let parent_is_sent = |member: &&Member| member.dir.phys().parent.is_none_or(is_sent);
        let ready = |at: &dyn Fn(&&Member) -> bool| left.iter().position(at);
        // A clone may be the parent of its origin: the origin goes first.
        let next = ready(&|member| origin_is_sent(member) && parent_is_sent(member))
            .or_else(|| ready(&|member| origin_is_sent(member)))
            .unwrap_or(0);
        let member = left.remove(next);
        done.insert(member.dir.id());
        order.push(member);
    }
    order
}
