//! Hand-made samples: old formats, odd sizes, and texts that users type.

use crate::corpus::Corpus;
use crate::objects::little;
use format::boot_env::BootEnv;
use format::brt::BrtPhys;
use format::ddt::{DdtClass, DdtKey, DdtPhys, DdtValue, LogHeader, LogRecord};
use format::history::{HistoryPhys, encode_record};
use format::indirect::MappingEntry;
use format::l2arc::LOG_BLOCK_MAGIC;
use format::space_map::{MapType, Writer};
use format::{AllocOffset, Asize, Checksum, Dva, Endian, NvList, NvValue, ObjectId, Txg, VdevId};

const ORDERS: [(u8, &str, Endian); 2] = [(0, "little", Endian::Little), (1, "big", Endian::Big)];

pub(crate) fn collect(corpus: &mut Corpus) {
    stored_samples(corpus);
    lists(corpus);
    boot_environments(corpus);
    tables(corpus);
    space(corpus);
    texts(corpus);
    zaps(corpus);
    geometry(corpus);
    indexes(corpus);
}

/// Heads and pages of indexes of streams: see the target.
fn indexes(corpus: &mut Corpus) {
    const SECTOR: u64 = 512;
    const PER_PAGE: u64 = 169;
    const BODY: usize = 4096 - 32;
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    for (name, pages, snapshots) in [("empty", 0u64, 0u64), ("small", 1, 1), ("two-pages", 2, 3)] {
        let mut head = [text("tank"), text("")].concat();
        let mut put = |words: &[u64]| words.iter().for_each(|word| head.extend(word.to_le_bytes()));
        put(&[1 << 40, 1, 5000, 1_700_000_000, 9, 1, 2, 3, 4, snapshots]);
        for number in 0..snapshots {
            head.extend([text("tank/home"), text("mon")].concat());
            [number, 0, 1_700_000_000].iter().for_each(|word| head.extend(word.to_le_bytes()));
        }
        let starts = (0..pages).map(|page| page << 20);
        [0, pages].into_iter().chain(starts).for_each(|word| head.extend(word.to_le_bytes()));
        let mut input = [&(head.len() as u16).to_le_bytes()[..], &head].concat();
        for page in 0..pages {
            let mut body = Vec::new();
            for extent in 0..if page + 1 < pages { PER_PAGE } else { 3 } {
                let (at, len) = ((page << 20) + extent * 2 * SECTOR, SECTOR as u32);
                body.extend([at.to_le_bytes(), (extent * 900).to_le_bytes()].concat());
                body.extend([len.to_le_bytes(), (extent as u32 % 2).to_le_bytes()].concat());
            }
            body.resize(if page + 1 < pages { BODY } else { body.len() }, 0);
            input.extend(body);
        }
        corpus.make("cenote", "indexes", name, input);
    }
}

/// The samples that tests of `format` use as vectors.
fn stored_samples(corpus: &mut Corpus) {
    let folder = testkit::workspace_root().join("crates/format/testdata");
    let read = |name: &str| std::fs::read(folder.join(name)).expect("test data is there");
    corpus.make("format", "cache_headers", "header", read("l2arc-header.bin"));
    corpus.make("format", "uberblocks", "raidz1", read("uberblock-raidz1.bin"));
    corpus.make("format", "log_blocks", "names", little(&read("zil-names.bin")));
    corpus.make("format", "log_blocks", "writes", little(&read("zil-writes.bin")));
    corpus.make("format", "histories", "history", read("history.bin"));
    for name in ["label-classes-c0", "label-classes-h0", "label-classes-l0", "label-raidz1-d0"] {
        corpus.make("format", "lists", name, read(&format!("{name}.nvlist")));
    }
}

fn nested(depth: usize) -> NvList {
    let mut list = NvList::new();
    list.push("n", NvValue::Uint64(depth as u64));
    for _ in 1..depth {
        let mut outer = NvList::new();
        outer.push("in", NvValue::List(list));
        list = outer;
    }
    list
}

