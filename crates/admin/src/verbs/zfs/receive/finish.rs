//! What follows the streams: properties, properties of snapshots, holds, and mounts of new file systems.
//!
//! # What always holds
//! - Nothing is mounted before the last stream: a mount could change what the next one begins with.
//! - A property or hold that is refused is told, and the others are made.

use super::package::Sent;
use super::refusal::{Problem, Refusal};
use super::{Effect, Event, Receiving};
use crate::edit::values::{self, ValueError};
use crate::edit::{self, EditError, permit};
use crate::mounting::MountRefusal;
use crate::verbs::Reason;
use crate::verbs::zfs::mounts;
use cenote::{Dataset, DatasetKind, PoolWriter};
use dsl::DslError;
use dsl::holds::HoldError;
use dsl::keys::KeyStatus;
use dsl::prop::PropValue;
use dsl::prop::change::PropError;
use dsl::prop::receive::{self as task, Received};
use std::collections::HashMap;

/// The stored value `off` of `canmount`.
const OFF: PropValue = PropValue::Number(0);

/// A dataset into which streams were received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touched {
    /// Full name.
    pub(super) dataset: String,
    /// It was made.
    pub(super) is_new: bool,
    /// It is the topmost one of the stream.
    pub(super) is_top: bool,
    /// Its place in the list of the package.
    pub(super) sent: Option<usize>,
    /// Its properties were stored before its contents came.
    pub(super) has_properties: bool,
}

