//! Runs two verbs concurrently whose checks both precede the other's change: at most one of them is refused because
//! of the other, the pool stays usable, and its space accounting is right.

use std::sync::{Arc, Barrier};

use cenote::PoolWriter;
use cenote::inspect::{Check, blocks, leaked_objects};
use cenote_admin::edit::{self, Grant, NewDataset, Scope, Who};
use cenote_admin::verbs::zfs::{destroy, hold, inherit, promote, release, rename, rollback, snapshot};
use cenote_admin::verbs::{Code, Reason, Refused, Verb as Request};
use cenote_admin::{PoolVerbs, Session};
use pool::LivePool;
use pool::space::Class;
use pool::{CreateSpec, Layout, LeafSpec, TopSpec};
use vdev::device::memory::MemoryDevice;
use vdev::env::Env;
use zpl::{NewFilesystem, make_filesystem};

type Outcome = Result<(), Reason>;
type Verb = fn(&PoolWriter, &str) -> Outcome;

/// Runs a verb.
fn run(pool: &PoolWriter, request: &impl Request) -> Outcome {
    Session::over(pool).run(request).map(drop).map_err(|refusal| refusal.reason())
}

fn snapshot(pool: &PoolWriter, names: &[String], properties: &[(String, String)]) -> Outcome {
    let (names, properties) = (names.to_vec(), properties.to_vec());
    run(pool, &snapshot::Request { names, properties, recursive: false })
}

fn rollback(pool: &PoolWriter, snapshot: String) -> Outcome {
    let request = rollback::Request::of(snapshot);
    run(pool, &rollback::Request { destroy_newer: true, destroy_clones: true, ..request })
}

/// Destroys a dataset with its dependents.
fn destroy(pool: &PoolWriter, name: &str) -> Outcome {
    let request = destroy::Request::of(name);
    run(pool, &destroy::Request { recursive: !name.contains('@'), clones: true, ..request })
}

fn set(pool: &PoolWriter, dataset: &str, props: &[(&str, &str)]) -> Outcome {
    pool.set(dataset, props).map_err(|refusal| refusal.reason())
}

fn clone(pool: &PoolWriter, origin: &str, name: &str) -> Outcome {
    let (origin, name) = (origin.to_owned(), name.to_owned());
    Ok(edit::clone(pool, &edit::CloneSpec { origin, name, props: Vec::new() })?)
}

/// Holds a snapshot and the snapshots of the same name below.
fn hold(pool: &PoolWriter, snapshot: String, recursive: bool, tag: &str) -> Outcome {
    run(pool, &hold::Request { snapshots: vec![snapshot], tag: tag.to_owned(), recursive })
}

/// Releases a hold on a snapshot and on the snapshots of the same name below.
fn release(pool: &PoolWriter, snapshot: String, tag: &str) -> Outcome {
    run(pool, &release::Request { snapshots: vec![snapshot], tag: tag.to_owned(), recursive: true })
}

fn grant() -> Grant {
    Grant { who: vec![Who::User(7)], scopes: vec![Scope::Local], permissions: vec!["snapshot".to_owned()] }
}

