//! The verbs of `zpool` that read, in sessions over pools on devices and over a pool that is open.

use super::support::Images;
use cenote_admin::verbs::zpool::history::{Item, Record, What};
use cenote_admin::verbs::zpool::iostat::Selection;
use cenote_admin::verbs::zpool::{
    ReadRefusal, events, get, history, importable, iostat, list, status, upgradable, wait,
};
use cenote_admin::verbs::{Code, Refused};
use cenote_admin::{Caller, Class, Diagnosis, Health, Search, Session, Value};
use std::ops::ControlFlow;

const SIZE: u64 = 256 << 20;
/// A user who is not the administrator.
const JOE: u32 = 54321;

fn search(images: &Images) -> Search {
    Search { paths: vec![images.dir.path().to_owned()], ..Search::default() }
}

fn session(images: &Images) -> Session<'static> {
    Session::new(search(images))
}

/// A pool of a mirror and a log device, exported.
fn exported() -> Images {
    let images = Images::new();
    let pool = images.pool(SIZE, "mirror a b log c", &[]);
    pool.record("zpool create p").unwrap();
    pool.close().unwrap();
    images
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn lists_have_the_wanted_properties_and_name_what_is_missing() {
    let images = exported();
    let properties = words(&["name", "guid", "health", "alloc"]);
    let request = list::Request { pools: words(&["p", "nosuch"]), properties, vdevs: true };
    let answer = session(&images).run(&request).expect("readable");
    let [missing] = &answer.problems[..] else { panic!("{:?}", answer.problems) };
    assert_eq!((missing.what.as_str(), missing.reason.code), ("nosuch", Code::NoPool));
    let [pool] = &answer.pools[..] else { panic!("{:?}", answer.pools) };
    assert_eq!((pool.facts.name.as_str(), pool.facts.health), ("p", Health::Online));
    let names: Vec<&str> = pool.properties.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["name", "guid", "health", "allocated"]);
    assert_eq!(pool.properties[1].1.value, Value::Number(pool.facts.guid));
    let tops = &pool.vdevs.as_ref().expect("asked for").root.children;
    assert_eq!(tops.iter().map(|top| top.class).collect::<Vec<_>>(), [Class::Normal, Class::Log]);
    assert_eq!(tops[0].name(), "mirror-0");

    let unknown = list::Request { properties: words(&["nosuch"]), ..list::Request::default() };
    assert!(matches!(session(&images).run(&unknown), Err(ReadRefusal::Property { .. })));
    // A caller who may read, and a session that has the pool open.
    let caller = Some(Caller { uid: JOE, gid: JOE, groups: Vec::new() });
    let all = list::Request::default();
    let mut joe = Session::new(Search { caller, ..search(&images) });
    assert_eq!(joe.run(&all).expect("anyone's").pools.len(), 1);
    let pool = images.open_rw();
    assert_eq!(Session::over(&pool).run(&all).expect("open").pools.len(), 1);
    pool.close().unwrap();
}

#[test]
fn a_status_tells_what_is_wrong() {
    let images = exported();
    let status = |unhealthy_only| {
        let request = status::Request { pools: words(&["p"]), unhealthy_only };
        session(&images).run(&request).expect("readable")
    };
    let well = status(true);
    assert_eq!((well.pools.len(), well.healthy, well.problems.len()), (0, 1, 0));
    assert_eq!(status(false).pools[0].status.diagnosis, Diagnosis::Healthy);
    std::fs::remove_file(images.dir.path().join("b")).unwrap();
    let sick = status(true);
    assert_eq!((sick.pools.len(), sick.healthy), (1, 0));
    let status = &sick.pools[0].status;
    assert_eq!((&status.diagnosis, status.facts.health), (&Diagnosis::Missing, Health::Degraded));
}

#[test]
fn properties_are_of_pools_or_of_vdevs() {
    let images = exported();
    let get = |properties: &[&str], operands: &[&str]| {
        session(&images).run(&get::Request { properties: words(properties), operands: words(operands) })
    };
    let answer = get(&["all"], &["p"]).expect("readable");
    let get::Answer::Pools { pools, problems } = answer else { panic!("{answer:?}") };
    assert!(pools.len() == 1 && problems.is_empty());
    assert!(pools[0].properties.iter().any(|(name, _)| name == "feature@livelist"));
    let answer = get(&["parity"], &["p", "mirror-0"]).expect("readable");
    let get::Answer::Vdevs { pool, vdevs } = answer else { panic!("{answer:?}") };
    assert_eq!((pool.name.as_str(), vdevs.len(), vdevs[0].vdev.children.len()), ("p", 1, 2));
    let answer = get(&["path"], &["p", get::ALL_VDEVS]).expect("readable");
    let get::Answer::Vdevs { vdevs, .. } = answer else { panic!("{answer:?}") };
    // The root, the mirror with its sides, the log device.
    assert_eq!(vdevs.len(), 5);
    let answer = get(&["size"], &["p", "nosuch"]).expect("readable");
    let get::Answer::Pools { pools, problems } = answer else { panic!("{answer:?}") };
    assert_eq!((pools.len(), problems.len()), (1, 1));
    // Only vdevs have it, and this is none.
    let refusal = get(&["path"], &["p", "nosuch"]).expect_err("no property of pools");
    assert!(matches!(&refusal, ReadRefusal::Property { property, .. } if property == "path"));
    assert_eq!(refusal.problems().len(), 1);
    let refusal = get(&["path"], &["p", "mirror-0", "nosuch"]).expect_err("no such vdev");
    assert_eq!(refusal.to_string(), "no such vdev 'nosuch' in pool");
}

