//! Events of the pools of this process: the ring behind `zpool events` (docs/on-disk/33-cli.md, section 17).
//!
//! A pool posts through its `Poster`; readers use [`EventRing::process`]. The ring is global to the
//! process, because `zpool events` numbers the events of all pools in one sequence, which a follower keeps
//! reading while pools are imported and exported; events of imports are posted before the pool exists. Tests
//! create rings of their own.
//!
//! # What always holds
//! - The ring has a maximum length, and posting never waits for readers. A reader that was too slow learns
//!   how many events it has missed.
//! - The rate of error reports of one vdev and kind is limited; the others are counted.
//! - Posting needs no lock of a pool: any layer may post at any time.
//!
//! Order of locks: none is taken while the ring's own is held.

use format::nvlist::{NvList, NvValue};
use format::units::LABEL_START;
use format::{PoolGuid, VdevGuid};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use vdev::VdevTree;
use vdev::env::Env;
use vdev::sync::lock;
use vdev::tree::{Aux, Fault, FaultKind, FaultListener, Op, VdevState, VdevStatus};
use vdev::tunable::Tunable;

/// Number of events that are kept while [`ZEVENT_LEN_MAX`] is 0.
pub(crate) const LEN_MAX: usize = 512;
/// Number of events that are kept; 0: the default, `LEN_MAX`.
pub static ZEVENT_LEN_MAX: Tunable = Tunable::new("zfs_zevent_len_max", 0, 0, 1 << 20);
/// Checksum error reports of one vdev that are accepted in a second.
pub static CHECKSUM_EVENTS_PER_SECOND: Tunable =
    Tunable::new("zfs_checksum_events_per_second", 20, 0, 1 << 20);
/// Reports of every other kind of one vdev that are accepted in a second.
const REPORTS_PER_SECOND: u64 = 20;
/// Most vdevs and kinds whose rates are tracked. Beyond that all rates are reset.
const PACES_MAX: usize = 4096;

/// An event of a pool or of one of its vdevs.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number of the event, counted from 1.
    pub id: u64,
    /// Wall-clock time since the Unix epoch.
    pub time: Duration,
    /// Facts about the event, `class`, `time` and `eid` included.
    pub payload: NvList,
}

impl Event {
    /// Class of the event, such as `sysevent.fs.zfs.pool_import`.
    pub fn class(&self) -> &str {
        self.payload.str("class").unwrap_or_default()
    }

    /// Name of the pool that the event is about.
    pub fn pool(&self) -> Option<&str> {
        self.payload.str("pool")
    }
}

/// Events for a reader, and how many it has missed.
#[derive(Debug, Default)]
pub struct Batch {
    /// The events, oldest first.
    pub events: Vec<Arc<Event>>,
    /// Number of events missing before these: no longer kept, or not accepted because of the rate limit.
    pub lost: u64,
}

/// A ring of the newest events.
pub struct EventRing {
    state: Mutex<Ring>,
    posted: Condvar,
    /// Number of events that are kept by this ring; `None`: as [`ZEVENT_LEN_MAX`] says.
    own_len_max: Option<usize>,
}

struct Ring {
    events: VecDeque<Arc<Event>>,
    /// Number of the newest event.
    last: u64,
    /// Number of refused events since a reader was last told.
    refused: u64,
    /// Number of refused events in all.
    dropped: u64,
    paces: HashMap<(VdevGuid, String), Pace>,
}

/// Number of reports in a second.
struct Pace {
    second: u64,
    count: u64,
}

impl Default for EventRing {
    fn default() -> EventRing {
        let events = VecDeque::new();
        let ring = Ring { events, last: 0, refused: 0, dropped: 0, paces: HashMap::new() };
        EventRing { state: Mutex::new(ring), posted: Condvar::new(), own_len_max: None }
    }
}