fn every_type() -> NvList {
    let mut list = NvList::new();
    let values = [
        NvValue::Boolean,
        NvValue::Byte(1),
        NvValue::Int8(-1),
        NvValue::Uint8(2),
        NvValue::Int16(-3),
        NvValue::Uint16(4),
        NvValue::Int32(-5),
        NvValue::Uint32(6),
        NvValue::Int64(-7),
        NvValue::Uint64(8),
        NvValue::Hrtime(9),
        NvValue::BooleanValue(true),
        NvValue::Double(1.5),
        NvValue::String("text".into()),
        NvValue::ByteArray(vec![1, 2, 3]),
        NvValue::Int8Array(vec![-1, 2]),
        NvValue::Uint8Array(vec![1; 9]),
        NvValue::Int16Array(vec![1, -2, 3]),
        NvValue::Uint16Array(vec![1, 2]),
        NvValue::Int32Array(vec![1, 2, 3]),
        NvValue::Uint32Array(vec![4]),
        NvValue::Int64Array(vec![5, 6]),
        NvValue::Uint64Array(vec![7, 8, 9]),
        NvValue::BooleanArray(vec![true, false]),
        NvValue::StringArray(vec!["a".into(), String::new(), "ccc".into()]),
        NvValue::List(nested(2)),
        NvValue::ListArray(vec![nested(1), NvList::new(), nested(3)]),
    ];
    for (i, value) in values.into_iter().enumerate() {
        list.push(format!("value{i}"), value);
    }
    list
}

fn lists(corpus: &mut Corpus) {
    let mut empty_lists = NvList::new();
    empty_lists.push("", NvValue::ListArray(vec![NvList::new(); 200]));
    let mut empty_strings = NvList::new();
    empty_strings.push("s", NvValue::StringArray(vec![String::new(); 300]));
    for (name, list) in [
        ("types", every_type()),
        ("depth-20", nested(20)),
        ("depth-21", nested(21)),
        ("empty", NvList::new()),
        ("empty-lists", empty_lists),
        ("empty-strings", empty_strings),
    ] {
        corpus.make("format", "lists", &format!("{name}-xdr"), list.encode_xdr());
        corpus.make("format", "lists", &format!("{name}-native"), list.encode_native());
        let mut big = list.encode_native();
        // The header as on a big-endian machine; the rest does not match it.
        big[1] = 0;
        corpus.make("format", "lists", &format!("{name}-other-order"), big);
    }
    let mut table = NvList::new();
    let row = |index: u64, domain: &str| {
        let mut row = NvList::new();
        row.push("fuid_idx", NvValue::Uint64(index));
        row.push("fuid_offset", NvValue::Uint64(0));
        row.push("fuid_domain", NvValue::String(domain.into()));
        row
    };
    let rows = vec![row(1, "S-1-5-21-3623811015-3361044348-30300820"), row(2, "S-1-22")];
    table.push("fuid_nvlist", NvValue::ListArray(rows));
    corpus.make("format", "domain_tables", "two", table.encode_xdr());
    corpus.make("format", "domain_tables", "native", table.encode_native());
    corpus.make("format", "domain_tables", "types", every_type().encode_xdr());
}

fn boot_environments(corpus: &mut Corpus) {
    let mut list = NvList::new();
    list.push("freebsd:bootonce", NvValue::String("zfs:tank/ROOT/new:".into()));
    for (name, env) in [
        ("empty", BootEnv::Empty),
        ("text", BootEnv::Text(b"saved_entry=linux\n".to_vec())),
        ("list", BootEnv::List(list)),
        ("deep", BootEnv::List(nested(20))),
        ("other", BootEnv::Other(7, vec![1; 100])),
    ] {
        let block = crate::devices::trimmed(env.encode().expect("it fits"));
        corpus.make("format", "boot_environments", name, block);
    }
}

fn ddt_phys(n: u64) -> DdtPhys {
    DdtPhys { dva_words: [n << 32 | 8, n << 9, 0, 0, 0, 0], refcount: n, birth: Txg(n) }
}