impl Receiving<'_, '_, '_> {
    /// Notes that a stream was received into a dataset.
    pub(super) fn touch(&mut self, touched: Touched) {
        match self.touched.iter_mut().find(|known| known.dataset == touched.dataset) {
            Some(known) => {
                known.sent = known.sent.or(touched.sent);
                known.has_properties |= touched.has_properties;
            }
            None => self.touched.push(touched),
        }
    }

    /// Does what follows the streams.
    pub(super) fn finish(&mut self) -> Result<(), Refusal> {
        let touched = std::mem::take(&mut self.touched);
        let mut outcome = Ok(());
        for one in &touched {
            outcome = outcome.and(self.finish_one(one));
        }
        // What is locked is mounted when its key is loaded.
        let is_locked = |found: &Dataset| {
            let dir = found.dsl().dir();
            dir.dsl().keyring().status(dir).is_ok_and(|status| status == KeyStatus::Unavailable)
        };
        let mounts = |name: &str, view: &cenote::Pool| {
            view.dataset(name).is_ok_and(|found| {
                found.kind().is_ok_and(|kind| kind == DatasetKind::Filesystem) && !is_locked(&found)
            })
        };
        let mut new = touched.iter().filter(|one| one.is_new).map(|one| one.dataset.clone()).peekable();
        if let Some(first) = new.peek().filter(|_| !self.request.unmounted)
            && let Ok(view) = self.session.view(first)
        {
            let new: Vec<String> = new.filter(|name| mounts(name, &view)).collect();
            let not_mounted = mounts::mount_new(self.session, &new);
            not_mounted.into_iter().for_each(|one| self.tell(Event::NotMounted(one)));
        }
        outcome
    }

    fn finish_one(&mut self, touched: &Touched) -> Result<(), Refusal> {
        let writer = self.session.writer(&touched.dataset);
        let pool = writer.map_err(|error| Problem::from(error).of(None))?;
        let sent = touched.sent.and_then(|index| self.package.as_ref()?.datasets.get(index)).cloned();
        let outcome =
            if touched.has_properties { Ok(()) } else { self.properties(&pool, touched, sent.as_ref()) };
        if let Some(sent) = &sent {
            if touched.is_new && !touched.is_top && !sent.is_encryption_root {
                let name = touched.dataset.clone();
                let done = edit::run(&pool, move |ctx| dsl::keys::inherit_sent(ctx, &name));
                done.map_err(|error| Problem::from(error).of(None))?;
            }
            let here =
                snapshots(&pool, &touched.dataset, sent).map_err(|error| Problem::from(error).of(None))?;
            self.snapshot_properties(&pool, &touched.dataset, sent, &here);
            if !self.request.skip_holds {
                self.holds(&pool, &touched.dataset, sent, &here);
            }
        }
        outcome
    }

    // ---- properties --------------------------------------------------------------------------

    /// Stores the properties of a dataset that has just begun to be received.
    pub(super) fn properties_of(&mut self, pool: &PoolWriter, touched: &Touched) -> Result<(), Refusal> {
        let sent = touched.sent.and_then(|index| self.package.as_ref()?.datasets.get(index)).cloned();
        self.properties(pool, touched, sent.as_ref())
    }

    /// Stores the properties of a dataset, and sets those of `-o`. Mounts follow.
    fn properties(
        &mut self,
        pool: &PoolWriter,
        touched: &Touched,
        sent: Option<&Sent>,
    ) -> Result<(), Refusal> {
        let name = touched.dataset.as_str();
        let sent = sent.and_then(|sent| sent.properties.as_ref());
        let received = sent.map(|sent| {
            let one = |(name, value): &(String, _)| Received {
                name: name.clone(),
                value: Clone::clone(value),
                effect: self.options.effect(name, touched.is_top),
            };
            sent.iter().map(one).collect::<Vec<Received>>()
        });
        let set = match touched.is_top {
            true => self.request.properties.clone(),
            false => Vec::new(),
        };
        // What is new is not mounted yet.
        let change = match touched.is_new {
            true => None,
            false => Some(self.before_properties(pool, name, received.as_deref().unwrap_or_default(), &set)),
        };
        if let Some(received) = received {
            self.store(pool, name, received);
        }
        let outcome = self.set(pool, name, &set);
        let refusals = match change {
            Some(Ok(change)) => change.finish(&Ok(())),
            // The properties hold from the next mount on.
            Some(Err(refusal)) => vec![refusal],
            None => Vec::new(),
        };
        refusals.into_iter().for_each(|refusal| self.tell(Event::NotMountedAgain(refusal)));
        outcome
    }

    /// Unmounts what moves when these properties are received and set. Those that have come with earlier streams move
    /// nothing.
    fn before_properties(
        &self,
        pool: &PoolWriter,
        name: &str,
        received: &[Received],
        set: &[(String, String)],
    ) -> Result<mounts::PropertyChange, MountRefusal> {
        let dataset = edit::view(pool).and_then(|view| Ok(view.dataset(name)?)).ok();
        let is_known = |one: &Received| {
            let known = dataset.as_ref().and_then(|dataset| dsl::prop::get(dataset.dsl(), &one.name).ok()?);
            known.is_some_and(|known| known.received.as_ref() == Some(&one.value))
        };
        let received: Vec<&Received> = received.iter().filter(|one| !is_known(one)).collect();
        let changed = received.iter().map(|one| one.name.as_str());
        let changed = changed.chain(set.iter().map(|(name, _)| name.as_str()));
        let names: Vec<&str> =
            changed.filter(|name| !(self.request.unmounted && *name == "mountpoint")).collect();
        let is_off = received.iter().any(|one| one.name == "canmount" && one.value == OFF)
            || set.iter().any(|(name, text)| name == "canmount" && text == "off");
        mounts::PropertyChange::begin(self.session, name, &names, is_off)
    }

    /// Stores received properties, and tells those that are refused.
    fn store(&mut self, pool: &PoolWriter, name: &str, mut props: Vec<Received>) {
        let permit = match permit::of(pool) {
            Ok(permit) => permit,
            Err(error) => return self.refuse(name, "", error),
        };
        let mut denied = Vec::new();
        if let Some(permit) = permit {
            props.retain(|prop| {
                let asked = permit.ask(name, &[&permit::to_set(&prop.name)]);
                asked.map_err(|error| denied.push((prop.name.clone(), error))).is_ok()
            });
        }
        denied.into_iter().for_each(|(prop, error)| self.refuse(name, &prop, error));
        let target = name.to_owned();
        match edit::run(pool, move |ctx| task::receive(ctx, &target, &props)) {
            Ok(refused) => {
                refused.into_iter().for_each(|(prop, error)| self.refuse(name, &prop, error.into()));
            }
            Err(error) => self.refuse(name, "", error),
        }
    }

    fn refuse(&mut self, dataset: &str, property: &str, error: EditError) {
        let (dataset, property) = (dataset.to_owned(), property.to_owned());
        self.tell(Event::PropertyRefused { dataset, property, reason: error.into() });
    }

    /// Sets the properties of `-o`; those that do not apply are passed over, for they apply to other datasets.
    fn set(&mut self, pool: &PoolWriter, name: &str, props: &[(String, String)]) -> Result<(), Refusal> {
        let features = pool.live().features();
        for (property, text) in props {
            let done = || -> Result<(), EditError> {
                let dataset = edit::view(pool)?.dataset(name)?;
                let subject = edit::subject(&dataset)?;
                let is_enabled = |feature: &str| features.is_enabled(feature);
                match values::resolve(property, text, &subject, &is_enabled) {
                    Err(ValueError::Prop(PropError::WrongType { .. })) => Ok(()),
                    setting => edit::set(pool, name, &[setting?]),
                }
            };
            done().map_err(|error| {
                let reason = Reason::from(error);
                Problem::Property { property: property.clone(), reason }.of(None)
            })?;
        }
        Ok(())
    }

    /// Stores the properties of snapshots that are here.
    fn snapshot_properties(&mut self, pool: &PoolWriter, dataset: &str, sent: &Sent, here: &Here) {
        for (snapshot, props) in &sent.snapshot_properties {
            let Some((name, has_properties)) = here.get(snapshot) else { continue };
            if props.is_empty() && !has_properties {
                continue;
            }
            let one = |(name, value): &(String, _)| Received {
                name: name.clone(),
                value: Clone::clone(value),
                effect: Effect::Received,
            };
            let kept = props.iter().filter(|(name, _)| !self.options.is_excluded(name));
            let props = kept.map(one).collect();
            self.store(pool, &format!("{dataset}@{name}"), props);
        }
    }

    // ---- holds -------------------------------------------------------------------------------

    /// Makes the holds of snapshots that are here.
    fn holds(&mut self, pool: &PoolWriter, dataset: &str, sent: &Sent, here: &Here) {
        for (snapshot, tags) in &sent.holds {
            let Some((name, _)) = here.get(snapshot) else { continue };
            let snapshot = format!("{dataset}@{name}");
            for tag in tags {
                if let Err(error) = hold(pool, &snapshot, tag) {
                    let (snapshot, tag) = (snapshot.clone(), tag.clone());
                    self.tell(Event::HoldRefused { snapshot, tag, reason: error.into() });
                }
            }
        }
    }
}