impl EventRing {
    /// The ring of this process.
    pub fn process() -> &'static EventRing {
        static RING: OnceLock<EventRing> = OnceLock::new();
        RING.get_or_init(EventRing::default)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Consistent between any two statements.
        lock(&self.state)
    }

    fn len_max(&self) -> usize {
        let said = self.own_len_max.unwrap_or(ZEVENT_LEN_MAX.get() as usize);
        if said == 0 { LEN_MAX } else { said }
    }

    /// Posts an event. Appends `time` and `eid` to the payload. Returns its number.
    pub(crate) fn post(&self, time: Duration, mut payload: NvList) -> u64 {
        let mut ring = self.ring();
        ring.last += 1;
        let id = ring.last;
        payload
            .push("time", NvValue::Int64Array(vec![time.as_secs() as i64, i64::from(time.subsec_nanos())]));
        payload.push("eid", id);
        ring.events.push_back(Arc::new(Event { id, time, payload }));
        ring.trim(self.len_max());
        drop(ring);
        self.posted.notify_all();
        id
    }

    /// The events after number `id` (0: all), and the number of missing ones. Refused events are reported to
    /// the first reader that asks.
    pub fn after(&self, id: u64) -> Batch {
        let mut ring = self.ring();
        let first = ring.events.front().map_or(ring.last + 1, |event| event.id);
        let gap = if id == 0 { 0 } else { first.saturating_sub(id + 1) };
        let lost = gap + std::mem::take(&mut ring.refused);
        Batch { events: ring.events.iter().filter(|event| event.id > id).cloned().collect(), lost }
    }

    /// Waits until there is an event after number `id`, at most for `time`. Returns whether there is one.
    pub fn wait_after(&self, id: u64, time: Duration) -> bool {
        let ring = self.ring();
        let waited = self
            .posted
            .wait_timeout_while(ring, time, |ring| ring.events.back().is_none_or(|event| event.id <= id));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Number of reports that were refused because of the rate limit.
    pub fn dropped(&self) -> u64 {
        self.ring().dropped
    }

    /// Removes all events. Returns their number.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.ring().events).len()
    }

    /// Counts a report of this kind about a vdev, and returns whether it is accepted.
    fn admits(&self, vdev: VdevGuid, kind: &str, now: Duration) -> bool {
        let mut ring = self.ring();
        if ring.paces.len() >= PACES_MAX {
            ring.paces.clear();
        }
        let second = now.as_secs();
        let pace = ring.paces.entry((vdev, kind.to_owned())).or_insert(Pace { second, count: 0 });
        if pace.second != second {
            *pace = Pace { second, count: 0 };
        }
        pace.count = pace.count.saturating_add(1);
        let most = if kind == "checksum" { CHECKSUM_EVENTS_PER_SECOND.get() } else { REPORTS_PER_SECOND };
        let is_admitted = pace.count <= most;
        ring.refused += u64::from(!is_admitted);
        ring.dropped += u64::from(!is_admitted);
        is_admitted
    }
}

impl Ring {
    fn trim(&mut self, len_max: usize) {
        while self.events.len() > len_max {
            self.events.pop_front();
        }
    }
}

impl std::fmt::Debug for EventRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ring = self.ring();
        write!(f, "EventRing({} events, last {})", ring.events.len(), ring.last)
    }
}

/// State of the pool as a whole when an event is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Context {
    /// The pool is open.
    Open = 0,
    /// The pool is being imported.
    Import = 2,
    /// The pool is being created.
    Create = 6,
}

/// Posts the events of one pool.
#[derive(Debug)]
pub(crate) struct Poster {
    env: Env,
    pool: String,
    guid: PoolGuid,
    context: AtomicU64,
}

impl Poster {
    pub(crate) fn new(env: &Env, pool: &str, guid: PoolGuid, context: Context) -> Arc<Poster> {
        let (env, pool) = (env.clone(), pool.to_owned());
        Arc::new(Poster { env, pool, guid, context: AtomicU64::new(context as u64) })
    }

    /// Sets the state of the pool for the events that follow.
    pub(crate) fn set_context(&self, context: Context) {
        self.context.store(context as u64, Ordering::Relaxed);
    }

    /// Posts a system event, `sysevent.fs.zfs.NAME`, with additional facts.
    pub(crate) fn sysevent(&self, name: &str, extra: NvList) {
        self.post("sysevent", name, 0, extra);
    }

    /// Posts that a pool was closed: 1: exported, 2: destroyed; 0: it is open.
    pub(crate) fn left(&self, name: &str, state: u64) {
        self.post("sysevent", name, state, NvList::new());
    }

    /// Posts a system event about a vdev.
    pub(crate) fn vdev_sysevent(&self, name: &str, tree: &VdevTree, vdev: VdevGuid) {
        let status = tree.status();
        let Some(status) = status.find(vdev) else { return };
        let mut extra = NvList::new();
        push_state(&mut extra, status);
        self.post("sysevent", name, 0, extra);
    }

    /// Posts a change of a vdev's state: `resource.fs.zfs.statechange`. The tree has the new state.
    pub(crate) fn state_change(&self, tree: &VdevTree, vdev: VdevGuid, before: VdevState) {
        let status = tree.status();
        let Some(status) = status.find(vdev) else { return };
        let mut extra = NvList::new();
        push_state(&mut extra, status);
        extra.push("vdev_laststate", state_number(before));
        self.post("resource", "statechange", 0, extra);
    }

