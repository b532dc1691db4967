//! Runs over simulated sides: each fails at every step in turn, and the next run makes it whole.

use super::pipe::Flow;
use super::plan::{Refusal, is_own, tag};
use super::policy::{Destroyed, Policy, SOURCE};
use super::run::{Event, Run, RunError};
use super::side::{Dataset, Done, Point, Side, SideError, Stream, Style, Target, drop_inherited};
use super::state::State;
use crate::replicate::keep::Keep;
use std::collections::BTreeSet;
use std::io::{PipeReader, Read, Write};
use std::sync::{Mutex, MutexGuard};
use vdev::sync::lock;

/// A side in memory. A stream is a line: the names and guids of start and snapshot.
#[derive(Default)]
struct Fake {
    state: Mutex<World>,
}

#[derive(Default, Clone)]
struct World {
    datasets: Vec<Dataset>,
    txg: u64,
    guid: u64,
    /// Requests until one fails; `None`: all succeed.
    fuse: Option<u64>,
    /// A receive that fails leaves a token.
    leaves_token: bool,
    /// The contents of all datasets are encrypted.
    is_encrypted: bool,
    /// Properties that were set, to see that a dataset is marked before it has snapshots.
    requests: u64,
}

impl Fake {
    fn new(seed: u64) -> Fake {
        let world = World { guid: seed << 32, ..World::default() };
        Fake { state: Mutex::new(world) }
    }

    /// The world, if the next request is to succeed. One that fails has done nothing (`before`) or all.
    fn request(&self) -> Done<MutexGuard<'_, World>> {
        let mut world = lock(&self.state);
        world.requests += 1;
        match &mut world.fuse {
            Some(0) => Err(refused("the fuse")),
            Some(left) => {
                *left -= 1;
                Ok(world)
            }
            None => Ok(world),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.state)
    }
}

fn refused(message: &str) -> SideError {
    SideError::Refused { at: "fake".to_owned(), message: message.to_owned() }
}

