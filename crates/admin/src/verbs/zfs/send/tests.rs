//! Plans of streams of a pool like the one from which the golden streams were sent.

use super::plan::{self, Plan};
use super::{Event, Refusal, Request, Skipped, write};
use crate::edit::{self, Grant, NewDataset, NewKind, Scope, Who};
use crate::verbs::zfs::{hold, snapshot};
use crate::{Caller, OpenPool, PoolVerbs, Session};
use ::pool::space::Class;
use ::pool::{CreateSpec, Layout, LeafSpec, LivePool, TopSpec};
use cenote::PoolWriter;
use cenote::stream::{Reader, Substream, Survey, survey};
use format::NvList;
use format::nvlist::NvValue;
use format::stream::Record;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use vdev::device::memory::MemoryDevice;
use vdev::env::Env;
use zpl::{NewFilesystem, make_filesystem};

/// A pool in memory, named as that of the golden streams.
fn new_pool() -> PoolWriter {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let leaves = vec![LeafSpec::file("/memory", device)];
    let top = TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves };
    let mut spec = CreateSpec::new("src", vec![top]);
    let env = Env::system();
    spec.root.fill = Box::new(move |set, tx| {
        let made = make_filesystem(set, &NewFilesystem::default(), &env, tx);
        made.map(|_| ()).map_err(|error| dsl::DslError::Fill { source: Box::new(error) })
    });
    let live = LivePool::create(spec, Env::system()).expect("a pool");
    live.start();
    PoolWriter::of(live)
}

fn take(pool: &PoolWriter, name: &str) {
    let request = snapshot::Request { names: vec![name.into()], recursive: true, ..Default::default() };
    Session::over(pool).run(&request).expect("taken");
}

/// The datasets of the streams `replicate-…`: `three` is newer than `r2`, `cl` is a clone.
fn tree() -> PoolWriter {
    let pool = new_pool();
    let props: &[(&str, &str)] = &[("com.example:k", "v"), ("compression", "gzip")];
    pool.create_filesystem("src/tree", props).expect("made");
    pool.create_filesystem("src/tree/one", &[("quota", "50M")]).expect("made");
    let kind = NewKind::Volume { size: 4 << 20, sparse: true };
    edit::create(&pool, &NewDataset { kind, ..NewDataset::filesystem("src/tree/vol") }).expect("made");
    take(&pool, "src/tree@r1");
    pool.create_filesystem("src/tree/deux", &[("recordsize", "32K")]).expect("made");
    pool.clone_snapshot("src/tree/one@r1", "src/tree/cl", &[]).expect("cloned");
    take(&pool, "src/tree@r2");
    pool.create_filesystem("src/tree/three", &[]).expect("made");
    take(&pool, "src/tree@r3");
    pool
}

fn with_plan<T>(
    pool: &PoolWriter,
    request: &Request,
    dry: bool,
    then: impl FnOnce(&Plan) -> T,
) -> Result<T, Refusal> {
    let session = Session::over(pool);
    let pools = [OpenPool::of(pool).expect("readable")];
    super::misuse::check(request)?;
    Ok(then(&plan::plan(request, &session, &pools[0], dry)?))
}

/// Names of the parts of a stream, each with its start.
fn parts(pool: &PoolWriter, request: &Request) -> Vec<String> {
    let told = |plan: &Plan| {
        let parts = plan.parts.iter().map(|part| part.part(None));
        parts.map(|part| format!("{} {}", part.from.unwrap_or_default(), part.name)).collect()
    };
    with_plan(pool, request, false, told).expect("planned")
}

fn refused(pool: &PoolWriter, request: &Request) -> String {
    with_plan(pool, request, false, |_| ()).expect_err("refused").to_string()
}

fn list(pool: &PoolWriter, request: &Request) -> Option<NvList> {
    let list = |plan: &Plan| plan.header.as_ref().expect("a package").list.clone();
    with_plan(pool, request, false, list).expect("planned")
}