    /// Posts the problems of the vdevs of a pool that is being opened.
    pub(crate) fn opened(&self, tree: &VdevTree) {
        for vdev in tree.status().walk() {
            if let Some(class) = trouble(vdev) {
                self.ereport(class, tree, Some(vdev.guid), NvList::new());
            }
        }
    }

    /// Posts the changes of states of vdevs between two trees of the pool.
    pub(crate) fn tree_changed(&self, old: &VdevTree, new: &VdevTree) {
        let (before, now) = (old.status(), new.status());
        for vdev in now.walk() {
            let last = before.find(vdev.guid).map(|before| before.state);
            if let (Some(class), Some(last)) = (trouble(vdev), last.filter(|last| *last != vdev.state)) {
                let mut extra = NvList::new();
                extra.push("prev_state", state_number(last));
                self.ereport(class, new, Some(vdev.guid), extra);
            }
        }
        let mut is_changed = false;
        for leaf in now.walk().into_iter().filter(|vdev| vdev.kind.is_leaf()) {
            let Some(before) = before.find(leaf.guid).filter(|before| before.state != leaf.state) else {
                continue;
            };
            self.state_change(new, leaf.guid, before.state);
            is_changed = true;
        }
        if is_changed {
            self.sysevent("config_sync", NvList::new());
        }
    }

    /// Posts an error report, `ereport.fs.zfs.NAME`, subject to the rate limit of its kind and vdev.
    pub(crate) fn ereport(&self, name: &str, tree: &VdevTree, vdev: Option<VdevGuid>, extra: NvList) {
        let ring = EventRing::process();
        let now = self.env.clock().wall();
        if !ring.admits(vdev.unwrap_or(VdevGuid(self.guid.0)), name, now) {
            return;
        }
        let mut payload = NvList::new();
        payload.push("class", format!("ereport.fs.zfs.{name}"));
        // Identifies the events of one failure: here each event has its own.
        payload.push("ena", (now.as_nanos() as u64) << 4 | 1);
        payload.push("detector", self.detector(vdev));
        self.push_pool(&mut payload, 0);
        payload.push("pool_failmode", "wait");
        if let Some(vdev) = vdev {
            push_vdev(&mut payload, tree, vdev);
        }
        payload.append(extra);
        ring.post(now, payload);
    }

    fn detector(&self, vdev: Option<VdevGuid>) -> NvList {
        let mut detector = NvList::new();
        detector.push("version", NvValue::Uint8(0));
        detector.push("scheme", "zfs");
        detector.push("pool", self.guid.0);
        if let Some(vdev) = vdev {
            detector.push("vdev", vdev.0);
        }
        detector
    }

    fn push_pool(&self, payload: &mut NvList, state: u64) {
        payload.push("pool", self.pool.as_str());
        payload.push("pool_guid", self.guid.0);
        payload.push("pool_state", NvValue::Int32(state as i32));
        payload.push("pool_context", NvValue::Int32(self.context.load(Ordering::Relaxed) as i32));
    }

    fn post(&self, group: &str, name: &str, state: u64, extra: NvList) {
        let mut payload = NvList::new();
        payload.push("version", NvValue::Uint8(0));
        payload.push("class", format!("{group}.fs.zfs.{name}"));
        self.push_pool(&mut payload, state);
        payload.append(extra);
        EventRing::process().post(self.env.clock().wall(), payload);
    }
}

impl FaultListener for Poster {
    fn fault(&self, tree: &VdevTree, op: Op, fault: &Fault, bytes: u64) {
        let (name, errno) = match fault.kind {
            FaultKind::Checksum => ("checksum", 52),
            FaultKind::Io => ("io", 5),
            FaultKind::Missing => return,
        };
        let mut extra = NvList::new();
        extra.push("zio_err", NvValue::Int32(errno));
        extra.push("zio_priority", NvValue::Int32(if op == Op::Read { 0 } else { 3 }));
        extra.push("zio_offset", fault.offset.0.saturating_sub(LABEL_START));
        extra.push("zio_size", bytes);
        self.ereport(name, tree, Some(fault.leaf), extra);
    }
}

/// The number of a state in events.
pub(crate) fn state_number(state: VdevState) -> u64 {
    match state {
        VdevState::Offline => 2,
        VdevState::Removed => 3,
        VdevState::Unavail => 4,
        VdevState::Faulted => 5,
        VdevState::Degraded => 6,
        VdevState::Online => 7,
    }
}