impl World {
    fn create(&mut self, name: &str) {
        self.guid += 1;
        let guid = self.guid;
        self.datasets.push(Dataset { name: name.to_owned(), guid, ..Dataset::default() });
        self.datasets.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn dataset(&mut self, name: &str) -> Done<&mut Dataset> {
        self.datasets.iter_mut().find(|known| known.name == name).ok_or_else(|| refused("no dataset"))
    }

    fn point(&mut self, full: &str) -> Done<&mut Point> {
        let (dataset, name) = full.split_once('@').ok_or_else(|| refused("no snapshot"))?;
        let snapshots = &mut self.dataset(dataset)?.snapshots;
        snapshots.iter_mut().find(|point| point.name == name).ok_or_else(|| refused("no snapshot"))
    }

    fn snapshot(&mut self, full: &str, time: u64) {
        let (dataset, name) = full.split_once('@').expect("a snapshot");
        self.txg += 1;
        self.guid += 1;
        let (guid, createtxg) = (self.guid, self.txg);
        let point = Point { name: name.to_owned(), guid, createtxg, creation: time, holds: Vec::new() };
        self.dataset(dataset).expect("a dataset").snapshots.push(point);
    }
}

/// The clock of the simulation: snapshots get it from their names.
fn time_of(name: &str) -> u64 {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

impl Side for Fake {
    fn describe(&self) -> String {
        "fake".to_owned()
    }

    fn list(&self, root: &str, recursive: bool) -> Done<Vec<Dataset>> {
        let world = self.request()?;
        let is_below = |name: &str| {
            name == root || recursive && name.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut found: Vec<Dataset> = world.datasets.iter().filter(|d| is_below(&d.name)).cloned().collect();
        drop_inherited(&mut found);
        Ok(found)
    }

    fn snapshot(&self, names: &[String]) -> Done {
        let mut world = self.request()?;
        names.iter().for_each(|name| world.snapshot(name, time_of(name)));
        Ok(())
    }

    fn send(&self, stream: &Stream, _: Style, out: &mut dyn Write) -> Done {
        let mut world = self.request()?;
        let line = match stream {
            Stream::Rest { token } => token_line(token).ok_or_else(|| refused("a token"))?,
            Stream::Of { dataset, to: (to, _), from } => {
                let start = from.as_ref().map_or(0, |(_, guid)| *guid);
                let found = world.dataset(dataset)?;
                let is_there = |point: &Point| point.guid == start;
                let points = found.snapshots.iter().chain(&found.bookmarks);
                if start != 0 && !points.clone().any(is_there) {
                    return Err(refused("no start"));
                }
                let point = found.snapshots.iter().find(|point| point.name == *to);
                let point = point.ok_or_else(|| refused("no snapshot"))?;
                format!("{start} {} {} {}", point.guid, point.creation, point.name)
            }
        };
        drop(world);
        out.write_all(line.as_bytes()).map_err(|source| SideError::Io { what: "stream".into(), source })
    }

    fn receive(&self, target: &Target, mut input: PipeReader) -> Done {
        let mut line = String::new();
        input.read_to_string(&mut line).map_err(|source| SideError::Io { what: "stream".into(), source })?;
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        let [start, guid, creation, name] = parts[..] else { return Err(refused("incomplete stream")) };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (start, guid, creation) = (number(start), number(guid), number(creation));
        let source = target.set.iter().find(|(name, _)| name == SOURCE).map(|(_, value)| number(value));
        let is_cut = self.request().is_err();
        let mut world = self.world();
        if is_cut {
            if world.leaves_token {
                if world.dataset(&target.dataset).is_err() {
                    world.create(&target.dataset);
                    world.dataset(&target.dataset)?.source = source;
                }
                world.dataset(&target.dataset)?.token = Some(token_of(&line, guid));
            }
            return Err(refused("cut"));
        }
        if start == 0 {
            let is_new = world.dataset(&target.dataset).is_err();
            let is_rest =
                world.dataset(&target.dataset).is_ok_and(|d| d.token.is_some() && d.snapshots.is_empty());
            assert!(is_new || is_rest || target.rollback, "a full stream into what exists");
            if is_new {
                world.create(&target.dataset);
            }
        }
        world.txg += 1;
        let createtxg = world.txg;
        let dataset = world.dataset(&target.dataset)?;
        if source.is_some() {
            dataset.source = source;
        }
        if start != 0 {
            let at = dataset.snapshots.iter().position(|point| point.guid == start);
            let at = at.ok_or_else(|| refused("no start here"))?;
            if at + 1 < dataset.snapshots.len() && !target.rollback {
                return Err(refused("modified"));
            }
            dataset.snapshots.truncate(at + 1);
        }
        dataset.token = None;
        dataset.snapshots.push(Point { name: name.to_owned(), guid, createtxg, creation, holds: Vec::new() });
        Ok(())
    }

    fn abort(&self, dataset: &str) -> Done {
        let mut world = self.request()?;
        let found = world.dataset(dataset)?;
        found.token = None;
        if found.snapshots.is_empty() {
            world.datasets.retain(|known| known.name != dataset);
        }
        Ok(())
    }

    fn destroy_snapshots(&self, dataset: &str, names: &[String]) -> Done {
        let mut world = self.request()?;
        for name in names {
            let point = world.point(&format!("{dataset}@{name}"))?;
            assert!(point.holds.is_empty(), "a held snapshot is destroyed");
        }
        world.dataset(dataset)?.snapshots.retain(|point| !names.contains(&point.name));
        Ok(())
    }

    fn destroy_bookmark(&self, name: &str) -> Done {
        let mut world = self.request()?;
        let (dataset, name) = name.split_once('#').expect("a bookmark");
        world.dataset(dataset)?.bookmarks.retain(|point| point.name != name);
        Ok(())
    }

    fn destroy_dataset(&self, name: &str) -> Done {
        let mut world = self.request()?;
        world.datasets.retain(|known| super::tree::target_of(&known.name, name, name).is_none());
        Ok(())
    }

    fn hold(&self, snapshot: &str, tag: &str) -> Done {
        self.request()?.point(snapshot)?.holds.push(tag.to_owned());
        Ok(())
    }

    fn release(&self, snapshot: &str, tag: &str) -> Done {
        self.request()?.point(snapshot)?.holds.retain(|held| held != tag);
        Ok(())
    }

    fn bookmark(&self, snapshot: &str, bookmark: &str) -> Done {
        let mut world = self.request()?;
        let point = world.point(snapshot)?.clone();
        let (dataset, name) = bookmark.split_once('#').expect("a bookmark");
        world.dataset(dataset)?.bookmarks.push(Point { name: name.to_owned(), ..point });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Done {
        let mut world = self.request()?;
        for dataset in &mut world.datasets {
            if let Some(new) = super::tree::target_of(&dataset.name, from, to) {
                dataset.name = new;
            }
        }
        world.datasets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    fn set(&self, _: &str, _: &str, _: &str) -> Done {
        Ok(())
    }

    fn is_encrypted(&self, _: &str) -> Done<bool> {
        Ok(self.request()?.is_encrypted)
    }
}

/// A real token, with the stream in the place of a name.
fn token_of(line: &str, guid: u64) -> String {
    let mut list = format::NvList::new();
    list.push("toguid", guid);
    list.push("toname", line);
    stream::ResumeToken { list }.to_string()
}

fn token_line(token: &str) -> Option<String> {
    let token = stream::ResumeToken::parse(token).ok()?;
    token.list.str("toname").map(str::to_owned)
}

const NAME: &str = "sim";

fn policy() -> Policy {
    Policy {
        recursive: true,
        keep_source: Keep::Counts(super::keep::Counts { last: 2, ..Default::default() }),
        keep_target: Keep::Counts(super::keep::Counts { last: 3, ..Default::default() }),
        ..Policy::new("t/a".parse().expect("a place"), "v/a".parse().expect("a place"))
    }
}

fn run(policy: &Policy, source: &Fake, target: &Fake, now: u64) -> super::Outcome {
    let flow = Flow::default();
    let on = |_: Event| {};
    let (dry_run, verify) = (false, false);
    Run { name: NAME, policy, source, target, dry_run, verify, now, flow: &flow, on: &on }.run()
}

/// Both sides as they are, for the messages of failed checks.
fn shown(source: &Fake, target: &Fake) -> String {
    let of = |fake: &Fake| fake.world().datasets.iter().map(|d| format!("{d:?}\n")).collect::<String>();
    format!("source:\n{}target:\n{}", of(source), of(target))
}

/// Every copy has a snapshot from which an increment is possible, which is guarded at both sides.
fn check_invariants(source: &Fake, target: &Fake, has_succeeded: bool) {
    let text = shown(source, target);
    let (source, target) = (source.world().clone(), target.world().clone());
    for copy in target.datasets.iter().filter(|copy| !copy.snapshots.is_empty()) {
        let Some(original) = source.datasets.iter().find(|d| Some(d.guid) == copy.source) else { continue };
        let common = copy.snapshots.iter().rev().find(|point| {
            let mut points = original.snapshots.iter().chain(&original.bookmarks);
            points.any(|known| known.guid == point.guid)
        });
        let common = common.unwrap_or_else(|| panic!("{}: nothing in common\n{text}", copy.name));
        if has_succeeded {
            assert!(original.bookmarks.iter().any(|mark| mark.guid == common.guid), "no bookmark\n{text}");
            assert!(common.holds.contains(&tag(NAME)), "no hold\n{text}");
            assert_eq!(
                copy.snapshots.last().map(|p| p.guid),
                original.snapshots.last().map(|p| p.guid),
                "{text}"
            );
            assert!(copy.snapshots.len() <= 4 && original.snapshots.len() <= 4, "not pruned\n{text}");
        }
    }
}

/// A source with three datasets, and a target without any.
fn sides() -> (Fake, Fake) {
    let (source, target) = (Fake::new(1), Fake::new(2));
    for name in ["t/a", "t/a/b", "t/a/b/c"] {
        source.world().create(name);
    }
    target.world().create("v");
    (source, target)
}

/// A target that says of itself that it has received a part of the stream that this token continues.
fn begun(source: &Fake, target: &Fake, marked: bool, raw: bool) -> String {
    source.world().snapshot("t/a@cenote_sim_1", 1);
    let (original, guid) = {
        let mut world = source.world();
        let dataset = world.dataset("t/a").expect("there");
        (dataset.guid, dataset.snapshots[0].guid)
    };
    let mut list = format::NvList::new();
    list.push("toguid", guid);
    list.push("toname", "t/a@cenote_sim_1");
    if raw {
        list.push("rawok", format::NvValue::Boolean);
    }
    let token = stream::ResumeToken { list }.to_string();
    target.world().create("v/a");
    let mut world = target.world();
    let copy = world.dataset("v/a").expect("there");
    (copy.token, copy.source) = (Some(token.clone()), marked.then_some(original));
    token
}

#[test]
fn a_token_does_not_make_the_source_decrypt() {
    for (is_encrypted, wants_raw, is_raw, is_refused) in [
        (true, true, false, true),
        (true, true, true, false),
        (true, false, false, false),
        (false, true, false, false),
    ] {
        let (source, target) = sides();
        source.world().is_encrypted = is_encrypted;
        begun(&source, &target, true, is_raw);
        let outcome = run(&Policy { raw: wants_raw, ..policy() }, &source, &target, 7);
        let is_decrypted = |result: &Result<_, RunError>| {
            matches!(result, Err(RunError::Refused(Refusal::Decrypted { .. })))
        };
        assert_eq!(outcome.datasets.get("t/a").is_some_and(is_decrypted), is_refused);
        let copy = target.list("v/a", false).expect("a list");
        assert!(!is_refused || copy.iter().all(|copy| copy.token.is_none()), "it is discarded");
    }
}

#[test]
fn what_others_have_begun_to_receive_is_not_discarded() {
    let (source, target) = sides();
    begun(&source, &target, false, false);
    // Its snapshot is none of this source.
    let token = {
        let mut list = format::NvList::new();
        list.push("toguid", 4711_u64);
        stream::ResumeToken { list }.to_string()
    };
    target.world().dataset("v/a").expect("there").token = Some(token.clone());
    let outcome = run(&policy(), &source, &target, 7);
    let is_foreign =
        |result: &Result<_, RunError>| matches!(result, Err(RunError::Refused(Refusal::Foreign { .. })));
    assert!(outcome.datasets.get("t/a").is_some_and(is_foreign), "{:?}", outcome.datasets);
    assert_eq!(target.list("v/a", false).expect("a list")[0].token, Some(token));
}

#[test]
fn a_failure_at_any_request_is_made_good_by_the_next_run() {
    for leaves_token in [false, true] {
        for which in 0..2 {
            for fuse in 0.. {
                let (source, target) = sides();
                let policy = policy();
                target.world().leaves_token = leaves_token;
                assert!(run(&policy, &source, &target, 1_000_000).is_good());
                for round in 1..4 {
                    assert!(run(&policy, &source, &target, 1_000_000 + round).is_good());
                }
                let failing = if which == 0 { &source } else { &target };
                failing.world().fuse = Some(fuse);
                let outcome = run(&policy, &source, &target, 2_000_000);
                failing.world().fuse = None;
                check_invariants(&source, &target, false);
                let next = run(&policy, &source, &target, 2_000_001);
                assert!(next.is_good(), "fuse {fuse}: {next:?}\n{}", shown(&source, &target));
                check_invariants(&source, &target, true);
                if outcome.is_good() {
                    break;
                }
                assert!(fuse < 200, "it never succeeds");
            }
        }
    }
}

#[test]
fn a_failure_of_the_first_run_is_made_good() {
    for leaves_token in [false, true] {
        for fuse in 0.. {
            let (source, target) = sides();
            let mut state = State::default();
            target.world().leaves_token = leaves_token;
            target.world().fuse = Some(fuse);
            let outcome = run(&policy(), &source, &target, 1_000_000);
            outcome.add_to(&mut state, 1_000_001, 0);
            assert_eq!(state.has_failed(), !outcome.is_good());
            target.world().fuse = None;
            let next = run(&policy(), &source, &target, 1_000_002);
            assert!(next.is_good(), "fuse {fuse}: {next:?}\n{}", shown(&source, &target));
            check_invariants(&source, &target, true);
            if outcome.is_good() {
                break;
            }
        }
    }
}

/// A small generator of numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn random_changes_and_failures_leave_copies_that_can_be_continued() {
    for seed in 0..60 {
        let (source, target) = sides();
        let mut random = Random(seed);
        let policy = Policy { destroyed: Destroyed::Destroy, parallel: 2, ..policy() };
        for round in 0..12 {
            let now = 1_000_000 + round * 10;
            change(&source, &mut random, round);
            let failing = if random.below(2) == 0 { &source } else { &target };
            target.world().leaves_token = random.below(2) == 0;
            failing.world().fuse = (random.below(3) == 0).then(|| random.below(30));
            run(&policy, &source, &target, now);
            failing.world().fuse = None;
            check_invariants(&source, &target, false);
        }
        let last = run(&policy, &source, &target, 3_000_000);
        assert!(last.is_good(), "seed {seed}: {last:?}\n{}", shown(&source, &target));
        check_invariants(&source, &target, true);
        let names = |fake: &Fake, root: &str| -> BTreeSet<String> {
            let world = fake.world();
            world.datasets.iter().filter_map(|d| d.name.strip_prefix(root).map(str::to_owned)).collect()
        };
        assert_eq!(names(&source, "t/a"), names(&target, "v/a"), "seed {seed}");
    }
}

/// Something that users do with the source.
fn change(source: &Fake, random: &mut Random, round: u64) {
    let mut world = source.world();
    match random.below(5) {
        0 => world.create(&format!("t/a/n{round}")),
        1 => {
            let from = world.datasets.iter().find(|d| d.name.starts_with("t/a/n")).map(|d| d.name.clone());
            let to = format!("t/a/b/r{round}");
            let has_parent = world.datasets.iter().any(|d| d.name == "t/a/b");
            if let Some(dataset) = from.filter(|_| has_parent).and_then(|name| world.dataset(&name).ok()) {
                dataset.name = to;
            }
            world.datasets.sort_by(|a, b| a.name.cmp(&b.name));
        }
        2 => world.datasets.retain(|d| !d.name.starts_with("t/a/b/r")),
        3 => {
            // The user destroys all snapshots up to the one that is bookmarked.
            for dataset in &mut world.datasets {
                let marked = dataset.bookmarks.last().map_or(0, |mark| mark.createtxg);
                dataset.snapshots.retain(|point| point.createtxg > marked);
            }
        }
        _ => {}
    }
}

#[test]
fn what_cannot_be_continued_says_what_to_do() {
    let (source, target) = sides();
    let policy = Policy { recursive: false, ..policy() };
    assert!(run(&policy, &source, &target, 1_000_000).is_good());
    // The target has a snapshot of its own.
    target.world().snapshot("v/a@mine", 1_000_001);
    let outcome = run(&policy, &source, &target, 1_000_002);
    let said = format!("{}", outcome.datasets["t/a"].as_ref().expect_err("refused"));
    assert!(said.contains("mine") && said.contains("force = true"), "{said}");
    let forced = Policy { force: true, ..policy.clone() };
    assert!(run(&forced, &source, &target, 1_000_003).is_good());
    assert!(target.world().point("v/a@mine").is_err());
    // Snapshots and bookmarks of the source are gone.
    source.world().datasets.iter_mut().for_each(|d| {
        d.snapshots.clear();
        d.bookmarks.clear();
    });
    let before = target.world().datasets.clone();
    let outcome = run(&policy, &source, &target, 1_000_004);
    let said = format!("{}", outcome.datasets["t/a"].as_ref().expect_err("refused"));
    assert!(said.contains("zfs rename v/a v/a.old"), "{said}");
    assert_eq!(target.world().datasets, before);
    // A dataset that is not a copy.
    target.world().dataset("v/a").expect("there").source = None;
    let outcome = run(&policy, &source, &target, 1_000_005);
    let said = format!("{}", outcome.datasets["t/a"].as_ref().expect_err("refused"));
    assert!(said.contains("not a copy"), "{said}");
    // The source is gone: nothing is destroyed.
    source.world().datasets.clear();
    let outcome = run(
        &Policy { destroyed: Destroyed::Destroy, recursive: true, ..policy },
        &source,
        &target,
        1_000_006,
    );
    assert!(outcome.error.is_some());
    let own = target
        .world()
        .datasets
        .iter()
        .flat_map(|d| d.snapshots.clone())
        .filter(|p| is_own(NAME, &p.name))
        .count();
    assert!(own > 0);
}
