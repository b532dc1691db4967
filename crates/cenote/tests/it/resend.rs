//! Golden streams that were received into a pool of ours, and are sent from it again with the flags of their sender: the
//! records are those that OpenZFS made.

use crate::receive::{OnFile, how, received};
use cenote::PoolWriter;
use cenote::receive::Receive;
use cenote::stream::Reader;
use cenote::stream::send::{From, Options, Source, send};
use format::stream::{End, Record};
use std::ops::ControlFlow;

/// A record as it is compared: without what depends on the disk of the sender.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Shown {
    record: String,
    payload: u64,
    content: Vec<u8>,
}

/// The records of a stream. What a receiver does not learn is left out: how well a block was compressed on the disk of the
/// sender, and how far the holes at the end of an object go. So are checksums, and OpenZFS's form of embedded spill blocks.
fn shown(bytes: &[u8]) -> Vec<Shown> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame().expect("a record") {
        let record = match frame.header.record {
            Record::Begin(begin) => {
                let name =
                    String::from_utf8_lossy(begin.name()).rsplit('@').next().unwrap_or_default().to_owned();
                format!(
                    "BEGIN {:x} {} {} {:x} {:x} {:x} @{name}",
                    begin.version_info,
                    begin.creation_time,
                    begin.objset_type,
                    begin.flags,
                    begin.to_guid,
                    begin.from_guid,
                )
            }
            Record::Write(mut write) => {
                (write.key, write.checksum_type) = ([0; 5], 0);
                format!("{write:?}")
            }
            Record::Free(free) if free.length == u64::MAX => format!("FREE behind {}", free.object),
            Record::WriteEmbedded(write) if write.offset > u64::MAX / 2 => {
                format!("spill block of {}", write.object)
            }
            Record::Spill(spill) if spill.length <= 1024 => format!("spill block of {}", spill.object),
            Record::End(end) => format!("{:?}", End { checksum: [0; 4], ..end }),
            other => format!("{other:?}"),
        };
        let is_hole = record.starts_with("Free(");
        if !is_hole && !record.starts_with("Write") {
            // The holes before this record were at the end of an object.
            while all.last().is_some_and(|last: &Shown| last.record.starts_with("Free(")) {
                all.pop();
            }
        }
        let is_spill = record.starts_with("spill block");
        let content = if is_spill { Vec::new() } else { frame.payload };
        all.push(Shown { record, payload: content.len() as u64, content });
    }
    all
}

/// Sends a snapshot of the pool; `from`: the snapshot from which the increment starts.
pub(crate) fn sent(
    pool: &PoolWriter,
    snapshot: &str,
    from: Option<(&str, bool)>,
    options: Options,
) -> Vec<u8> {
    pool.sync().expect("synced");
    let view = pool.view().expect("a view");
    let dataset = view.dsl().dataset(snapshot).expect("there");
    let set = dataset.open_objset().expect("opened");
    let from = from.map(|(name, is_origin)| {
        let from = view.dsl().dataset(name).expect("there");
        From { guid: from.phys().guid, txg: from.phys().creation_txg, is_origin, ..From::default() }
    });
    let pool_features = vec!["lz4_compress", "embedded_data", "hole_birth", "extensible_dataset"];
    let source = Source { dataset, set, from, pool_features };
    let options = Options { to_name: snapshot.to_owned(), ..options };
    let mut bytes = Vec::new();
    send(&source, &options, &mut bytes, &mut |_| ControlFlow::Continue(())).expect("sent");
    bytes
}

/// Compares what is sent with a golden stream.
fn compare(stream: &str, ours: &[u8]) {
    let (ours, theirs) = (shown(ours), shown(&testkit::stream(stream)));
    for (at, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!((&our.record, our.payload), (&their.record, their.payload), "{stream}: record {at}");
        assert!(our.content == their.content, "{stream}: record {at}: {}", our.record);
    }
    assert_eq!(ours.len(), theirs.len(), "{stream}");
}

#[test]
fn full_streams_and_increments() {
    let (_files, pool) = OnFile::new();
    received(&pool, "full", &how("dst/full", "a"));
    compare("full", &sent(&pool, "dst/full@a", None, Options::default()));
    received(&pool, "incr-a-b", &how("dst/full", "b"));
    compare("incr-a-b", &sent(&pool, "dst/full@b", Some(("dst/full@a", false)), Options::default()));
    received(&pool, "incr-b-c", &Receive { force: true, ..how("dst/full", "c") });
    compare("incr-b-c", &sent(&pool, "dst/full@c", Some(("dst/full@b", false)), Options::default()));
}

#[test]
fn holes_clones_and_volumes() {
    let (_files, pool) = OnFile::new();
    received(&pool, "holes-full", &how("dst/holes", "1"));
    compare("holes-full", &sent(&pool, "dst/holes@1", None, Options::default()));
    received(&pool, "holes-incr", &Receive { force: true, ..how("dst/holes", "2") });
    compare("holes-incr", &sent(&pool, "dst/holes@2", Some(("dst/holes@1", false)), Options::default()));
    received(&pool, "full-one-r1", &how("dst/one", "r1"));
    compare("full-one-r1", &sent(&pool, "dst/one@r1", None, Options::default()));
    let origin = Some("dst/one@r1".to_owned());
    received(&pool, "clone-origin", &Receive { origin, ..how("dst/cl", "r2") });
    compare("clone-origin", &sent(&pool, "dst/cl@r2", Some(("dst/one@r1", true)), Options::default()));
    received(&pool, "zvol-full", &how("dst/vol", "r1"));
    compare("zvol-full", &sent(&pool, "dst/vol@r1", None, Options::default()));
    received(&pool, "zvol-incr", &Receive { force: true, ..how("dst/vol", "r2") });
    compare("zvol-incr", &sent(&pool, "dst/vol@r2", Some(("dst/vol@r1", false)), Options::default()));
}

#[test]
fn large_and_compressed_blocks() {
    let (_files, pool) = OnFile::new();
    let all = Options { large_blocks: true, embedded: true, compressed: true, ..Options::default() };
    let large = Options { large_blocks: true, ..Options::default() };
    received(&pool, "large-L", &how("dst/l1", "1"));
    compare("large-L", &sent(&pool, "dst/l1@1", None, large));
    received(&pool, "large-Lec", &how("dst/l4", "1"));
    compare("large-Lec", &sent(&pool, "dst/l4@1", None, all.clone()));
    received(&pool, "large-Lec-incr", &Receive { force: true, ..how("dst/l4", "2") });
    compare("large-Lec-incr", &sent(&pool, "dst/l4@2", Some(("dst/l4@1", false)), all));
    // lzjb and zle leave blocks as they are that lz4, the default of this pool, compresses.
    for name in ["gzip-9", "lz4", "zstd-fast"] {
        let (stream, dataset) = (format!("compressed-{name}"), format!("dst/c-{name}"));
        received(&pool, &stream, &how(&dataset, "1"));
        let options = Options { compressed: true, ..Options::default() };
        compare(&stream, &sent(&pool, &format!("{dataset}@1"), None, options));
    }
    for (stream, dataset) in [("small-blocks", "dst/small"), ("longname", "dst/long")] {
        received(&pool, stream, &how(dataset, "1"));
        compare(stream, &sent(&pool, &format!("{dataset}@1"), None, Options::default()));
    }
}
