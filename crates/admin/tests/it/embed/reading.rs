//! The verbs that read, in sessions over an open pool and over pools on devices.

use super::support::Images;
use cenote::PoolWriter;
use cenote_admin::verbs::zfs::diff::{Change, What};
use cenote_admin::verbs::zfs::list::SortKey;
use cenote_admin::verbs::zfs::project::{Action, Reach};
use cenote_admin::verbs::zfs::space::OwnerKind;
use cenote_admin::verbs::zfs::{
    Depth, Operand, Selection, allowed, diff, get, hold, holds, list, outdated, project, space, wait,
};
use cenote_admin::verbs::{Code, Refused, Verb};
use cenote_admin::{Caller, Kind, Owner, PoolVerbs, Search, Session, Source, Value};
use std::ops::ControlFlow;

const SIZE: u64 = 256 << 20;

/// A pool with file systems `p/a`, which holds a file, and `p/a/b`, and snapshots.
fn pool(images: &Images) -> PoolWriter {
    let pool = images.pool(SIZE, "disk", &[]);
    pool.create_filesystem("p/a", &[("compression", "zstd"), ("test:user", "yes")]).unwrap();
    pool.create_filesystem("p/a/b", &[]).unwrap();
    let files = pool.filesystem("p/a").unwrap();
    files.write(b"/kept", b"as it was").unwrap();
    files.write(b"/moved", b"from here").unwrap();
    drop(files);
    pool.snapshot(&["p/a@new", "p/a/b@new"]).unwrap();
    pool.snapshot(&["p/a@again"]).unwrap();
    pool
}

fn run<V: Verb>(pool: &PoolWriter, request: &V) -> Result<V::Answer, V::Refusal> {
    Session::over(pool).run(request)
}

fn operands(names: &[&str]) -> Vec<Operand> {
    names.iter().map(|name| Operand::name(*name)).collect()
}

fn names(answer: &list::Answer) -> Vec<&str> {
    answer.datasets.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn lists_are_selected_and_sorted() {
    let images = Images::new();
    let pool = pool(&images);
    let list = |request: list::Request| run(&pool, &request).expect("readable");
    assert_eq!(names(&list(list::Request::default())), ["p", "p/a", "p/a/b"]);

    // Snapshots are in the order in which they were taken, whatever their names.
    let selection =
        Selection { operands: operands(&["p"]), kinds: Some(vec![Kind::Snapshot]), depth: Depth::All };
    let snapshots = list::Request { selection: selection.clone(), ..list::Request::default() };
    assert_eq!(names(&list(snapshots)), ["p/a@new", "p/a@again", "p/a/b@new"]);
    let by_name = |descending| {
        let sort = vec![SortKey { property: "name".into(), descending }];
        list::Request { selection: selection.clone(), properties: vec!["type".into()], sort }
    };
    assert_eq!(names(&list(by_name(false))), ["p/a/b@new", "p/a@again", "p/a@new"]);
    assert_eq!(names(&list(by_name(true))), ["p/a@new", "p/a@again", "p/a/b@new"]);

    // The others are listed where one operand cannot be opened, or two name the same dataset.
    let selection = Selection {
        operands: operands(&["p/none", "p/a", "q/x", "p/a@no", "p/a", "p/a/b"]),
        ..Selection::default()
    };
    let properties = vec!["name".into(), "mountpoint".into(), "origin".into()];
    let answer = list(list::Request { selection, properties, sort: Vec::new() });
    assert_eq!(names(&answer), ["p/a", "p/a/b"]);
    let told: Vec<String> = answer.unopened.iter().map(ToString::to_string).collect();
    let missing = ["p/none", "q/x", "p/a@no"];
    assert_eq!(told, missing.map(|name| format!("cannot open '{name}': dataset does not exist")));
    let [name, mountpoint, origin] = &answer.datasets[0].properties[..] else { panic!("three") };
    assert_eq!((name.0.as_str(), &name.1.value), ("name", &Value::Text("p/a".into())));
    assert_eq!(mountpoint.1.value, Value::Text("/p/a".into()));
    assert_eq!(origin.1.value, Value::Absent);
    pool.close().unwrap();
}

#[test]
fn properties_have_values_and_sources() {
    let images = Images::new();
    let pool = pool(&images);
    let selection = Selection { operands: operands(&["p/a/b", "p/a"]), ..Selection::default() };
    let wanted = get::Wanted::Named(vec!["compression".into(), "test:user".into(), "volsize".into()]);
    let answer = run(&pool, &get::Request { selection: selection.clone(), properties: wanted }).unwrap();
    let sources: Vec<(&str, &str, &Source)> = answer
        .datasets
        .iter()
        .flat_map(|row| row.properties.iter().map(|(name, p)| (row.name.as_str(), name.as_str(), &p.source)))
        .collect();
    let inherited = Source::Inherited("p/a".into());
    assert_eq!(
        sources,
        [
            ("p/a", "compression", &Source::Local),
            ("p/a", "test:user", &Source::Local),
            ("p/a", "volsize", &Source::None),
            ("p/a/b", "compression", &inherited),
            ("p/a/b", "test:user", &inherited),
            ("p/a/b", "volsize", &Source::None),
        ]
    );
    // Of all only those that it has.
    let answer = run(&pool, &get::Request { selection, properties: get::Wanted::All }).unwrap();
    let names: Vec<&str> = answer.datasets[0].properties.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"recordsize") && !names.contains(&"volsize"), "{names:?}");
    assert_eq!(names.last(), Some(&"test:user"));
    pool.close().unwrap();
}