/// The verbs on `TOP/a`, which has a child `k`, snapshots `s` and `t` of both, and a clone `TOP/c` of `a@s`.
const VERBS: [(&str, Verb); 33] = [
    ("rollback over t", |pool, top| rollback(pool, format!("{top}/a@s"))),
    ("rollback", |pool, top| rollback(pool, format!("{top}/a@t"))),
    ("rename -r s", |pool, top| {
        let request = rename::Request::of(format!("{top}/a@s"), "n");
        run(pool, &rename::Request { recursive: true, ..request })
    }),
    ("rename t", |pool, top| run(pool, &rename::Request::of(format!("{top}/a@t"), "n"))),
    ("rename a", |pool, top| run(pool, &rename::Request::of(format!("{top}/a"), format!("{top}/b")))),
    ("rename k", |pool, top| run(pool, &rename::Request::of(format!("{top}/a/k"), format!("{top}/k")))),
    ("rename c", |pool, top| run(pool, &rename::Request::of(format!("{top}/c"), format!("{top}/a/c")))),
    ("destroy -R s", |pool, top| destroy(pool, &format!("{top}/a@s"))),
    ("destroy t", |pool, top| run(pool, &destroy::Request::of(format!("{top}/a@t")))),
    ("destroy -d s", |pool, top| {
        run(pool, &destroy::Request { defer: true, ..destroy::Request::of(format!("{top}/a@s")) })
    }),
    ("destroy -R a", |pool, top| destroy(pool, &format!("{top}/a"))),
    ("destroy c", |pool, top| destroy(pool, &format!("{top}/c"))),
    ("destroy k", |pool, top| destroy(pool, &format!("{top}/a/k"))),
    ("promote", |pool, top| run(pool, &promote::Request { dataset: format!("{top}/c") })),
    ("clone", |pool, top| clone(pool, &format!("{top}/a@s"), &format!("{top}/a/d"))),
    ("clone t", |pool, top| clone(pool, &format!("{top}/a@t"), &format!("{top}/d"))),
    ("snapshot -r", |pool, top| {
        let names = edit::with_descendants(&pool.view()?, &format!("{top}/a"))?;
        snapshot(pool, &names.iter().map(|name| format!("{name}@u")).collect::<Vec<_>>(), &[])
    }),
    ("snapshot", |pool, top| snapshot(pool, &[format!("{top}/a@v")], &[("a:b".into(), "c".into())])),
    ("hold", |pool, top| hold(pool, format!("{top}/a@s"), true, "tag")),
    ("hold, release", |pool, top| {
        hold(pool, format!("{top}/a@t"), false, "other")?;
        release(pool, format!("{top}/a@t"), "other")
    }),
    ("bookmark", |pool, top| Ok(edit::bookmark(pool, &format!("{top}/a@s"), &format!("{top}/a#m"))?)),
    ("bookmark of c", |pool, top| Ok(edit::bookmark(pool, &format!("{top}/a@s"), &format!("{top}/c#m"))?)),
    ("destroy bookmark", |pool, top| run(pool, &destroy::Request::of(format!("{top}/a#old")))),
    ("create", |pool, top| Ok(edit::create(pool, &NewDataset::filesystem(&format!("{top}/a/n")))?)),
    ("quota", |pool, top| set(pool, &format!("{top}/a"), &[("quota", "20M"), ("reservation", "1M")])),
    ("reservation", |pool, top| set(pool, &format!("{top}/a/k"), &[("reservation", "5M")])),
    ("refreservation", |pool, top| set(pool, &format!("{top}/a"), &[("refreservation", "3M")])),
    ("limits", |pool, top| set(pool, &format!("{top}/a"), &[("snapshot_limit", "9"), ("copies", "2")])),
    ("property of s", |pool, top| set(pool, &format!("{top}/a@s"), &[("a:b", "1")])),
    ("inherit -r", |pool, top| {
        let request = inherit::Request::of(format!("{top}/a"), "copies");
        run(pool, &inherit::Request { recursive: true, ..request })
    }),
    ("allow", |pool, top| Ok(edit::allow(pool, &format!("{top}/a"), &grant())?)),
    ("unallow -r", |pool, top| Ok(edit::unallow(pool, &format!("{top}/a"), &grant(), true)?)),
    ("write", |pool, top| {
        let fs = pool.filesystem(&format!("{top}/a"))?;
        fs.write(b"/f", &[3; 40_000])?;
        Ok(())
    }),
];

fn make(pool: &PoolWriter, top: &str) -> Outcome {
    for name in [top.to_owned(), format!("{top}/a"), format!("{top}/a/k")] {
        edit::create(pool, &NewDataset::filesystem(&name))?;
    }
    let (a, k) = (format!("{top}/a"), format!("{top}/a/k"));
    let write = |seed: u8| -> Outcome {
        Ok(pool.filesystem(&a)?.write(b"/f", &vec![seed; 30_000 * usize::from(seed)])?)
    };
    write(1)?;
    snapshot(pool, &[format!("{a}@s"), format!("{k}@s")], &[])?;
    clone(pool, &format!("{a}@s"), &format!("{top}/c"))?;
    write(2)?;
    snapshot(pool, &[format!("{a}@t"), format!("{k}@t")], &[])?;
    edit::bookmark(pool, &format!("{a}@t"), &format!("{a}#old"))?;
    write(3)
}

fn dispose(pool: &PoolWriter, top: &str) {
    let holds = [("s", "tag"), ("n", "tag"), ("t", "other"), ("n", "other")];
    for (snapshot, tag) in holds {
        // A refusal because there is no hold is expected.
        let _ = release(pool, format!("{top}@{snapshot}"), tag);
    }
    // A clone that was promoted and then moved below its own clone can only be destroyed together with it.
    for below in ["a", "b"] {
        let _ = run(pool, &promote::Request { dataset: format!("{top}/{below}") });
    }
    destroy(pool, top).expect("all of it goes");
}

/// A refusal concerns a dataset; any other error is a defect.
fn check(what: &str, outcome: &Outcome) {
    if let Err(reason) = outcome
        && matches!(
            reason.code,
            Code::Failed
                | Code::NotWrittenBack
                | Code::ReadOnly
                | Code::Suspended
                | Code::NoPool
                | Code::Unsupported
        )
    {
        panic!("{what}: {reason}");
    }
}

/// A pool in memory.
fn new_pool() -> PoolWriter {
    let device = Arc::new(MemoryDevice::new(512 << 20));
    let top = TopSpec {
        layout: Layout::Single,
        class: Class::Normal,
        ashift: None,
        leaves: vec![LeafSpec::file("/memory", device)],
    };
    let mut spec = CreateSpec::new("p", vec![top]);
    let env = Env::system();
    spec.root.fill = Box::new(move |set, tx| {
        let made = make_filesystem(set, &NewFilesystem { mode: 0o755, ..NewFilesystem::default() }, &env, tx);
        made.map(|_| ()).map_err(|error| dsl::DslError::Fill { source: Box::new(error) })
    });
    let live = LivePool::create(spec, Env::system()).expect("a pool");
    live.start();
    PoolWriter::of(live)
}