#[test]
fn a_history_is_read_record_by_record() {
    let images = exported();
    let request = |internal| history::Request { pools: words(&["p", "nosuch"]), internal };
    let answer = session(&images).run(&request(false)).expect("readable");
    assert_eq!(answer.problems.len(), 1);
    let [history] = &answer.pools[..] else { panic!("{:?}", answer.pools) };
    let [Record::Done { what: What::Command(command), time: Some(_), .. }] = &history.records[..] else {
        panic!("{:?}", history.records)
    };
    assert_eq!((history.pool.as_str(), command.as_str()), ("p", "zpool create p"));
    let all = session(&images).run(&request(true)).expect("readable");
    assert!(all.pools[0].records.len() > 1);
    let mut items = Vec::new();
    let read = session(&images).each(&request(true), &mut |item| {
        items.push(item);
        if items.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.expect("readable");
    let [Item::Problem(_), Item::Pool(pool), Item::Record(_)] = &items[..] else { panic!("{items:?}") };
    assert_eq!(pool, "p");

    let caller = Some(Caller { uid: JOE, gid: JOE, groups: Vec::new() });
    let mut joe = Session::new(Search { caller, ..search(&images) });
    assert_eq!(joe.run(&request(false)).expect_err("not his").reason().code, Code::Denied);
}

#[test]
fn samples_count_from_when_a_pool_was_opened() {
    let images = exported();
    let mut session = session(&images);
    let first = session.run(&iostat::Request::Named(words(&["p", "mirror-0"]))).expect("readable");
    let selection = Selection { pools: words(&["p"]), vdevs: Some(words(&["mirror-0"])) };
    assert_eq!(first.selection, selection);
    let tops = &first.pools[0].vdevs.root.children;
    assert!(selection.has_vdev(&tops[0]) && !selection.has_vdev(&tops[1]));
    let second = session.run(&iostat::Request::Selected(selection)).expect("readable");
    let (before, now) = (&first.pools[0], &second.pools[0]);
    let guid = now.vdevs.root.guid;
    assert!(now.io[&guid].age >= before.io[&guid].age, "the pool stays open");
    assert!(now.io[&guid].stats.ops[0] >= before.io[&guid].stats.ops[0]);
    let refusal = session.run(&iostat::Request::Named(words(&["nosuch"]))).expect_err("no pool, no vdev");
    assert_eq!(refusal, iostat::Refusal::Unknown);
}

#[test]
fn other_verbs_look_at_pools() {
    let images = exported();
    let mut session = session(&images);
    let found = session.run(&importable::Request::default()).expect("no cache file");
    let [pool] = &found.pools[..] else { panic!("{:?}", found.pools) };
    assert_eq!((pool.name.as_str(), pool.state.as_str(), pool.status.as_ref()), ("p", "ONLINE", None));
    assert_eq!((pool.vdevs.len(), pool.vdevs[0].children.len(), pool.logs.len()), (1, 2, 1));
    let answer = session.run(&upgradable::Request::default()).expect("readable");
    assert_eq!((answer.pools[0].version, answer.pools[0].missing.clone()), (5000, Ok(Vec::new())));
    let left = session.run(&wait::Request { pool: "p".into() }).expect("readable");
    assert_eq!((left.scrub, left.resilver), (0, 0));
    let refusal = session.run(&wait::Request { pool: "nosuch".into() }).expect_err("none");
    assert_eq!(
        (refusal.reason().code, refusal.to_string().as_str()),
        (Code::NoPool, "cannot open 'nosuch': no such pool")
    );
    let events = session.run(&events::Request { pool: Some("p".into()), after: 0 }).expect("a good name");
    assert!(events.events.is_sorted_by_key(|event| event.id));
    assert!(events.events.iter().all(|event| event.pairs.str("pool") == Some("p")));
}