#[test]
fn changes_come_one_by_one() {
    let images = Images::new();
    let pool = pool(&images);
    let files = pool.filesystem("p/a").unwrap();
    files.rename(b"/moved", b"/there").unwrap();
    files.write(b"/added", b"new").unwrap();
    drop(files);
    let request = diff::Request { from: "p/a@new".into(), to: None };
    let changes = run(&pool, &request).expect("compared").changes;
    let all: Vec<(&What, &[u8])> = changes.iter().map(|change| (&change.what, &change.path[..])).collect();
    let renamed = What::Renamed { from: b"/p/a/moved".to_vec() };
    assert_eq!(
        all,
        [
            (&What::Modified { links: 0 }, &b"/p/a/"[..]),
            (&renamed, b"/p/a/there"),
            (&What::Added, b"/p/a/added")
        ]
    );
    // A sink may break off.
    let mut seen: Vec<Change> = Vec::new();
    Session::over(&pool)
        .each(&request, &mut |change| {
            seen.push(change);
            ControlFlow::Break(())
        })
        .expect("enough");
    assert_eq!(seen, changes[..1]);

    let between = |from: &str, to: &str| {
        let refused = run(&pool, &diff::Request { from: from.into(), to: Some(to.into()) });
        refused
            .map(|answer| answer.changes.len())
            .map_err(|refusal| (refusal.reason().code, refusal.to_string()))
    };
    assert_eq!(between("p/a@new", "@again"), Ok(0));
    let not_earlier = "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs";
    assert_eq!(between("p/a@again", "@new"), Err((Code::Refused, not_earlier.into())));
    let missing = "cannot open 'p/a@no': dataset does not exist";
    assert_eq!(between("p/a@new", "@no"), Err((Code::NoDataset, missing.into())));
    let malformed = "Badly formed snapshot name p/a: missing '@' delimiter in snapshot name";
    assert_eq!(between("p/a", "p/a"), Err((Code::Name, malformed.into())));
    pool.close().unwrap();
}