/// The name of the report for an unusable vdev, by the cause.
fn trouble(vdev: &VdevStatus) -> Option<&'static str> {
    if vdev.state != VdevState::Unavail {
        return None;
    }
    match vdev.aux {
        Aux::OpenFailed => Some("vdev.open_failed"),
        Aux::NoReplicas => Some("vdev.no_replicas"),
        Aux::TooSmall => Some("vdev.too_small"),
        Aux::CorruptData => Some("vdev.corrupt_data"),
        Aux::None | Aux::ErrExceeded | Aux::External | Aux::ChildrenOffline => None,
    }
}

fn push_state(payload: &mut NvList, status: &VdevStatus) {
    payload.push("vdev_guid", status.guid.0);
    payload.push("vdev_state", state_number(status.state));
    if let Some(path) = &status.path {
        payload.push("vdev_path", path.display().to_string());
    }
}

/// Adds the facts about the vdev that had an error.
fn push_vdev(payload: &mut NvList, tree: &VdevTree, vdev: VdevGuid) {
    let root = tree.status();
    let Some(status) = root.find(vdev) else { return };
    payload.push("vdev_guid", vdev.0);
    payload.push("vdev_type", status.kind.name());
    if let Some(path) = &status.path {
        payload.push("vdev_path", path.display().to_string());
    }
    let top = tree.tops().find(|(_, top)| top.walk().any(|node| node.guid == vdev));
    if let Some(ashift) = top.and_then(|(_, top)| top.ashift) {
        payload.push("vdev_ashift", u64::from(ashift.0));
    }
    payload.push("vdev_read_errors", status.read_errors);
    payload.push("vdev_write_errors", status.write_errors);
    payload.push("vdev_cksum_errors", status.checksum_errors);
    payload.push("vdev_delays", status.slow_ios);
    let is_parent = |parent: &&VdevStatus| parent.children.iter().any(|child| child.guid == vdev);
    if let Some(parent) = root.walk().into_iter().find(is_parent) {
        payload.push("parent_guid", parent.guid.0);
        payload.push("parent_type", parent.kind.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(class: &str) -> NvList {
        let mut list = NvList::new();
        list.push("class", class);
        list
    }

    #[test]
    fn numbers_go_on_and_old_ones_make_room() {
        let mut ring = EventRing::default();
        for i in 0..LEN_MAX as u64 + 10 {
            assert_eq!(ring.post(Duration::from_secs(i), event("a")), i + 1);
        }
        let all = ring.after(0);
        assert_eq!((all.events.len(), all.lost), (LEN_MAX, 0), "who comes first has missed nothing");
        assert_eq!(all.events[0].id, 11);
        let late = ring.after(3);
        assert_eq!((late.events.len(), late.lost), (LEN_MAX, 7));
        let newest = ring.after(LEN_MAX as u64 + 9);
        assert_eq!((newest.events.len(), newest.lost), (1, 0));
        assert_eq!(ring.clear(), LEN_MAX);
        assert_eq!(ring.clear(), 0);
        assert_eq!(ring.post(Duration::ZERO, event("b")), LEN_MAX as u64 + 11);
        ring.own_len_max = Some(2);
        for _ in 0..5 {
            ring.post(Duration::ZERO, event("c"));
        }
        assert_eq!(ring.after(0).events.len(), 2);
        assert_eq!(ring.after(0).events[0].class(), "c");
    }

    #[test]
    fn who_follows_waits_for_the_next() {
        let ring = Arc::new(EventRing::default());
        assert!(!ring.wait_after(0, Duration::ZERO));
        let id = ring.post(Duration::ZERO, event("a"));
        assert!(ring.wait_after(0, Duration::ZERO));
        let other = Arc::clone(&ring);
        let waiter = std::thread::spawn(move || other.wait_after(id, Duration::from_secs(60)));
        ring.post(Duration::ZERO, event("b"));
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn of_errors_only_so_many_a_second_are_taken() {
        let ring = EventRing::default();
        let at = Duration::from_secs(5);
        let taken = (0..100).filter(|_| ring.admits(VdevGuid(1), "checksum", at)).count();
        assert_eq!(taken, 20);
        assert!(ring.admits(VdevGuid(1), "io", at));
        assert!(ring.admits(VdevGuid(2), "checksum", at));
        assert!(ring.admits(VdevGuid(1), "checksum", at + Duration::from_secs(1)));
        assert_eq!(ring.after(0).lost, 80);
        assert_eq!(ring.after(0).lost, 0, "told once");
        assert_eq!(ring.dropped(), 80);
    }
}