/// The snapshots of a package that are here, by their names in the package: their names here, and whether they have
/// properties.
type Here = HashMap<String, (String, bool)>;

fn snapshots(pool: &PoolWriter, dataset: &str, sent: &Sent) -> Result<Here, EditError> {
    let Some(head) = edit::view(pool)?.dsl().dir(dataset)?.head()? else { return Ok(Here::new()) };
    let sent: HashMap<u64, &String> = sent.snapshots.iter().map(|(name, guid)| (*guid, name)).collect();
    let mut here = Here::new();
    for snapshot in head.snapshots()? {
        let phys = snapshot.phys();
        if let (Some(known), Some(name)) = (sent.get(&phys.guid), snapshot.snapshot_name()) {
            here.insert((*known).clone(), (name.to_owned(), phys.props.is_some()));
        }
    }
    Ok(here)
}

/// Holds a snapshot, unless it is held with this tag.
fn hold(pool: &PoolWriter, name: &str, tag: &str) -> Result<(), EditError> {
    permit::ask(pool, name, &["hold"])?;
    let (name, tag) = (name.to_owned(), tag.to_owned());
    edit::run(pool, move |ctx| {
        let id = ctx.dsl()?.dataset(&name)?.id();
        match dsl::holds::hold(ctx.m(), id, &tag, ctx.now(), false) {
            Err(DslError::Hold(HoldError::TagExists)) => return Ok(()),
            done => done?,
        }
        let count = dsl::holds::count(ctx.m(), id)?;
        ctx.note("hold", Some((&name, id)), format!("tag={tag} temp=0 refs={count}"));
        Ok(())
    })
}