#[test]
fn holds_permissions_and_versions() {
    let images = Images::new();
    let pool = pool(&images);
    let snapshots = vec!["p/a@new".to_owned()];
    run(&pool, &hold::Request { snapshots: snapshots.clone(), tag: "keep".into(), recursive: true }).unwrap();
    let asked = vec!["p/a".to_owned(), "p/a@again".into(), "p/a@new".into()];
    let answer = run(&pool, &holds::Request { snapshots: asked, recursive: true }).unwrap();
    assert_eq!(answer.snapshots, ["p/a@again", "p/a@new", "p/a/b@new"]);
    let held: Vec<&str> = answer.holds.iter().map(|hold| hold.snapshot.as_str()).collect();
    assert_eq!(held, ["p/a@new", "p/a/b@new"]);
    assert_eq!(answer.unopened[0].to_string(), "'p/a' is not a snapshot");

    let allowed = |name: &str| run(&pool, &allowed::Request { dataset: name.into() });
    assert!(allowed("p/a").unwrap().datasets.is_empty());
    let refusal = allowed("p/a@new").expect_err("no file system");
    assert_eq!(refusal.reason().code, Code::Name);
    assert_eq!(run(&pool, &outdated::Request {}).unwrap(), outdated::Answer::default());
    assert_eq!(run(&pool, &wait::Request { filesystem: "p/a".into() }).unwrap().files_to_free, 0);
    let refusal = run(&pool, &wait::Request { filesystem: "p/none".into() }).expect_err("there is none");
    assert_eq!(refusal.to_string(), "cannot open 'p/none': dataset does not exist");
    pool.close().unwrap();
}

#[test]
fn space_and_projects_of_files() {
    let images = Images::new();
    let pool = pool(&images);
    let request =
        |action| project::Request { dataset: "p/a".into(), path: b"/".to_vec(), reach: Reach::All, action };
    run(&pool, &request(Action::Set { id: Some(7), inherit: true })).expect("set");
    let files = run(&pool, &request(Action::Look)).expect("readable").files;
    let mut paths: Vec<&[u8]> = files.iter().map(|file| &file.path[..]).collect();
    assert_eq!(paths[0], b"/");
    paths.sort_unstable();
    assert_eq!(paths, [&b"/"[..], b"/kept", b"/moved"]);
    assert!(files.iter().all(|file| file.project == 7 && file.inherits), "{files:?}");
    let nowhere = project::Request { path: b"/none".to_vec(), ..request(Action::Look) };
    assert_eq!(run(&pool, &nowhere).expect_err("no such file").reason().code, Code::Failed);
    pool.sync().unwrap();

    let request = space::Request {
        filesystem: Operand::name("p/a"),
        kinds: vec![OwnerKind::Project],
        numeric: true,
        sort: Vec::new(),
    };
    let rows = run(&pool, &request).expect("readable").rows;
    let row = rows.iter().find(|row| row.space.id == 7).expect("counted");
    assert_eq!((row.kind, row.space.owner, row.space.objects), (OwnerKind::Project, Owner::Project, Some(3)));
    pool.close().unwrap();
}

#[test]
fn others_than_the_administrator() {
    let images = Images::new();
    let pool = pool(&images);
    pool.close().unwrap();
    let caller = Some(Caller { uid: 54321, gid: 54321, groups: vec![] });
    let search = Search { paths: vec![images.dir.path().to_owned()], caller, ..Search::default() };
    let mut session = Session::new(search);
    assert_eq!(names(&session.run(&list::Request::default()).unwrap()), ["p", "p/a", "p/a/b"]);
    let request = diff::Request { from: "p/a@new".into(), to: None };
    let refusal = session.run(&request).expect_err("not granted");
    assert!(refusal.reason().is_denied() && refusal.to_string().ends_with("unable to generate diffs"));
    let request = space::Request {
        filesystem: Operand::name("p/a"),
        kinds: vec![OwnerKind::PosixUser],
        numeric: true,
        sort: Vec::new(),
    };
    let refusal = session.run(&request).expect_err("not granted");
    assert_eq!(refusal.to_string(), "cannot get used/quota for p/a: permission denied");
    let request = project::Request {
        dataset: "p/a".into(),
        path: b"/".to_vec(),
        reach: Reach::Own,
        action: Action::Look,
    };
    assert_eq!(session.run(&request).expect_err("the administrator's").reason().code, Code::Denied);
    // Paths are not looked up.
    let path = images.dir.path().to_owned();
    let operand = Operand { text: path.display().to_string(), path: Some(path) };
    let selection = Selection { operands: vec![operand], ..Selection::default() };
    let answer = session.run(&list::Request { selection, ..list::Request::default() }).unwrap();
    assert!(answer.unopened[0].to_string().ends_with("No such file or directory"));
    session.end(true).unwrap();
}