fn from(snapshot: &str, request: Request) -> Request {
    Request { from: Some(snapshot.into()), ..request }
}

fn replicate(name: &str) -> Request {
    Request { replicate: true, ..Request::of(name) }
}

/// The list at the start of a golden package.
fn golden(name: &str) -> NvList {
    let bytes = testkit::stream(name);
    let frame = Reader::new(&bytes[..]).next_frame().expect("a record").expect("the first");
    NvList::decode(&frame.payload).expect("a list")
}

/// The names of the snapshots and datasets with these guids.
fn named(list: &NvList) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    for (guid, entry) in list.list("fss").expect("datasets").iter() {
        let NvValue::List(entry) = entry else { panic!("{guid}") };
        let name = entry.str("name").expect("a name");
        names.insert(u64::from_str_radix(&guid[2..], 16).expect("hex"), name.to_owned());
        for (snapshot, _) in entry.list("snaps").expect("snapshots").iter() {
            let guid = entry.list("snaps").and_then(|snaps| snaps.u64(snapshot)).expect("a guid");
            names.insert(guid, format!("{name}@{snapshot}"));
        }
    }
    names
}

/// A list as text in which guids are names, the datasets in the order of their names.
fn text(list: &NvList, names: &BTreeMap<u64, String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in list.iter() {
        let guid = |name: &str| {
            let number = u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()?;
            names.get(&number).cloned()
        };
        let shown = guid(name).unwrap_or_else(|| name.to_owned());
        match value {
            NvValue::List(inner) if name == "fss" => {
                let mut all: Vec<_> = inner.iter().map(|(name, value)| (guid(name), value)).collect();
                all.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (name, value) in all {
                    let NvValue::List(entry) = value else { panic!("{name:?}") };
                    lines.extend(text(entry, names).into_iter().map(|line| format!("{name:?} {line}")));
                }
            }
            NvValue::List(inner) => {
                lines.push(format!("{shown} {{"));
                lines.extend(text(inner, names).into_iter().map(|line| format!("{shown} {line}")));
            }
            NvValue::Uint64(number) if names.contains_key(number) => {
                lines.push(format!("{shown} = {}", names[number]));
            }
            other => lines.push(format!("{shown} = {other:?}")),
        }
    }
    lines
}

#[test]
fn lists_of_packages_are_those_of_openzfs() {
    let pool = tree();
    let is_up_to = |list: &NvList, snapshot: &str| list.str("tosnap") == Some(snapshot);
    for (stream, request) in [
        ("replicate-r2", replicate("src/tree@r2")),
        ("replicate-r2-r3", from("@r2", replicate("src/tree@r3"))),
        ("replicate-I-r1-r3", from("r1", Request { intermediate: true, ..replicate("src/tree/one@r3") })),
    ] {
        let (ours, theirs) = (list(&pool, &request).expect("listed"), golden(stream));
        assert!(is_up_to(&ours, "r2") == is_up_to(&theirs, "r2"), "{stream}");
        assert_eq!(text(&ours, &named(&ours)), text(&theirs, &named(&theirs)), "{stream}");
    }
}

