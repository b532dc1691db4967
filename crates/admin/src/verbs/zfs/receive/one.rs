//! Receiving one stream: where it goes, whether it can, and what is done with mounts meanwhile.

use super::finish::Touched;
use super::place::parent;
use super::refusal::{Problem, Refusal, StreamKind};
use super::{Event, Receiving, is_clone, kind_of};
use crate::Unmount;
use crate::edit::names::{self, Form};
use crate::edit::{self, EditError, permit};
use crate::mounting::{Mounting, Replacing};
use crate::verbs::zfs::mounts;
use crate::verbs::zfs::operand::NotOpened;
use cenote::receive::{Receive, Watch};
use cenote::{Dataset, DatasetKind, Pool, PoolWriter};
use format::stream::{Begin, Record, feature};
use std::collections::BTreeSet;
use std::io::Read;
use std::time::Instant;
use stream::{Frame, Reader};

/// A stream whose first record was read.
pub(super) struct Incoming {
    frame: Frame,
    /// The first record.
    pub(super) begin: Begin,
    /// Name in the stream, as text.
    name: String,
}

impl Incoming {
    /// `None`: the record is not the start of a stream.
    pub(super) fn new(frame: Frame) -> Option<Incoming> {
        let Record::Begin(begin) = frame.header.record.clone() else { return None };
        let name = String::from_utf8_lossy(begin.name()).into_owned();
        Some(Incoming { frame, begin, name })
    }

    /// Name of the dataset at the sender.
    pub(super) fn dataset(&self) -> Result<&str, Refusal> {
        Ok(self.parts()?.0)
    }

    /// Names of the dataset and of the snapshot, without the dataset, at the sender.
    fn parts(&self) -> Result<(&str, &str), Refusal> {
        let parts = self.name.split_once('@').filter(|(dataset, snapshot)| {
            !dataset.is_empty() && !snapshot.is_empty() && !snapshot.contains('@')
        });
        parts.ok_or_else(|| Problem::SentName.of(None))
    }

    /// Payload of the first record.
    pub(super) fn payload(&self) -> &[u8] {
        &self.frame.payload
    }

    fn is_resuming(&self) -> bool {
        self.begin.features() & feature::RESUMING != 0
    }
}

/// Where a stream goes.
struct Goal {
    dataset: String,
    snapshot: String,
    kind: StreamKind,
    origin: Option<String>,
    /// The dataset is here.
    exists: bool,
    /// What is here was received in part.
    is_partial: bool,
}

impl Goal {
    fn full_name(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }

    fn refused(&self, problem: impl Into<Problem>) -> Refusal {
        problem.into().of(Some(self.kind))
    }
}