fn tables(corpus: &mut Corpus) {
    let key = DdtKey { checksum: Checksum([1, 2, 3, 4]), prop: 0x0f_0001 };
    let flat = DdtValue::Flat { phys: ddt_phys(2), class_start: 5 };
    let legacy = DdtValue::Legacy(std::array::from_fn(|n| ddt_phys(n as u64)));
    for (big, name, order) in ORDERS {
        for (form, value) in [("flat", flat), ("legacy", legacy)] {
            let sample = [&[big][..], &value.encode(order)].concat();
            corpus.make("format", "dedup_values", &format!("{form}-{name}"), sample);
            let record = LogRecord { key, value, stored_in: (form == "flat").then_some(DdtClass::Unique) };
            let mut block = vec![big];
            block.extend([record.encode(order), record.encode(order)].concat());
            block.resize(1025, 0);
            corpus.make("format", "dedup_logs", &format!("{form}-{name}"), block);
        }
        let words: Vec<u8> = (0..512).flat_map(|n| order.put_u64(n % 7)).collect();
        corpus.make("format", "word_values", &format!("histogram-{name}"), [&[big][..], &words].concat());
        let scan: Vec<u8> = (0..24).flat_map(|n| order.put_u64(n % 3)).collect();
        corpus.make("format", "word_values", &format!("scan-{name}"), [&[big][..], &scan].concat());
        let log = LogHeader { flushing: true, length: 4096, first_txg: Txg(9), checkpoint: Some(key) };
        let sample = [&[big][..], &log.encode(order)].concat();
        corpus.make("format", "small_headers", &format!("dedup-log-{name}"), sample);
        let clones = BrtPhys {
            entries: ObjectId(9),
            regions: 4,
            array_order: order,
            count: 7,
            region_size: 1 << 26,
            used: 1 << 20,
            saved: 1 << 21,
        };
        let sample = [&[big][..], &clones.encode(order)].concat();
        corpus.make("format", "small_headers", &format!("clones-{name}"), sample);
        let tree: Vec<u8> = (0..42).flat_map(|n| order.put_u64(n)).collect();
        corpus.make("format", "dsl_bonuses", &format!("tree-{name}"), [&[big | 4 << 1][..], &tree].concat());
        let redaction: Vec<u8> = [9, 3, 0, 11, 12, 13].into_iter().flat_map(|n| order.put_u64(n)).collect();
        corpus.make(
            "format",
            "dsl_bonuses",
            &format!("redaction-{name}"),
            [&[big | 5 << 1][..], &redaction].concat(),
        );
    }
    let mut log_block = 10u16.to_le_bytes().to_vec();
    log_block.extend(LOG_BLOCK_MAGIC.to_le_bytes());
    log_block.extend((0..10 * 64 + 64).map(|n| n as u8));
    corpus.make("format", "cache_log_blocks", "ten", log_block);
}

fn space(corpus: &mut Corpus) {
    let entry = |n: u64| MappingEntry {
        source: AllocOffset(n << 20),
        target: Dva { vdev: VdevId(1), offset: AllocOffset(n << 22), asize: Asize(1 << 20), gang: false },
    };
    for (big, name, order) in ORDERS {
        let mut writer = Writer::new(0, 4096);
        writer.debug(MapType::Alloc, 1, 77);
        for n in 0..40 {
            // Long and distant ranges need two words.
            let run = if n % 5 == 0 { 1 << 20 } else { 7 };
            let vdev = (n % 3 == 0).then_some(VdevId(2));
            let kind = if n % 2 == 0 { MapType::Alloc } else { MapType::Free };
            let _ = writer.range(kind, n << 17, run, vdev);
        }
        corpus.make("format", "space_maps", name, [&[big][..], &writer.finish(order)].concat());
        let mapping: Vec<u8> = (0..8).flat_map(|n| entry(n).encode(order)).collect();
        corpus.make("format", "removed_vdevs", name, [&[big][..], &mapping].concat());
    }
    let phys = [128u64 << 10, 5000, 4000, 100, 0].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    if let Ok(phys) = HistoryPhys::decode(&phys, Endian::Little) {
        corpus.make("format", "history_headers", "wrapped", little(&phys.encode(Endian::Little)));
    }
    let mut stream = encode_record(&every_type());
    stream.extend(encode_record(&nested(3)));
    corpus.make("format", "histories", "types", stream);
    let bookmark: Vec<u8> = (1..8u64).flat_map(u64::to_be_bytes).collect();
    for words in [3, 6, 7] {
        let sample = [&[1], &bookmark[..8 * words]].concat();
        corpus.make("format", "word_values", &format!("bookmark-{words}"), sample);
    }
}

