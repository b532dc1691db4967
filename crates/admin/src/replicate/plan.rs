//! Plans: what has to be done with the datasets of a policy, given what both sides have. Pure.
//!
//! # What always holds
//! - Snapshots are the same if their guids are; names and times decide nothing.
//! - An increment starts at the newest snapshot that both sides have, or a bookmark of it.
//! - A dataset is received into only if it is a copy of this source by its property, unless the policy says `adopt`;
//!   snapshots and changes of the target are given up only with `force`.
//! - Upkeep bookmarks or holds the newest common snapshot before it destroys anything, destroys neither that snapshot
//!   nor later ones, nor held ones, nor others than the policy's own (`prune-also`: those it sends). Without a common
//!   snapshot it does nothing.

use super::calendar;
use super::keep::{Keep, Taken};
use super::policy::{Guard, Policy, matches};
use super::side::{Dataset, Point};
use std::fmt;
use stream::ResumeToken;

/// A dataset and its copy.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// The policy.
    pub policy: &'a Policy,
    /// The source.
    pub source: &'a Dataset,
    /// The copy; `None`: there is none yet.
    pub target: Option<&'a Dataset>,
    /// Full name of the copy.
    pub target_name: &'a str,
    /// Seconds since 1970.
    pub now: u64,
}

/// A step that sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// Discards a part of a stream that nothing can continue.
    Abort,
    /// Continues an interrupted stream.
    Resume {
        /// The token.
        token: String,
        /// The snapshot that it completes.
        to: Point,
    },
    /// Sends a snapshot as a whole.
    Full {
        /// The snapshot.
        to: Point,
        /// Overwrites what is there.
        rollback: bool,
    },
    /// Sends what has changed.
    Increment {
        /// Name of the start, with `@` or `#`.
        from: String,
        /// Guid of the start.
        from_guid: u64,
        /// The snapshot.
        to: Point,
        /// Goes back to the start at the target.
        rollback: bool,
    },
}

/// A step that keeps both sides in order. Names are full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upkeep {
    /// Bookmarks a snapshot of the source.
    Bookmark {
        /// The snapshot.
        snapshot: String,
        /// The bookmark.
        bookmark: String,
    },
    /// Holds a snapshot.
    Hold {
        /// The side.
        at: Where,
        /// The snapshot.
        snapshot: String,
    },
    /// Releases the hold on an earlier one.
    Release {
        /// The side.
        at: Where,
        /// The snapshot.
        snapshot: String,
    },
    /// Destroys an earlier bookmark of the source.
    DropBookmark {
        /// The bookmark.
        bookmark: String,
    },
    /// Destroys snapshots that are not kept.
    Destroy {
        /// The side.
        at: Where,
        /// The dataset.
        dataset: String,
        /// Parts after `@`.
        names: Vec<String>,
    },
}

/// A side of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Where snapshots come from.
    Source,
    /// Where they go.
    Target,
}

/// Why a dataset is not replicated, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The source does not exist.
    #[error("'{source_name}' does not exist; its copy is left as it is. Correct 'from' if it was renamed")]
    NoSource {
        /// Full name of the source.
        source_name: String,
    },
    /// There is no snapshot to send.
    #[error("'{source_name}' has no snapshot that the policy sends: set 'snapshot' or 'also'")]
    NoSnapshot {
        /// Full name of the source.
        source_name: String,
    },
    /// The target is not a copy of this source.
    #[error(
        "'{target}' exists and is not a copy of '{source_name}' that this has made: choose another target, \
         or say 'adopt = true' if they have a snapshot in common"
    )]
    Foreign {
        /// Full name of the source.
        source_name: String,
        /// Full name of the target.
        target: String,
    },
    /// The receiver asks for the contents of an encrypted dataset that is sent encrypted.
    #[error(
        "the part of '{source_name}' that '{target}' has is to be continued decrypted, which 'raw = true' forbids: it was \
         discarded, and the next run begins again"
    )]
    Decrypted {
        /// Full name of the source.
        source_name: String,
        /// Full name of the target.
        target: String,
    },
    /// There is nothing that an increment could start from.
    #[error(
        "'{source_name}' and '{target}' have no snapshot or bookmark in common any more; the newest of the copy is \
         '{newest}'. To begin again, and keep the copy: zfs rename {target} {target}.old, and run the policy again"
    )]
    NoCommon {
        /// Full name of the source.
        source_name: String,
        /// Full name of the target.
        target: String,
        /// Newest snapshot of the target: the part after `@`.
        newest: String,
    },
    /// The target has snapshots of its own after the newest common one.
    #[error(
        "'{target}' has snapshots that '{source_name}' lacks after '@{common}': {names}. \
         Destroy them, or say 'force = true' to go back to '@{common}'",
        names = newer.join(" ")
    )]
    Changed {
        /// Full name of the source.
        source_name: String,
        /// Full name of the target.
        target: String,
        /// The newest common snapshot: the part after `@`.
        common: String,
        /// Later snapshots of the target.
        newer: Vec<String>,
    },
}