#[test]
fn replication_sends_parents_first_and_clones_from_their_origin() {
    let pool = tree();
    assert_eq!(
        parts(&pool, &replicate("src/tree@r2")),
        [
            " src/tree@r1",
            "@r1 src/tree@r2",
            " src/tree/deux@r2",
            " src/tree/one@r1",
            "@r1 src/tree/one@r2",
            "src/tree/one@r1 src/tree/cl@r2",
            " src/tree/vol@r1",
            "@r1 src/tree/vol@r2",
        ]
    );
    let increment = from("@r1", replicate("src/tree@r3"));
    assert_eq!(
        parts(&pool, &increment),
        [
            "@r1 src/tree@r3",
            " src/tree/deux@r3",
            "@r1 src/tree/one@r3",
            "src/tree/one@r1 src/tree/cl@r3",
            " src/tree/three@r3",
            "@r1 src/tree/vol@r3",
        ]
    );
    let each = Request { intermediate: true, ..increment };
    assert_eq!(
        parts(&pool, &each)[..4],
        ["@r1 src/tree@r2", "@r2 src/tree@r3", " src/tree/deux@r2", "@r2 src/tree/deux@r3"]
    );
    // What is left out is listed, so that a receiver does not destroy it.
    let without = Request { exclude: vec!["src/tree/one".into()], ..replicate("src/tree@r2") };
    let sent = parts(&pool, &without);
    assert!(sent.iter().all(|part| !part.contains("tree/one@r2")), "{sent:?}");
    assert_eq!(sent.len(), 6, "{sent:?}");
    assert!(format!("{:?}", list(&pool, &without)).contains("src/tree/one"));
}

#[test]
fn a_dataset_without_the_snapshot_is_refused_or_skipped() {
    let pool = tree();
    pool.destroy_dataset("src/tree/deux@r2").expect("destroyed");
    let request = replicate("src/tree@r2");
    assert_eq!(
        refused(&pool, &request),
        "cannot send src/tree@r2 recursively: snapshot src/tree/deux@r2 does not exist\n\
         warning: cannot send 'src/tree@r2': backup failed"
    );
    let request = Request { skip_missing: true, ..request };
    let (skipped, later) =
        with_plan(&pool, &request, false, |plan| (plan.skipped.clone(), plan.later.clone()))
            .expect("planned");
    let skip = |dataset: &str, is_newer| Skipped { dataset: dataset.into(), snapshot: "r2".into(), is_newer };
    assert_eq!(skipped, [skip("src/tree/deux", false), skip("src/tree/three", true)]);
    assert_eq!(later, ["src/tree@r3", "src/tree/cl@r3", "src/tree/one@r3", "src/tree/vol@r3"]);
}

#[test]
fn starts_are_looked_up_in_the_history() {
    let pool = tree();
    edit::bookmark(&pool, "src/tree/one@r1", "src/tree/one#m").expect("made");
    let one = |text: &str| parts(&pool, &from(text, Request::of("src/tree/one@r3")));
    assert_eq!(one("@r1"), ["src/tree/one@r1 src/tree/one@r3"]);
    assert_eq!(one("r2"), ["src/tree/one@r2 src/tree/one@r3"]);
    assert_eq!(one("#m"), ["src/tree/one#m src/tree/one@r3"]);
    let clone = |text: &str| parts(&pool, &from(text, Request::of("src/tree/cl@r3")));
    assert_eq!(clone("src/tree/one@r1"), ["src/tree/one@r1 src/tree/cl@r3"]);
    assert_eq!(clone("src/tree/one#m"), ["src/tree/one#m src/tree/cl@r3"]);
    let each = |text: &str, to: &str| from(text, Request { intermediate: true, ..Request::of(to) });
    assert_eq!(parts(&pool, &each("r1", "src/tree/one@r3")), ["@r1 src/tree/one@r2", "@r2 src/tree/one@r3"]);
    assert_eq!(
        parts(&pool, &each("src/tree/one@r1", "src/tree/cl@r3")),
        ["src/tree/one@r1 src/tree/cl@r2", "@r2 src/tree/cl@r3"]
    );
    assert_eq!(parts(&pool, &from("@r2", Request::of("src/tree/one"))), ["src/tree/one@r2 src/tree/one"]);
    let not_earlier = "warning: cannot send 'src/tree/one@r1': not an earlier snapshot from the same fs";
    for wrong in ["@r2", "@r1", "src/tree@r1", "src/tree/one#m"] {
        assert_eq!(refused(&pool, &from(wrong, Request::of("src/tree/one@r1"))), not_earlier, "{wrong}");
    }
    let refuse = |text: &str, request: Request| refused(&pool, &from(text, request));
    assert_eq!(
        refuse("@no", Request::of("src/tree@r2")),
        "cannot open 'src/tree@no': dataset does not exist"
    );
    assert_eq!(
        refuse("#no", Request::of("src/tree@r2")),
        "warning: cannot send 'src/tree@r2': incremental source (src/tree#no) does not exist"
    );
    assert_eq!(refuse("@no", replicate("src/tree@r2")), "cannot open 'src/tree@no': dataset does not exist");
    assert_eq!(
        refuse("@r2", replicate("src/tree@r2")),
        "WARNING: could not send src/tree@r2:\nincremental source (src/tree@r2) is not earlier than it"
    );
    assert_eq!(
        refused(&pool, &each("src/tree@r1", "src/tree/one@r3")),
        "incremental source must be in same filesystem"
    );
}