fn texts(corpus: &mut Corpus) {
    let mut text = |folder: &'static str, target: &'static str, texts: &[&str]| {
        for (i, text) in texts.iter().enumerate() {
            corpus.make(folder, target, &format!("{i:02}"), text.as_bytes().to_vec());
        }
    };
    let errors =
        ["0:1:0:0", "36:2a:-1:ffffffffffffffff", "15:ffffffffffffffff:0:7", "2:3:fffffffffffffffe:9"];
    text("format", "error_log_keys", &errors);
    text(
        "format",
        "sizes",
        &["0", "50M", "1.5k", "1KiB", "16EB", "10Z", "18446744073709551615", "0.000001E", ".5G", "1.", "1BB"],
    );
    text(
        "format",
        "property_names",
        &[
            "compression",
            "com.example:key",
            "userquota@1000",
            "groupobjused@S-1-5-21-7-513",
            "written@monday",
            "userquota@",
            "feature@lz4_compress",
            "org.openzfs:zilsaxattr",
        ],
    );
    text(
        "dsl",
        "names",
        &[
            "tank",
            "tank/home/alice",
            "tank/home@monday",
            "tank#mark",
            "tank/a@b#c",
            "tank//a",
            "tank/./a",
            "tank/a@",
            "/tank",
            "tank/ä:b",
            "tank/../x",
        ],
    );
    text(
        "dsl",
        "tokens",
        &[
            "1-972a23b06-b8-789c636064000310a500c4ec50360710e72765a52697303008409460caa7a515a796806498e0f26c48f2499525a9c52089e31c58f597e4a79766a63030082edc70336e868fbd06923c27583e2f31379581a1b828593fadd8219901090000dc2e14c0",
            "1-0-10-",
            "1-0-ffffffffffffffff-789c",
            "2-1-1-00",
        ],
    );
    text(
        "dsl",
        "key_material",
        &[
            "2correct horse battery staple\n",
            "1000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n",
            "00123456789abcdef0123456789abcdef",
            "2short",
            "3file:///etc/key",
            "3https://host/key",
            "3prompt",
        ],
    );
    text(
        "dsl",
        "delegation_keys",
        &["ul$1000", "Ud$7", "ed$", "c-$", "s-$@backup", "Gl$18446744073709551616"],
    );
    text(
        "cenote",
        "targets",
        &["tank", "tank/home@mon:/a b", "p/a:b@s:/x:/y", "p/a:", ":/x", "tank:/\u{fffd}"],
    );
    text(
        "cli",
        "options",
        &[
            "-Hp\0tank\0-oname,used",
            "--json-int\0tank",
            "-d\x001\0--\0-x",
            "--js\0-o",
            "-\0--\0--",
            "--=\0--o=",
        ],
    );
    text(
        "cli",
        "patterns",
        &["*.txt\0a.txt", "[!a-c]*\0d", "[]x]\0]", "a*a*a*b\0aaaaaaaaaa", r"\*\0*", "[a-\0a"],
    );
    text(
        "dmu",
        "prepared_names",
        &[
            "\x72Stra\u{df}e",
            "\x12A\u{30a}ngstr\u{f6}m",
            "\x20\u{fdfa}\u{fb03}",
            "\x40\u{1100}\u{1161}\u{11a8}",
            "\x52\u{1d160}\u{0344}\u{0390}",
        ],
    );
}

/// Fat ZAPs with blocks of 512 bytes. They are dense, while those of real pools are mostly free chunks.
fn zaps(corpus: &mut Corpus) {
    for (big, name, order) in ORDERS {
        let blocks = crate::tiny_zap::fat(order);
        corpus.make("dmu", "whole_zaps", &format!("tiny-{name}"), [&[big, 9], &blocks[..]].concat());
        corpus.make("format", "fat_headers", &format!("tiny-{name}"), [&[big], &blocks[..512]].concat());
        corpus.make("format", "leaves", &format!("tiny-{name}"), [&[big], &blocks[512..1024]].concat());
        let micro = crate::tiny_zap::micro(order);
        corpus.make("dmu", "whole_zaps", &format!("micro-{name}"), [&[big, 9], &micro[..]].concat());
        corpus.make("format", "micro_zaps", &format!("micro-{name}"), [&[big], &micro[..]].concat());
    }
}

/// Layout numbers, as the target `geometry` reads them.
fn geometry(corpus: &mut Corpus) {
    let shape = |kind: u8, children: u8, parity: u8, ashift: u8, offset: u64, psize: u32| {
        let mut sample = vec![kind, children, parity, ashift];
        sample.extend(offset.to_le_bytes());
        sample.extend(psize.to_le_bytes());
        sample
    };
    corpus.make("vdev", "geometry", "raidz1", shape(0, 4, 1, 12, 1 << 20, 131_072));
    corpus.make("vdev", "geometry", "raidz2", shape(0, 5, 2, 9, 77 << 9, 3 << 9));
    corpus.make("vdev", "geometry", "raidz3-wide", shape(0, 255, 3, 16, 0, 1 << 17));
    let mut expanded = shape(1, 4, 1, 12, 40 << 20, 128 << 10);
    expanded.extend([50u64, 100].into_iter().flat_map(u64::to_le_bytes));
    corpus.make("vdev", "geometry", "expanded", expanded);
    let mut expanding = shape(3, 5, 2, 9, 40 << 20, 100 << 9);
    expanding.extend([50u64, 20 << 20].into_iter().flat_map(u64::to_le_bytes));
    corpus.make("vdev", "geometry", "expanding", expanding);
    let mut draid = shape(4, 5, 1, 12, 9 << 20, 16 << 10);
    draid.extend([2, 1, 5]);
    corpus.make("vdev", "geometry", "draid", draid);
}