/// Name of a snapshot that a policy takes: the part after `@`.
pub fn own_name(policy: &str, time: u64) -> String {
    format!("cenote_{policy}_{}", calendar::stamp(time))
}

/// Whether a policy has taken the snapshot of this name.
pub fn is_own(policy: &str, name: &str) -> bool {
    let rest = name.strip_prefix("cenote_").and_then(|rest| rest.strip_prefix(policy));
    rest.and_then(|rest| rest.strip_prefix('_')).is_some_and(calendar::is_stamp)
}

/// Tag of the holds of a policy.
pub fn tag(policy: &str) -> String {
    format!("cenote_{policy}")
}

fn bookmark_name(policy: &str, guid: u64) -> String {
    format!("cenote_{policy}_{guid:016x}")
}

fn is_own_bookmark(policy: &str, name: &str) -> bool {
    let rest = name.strip_prefix("cenote_").and_then(|rest| rest.strip_prefix(policy));
    let digits = rest.and_then(|rest| rest.strip_prefix('_'));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn guid_in(points: &[Point], guid: u64) -> Option<&Point> {
    points.iter().find(|point| point.guid == guid)
}

/// The newest snapshot of the target that the source has too, or a bookmark of it: the point of the source, whether it
/// is a bookmark, and the index in the target's list.
fn newest_common<'a>(source: &'a Dataset, target: &Dataset) -> Option<(&'a Point, bool, usize)> {
    target.snapshots.iter().enumerate().rev().find_map(|(at, copy)| {
        let snapshot = guid_in(&source.snapshots, copy.guid).map(|point| (point, false, at));
        snapshot.or_else(|| guid_in(&source.bookmarks, copy.guid).map(|point| (point, true, at)))
    })
}