#[test]
fn one_snapshot_with_properties_lists_itself_alone() {
    let pool = tree();
    let (snapshots, tag) = (vec!["src/tree/one@r2".to_owned()], "keep".to_owned());
    Session::over(&pool).run(&hold::Request { snapshots, tag, recursive: false }).expect("held");
    pool.set("src/tree/one@r2", &[("a:b", "c")]).expect("set");
    let increment = from("@r1", Request { props: true, ..Request::of("src/tree/one@r2") });
    assert_eq!(parts(&pool, &increment), ["src/tree/one@r1 src/tree/one@r2"]);
    let entry = |request: &Request| {
        let list = list(&pool, request).expect("listed");
        assert!(list.has("not_recursive") && !list.has("fromsnap"));
        let datasets = list.list("fss").expect("datasets").clone();
        let NvValue::List(entry) = datasets.iter().next().expect("one").1 else { panic!("a list") };
        entry.clone()
    };
    let listed = entry(&increment);
    assert_eq!(listed.list("props").and_then(|props| props.u64("quota")), Some(50 << 20));
    assert_eq!(listed.list("snaps").map(NvList::len), Some(1));
    let of_snapshot = listed.list("snapprops").and_then(|all| all.list("r2"));
    assert_eq!(of_snapshot.and_then(|props| props.str("a:b")), Some("c"));
    assert!(!listed.has("snapholds"));
    let held = entry(&Request { holds: true, ..Request::of("src/tree/one@r2") });
    assert!(!held.has("props") && held.list("snapprops").is_some());
    let tags = held.list("snapholds").and_then(|all| all.list("r2"));
    assert!(tags.is_some_and(|tags| tags.u64("keep").is_some()), "{held:?}");
    // Nothing was received.
    let received = entry(&Request { backup: true, ..Request::of("src/tree/one@r2") });
    assert_eq!(received.list("props").map(NvList::len), Some(0));
    // The list of an interval without properties is not sent.
    let each = from("@r1", Request { intermediate: true, ..Request::of("src/tree/one@r3") });
    assert_eq!(list(&pool, &each), None);
    let each = list(&pool, &Request { props: true, ..each }).expect("listed");
    assert_eq!(each.str("fromsnap"), Some("r1"));
    let each = format!("{each:?}");
    assert!(each.contains("r2") && each.contains("r3"), "{each}");
    let small = Request { list_bytes_max: Some(100), ..increment };
    assert!(refused(&pool, &small).contains("Select a smaller number of snapshots"));
    with_plan(&pool, &Request { list_bytes_max: Some(0), ..small }, false, |_| ()).expect("any length");
}

