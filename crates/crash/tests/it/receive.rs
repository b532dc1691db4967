//! Power cuts while a stream is received.
//!
//! After each cut the pool is imported and the receive goes on where it was, or begins again: the dataset is then as
//! its sender had it, and no space is lost.
#![allow(missing_docs)]

use cenote::PoolWriter;
use cenote::receive::Receive;
use cenote::stream::receive::Applier;
use cenote::stream::{Frame, Reader, Writer};
use cenote_crash::check::check_space;
use cenote_crash::disks::{Disks, Layout};
use cenote_crash::run::{POOL, create, env, host};
use dmu::ObjSet;
use dsl::receive::{Begin, Finish};
use format::nvlist::NvList;
use format::stream::{Record, feature};
use format::{BlockId, Endian, ObjectId};
use pool::{ImportOptions, LivePool, Which};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::device::sim::Fate;

/// Records between two txgs.
const RECORDS: usize = 24;

fn frames(stream: &[u8]) -> Vec<Frame> {
    let mut reader = Reader::new(stream);
    std::iter::from_fn(|| reader.next_frame().expect("a record")).collect()
}

fn start(frame: &Frame) -> &format::stream::Begin {
    let Record::Begin(begin) = &frame.header.record else { panic!("no start of a stream") };
    begin
}

fn dataset() -> String {
    format!("{POOL}/received")
}

/// Receives a stream with a txg after every few records.
fn receive_slowly(pool: &Arc<LivePool>, stream: &[u8], snapshot: &str, is_resumable: bool) {
    let mut frames = frames(stream);
    let first = frames.remove(0);
    let begin = start(&first);
    let request = Begin {
        dataset: dataset(),
        snapshot: snapshot.to_owned(),
        is_volume: begin.objset_type == 3,
        to_guid: begin.to_guid,
        from_guid: begin.from_guid,
        to_name: "at/sender@it".to_owned(),
        has_free_records: true,
        is_resumable,
        ..Begin::default()
    };
    let begun = pool.run(move |ctx| dsl::receive::begin(ctx, &request)).expect("begun");
    {
        let head = pool.heads().open_partial(begun.head).expect("opened");
        let mut applier = Applier::new(&head, begin, begun.point);
        frames.pop();
        for some in frames.chunks_mut(RECORDS) {
            applier.apply(some).expect("applied");
            pool.sync().expect("synced");
        }
    }
    let finish = Finish {
        dataset: dataset(),
        head: begun.head,
        snapshot: snapshot.to_owned(),
        to_guid: begin.to_guid,
        creation_time: begin.creation_time,
        force: false,
        raw: None,
    };
    pool.run(move |ctx| dsl::receive::finish(ctx, &finish)).expect("finished");
}

/// The rest of a stream from this place on, as a sender would resume it.
fn rest_of(stream: &[u8], object: u64, offset: u64) -> Vec<u8> {
    let mut all = frames(stream);
    let mut list = NvList::new();
    list.push("resume_object", object);
    list.push("resume_offset", offset);
    let first = &mut all[0];
    first.payload = list.encode_xdr();
    first.header.payload_len = first.payload.len() as u32;
    first.bytes[4..8].copy_from_slice(&first.header.payload_len.to_le_bytes());
    if let Record::Begin(begin) = &mut first.header.record {
        begin.version_info |= feature::RESUMING << 2;
    }
    first.put_record(Endian::Little);
    all.retain(|frame| match &frame.header.record {
        Record::Begin(_) | Record::End(_) => true,
        Record::Object(record) => record.object.0 >= object,
        Record::FreeObjects(record) => record.first.0 >= object,
        Record::Write(record) => (record.object.0, record.offset) >= (object, offset),
        Record::Free(record) => (record.object.0, record.offset) >= (object, offset),
        Record::Spill(record) => record.object.0 >= object,
        other => panic!("{other:?}"),
    });
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    all.iter().for_each(|frame| writer.write(frame, Endian::Little).expect("written"));
    writer.finish().expect("flushed");
    bytes
}

/// All objects of a snapshot: dnodes, blocks and spill blocks.
fn contents(pool: &LivePool, snapshot: &str) -> BTreeMap<u64, Vec<u8>> {
    let view = pool.view().expect("a view");
    let set: Arc<ObjSet> =
        view.dsl().dataset(snapshot).and_then(|found| found.open_objset()).expect("opened");
    let mut all = BTreeMap::new();
    let mut from = ObjectId(1);
    while let Some(object) = set.next_object(from).expect("readable") {
        let dnode = object.dnode();
        let mut bytes =
            format!("{:?} {:?} {}", dnode.obj_type, dnode.bonus_type, dnode.datablkszsec).into_bytes();
        bytes.extend_from_slice(dnode.valid_bonus());
        for blkid in 0..=dnode.maxblkid.0 {
            let block = object.block(BlockId(blkid)).expect("readable");
            bytes.extend(block.iter().flat_map(|block| block.bytes().to_vec()));
        }
        bytes.extend(object.spill().expect("readable").iter().flat_map(|block| block.bytes().to_vec()));
        all.insert(object.id().0, bytes);
        from = ObjectId(object.id().0 + 1);
    }
    all
}