impl Pair<'_> {
    /// Whether the policy sends a snapshot.
    fn is_sent(&self, point: &Point) -> bool {
        let is_stream = matches!(self.policy.from, super::Place::Files { .. });
        let is_others = self.policy.also.iter().any(|pattern| matches(pattern, &point.name));
        is_stream || is_others || is_own(self.name, &point.name)
    }

    /// The snapshots of the source that the target is to have, oldest first.
    fn wanted(&self) -> Vec<&Point> {
        let sent: Vec<&Point> = self.source.snapshots.iter().filter(|point| self.is_sent(point)).collect();
        if matches!(self.policy.from, super::Place::Files { .. }) {
            return sent;
        }
        let kept = self.policy.keep_target.kept(&taken(&sent));
        let newest = sent.last().map(|point| point.guid);
        sent.into_iter().filter(|point| kept.contains(&point.guid) || Some(point.guid) == newest).collect()
    }

    /// What has to be sent, in order, each step after the success of those before.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn moves(&self) -> Result<Vec<Move>, Refusal> {
        let wanted = self.wanted();
        let nothing = Dataset::default();
        let target = self.target.unwrap_or(&nothing);
        let mut moves = Vec::new();
        let mut resumed = None;
        if let Some(token) = &target.token {
            let goal = goal_of(token).filter(|guid| guid_in(&target.snapshots, *guid).is_none());
            match goal.and_then(|guid| guid_in(&self.source.snapshots, guid)) {
                Some(to) => {
                    moves.push(Move::Resume { token: token.clone(), to: to.clone() });
                    resumed = Some(to);
                }
                None => moves.push(Move::Abort),
            }
        }
        let is_copy = target.source == Some(self.source.guid);
        // What others have begun to receive here is theirs.
        let is_begun =
            target.snapshots.is_empty() && target.token.is_some() && (is_copy || resumed.is_some());
        if self.target.is_some() && !is_copy && !self.policy.adopt && !is_begun {
            return Err(Refusal::Foreign {
                source_name: self.source.name.clone(),
                target: self.target_name.to_owned(),
            });
        }
        if let Some(to) = resumed {
            self.check_newer(target, None)?;
            moves.extend(self.increments(&wanted, to, &format!("@{}", to.name), false));
            return Ok(moves);
        }
        if target.snapshots.is_empty() {
            let Some((first, _)) = wanted.split_first() else {
                return Err(Refusal::NoSnapshot { source_name: self.source.name.clone() });
            };
            // A dataset without snapshots is there only if it may be replaced, or is a part that was discarded.
            let rollback = self.target.is_some() && !is_begun;
            if rollback && !self.policy.force && !is_copy {
                return Err(Refusal::Foreign {
                    source_name: self.source.name.clone(),
                    target: self.target_name.to_owned(),
                });
            }
            moves.push(Move::Full { to: (*first).clone(), rollback });
            moves.extend(self.increments(&wanted, first, &format!("@{}", first.name), false));
            return Ok(moves);
        }
        let Some((start, is_bookmark, at)) = newest_common(self.source, target) else {
            return Err(self.no_common(target));
        };
        let is_newer = at + 1 < target.snapshots.len();
        self.check_newer(target, Some(at))?;
        if self.is_full_due(target)
            && let Some(last) = wanted.last().filter(|last| last.createtxg > start.createtxg)
        {
            moves.push(Move::Full { to: (*last).clone(), rollback: false });
            return Ok(moves);
        }
        let mark = if is_bookmark { '#' } else { '@' };
        moves.extend(self.increments(&wanted, start, &format!("{mark}{}", start.name), is_newer));
        Ok(moves)
    }

    /// Increments from a start to each of the later wanted snapshots.
    fn increments(&self, wanted: &[&Point], start: &Point, name: &str, is_changed: bool) -> Vec<Move> {
        let (mut from, mut from_guid) = (name.to_owned(), start.guid);
        let mut rollback = self.policy.force || is_changed;
        let mut moves = Vec::new();
        for to in wanted.iter().filter(|to| to.createtxg > start.createtxg) {
            moves.push(Move::Increment { from, from_guid, to: (*to).clone(), rollback });
            (from, from_guid) = (format!("@{}", to.name), to.guid);
            rollback = self.policy.force;
        }
        moves
    }

    /// Refuses later snapshots of the target, unless it may go back. `at`: index of the newest common snapshot.
    fn check_newer(&self, target: &Dataset, at: Option<usize>) -> Result<(), Refusal> {
        let Some(at) = at else { return Ok(()) };
        let newer: Vec<String> =
            target.snapshots.iter().skip(at + 1).map(|point| point.name.clone()).collect();
        if newer.is_empty() || self.policy.force {
            return Ok(());
        }
        let common = target.snapshots.get(at).map(|point| point.name.clone()).unwrap_or_default();
        let (source_name, target) = (self.source.name.clone(), self.target_name.to_owned());
        Err(Refusal::Changed { source_name, target, common, newer })
    }

    fn no_common(&self, target: &Dataset) -> Refusal {
        Refusal::NoCommon {
            source_name: self.source.name.clone(),
            target: self.target_name.to_owned(),
            newest: target.snapshots.last().map(|point| point.name.clone()).unwrap_or_default(),
        }
    }

    fn is_full_due(&self, target: &Dataset) -> bool {
        let age = target.full_at.map(|at| self.now.saturating_sub(at));
        self.policy.full_every.zip(age).is_some_and(|(every, age)| age >= every)
    }

    /// What is to be held, released, bookmarked and destroyed, in order: each step only after the success of those
    /// before.
    pub fn upkeep(&self) -> Vec<Upkeep> {
        let Some(target) = self.target else { return Vec::new() };
        let Some((common, is_bookmark, at)) = newest_common(self.source, target) else { return Vec::new() };
        let Some(copy) = target.snapshots.get(at) else { return Vec::new() };
        let mut steps = self.guard_source(common, is_bookmark);
        if !matches!(self.policy.to, super::Place::Files { .. }) {
            steps.extend(self.guard(Where::Target, target, copy));
        }
        let is_streams = matches!(self.policy.from, super::Place::Files { .. });
        if !is_streams {
            let later = |point: &Point| point.createtxg >= common.createtxg;
            steps.extend(self.prune(Where::Source, self.source, &self.policy.keep_source, &later));
        }
        let later = |point: &Point| point.createtxg >= copy.createtxg;
        steps.extend(self.prune(Where::Target, target, &self.policy.keep_target, &later));
        steps
    }

    fn guard_source(&self, common: &Point, is_bookmark: bool) -> Vec<Upkeep> {
        if matches!(self.policy.from, super::Place::Files { .. }) {
            return Vec::new();
        }
        let name = &self.source.name;
        let mut steps = Vec::new();
        match self.policy.guard {
            Guard::Hold if is_bookmark => return steps,
            Guard::Hold => steps.extend(self.guard(Where::Source, self.source, common)),
            Guard::Bookmark => {
                let is_marked = self.source.bookmarks.iter().any(|mark| mark.guid == common.guid);
                if !is_marked {
                    steps.push(Upkeep::Bookmark {
                        snapshot: format!("{name}@{}", common.name),
                        bookmark: format!("{name}#{}", bookmark_name(self.name, common.guid)),
                    });
                }
            }
        }
        let is_past = |mark: &&Point| mark.guid != common.guid && mark.createtxg < common.createtxg;
        let own = self.source.bookmarks.iter().filter(|mark| is_own_bookmark(self.name, &mark.name));
        steps.extend(
            own.filter(is_past)
                .map(|mark| Upkeep::DropBookmark { bookmark: format!("{name}#{}", mark.name) }),
        );
        steps
    }

    /// Holds the newest common snapshot at one side, and releases the earlier ones.
    fn guard(&self, at: Where, dataset: &Dataset, common: &Point) -> Vec<Upkeep> {
        let tag = tag(self.name);
        let full = |point: &Point| format!("{}@{}", dataset.name, point.name);
        let mut steps = Vec::new();
        if !common.holds.contains(&tag) {
            steps.push(Upkeep::Hold { at, snapshot: full(common) });
        }
        let held = dataset.snapshots.iter().filter(|point| point.holds.contains(&tag));
        let past = held.filter(|point| point.createtxg < common.createtxg);
        steps.extend(past.map(|point| Upkeep::Release { at, snapshot: full(point) }));
        steps
    }

    /// What the rule of a side does not keep. `stays`: snapshots that stay anyway.
    fn prune(
        &self,
        at: Where,
        dataset: &Dataset,
        rule: &Keep,
        stays: &dyn Fn(&Point) -> bool,
    ) -> Option<Upkeep> {
        let is_others = |point: &Point| {
            self.policy.prune_also && self.policy.also.iter().any(|pattern| matches(pattern, &point.name))
        };
        let owned: Vec<&Point> = dataset
            .snapshots
            .iter()
            .filter(|point| is_own(self.name, &point.name) || is_others(point))
            .collect();
        let kept = rule.kept(&taken(&owned));
        let tag = tag(self.name);
        let is_held = |point: &Point| point.holds.iter().any(|hold| *hold != tag);
        let goes =
            owned.iter().filter(|point| !kept.contains(&point.guid) && !stays(point) && !is_held(point));
        let names: Vec<String> = goes.map(|point| point.name.clone()).collect();
        (!names.is_empty()).then(|| Upkeep::Destroy { at, dataset: dataset.name.clone(), names })
    }
}