/// A snapshot that appears after the checks of a rollback makes the rollback fail.
#[test]
fn a_snapshot_that_comes_before_a_rollback_stops_it() {
    let pool = new_pool();
    make(&pool, "p/r").expect("made");
    let mut request = rollback::Request::of("p/r/a@s");
    let refused = Session::over(&pool).run(&request).expect_err("there are newer ones");
    let rollback::Refusal::NewerExist { newer, .. } = refused else { panic!("{refused:?}") };
    request.confirmed = Some(newer);
    snapshot(&pool, &["p/r/a@new".to_owned()], &[]).expect("taken");
    let refused = Session::over(&pool).run(&request).expect_err("there is a newer one");
    assert!(matches!(refused, rollback::Refusal::Stopped { .. }), "{refused:?}");
    assert_eq!(refused.reason().code, Code::Refused);
    assert!(pool.view().expect("readable").dataset("p/r/a@t").is_ok(), "nothing was destroyed");
    // A name that is given twice is created once.
    let names = ["p/r/a@s".to_owned(), "p/r/a@s".to_owned()];
    let (snapshots, tag) = (names.to_vec(), "tag".to_owned());
    run(&pool, &hold::Request { snapshots, tag, recursive: false }).expect("held");
    let (snapshots, tag) = (names.to_vec(), "tag".to_owned());
    run(&pool, &release::Request { snapshots, tag, recursive: false }).expect("released");
    // An invalid name is found before anything is created for it.
    edit::bookmark(&pool, "p/r/a@s", &format!("p/r/c#{}", "x".repeat(300))).expect_err("too long");
    pool.sync().expect("the pool goes on");
    pool.close().expect("closed");
}

/// A hold stays on a snapshot that has a deferred destroy pending and that is being copied from; the release is
/// reported as refused.
#[test]
fn a_hold_that_cannot_go_yet_is_told() {
    let pool = new_pool();
    make(&pool, "p/r").expect("made");
    let names = ["p/r/a@t".to_owned(), "p/r/a/k@t".to_owned()];
    hold(&pool, names[0].clone(), true, "tag").expect("held");
    run(&pool, &destroy::Request { defer: true, ..destroy::Request::of(&names[0]) }).expect("later");
    let (id, root) = {
        let view = pool.live().view().expect("readable");
        let snapshot = view.dsl().dataset(&names[0]).expect("there");
        (snapshot.id(), snapshot.phys().bp)
    };
    let used = pool.live().heads().hold_snapshot(id, &root).expect("there");
    let request = release::Request { snapshots: vec![names[0].clone()], tag: "tag".into(), recursive: true };
    let refused = Session::over(&pool).run(&request).expect_err("one is used");
    let release::Refusal::Blame { snapshot, reason, .. } = refused else { panic!("{refused:?}") };
    assert!(snapshot == names[0] && reason.code == Code::Busy, "{reason:?}");
    drop(used);
    release(&pool, names[0].clone(), "tag").expect("released");
    assert!(pool.view().expect("readable").dataset(&names[0]).is_err(), "it went with its last hold");
    pool.close().expect("closed");
}

/// `CENOTE_ROUNDS`: number of pairs.
#[test]
fn two_verbs_at_once() {
    let rounds = std::env::var("CENOTE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(80);
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let pool = new_pool();
    let mut random = vdev::env::Random::from_seed(seed);
    let mut refusals = 0;
    for round in 0..rounds {
        let top = format!("p/r{round}");
        make(&pool, &top).expect("made");
        let mut pick = || VERBS[random.below(VERBS.len() as u64) as usize];
        let pair = [pick(), pick()];
        let start = Barrier::new(2);
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let run = |(_, verb): (&str, Verb)| {
                let (pool, top, start) = (&pool, &top, &start);
                scope.spawn(move || {
                    start.wait();
                    verb(pool, top)
                })
            };
            let threads = pair.map(run);
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for ((name, _), outcome) in pair.iter().zip(&outcomes) {
            check(&format!("seed {seed}, round {round}, {name} of {} and {}", pair[0].0, pair[1].0), outcome);
            refusals += u32::from(outcome.is_err());
        }
        pool.sync().expect("the pool goes on");
        dispose(&pool, &top);
    }
    println!("{refusals} refusals in {rounds} rounds");
    for _ in 0..4 {
        pool.sync().expect("written");
    }
    let view = pool.view().expect("readable");
    let report = blocks(&view, Check::Metadata, true).expect("readable");
    assert!(report.damaged.is_empty() && report.problems.is_empty(), "{:?}", report.problems);
    let space = report.space.expect("compared");
    assert!(space.matches(), "{space}");
    assert_eq!(leaked_objects(&view).expect("readable").len(), 0);
    drop(view);
    pool.close().expect("closed");
}
