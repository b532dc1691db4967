//! The list of a package gives datasets the shape that they have at the sender, without any stream behind it.

use cenote::PoolWriter;
use cenote_admin::edit::with_descendants;
use cenote_admin::verbs::zfs::receive::{Event, Refusal, Request};
use cenote_admin::{PoolVerbs, Session};
use format::Endian;
use format::nvlist::{NvList, NvValue};
use format::stream::{Begin, End, HEADER_SIZE, Header, MAGIC, Record};
use stream::{Frame, Writer};

use super::support::Image;

const SIZE: u64 = 128 << 20;

/// A package that lists datasets (name, and names and guids of snapshots) and has no streams.
fn package(datasets: &[(&str, &[(&str, u64)])]) -> Vec<u8> {
    let mut fss = NvList::new();
    for (index, (name, snapshots)) in datasets.iter().enumerate() {
        let mut snaps = NvList::new();
        snapshots.iter().for_each(|(name, guid)| snaps.push(name, *guid));
        let mut entry = NvList::new();
        entry.push("name", *name);
        entry.push("snaps", NvValue::List(snaps));
        fss.push(format!("{index:#x}"), NvValue::List(entry));
    }
    let mut list = NvList::new();
    list.push("tosnap", "b");
    list.push("fromsnap", "a");
    list.push("fss", NvValue::List(fss));
    let payload = list.encode_xdr();
    let mut to_name = [0; 256];
    to_name[..3].copy_from_slice(b"s@b");
    let begin = Begin {
        magic: MAGIC,
        version_info: 2,
        creation_time: 0,
        objset_type: 0,
        flags: 0,
        to_guid: 0,
        from_guid: 0,
        to_name,
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let mut write = |record: Record, payload: Vec<u8>| {
        let order = Endian::Little;
        let mut bytes = [0; HEADER_SIZE];
        record.put(&mut bytes, order);
        let payload_len = u32::try_from(payload.len()).unwrap();
        bytes[..4].copy_from_slice(&order.put_u32(record.kind() as u32));
        bytes[4..8].copy_from_slice(&order.put_u32(payload_len));
        let header = Header { record, payload_len, checksum: [0; 4] };
        writer.write(&Frame { bytes, header, payload, at: 0 }, order).unwrap();
    };
    write(Record::Begin(begin), payload);
    for _ in 0..2 {
        write(Record::End(End { checksum: [0; 4], to_guid: 0 }), Vec::new());
    }
    bytes
}

fn receive(writer: &PoolWriter, request: &Request, bytes: &[u8]) -> Result<Vec<Event>, Refusal> {
    let mut session = Session::over(writer);
    session.set_input(bytes);
    session.run(request).map(|answer| answer.events)
}

fn guid(writer: &PoolWriter, snapshot: &str) -> u64 {
    writer.view().unwrap().dataset(snapshot).unwrap().dsl().phys().guid
}

/// Names of datasets and their snapshots.
fn names(writer: &PoolWriter) -> Vec<String> {
    let view = writer.view().unwrap();
    let mut names = with_descendants(&view, "p/r").unwrap();
    for name in names.clone() {
        let head = view.dsl().dir(&name).unwrap().head().unwrap().unwrap();
        names.extend(head.snapshots().unwrap().iter().map(|snapshot| snapshot.name().to_owned()));
    }
    names.sort();
    names
}

#[test]
fn datasets_get_the_shape_of_a_package() {
    let (image, writer) = Image::new(SIZE, &[]);
    for name in ["p/r", "p/r/x", "p/r/x/low", "p/r/y", "p/r/gone", "p/r/gone/low"] {
        writer.create_filesystem(name, &[]).unwrap();
    }
    for name in ["p/r@a", "p/r/x@a", "p/r/x/low@a", "p/r/y@a", "p/r/gone@a", "p/r@old", "p/r/y@later"] {
        writer.snapshot(&[name]).unwrap();
    }
    // A clone that was promoted at the sender.
    writer.clone_snapshot("p/r/y@a", "p/r/clone", &[]).unwrap();
    writer.snapshot(&["p/r/clone@c"]).unwrap();
    let guid = |name: &str| guid(&writer, name);
    let top = [("a", guid("p/r@a"))];
    let x = [("a", guid("p/r/x@a"))];
    let low = [("renamed", guid("p/r/x/low@a"))];
    let y = [("later", guid("p/r/y@later"))];
    let clone = [("a", guid("p/r/y@a")), ("c", guid("p/r/clone@c"))];
    // Two datasets have exchanged their names.
    let bytes = package(&[("s", &top), ("s/y", &x), ("s/y/deep", &low), ("s/x", &y), ("s/clone", &clone)]);
    let before = names(&writer);

    let request = Request::of("p/r");
    // Without force, and in a dry run, all stays.
    assert_eq!(receive(&writer, &request, &bytes).unwrap(), []);
    let dry = Request { force: true, dry_run: true, ..request.clone() };
    assert_eq!(receive(&writer, &dry, &bytes).unwrap(), []);
    assert_eq!(names(&writer), before);

    let request = Request { force: true, ..request };
    let events = receive(&writer, &request, &bytes).unwrap();
    assert!(!events.iter().any(|event| matches!(event, Event::Unchanged { .. })), "{events:?}");
    assert_eq!(events[0], Event::Promoted { dataset: "p/r/clone".into() });
    assert_eq!(
        names(&writer),
        [
            "p/r",
            "p/r/clone",
            "p/r/clone@a",
            "p/r/clone@c",
            "p/r/x",
            "p/r/x@later",
            "p/r/y",
            "p/r/y/deep",
            "p/r/y/deep@renamed",
            "p/r/y@a",
            "p/r@a"
        ]
    );
    assert_eq!(receive(&writer, &request, &bytes).unwrap(), []);

    // A snapshot that has a clone is destroyed with it, later.
    writer.create_filesystem("p/other", &[]).unwrap();
    writer.snapshot(&["p/r/x@used"]).unwrap();
    writer.clone_snapshot("p/r/x@used", "p/other/clone", &[]).unwrap();
    let events = receive(&writer, &request, &bytes).unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(names(&writer).contains(&"p/r/x@used".to_owned()));
    writer.close().unwrap();
    image.judge();
}

#[test]
fn what_is_cut_or_malformed_is_refused() {
    let (_image, writer) = Image::new(SIZE, &[]);
    writer.create_filesystem("p/r", &[]).unwrap();
    let bytes = package(&[("s", &[("a", 1)])]);
    let request = Request { force: true, ..Request::of("p/r") };
    let text = |bytes: &[u8]| receive(&writer, &request, bytes).unwrap_err().to_string();
    for len in 0..bytes.len() {
        let told = text(&bytes[..len]);
        assert!(told.starts_with("cannot receive: "), "{len}: {told}");
    }
    assert_eq!(text(&bytes[..bytes.len() - HEADER_SIZE]), "cannot receive: incomplete stream");
    for at in 0..bytes.len() - 2 * HEADER_SIZE {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        assert!(text(&damaged).starts_with("cannot receive"), "{at}");
    }
    assert!(receive(&writer, &request, &bytes).is_ok());
}
