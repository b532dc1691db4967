//! A run of a policy: plans with what both sides have now, and does it.
//!
//! # Order
//! Both sides listed -> snapshots taken -> source listed again -> copies renamed as their sources were -> dataset by dataset,
//! parents before children, several at a time: what is missing is sent; both are listed again; the newest common
//! snapshot is bookmarked and held; what is not kept is destroyed -> copies without a source -> contents compared.
//!
//! # What always holds
//! - A run that ends at any point is continued by the next one: nothing is decided by what an earlier one remembers.
//! - A dataset that fails does not keep the others from being replicated, those below it excepted where it is missing.
//! - If a side cannot be listed, nothing of it is destroyed.

use super::pipe::{Flow, NotSent, Rate, transfer};
use super::plan::{Move, Pair, Refusal, Upkeep, Where, is_raw, own_name, tag};
use super::policy::{Destroyed, Policy, SOURCE};
use super::side::{Dataset, Done, Point, Side, SideError, Stream, Style, Target};
use super::state::{DatasetState, State};
use super::tree::{self, target_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::sync::lock;

/// What happens in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A step is done, or with a dry run would be: of a dataset, by the full name of its source.
    Step {
        /// The dataset.
        dataset: String,
        /// The step.
        text: String,
    },
    /// A snapshot has arrived.
    Sent {
        /// The dataset.
        dataset: String,
        /// The snapshot: the part after `@`.
        snapshot: String,
        /// Bytes of the stream.
        bytes: u64,
    },
    /// The source of a copy is gone, and the copy is kept.
    Orphan {
        /// Full name of the copy.
        target: String,
    },
    /// Both sides have the same contents.
    Verified {
        /// The dataset.
        dataset: String,
        /// The snapshot: the part after `@`.
        snapshot: String,
    },
}

/// Why a dataset was not replicated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The plan refuses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A side has failed.
    #[error(transparent)]
    Side(#[from] SideError),
    /// The dataset above it is missing at the target.
    #[error("'{above}' is missing at the target")]
    NoParent {
        /// Full name of that dataset at the target.
        above: String,
    },
    /// The copies differ.
    #[error("'@{snapshot}' has other contents at the target")]
    Differs {
        /// The part after `@`.
        snapshot: String,
    },
}

/// A run.
pub struct Run<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// The policy.
    pub policy: &'a Policy,
    /// Where snapshots come from.
    pub source: &'a dyn Side,
    /// Where they go.
    pub target: &'a dyn Side,
    /// Nothing is done; the events say what would be.
    pub dry_run: bool,
    /// Contents are compared, also where the policy does not say so.
    pub verify: bool,
    /// Seconds since 1970.
    pub now: u64,
    /// The streams.
    pub flow: &'a Flow,
    /// Is told what happens, by any thread.
    pub on: &'a (dyn Fn(Event) + Sync),
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why nothing was replicated.
    pub error: Option<RunError>,
    /// By the full name of the source.
    pub datasets: BTreeMap<String, Result<DatasetState, RunError>>,
}

impl Outcome {
    /// Whether all was replicated.
    pub fn is_good(&self) -> bool {
        self.error.is_none() && self.datasets.values().all(Result::is_ok)
    }

    /// Adds it to what is known of the policy.
    pub fn add_to(&self, state: &mut State, ended: u64, bytes: u64) {
        state.ended = Some(ended);
        state.runs += 1;
        state.bytes = bytes;
        state.bytes_total = state.bytes_total.saturating_add(bytes);
        state.error = self.error.as_ref().map(|error| cenote::error::chain(error));
        match self.is_good() {
            true => state.succeeded = Some(ended),
            false => state.failures += 1,
        }
        if self.error.is_none() {
            state.datasets.retain(|name, _| self.datasets.contains_key(name));
        }
        for (name, result) in &self.datasets {
            let known = state.datasets.entry(name.clone()).or_default();
            match result {
                Ok(new) => {
                    let bytes_total = known.bytes_total.saturating_add(new.bytes_total);
                    *known = DatasetState { succeeded: Some(ended), error: None, bytes_total, ..new.clone() };
                }
                Err(error) => known.error = Some(cenote::error::chain(error)),
            }
        }
    }
}