fn import(disks: &Disks) -> Arc<LivePool> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    LivePool::import(&disks.found(), &Which::Name(POOL.to_owned()), &options, env(2)).expect("imported")
}

/// What a cut has left: the number of receives that had ended, begun, and not begun.
#[derive(Debug, Default)]
struct Found {
    whole: usize,
    resumed: usize,
    absent: usize,
}

/// Completes the receive after a cut.
fn complete(pool: &Arc<LivePool>, stream: &[u8], snapshot: &str, found: &mut Found) {
    let name = dataset();
    let view = pool.view().expect("a view");
    if view.dsl().dataset(&format!("{name}@{snapshot}")).is_ok() {
        found.whole += 1;
        return;
    }
    let head = view.dsl().dataset(&name);
    let token = head.as_ref().ok().and_then(|head| dsl::resume::token_of(head).expect("readable"));
    let state = token.map(|token| dsl::resume::decode(&token).expect("ours"));
    let rest;
    let stream = match &state {
        Some(state) => {
            found.resumed += 1;
            rest = rest_of(stream, state.u64("object").expect("set"), state.u64("offset").expect("set"));
            &rest
        }
        None => {
            found.absent += 1;
            stream
        }
    };
    let how = Receive { dataset: name, snapshot: snapshot.to_owned(), ..Receive::default() };
    let writer = PoolWriter::shared(Arc::clone(pool), None);
    let mut reader = Reader::new(stream);
    let begin = reader.next_frame().expect("a record").expect("a start");
    if let Err(error) = writer.receive(&begin, &mut reader, &how, &mut ()) {
        panic!("{}", cenote::error::chain(&error));
    }
}

/// Cuts the power at one in so many writes of the last of these streams.
fn cut(streams: &[(&str, &str)], is_resumable: bool, one_in: usize) -> Found {
    let layout: Layout = "single".parse().expect("a layout");
    let disks = Disks::new(layout.disks(), 5);
    let pool = create(&disks, layout, env(1)).expect("a pool");
    let (before, last) = streams.split_at(streams.len() - 1);
    for (stream, snapshot) in before {
        receive_slowly(&pool, &testkit::stream(stream), snapshot, false);
    }
    pool.sync().expect("synced");
    let (stream, snapshot) = (testkit::stream(last[0].0), last[0].1);
    let start = disks.after_cut(Fate::Kept, 1);
    disks.record();
    receive_slowly(&pool, &stream, snapshot, is_resumable);
    pool.sync().expect("synced");
    let operations = disks.take_record();
    let full_name = format!("{}@{snapshot}", dataset());
    let expected = contents(&pool, &full_name);
    let mut found = Found::default();
    for cut in (0..=operations.len()).step_by(one_in) {
        let fate = [Fate::Kept, Fate::Random, Fate::Lost][cut / one_in % 3];
        let disks = start.after_cut(Fate::Kept, 1);
        operations.iter().take(cut).for_each(|(disk, op)| disks.apply(*disk, op));
        if let Some((disk, op)) = operations.get(cut) {
            disks.apply_half(*disk, op);
        }
        let disks = disks.after_cut(fate, cut as u64);
        let pool = import(&disks);
        complete(&pool, &stream, snapshot, &mut found);
        assert!(contents(&pool, &full_name) == expected, "cut {cut}, {fate:?}: other contents");
        pool.export(pool::Leave::Exported).expect("exported");
        check_space(&disks).unwrap_or_else(|why| panic!("cut {cut}, {fate:?}: {why}"));
    }
    found
}

#[test]
fn a_new_dataset_is_resumed_after_a_cut() {
    let found = cut(&[("full-one-r1", "r1")], true, 5);
    assert!(found.whole > 0 && found.resumed > 3, "{found:?}");
}

#[test]
fn a_new_dataset_that_cannot_be_resumed_is_gone_after_a_cut() {
    let found = cut(&[("full-one-r1", "r1")], false, 9);
    assert!(found.whole > 0 && found.resumed == 0 && found.absent > 3, "{found:?}");
}

#[test]
fn an_increment_is_resumed_after_a_cut() {
    let found = cut(&[("zvol-full", "r1"), ("zvol-incr", "r2")], true, 2);
    assert!(found.whole > 0 && found.resumed > 1, "{found:?}");
}

#[test]
fn an_increment_that_cannot_be_resumed_leaves_the_dataset_as_before() {
    let found = cut(&[("zvol-full", "r1"), ("zvol-incr", "r2")], false, 4);
    assert!(found.whole > 0 && found.resumed == 0 && found.absent > 1, "{found:?}");
}