fn taken(points: &[&Point]) -> Vec<Taken> {
    points.iter().map(|point| Taken { creation: point.creation, guid: point.guid }).collect()
}

/// Whether a token continues a raw stream.
pub(super) fn is_raw(token: &str) -> bool {
    ResumeToken::parse(token).is_ok_and(|token| token.list.has("rawok"))
}

/// Guid of the snapshot that a token completes.
fn goal_of(token: &str) -> Option<u64> {
    ResumeToken::parse(token).ok()?.list.u64("toguid")
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Move::Abort => f.write_str("discard what an interrupted stream has left"),
            Move::Resume { to, .. } => write!(f, "continue @{}", to.name),
            Move::Full { to, .. } => write!(f, "send @{} as a whole", to.name),
            Move::Increment { from, to, rollback, .. } => {
                let back = if *rollback { ", going back to it" } else { "" };
                write!(f, "send @{} from {from}{back}", to.name)
            }
        }
    }
}

impl fmt::Display for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upkeep::Bookmark { snapshot, bookmark } => write!(f, "bookmark {snapshot} as {bookmark}"),
            Upkeep::Hold { snapshot, .. } => write!(f, "hold {snapshot}"),
            Upkeep::Release { snapshot, .. } => write!(f, "release {snapshot}"),
            Upkeep::DropBookmark { bookmark } => write!(f, "destroy {bookmark}"),
            Upkeep::Destroy { dataset, names, .. } => write!(f, "destroy {dataset}@{}", names.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_say_whose_they_are() {
        let name = own_name("a", 1_795_843_888);
        assert_eq!(name, "cenote_a_20261128T053128Z");
        assert!(is_own("a", &name) && !is_own("b", &name) && !is_own("a-b", &name));
        assert!(!is_own("a", "cenote_a_b_20261128T053128Z") && !is_own("a", "cenote_a_x"));
    }
}
