//! `zpool events`: what has happened to the pools of this process, and forgetting it.
//!
//! A daemon knows everything since its start; a process that opens its pools for a command knows what that command has
//! done. A caller that follows events asks again with the number of the last one.
//!
//! # What always holds
//! - The number of events that are kept is bounded; a caller that was too slow is told how many it has missed.
//! - [`Session::each`] copies one event at a time; [`Session::run`] collects all that are kept.
//!
//! Classes and their pairs: docs/on-disk/33-cli.md, section 17.

use crate::Session;
use crate::change::check_pool_name;
use crate::verbs::{Code, Reason, Refused, Right, Streamed, Verb, collect};
use ::pool::events::EventRing;
use format::nvlist::NvList;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Duration;

/// Events to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Only the events of this pool; it need not exist.
    pub pool: Option<String>,
    /// Only events after the one with this number; 0: all that are kept.
    pub after: u64,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Number of the newest event, of any pool, that was looked at; that of the request, if there was none.
    pub last: u64,
    /// How many events between that of the request and the first that is kept were lost, or not kept because there were
    /// too many of a kind.
    pub lost: u64,
}

/// A part of what was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// [`Answer::lost`], before the events, unless it is 0.
    Lost(u64),
    /// An event.
    Event(Event),
    /// [`Answer::last`], after the events.
    Last(u64),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: one more than that of the event before, from 1.
    pub id: u64,
    /// When, since 1970.
    pub time: Duration,
    /// Its class, such as `sysevent.fs.zfs.pool_import`.
    pub class: String,
    /// All that is known of it, class, time and number included.
    pub pairs: NvList,
}

/// Why no events are read, or none forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may not read events.
    #[error("{0}")]
    Denied(Reason),
    /// A name that no pool can have.
    #[error("invalid pool name '{name}'")]
    Name {
        /// The name.
        name: String,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) => reason.clone(),
            Refusal::Name { .. } => Reason::new(Code::Name, self),
        }
    }
}

impl Request {
    /// Checks the name of the pool.
    ///
    /// # Errors
    /// [`Refusal::Name`].
    pub fn check(&self) -> Result<(), Refusal> {
        match self.pool.as_ref().filter(|name| check_pool_name(name).is_err()) {
            Some(name) => Err(Refusal::Name { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Waits until there is an event after the one with this number, of any pool, but no longer than `time`. True: there is
/// one.
pub fn wait_after(id: u64, time: Duration) -> bool {
    EventRing::process().wait_after(id, time)
}

impl Verb for Request {
    const NAME: &'static str = "zpool events";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut answer = Answer { events: Vec::new(), last: self.after, lost: 0 };
        for item in collect(self, session)? {
            match item {
                Item::Lost(lost) => answer.lost = lost,
                Item::Event(event) => answer.events.push(event),
                Item::Last(last) => answer.last = last,
            }
        }
        Ok(answer)
    }
}

impl Streamed for Request {
    type Item = Item;

    fn each(
        &self,
        _: &mut Session<'_>,
        sink: &mut dyn FnMut(Item) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        self.check()?;
        let batch = EventRing::process().after(self.after);
        let is_wanted = |pool: Option<&str>| self.pool.is_none() || self.pool.as_deref() == pool;
        let lost = (batch.lost > 0).then_some(Item::Lost(batch.lost));
        let events = batch.events.iter().filter(|event| is_wanted(event.pool())).map(|event| {
            let (class, pairs) = (event.class().to_owned(), event.payload.clone());
            Item::Event(Event { id: event.id, time: event.time, class, pairs })
        });
        let last = Item::Last(batch.events.last().map_or(self.after, |event| event.id));
        // A sink that breaks off has all that it wants.
        let _ = lost.into_iter().chain(events).chain([last]).try_for_each(sink);
        Ok(())
    }
}

/// Forgetting all events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClearRequest {}

/// What was forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    /// Number of events.
    pub events: usize,
}

/// Why no events were forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ClearRefusal {
    /// The caller is no administrator.
    #[error("cannot clear events: {0}")]
    Denied(Reason),
}

from_denied!(ClearRefusal, ClearRefusal::Denied);

impl Refused for ClearRefusal {
    fn reason(&self) -> Reason {
        let ClearRefusal::Denied(reason) = self;
        reason.clone()
    }
}

impl Verb for ClearRequest {
    const NAME: &'static str = "zpool events -c";
    const RIGHT: Right = Right::Administrator;
    type Answer = Cleared;
    type Refusal = ClearRefusal;

    fn run(&self, _: &mut Session<'_>) -> Result<Cleared, ClearRefusal> {
        Ok(Cleared { events: EventRing::process().clear() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;
    use crate::{Caller, Search};

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { pool: Some("tank".into()), after: 7 });
        let mut pairs = NvList::new();
        pairs.push("class", "sysevent.fs.zfs.pool_create");
        pairs.push("eid", u64::MAX);
        let event =
            Event { id: 1, time: Duration::new(7, 9), class: "sysevent.fs.zfs.pool_create".into(), pairs };
        carried(&Answer { events: vec![event], last: 1, lost: 3 });
        let refusal = carried(&Request { pool: Some("4x".into()), after: 0 }.check().expect_err("a digit"));
        assert_eq!(refusal.to_string(), "invalid pool name '4x'");
    }

    #[test]
    fn only_the_administrator_forgets() {
        let caller = Some(Caller { uid: 54321, gid: 54321, groups: Vec::new() });
        let mut session = Session::new(Search { caller, ..Search::default() });
        let refusal = session.run(&ClearRequest {}).expect_err("it is nobody's own process");
        assert_eq!(refusal.to_string(), "cannot clear events: permission denied");
        assert!(session.run(&Request::default()).is_ok());
    }
}