impl Receiving<'_, '_, '_> {
    /// Receives a stream, or passes it over.
    pub(super) fn receive<R: Read>(
        &mut self,
        incoming: &Incoming,
        reader: &mut Reader<R>,
    ) -> Result<(), Refusal> {
        let mut goal = self.goal(incoming)?;
        if goal.kind == StreamKind::Incremental && !goal.exists && self.is_reshaped() {
            // It moves below a dataset that has come only now.
            self.reshape()?;
            goal = self.goal(incoming)?;
        }
        if goal.kind == StreamKind::Incremental && self.is_here(&goal, incoming.begin.to_guid)? {
            self.tell(Event::Begins { kind: goal.kind, from: incoming.name.clone(), into: goal.full_name() });
            pass_over(reader).map_err(|problem| goal.refused(problem))?;
            if !self.request.dry_run {
                self.tell(Event::Exists { snapshot: goal.full_name() });
            }
            return Ok(());
        }
        self.check(&mut goal, incoming)?;
        self.tell(Event::Begins { kind: goal.kind, from: incoming.name.clone(), into: goal.full_name() });
        if self.request.dry_run {
            let made = (goal.snapshot.clone(), incoming.begin.to_guid);
            self.imagined.entry(goal.dataset.clone()).or_default().insert(made);
            return pass_over(reader).map_err(|problem| goal.refused(problem));
        }
        self.receive_into(&goal, incoming, reader)
    }

    fn goal(&mut self, incoming: &Incoming) -> Result<Goal, Refusal> {
        let (sent, snapshot) = incoming.parts()?;
        let kind = kind_of(&incoming.begin);
        let mut dataset = self.place.dataset(sent).ok_or_else(|| Problem::SentName.of(None))?;
        if self.request.dry_run && kind == StreamKind::Incremental && self.has_shape() {
            let now = self.name_of_now(incoming.begin.from_guid);
            dataset = now.map_err(|error| Problem::from(error).of(Some(kind)))?.unwrap_or(dataset);
        }
        let snapshot = self.place.snapshot(snapshot).to_owned();
        let name = format!("{dataset}@{snapshot}");
        names::check(&name, Form::Snapshot).map_err(|error| super::named(&name, error.into()))?;
        let mut goal = Goal { dataset, snapshot, kind, origin: None, exists: false, is_partial: false };
        let found = self.find(&goal.dataset).map_err(|error| goal.refused(error))?;
        goal.exists = found.is_some() || self.imagined.contains_key(&goal.dataset);
        goal.is_partial = found.is_some_and(|found| found.dsl().is_inconsistent());
        Ok(goal)
    }

    /// In a dry run, which renames nothing: the name of the dataset in which an increment from this snapshot would begin.
    fn name_of_now(&mut self, guid: u64) -> Result<Option<String>, EditError> {
        let has = |made: &BTreeSet<(String, u64)>| made.iter().any(|(_, known)| *known == guid);
        if let Some((dataset, _)) = self.imagined.iter().find(|(_, made)| has(made)) {
            return Ok(Some(dataset.clone()));
        }
        let Some(top) = self.place.dataset(self.place.top()) else { return Ok(None) };
        let found = find_below(&self.session.view(&top)?, &top, guid)?;
        Ok(found.and_then(|name| Some(name.split_once('@')?.0.to_owned())))
    }

    /// A dataset or snapshot that is here.
    fn find(&mut self, name: &str) -> Result<Option<Dataset>, EditError> {
        let found = self.session.view(name).and_then(|view| Ok(view.dataset(name)?));
        match found {
            Ok(dataset) => Ok(Some(dataset)),
            Err(EditError::NoDataset { .. } | EditError::NoPool { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the snapshot of an increment is here.
    fn is_here(&mut self, goal: &Goal, guid: u64) -> Result<bool, Refusal> {
        if self.request.heal {
            return Ok(false);
        }
        let would_be = (goal.snapshot.clone(), guid);
        if self.imagined.get(&goal.dataset).is_some_and(|made| made.contains(&would_be)) {
            return Ok(true);
        }
        let found = self.find(&goal.full_name()).map_err(|error| goal.refused(error))?;
        Ok(found.is_some_and(|found| found.dsl().phys().guid == guid))
    }

    /// Whether the stream can go there, as far as that is known before the engine looks.
    fn check(&mut self, goal: &mut Goal, incoming: &Incoming) -> Result<(), Refusal> {
        goal.origin = self.origin(goal, incoming)?;
        if self.request.heal && !goal.exists {
            return Err(goal.refused(Problem::Missing { dataset: goal.dataset.clone() }));
        }
        match (goal.kind, goal.exists) {
            (StreamKind::New, true) => self.check_overwrite(goal, incoming),
            (StreamKind::New, false) => self.check_new(goal),
            (StreamKind::Incremental, false) if goal.origin.is_some() => self.check_new(goal),
            (StreamKind::Incremental, false) => {
                Err(goal.refused(Problem::Missing { dataset: goal.dataset.clone() }))
            }
            (StreamKind::Incremental, true) => Ok(()),
        }
    }

    /// The snapshot that the dataset is to be a clone of.
    fn origin(&mut self, goal: &Goal, incoming: &Incoming) -> Result<Option<String>, Refusal> {
        if let Some(origin) = &self.request.origin {
            return Ok(Some(origin.clone()));
        }
        if !is_clone(&incoming.begin) || goal.exists {
            return Ok(None);
        }
        let guid = incoming.begin.from_guid;
        let would_be = self.imagined.iter().find_map(|(dataset, made)| {
            let (name, _) = made.iter().find(|(_, known)| *known == guid)?;
            Some(format!("{dataset}@{name}"))
        });
        let view = self.session.view(&goal.dataset).map_err(|error| goal.refused(error))?;
        let near = parent(&goal.dataset).unwrap_or(&goal.dataset);
        let found = find_snapshot(&view, near, guid).map_err(|error| goal.refused(error))?;
        let missing = || goal.refused(Problem::NoOrigin { snapshot: goal.full_name() });
        found.or(would_be).ok_or_else(missing).map(Some)
    }

    /// A full stream goes over a dataset only by force, and only if it has no snapshots.
    fn check_overwrite(&mut self, goal: &Goal, incoming: &Incoming) -> Result<(), Refusal> {
        let Some(found) = self.find(&goal.dataset).map_err(|error| goal.refused(error))? else {
            return Ok(());
        };
        let head = found.dsl();
        // What is new is whole only at the end.
        if self.request.heal || goal.is_partial {
            return Ok(());
        }
        let dataset = || goal.dataset.clone();
        if !self.request.force {
            return Err(goal.refused(Problem::Exists { dataset: dataset() }));
        }
        if incoming.is_resuming() {
            return Ok(());
        }
        let failed = |error: dsl::DslError| goal.refused(EditError::from(error));
        if let Some(first) = head.snapshots().map_err(failed)?.first() {
            return Err(goal.refused(Problem::HasSnapshots { snapshot: first.name().to_owned() }));
        }
        match head.dir().origin().map_err(failed)? {
            Some(_) => Err(goal.refused(Problem::IsClone { dataset: dataset() })),
            None => Ok(()),
        }
    }

    /// A new dataset has a parent, or gets one.
    fn check_new(&mut self, goal: &Goal) -> Result<(), Refusal> {
        let Some(above) = parent(&goal.dataset) else {
            return Err(goal.refused(Problem::Missing { dataset: goal.dataset.clone() }));
        };
        names::check_new(&goal.dataset).map_err(|error| super::named(&goal.dataset, error.into()))?;
        if self.place.makes_ancestors() || self.imagined.contains_key(above) {
            return Ok(());
        }
        let above = above.to_owned();
        let not_opened =
            |error: EditError| Refusal::NoParent { parent: NotOpened::new(above.as_str(), error) };
        match self.find(&above).map_err(not_opened)? {
            None => Err(not_opened(EditError::NoDataset { name: above.clone() })),
            Some(found) => match found.kind() {
                Ok(DatasetKind::Filesystem) => Ok(()),
                Ok(_) => Err(goal.refused(Problem::WrongParent { dataset: goal.dataset.clone() })),
                Err(error) => Err(goal.refused(EditError::from(error))),
            },
        }
    }

    fn receive_into<R: Read>(
        &mut self,
        goal: &Goal,
        incoming: &Incoming,
        reader: &mut Reader<R>,
    ) -> Result<(), Refusal> {
        let pool = self.session.writer(&goal.dataset).map_err(|error| goal.refused(error))?;
        self.ask(&pool, goal).map_err(|error| goal.refused(error))?;
        if !goal.exists && self.place.makes_ancestors() {
            // They stay unmounted.
            let made = edit::create_ancestors(&pool, &goal.dataset).map_err(|error| goal.refused(error))?;
            if !made.is_empty() {
                self.session.note_change(&goal.dataset);
            }
        }
        let mounting = self.session.mounting();
        let unmounted = match &mounting {
            Some(mounting) if self.request.force_unmount && goal.exists => {
                Some(mounting.before_rename(&goal.dataset, false, Unmount::Force).map_err(Refusal::Mount)?)
            }
            _ => None,
        };
        let how = Receive {
            dataset: goal.dataset.clone(),
            snapshot: goal.snapshot.clone(),
            force: self.request.force,
            resumable: self.request.resumable,
            origin: goal.origin.clone(),
            heal: self.request.heal,
        };
        let touched = self.touched(goal, incoming)?;
        let (started, begun_at) = (Instant::now(), reader.position());
        let mut properties = None;
        let outcome = {
            let mut begun = || {
                if touched.is_new {
                    properties = Some(self.properties_of(&pool, &touched));
                }
            };
            let mut users = Users::new(mounting.as_ref(), &goal.dataset, &mut begun);
            pool.receive(&incoming.frame, reader, &how, &mut users)
        };
        if let (Some(mounting), Some(pending)) = (&mounting, unmounted) {
            let refusals = mounting.after_rename(pending, &goal.dataset);
            refusals.into_iter().for_each(|refusal| self.tell(Event::NotMountedAgain(refusal)));
        }
        let took = started.elapsed();
        let received = match outcome {
            Ok(received) => received,
            Err(error) => {
                let features = incoming.begin.features();
                let problem = Problem::of_receive(error, &goal.dataset, &goal.snapshot, features);
                return Err(goal.refused(self.or_saved(&pool, &goal.dataset, problem)));
            }
        };
        pool.sync().map_err(|error| goal.refused(EditError::from(error)))?;
        self.session.note_change(&goal.dataset);
        mounts::snapshots_changed(self.session, &[goal.full_name()]);
        let (bytes, healed) = (received.bytes.saturating_sub(begun_at), received.healed);
        self.tell(Event::Received { snapshot: goal.full_name(), bytes, healed, took });
        if !self.request.heal {
            self.touch(Touched { has_properties: properties.is_some(), ..touched });
        }
        properties.unwrap_or(Ok(()))
    }

    /// What is known of a dataset into which a stream is received.
    fn touched(&self, goal: &Goal, incoming: &Incoming) -> Result<Touched, Refusal> {
        let package = self.package.as_ref();
        Ok(Touched {
            dataset: goal.dataset.clone(),
            is_new: !goal.exists || goal.is_partial,
            sent: package.and_then(|package| package.index_of(incoming.begin.to_guid)),
            is_top: incoming.dataset()? == self.place.top(),
            has_properties: false,
        })
    }

    /// Asks for the caller's permissions, at the dataset or, if it is new, above it.
    fn ask(&self, pool: &PoolWriter, goal: &Goal) -> Result<(), EditError> {
        let mut at = goal.dataset.as_str();
        let Some(permit) = permit::of(pool)? else { return Ok(()) };
        let view = edit::view(pool)?;
        while let (Err(_), Some(above)) = (view.dataset(at), parent(at)) {
            at = above;
        }
        let needed: &[&str] = match self.request.force && goal.exists {
            true => &["receive", "create", "mount", "rollback"],
            false => &["receive", "create", "mount"],
        };
        permit.ask(at, needed)?;
        match &goal.origin {
            Some(origin) if !goal.exists => permit.ask(origin, &["clone"]),
            _ => Ok(()),
        }
    }

    /// The problem of a transfer whose state was kept has the token with which it is resumed.
    fn or_saved(&self, pool: &PoolWriter, dataset: &str, problem: Problem) -> Problem {
        if !self.request.resumable || !problem.is_of_transfer() {
            return problem;
        }
        let token = || {
            pool.sync().ok()?;
            pool.view().ok()?.dataset(dataset).ok()?.property("receive_resume_token").ok()?
        };
        match token().filter(|token| !token.is_empty() && token != "-") {
            Some(token) => Problem::Saved { token },
            None => problem,
        }
    }
}

/// The snapshot with a guid: near a dataset, or anywhere in the pool.
fn find_snapshot(view: &Pool, near: &str, guid: u64) -> Result<Option<String>, EditError> {
    let pool = edit::pool_of(near);
    for root in [near, pool] {
        if let Some(found) = find_below(view, root, guid)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The snapshot with a guid of a dataset or of one below it.
fn find_below(view: &Pool, root: &str, guid: u64) -> Result<Option<String>, EditError> {
    let datasets = match edit::with_descendants(view, root) {
        Err(EditError::NoDataset { .. }) => return Ok(None),
        datasets => datasets?,
    };
    for dataset in datasets {
        let Some(head) = view.dsl().dir(&dataset)?.head()? else { continue };
        if let Some(found) = head.snapshots()?.iter().find(|snapshot| snapshot.phys().guid == guid) {
            return Ok(Some(found.name().to_owned()));
        }
    }
    Ok(None)
}

/// Reads a stream to its end.
fn pass_over<R: Read>(reader: &mut Reader<R>) -> Result<(), Problem> {
    loop {
        let frame = reader.next_frame().map_err(|error| Problem::of_stream(&error, false))?;
        match frame.map(|frame| frame.header.record) {
            Some(Record::End(_)) => return Ok(()),
            Some(Record::Begin(_)) => return Err(Problem::Invalid { detail: "no end of a stream".into() }),
            Some(_) => {}
            None => return Err(Problem::Incomplete),
        }
    }
}

/// The users of a dataset whose contents are replaced.
struct Users<'m> {
    mounting: Option<&'m Mounting>,
    dataset: &'m str,
    replacing: Option<Replacing<'m>>,
    begun: &'m mut dyn FnMut(),
}

impl<'m> Users<'m> {
    fn new(mounting: Option<&'m Mounting>, dataset: &'m str, begun: &'m mut dyn FnMut()) -> Users<'m> {
        Users { mounting, dataset, replacing: None, begun }
    }
}

impl Watch for Users<'_> {
    fn begun(&mut self) {
        (self.begun)();
    }

    fn before_replace(&mut self) -> Result<(), String> {
        let replacing = self.mounting.map(|mounting| mounting.before_replace(self.dataset)).transpose();
        self.replacing = replacing.map_err(|refusal| refusal.to_string())?;
        Ok(())
    }

    fn replaced(&mut self) {
        self.replacing.iter_mut().for_each(|replacing| replacing.replaced(self.dataset));
    }
}