/// The header of a package is whole before its first part, and has the checksums that receivers verify.
#[test]
fn packages_begin_with_their_list() {
    let pool = tree();
    let request = Request { holds: true, ..replicate("src/tree@r2") };
    let session = Session::over(&pool);
    let pools = [OpenPool::of(&pool).expect("readable")];
    let plan = plan::plan(&request, &session, &pools[0], false).expect("planned");
    let (mut out, mut events) = (Vec::new(), Vec::new());
    let mut on = |event| {
        events.push(event);
        if matches!(events.last(), Some(Event::Begins(_))) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let ended = write::write(&plan, &pools, &session, false, &mut out, &mut on);
    assert_eq!(ended, Err(Refusal::Cancelled { name: "src/tree@r1".into() }));
    assert!(matches!(&events[..], [Event::Planned(answer), Event::Begins(0)] if answer.parts.len() == 8));
    let mut reader = Reader::new(&out[..]);
    let begin = reader.next_frame().expect("whole").expect("a record");
    let Record::Begin(head) = &begin.header.record else { panic!("{begin:?}") };
    assert!(head.is_package() && head.name() == b"src/tree@r2");
    assert_eq!(head.features(), format::stream::feature::HOLDS);
    assert_eq!(NvList::decode(&begin.payload).expect("a list").str("tosnap"), Some("r2"));
    let end = reader.next_frame().expect("right checksums").expect("a record");
    assert!(matches!(end.header.record, Record::End(_)));
    assert!(reader.next_frame().expect("no more").is_none());
}

/// Streams are whole, have the parts that the answer tells in its order, and as many bytes as it tells.
#[test]
fn streams_have_the_parts_of_the_answer() {
    let pool = tree();
    for request in [
        Request::of("src/tree/one@r1"),
        Request::of("src/tree/one"),
        from("@r1", Request { props: true, ..Request::of("src/tree/one@r3") }),
        replicate("src/tree@r3"),
        from("@r2", Request { raw: true, intermediate: true, ..replicate("src/tree@r3") }),
    ] {
        let mut out = Vec::new();
        let on = &mut |_| ControlFlow::Continue(());
        let answer = Session::over(&pool).write(&request, &mut out, on).expect("sent");
        let (mut found, mut parts) = (Survey::default(), Vec::new());
        let each = &mut |part: Substream| {
            parts.push((String::from_utf8_lossy(part.begin.name()).into_owned(), part.bytes));
        };
        survey(&out[..], &mut found, each, |_| ()).expect("by the rules");
        assert!(found.is_complete && found.bytes == out.len() as u64, "{request:?}");
        let name = |name: &str| if name.contains('@') { name.to_owned() } else { format!("{name}@--head--") };
        let told = answer.parts.iter().map(|part| (name(&part.name), part.bytes.expect("counted")));
        assert_eq!(parts, told.collect::<Vec<_>>(), "{request:?}");
        assert_eq!(found.package.is_some(), request.is_package());
        let estimated = Session::over(&pool).run(&request).expect("estimated");
        assert_eq!(estimated.parts.len(), parts.len());
        assert!(estimated.bytes() > 0);
    }
}

#[test]
fn a_snapshot_that_is_sent_cannot_be_destroyed() {
    let pool = tree();
    let request = from("@r1", Request::of("src/tree@r2"));
    let session = Session::over(&pool);
    let pools = [OpenPool::of(&pool).expect("readable")];
    let plan = plan::plan(&request, &session, &pools[0], false).expect("planned");
    let mut on = |_| {
        for name in ["src/tree@r1", "src/tree@r2"] {
            let refused = pool.destroy_dataset(name).expect_err("it is held");
            assert!(refused.to_string().contains("dataset is busy"), "{refused}");
        }
        ControlFlow::Break(())
    };
    write::write(&plan, &pools, &session, false, &mut Vec::new(), &mut on).expect_err("ended");
    pool.destroy_dataset("src/tree@r1").expect("free again");
    // The plan still names it.
    let on = &mut |_| ControlFlow::Continue(());
    let gone = write::write(&plan, &pools, &session, false, &mut Vec::new(), on).expect_err("gone");
    assert_eq!(gone.to_string(), "cannot open 'src/tree@r1': dataset does not exist");
}

#[test]
fn others_need_the_permission_at_each_dataset() {
    let pool = tree();
    let grant = |name: &str, permission: &str| {
        let (who, scopes) = (vec![Who::User(7)], vec![Scope::Local]);
        let grant = Grant { who, scopes, permissions: vec![permission.to_owned()] };
        edit::allow(&pool, name, &grant).expect("granted");
    };
    let user = Caller { uid: 7, gid: 7, groups: vec![] };
    let other = PoolWriter::shared(Arc::clone(pool.live()), None).in_name_of(Some(&user));
    let denied = |name: &str| format!("warning: cannot send '{name}': permission denied");
    let request = Request::of("src/tree@r1");
    assert_eq!(refused(&other, &request), denied("src/tree@r1"));
    // To ask is free.
    with_plan(&other, &request, true, |_| ()).expect("planned");
    grant("src/tree", "send:raw");
    assert_eq!(refused(&other, &request), denied("src/tree@r1"));
    let raw = Request { raw: true, ..request };
    assert_eq!(parts(&other, &raw), [" src/tree@r1"]);
    assert_eq!(refused(&other, &Request { replicate: true, ..raw }), denied("src/tree/one"));
    grant("src/tree", "send");
    assert_eq!(parts(&other, &Request::of("src/tree@r1")), [" src/tree@r1"]);
}

#[test]
fn tokens_name_a_snapshot_by_its_guid() {
    let pool = tree();
    let guid = |name: &str| pool.view().expect("readable").dataset(name).expect("there").dsl().phys().guid;
    let token = |pairs: &[(&str, u64)]| {
        let mut list: NvList = pairs.iter().map(|(name, number)| (*name, *number)).collect();
        list.push("toname", "src/tree/one@r2");
        list.push("compressok", NvValue::Boolean);
        Request { resume: Some(dsl::resume::encode(&list).expect("a token")), ..Request::default() }
    };
    let planned = |request: &Request| {
        let mut session = Session::over(&pool);
        request.plan(&mut session, false).map(|(_, plan)| {
            let part = &plan.parts[0];
            let options = &part.options;
            assert!(options.compressed && !options.raw && !options.embedded);
            assert_eq!(options.resume, Some((format::ObjectId(16), 4096)));
            (part.part(None).from, options.to_name.clone())
        })
    };
    let (to, start) = (guid("src/tree/one@r2"), guid("src/tree/one@r1"));
    let whole = token(&[("toguid", to), ("object", 16), ("offset", 4096)]);
    assert_eq!(planned(&whole), Ok((None, "src/tree/one@r2".into())));
    pool.rename("src/tree/one@r2", "zwei").expect("renamed");
    assert_eq!(planned(&whole), Ok((None, "src/tree/one@zwei".into())));
    let increment = token(&[("toguid", to), ("fromguid", start), ("object", 16), ("offset", 4096)]);
    let name = Some("src/tree/one@r1".to_owned());
    assert_eq!(planned(&increment), Ok((name, "src/tree/one@zwei".into())));
    let gone = token(&[("toguid", 1), ("object", 16), ("offset", 4096)]);
    let refused = planned(&gone).expect_err("no such guid");
    assert_eq!(
        refused.to_string(),
        "cannot resume send: 'src/tree/one@r2' used in the initial send no longer exists"
    );
    let short = token(&[("toguid", to), ("object", 16)]);
    assert_eq!(
        planned(&short).expect_err("no offset").to_string(),
        "cannot resume send: resume token is corrupt"
    );
    let wrong = Request { resume: Some("abc".into()), ..Request::default() };
    let said = "cannot resume send: resume token is corrupt (invalid format)";
    assert_eq!(planned(&wrong).expect_err("no token").to_string(), said);
    let saved = Request { saved: true, ..Request::of("src/tree/one") };
    let refused = planned(&saved).expect_err("not partly received");
    assert!(refused.to_string().starts_with("warning: cannot send 'src/tree/one': "), "{refused}");
}