/// The streams of a policy: with its limit of the rate.
pub fn flow_of(policy: &Policy) -> Flow {
    Flow { rate: policy.rate.map(Rate::new), ..Flow::default() }
}

impl Run<'_> {
    /// Runs the policy.
    pub fn run(&self) -> Outcome {
        let mut outcome = Outcome::default();
        match self.prepare() {
            Err(error) => outcome.error = Some(error),
            Ok((sources, targets)) => {
                self.replicate_all(&sources, targets, &mut outcome.datasets);
            }
        }
        outcome
    }

    fn roots(&self) -> (&str, &str) {
        (self.policy.from.dataset(), self.policy.to.dataset())
    }

    fn step(&self, dataset: &str, text: impl std::fmt::Display) {
        (self.on)(Event::Step { dataset: dataset.to_owned(), text: text.to_string() });
    }

    fn sources(&self) -> Result<Vec<Dataset>, RunError> {
        let root = self.roots().0;
        let mut sources = self.source.list(root, self.policy.recursive)?;
        sources.retain(|source| {
            let below = source.name.get(root.len()..).unwrap_or_default().trim_start_matches('/');
            below.is_empty() || !self.policy.excludes(below)
        });
        if sources.first().is_none_or(|source| source.name != root) {
            return Err(Refusal::NoSource { source_name: root.to_owned() }.into());
        }
        Ok(sources)
    }

    /// Snapshots, lists and renames.
    fn prepare(&self) -> Result<(Vec<Dataset>, Vec<Dataset>), RunError> {
        let mut sources = self.sources()?;
        let (source_root, target_root) = self.roots();
        // A target that cannot be reached does not make the source collect snapshots.
        let mut targets = self.target.list(target_root, true)?;
        if targets.is_empty() {
            targets = self.follow(&sources)?;
        }
        if self.policy.snapshot && !self.source.is_files() {
            let name = own_name(self.name, self.now);
            let is_taken = |source: &Dataset| source.snapshots.iter().any(|point| point.name == name);
            let names: Vec<String> = sources
                .iter()
                .filter(|s| !is_taken(s))
                .map(|source| format!("{}@{name}", source.name))
                .collect();
            names.iter().for_each(|name| self.step(name, "take the snapshot"));
            match self.dry_run {
                // A run in the same second has taken them.
                false if names.is_empty() => {}
                false => {
                    self.source.snapshot(&names)?;
                    sources = self.sources()?;
                }
                true => {
                    sources.iter_mut().for_each(|source| source.snapshots.push(self.imagined(&name, source)))
                }
            }
        }
        let matched = tree::tree(&sources, source_root, &targets, target_root);
        for (from, to) in &matched.renames {
            self.step(from, format_args!("rename to {to}"));
            if !self.dry_run {
                self.target.rename(from, to)?;
            }
            for target in &mut targets {
                if let Some(new) = target_of(&target.name, from, to) {
                    target.name = new;
                }
            }
        }
        if self.policy.recursive {
            self.orphans(&tree::own_orphans(self.name, &matched.orphans, &targets))?;
        }
        Ok((sources, targets))
    }

    /// Renames the copy of a source that has another name since the last run, where the policy says below what its copy
    /// is; returns the copy with all below it, under the new names.
    fn follow(&self, sources: &[Dataset]) -> Result<Vec<Dataset>, RunError> {
        let within = self.policy.within.as_ref().filter(|_| !self.target.is_files());
        let (Some(within), Some(source)) = (within, sources.first()) else { return Ok(Vec::new()) };
        let mut targets = self.target.list(within, true)?;
        let Some(from) = tree::own_copy(self.name, source.guid, within, &targets) else {
            return Ok(Vec::new());
        };
        let to = self.roots().1;
        self.step(&from, format_args!("rename to {to}"));
        if !self.dry_run {
            self.target.rename(&from, to)?;
        }
        targets.retain_mut(|target| {
            let new = target_of(&target.name, &from, to);
            new.is_some_and(|new| {
                target.name = new;
                true
            })
        });
        Ok(targets)
    }

    /// The snapshot that a dry run does not take.
    fn imagined(&self, name: &str, source: &Dataset) -> Point {
        let createtxg = source.snapshots.last().map_or(1, |last| last.createtxg + 1);
        Point { name: name.to_owned(), guid: 0, createtxg, creation: self.now, holds: Vec::new() }
    }

    fn orphans(&self, orphans: &[String]) -> Result<(), RunError> {
        let mut destroyed: BTreeSet<&str> = BTreeSet::new();
        for orphan in orphans {
            if destroyed.iter().any(|above| target_of(orphan, above, "").is_some()) {
                continue;
            }
            match self.policy.destroyed {
                Destroyed::Keep => (self.on)(Event::Orphan { target: orphan.clone() }),
                Destroyed::Destroy => {
                    destroyed.insert(orphan);
                    self.step(orphan, "destroy: its source is gone");
                    if !self.dry_run {
                        self.release_all(orphan)?;
                        self.target.destroy_dataset(orphan)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Releases the policy's holds on a dataset and those below.
    fn release_all(&self, root: &str) -> Done {
        let tag = tag(self.name);
        for dataset in self.target.list(root, true)? {
            for point in dataset.snapshots.iter().filter(|point| point.holds.contains(&tag)) {
                self.target.release(&format!("{}@{}", dataset.name, point.name), &tag)?;
            }
        }
        Ok(())
    }

    /// Replicates the datasets: those of one depth beside each other.
    fn replicate_all(
        &self,
        sources: &[Dataset],
        targets: Vec<Dataset>,
        results: &mut BTreeMap<String, Result<DatasetState, RunError>>,
    ) {
        let (source_root, target_root) = self.roots();
        let targets: BTreeMap<String, Dataset> =
            targets.into_iter().map(|target| (target.name.clone(), target)).collect();
        let arrived = Mutex::new(targets.keys().cloned().collect::<BTreeSet<String>>());
        let depth = |source: &&Dataset| source.name.matches('/').count();
        let deepest = sources.iter().map(|source| depth(&source)).max().unwrap_or(0);
        for level in 0..=deepest {
            let level: Vec<&Dataset> = sources.iter().filter(|source| depth(source) == level).collect();
            let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
            let work = || {
                while let Some(source) = level.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(name) = target_of(&source.name, source_root, target_root) else { continue };
                    // The lock is not held while something is sent.
                    let is_possible = self.below(&name, target_root, &lock(&arrived));
                    let result = is_possible.and_then(|()| {
                        let moved = self.moved(source, &name, &targets)?;
                        self.replicate(source, targets.get(&name).or(moved.as_ref()), &name)
                    });
                    if result.is_ok() {
                        lock(&arrived).insert(name.clone());
                    }
                    lock(&done).push((source.name.clone(), result));
                }
            };
            std::thread::scope(|scope| {
                let others = usize::try_from(self.policy.parallel).unwrap_or(1).min(level.len());
                (1..others).for_each(|_| drop(scope.spawn(work)));
                work();
            });
            let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            results.extend(done.into_iter().filter_map(|(name, result)| Some((name, result.transpose()?))));
        }
    }

    /// Checks that the dataset above is there.
    fn below(&self, name: &str, root: &str, arrived: &BTreeSet<String>) -> Result<(), RunError> {
        match name.rsplit_once('/') {
            Some((above, _)) if name != root && !arrived.contains(above) && !self.target.is_files() => {
                Err(RunError::NoParent { above: above.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The copy of a source that was renamed to where the dataset above it did not exist before: it is renamed now, or
    /// was with the copy above it.
    fn moved(
        &self,
        source: &Dataset,
        name: &str,
        targets: &BTreeMap<String, Dataset>,
    ) -> Result<Option<Dataset>, RunError> {
        let is_copy = |target: &&Dataset| target.source == Some(source.guid) && target.name != self.roots().1;
        let Some(copy) = targets.values().find(is_copy).filter(|_| !targets.contains_key(name)) else {
            return Ok(None);
        };
        if name == self.roots().1 {
            return Ok(None);
        }
        let found = self.target.list(name, false)?.into_iter().next();
        if found.is_some() {
            return Ok(found);
        }
        self.step(&source.name, format_args!("rename {} to {name}", copy.name));
        if !self.dry_run {
            self.target.rename(&copy.name, name)?;
        }
        Ok(Some(Dataset { name: name.to_owned(), ..copy.clone() }))
    }

    fn style(&self) -> Style {
        let Policy { raw, compressed, large_blocks, props, .. } = *self.policy;
        Style { raw, compressed, large_blocks, props }
    }

    /// Replicates one dataset; `None`: there is nothing to replicate.
    fn replicate(
        &self,
        source: &Dataset,
        target: Option<&Dataset>,
        target_name: &str,
    ) -> Result<Option<DatasetState>, RunError> {
        let pair = Pair { name: self.name, policy: self.policy, source, target, target_name, now: self.now };
        let moves = match pair.moves() {
            // A dataset below that no snapshot was taken of, because it is new.
            Err(Refusal::NoSnapshot { .. }) if source.name != self.roots().0 => return Ok(None),
            moves => moves?,
        };
        let mut bytes_total = 0;
        for step in &moves {
            self.step(&source.name, step);
            if !self.dry_run {
                bytes_total += self.make(step, source, target_name)?;
            }
        }
        let (source, target) = match self.dry_run {
            true => (source.clone(), target.cloned()),
            false => self.look(&source.name, target_name)?,
        };
        let pair = Pair { source: &source, target: target.as_ref(), ..pair };
        for step in pair.upkeep() {
            self.step(&source.name, &step);
            if !self.dry_run {
                self.keep(&step)?;
            }
        }
        let newest = target.as_ref().and_then(|target| newest_common(&source, target));
        if let Some(point) = newest
            && (self.verify || self.policy.verify)
            && !self.dry_run
        {
            self.compare(&source.name, target_name, &point.name)?;
        }
        Ok(Some(DatasetState {
            snapshot: newest.map(|point| point.name.clone()),
            creation: newest.map(|point| point.creation),
            bytes_total,
            ..DatasetState::default()
        }))
    }

    fn look(&self, source: &str, target: &str) -> Result<(Dataset, Option<Dataset>), RunError> {
        let gone = || Refusal::NoSource { source_name: source.to_owned() };
        let found = self.source.list(source, false)?.into_iter().next().ok_or_else(gone)?;
        Ok((found, self.target.list(target, false)?.into_iter().next()))
    }

    /// Makes a step; the bytes that were sent.
    fn make(&self, step: &Move, source: &Dataset, target: &str) -> Result<u64, RunError> {
        if self.flow.is_cancelled() {
            return Err(SideError::Cancelled.into());
        }
        let of = |to: &Point, from| Stream::Of {
            dataset: source.name.clone(),
            to: (to.name.clone(), to.guid),
            from,
        };
        let (stream, to, rollback, is_new) = match step {
            Move::Abort => {
                self.target.abort(target)?;
                return Ok(0);
            }
            Move::Resume { token, to } => {
                self.check_raw(token, &source.name, target)?;
                (Stream::Rest { token: token.clone() }, to, false, true)
            }
            Move::Full { to, rollback } => (of(to, None), to, *rollback, true),
            Move::Increment { from, from_guid, to, rollback } => {
                (of(to, Some((from.clone(), *from_guid))), to, *rollback, false)
            }
        };
        let mut goal = Target { dataset: target.to_owned(), rollback, ..Target::default() };
        if is_new {
            goal.set.extend(self.policy.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        if is_new || self.target.is_files() {
            goal.set.push((SOURCE.to_owned(), source.guid.to_string()));
        }
        if self.policy.props {
            // The copy is not mounted over its source.
            goal.exclude.push("mountpoint".to_owned());
        }
        let sent = transfer(self.source, &stream, self.style(), self.target, &goal, self.flow);
        match sent {
            Ok(bytes) => {
                let (dataset, snapshot) = (source.name.clone(), to.name.clone());
                (self.on)(Event::Sent { dataset, snapshot, bytes });
                Ok(bytes)
            }
            Err(error) => {
                if let Stream::Rest { token } = &stream {
                    self.give_up_token(token, target, &error);
                }
                Err(error.cause().into())
            }
        }
    }

    /// A token is what the receiver says. It must not make the source decrypt what the policy sends encrypted.
    fn check_raw(&self, token: &str, source: &str, target: &str) -> Result<(), RunError> {
        if !self.policy.raw || is_raw(token) || !self.source.is_encrypted(source)? {
            return Ok(());
        }
        self.target.abort(target)?;
        let (source_name, target) = (source.to_owned(), target.to_owned());
        Err(Refusal::Decrypted { source_name, target }.into())
    }

    /// Discards what a token continues if the receiver does not take the rest: the next run would fail as well. A part
    /// that has grown is kept.
    fn give_up_token(&self, token: &str, target: &str, error: &NotSent) {
        if error.receiver.is_none() || self.flow.is_cancelled() {
            return;
        }
        let found = self.target.list(target, false).unwrap_or_default();
        if found.first().and_then(|target| target.token.as_deref()) == Some(token) {
            // If this fails, the next run has the same choice.
            let _ = self.target.abort(target);
        }
    }

    fn side(&self, at: Where) -> &dyn Side {
        match at {
            Where::Source => self.source,
            Where::Target => self.target,
        }
    }

    fn keep(&self, step: &Upkeep) -> Done {
        let tag = tag(self.name);
        match step {
            Upkeep::Bookmark { snapshot, bookmark } => self.source.bookmark(snapshot, bookmark),
            Upkeep::Hold { at, snapshot } => self.side(*at).hold(snapshot, &tag),
            Upkeep::Release { at, snapshot } => self.side(*at).release(snapshot, &tag),
            Upkeep::DropBookmark { bookmark } => self.source.destroy_bookmark(bookmark),
            Upkeep::Destroy { at, dataset, names } => self.side(*at).destroy_snapshots(dataset, names),
        }
    }

    fn compare(&self, source: &str, target: &str, snapshot: &str) -> Result<(), RunError> {
        use super::side::Checksum;
        let raw = self.policy.raw;
        let copy = self.target.checksum(&format!("{target}@{snapshot}"), raw)?;
        let is_same = match copy {
            Checksum::Whole => true,
            _ => match self.source.checksum(&format!("{source}@{snapshot}"), raw)? {
                Checksum::Whole => true,
                original => original == copy,
            },
        };
        let snapshot = snapshot.to_owned();
        if !is_same {
            return Err(RunError::Differs { snapshot });
        }
        (self.on)(Event::Verified { dataset: source.to_owned(), snapshot });
        Ok(())
    }
}

/// The newest snapshot that both have.
fn newest_common<'d>(source: &Dataset, target: &'d Dataset) -> Option<&'d Point> {
    let is_there = |copy: &&Point| source.snapshots.iter().any(|point| point.guid == copy.guid);
    target.snapshots.iter().rev().find(is_there)
}
