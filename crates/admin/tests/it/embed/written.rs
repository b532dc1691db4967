//! Properties that affect how data is written; `zdb` shows what is on disk.
//!
//! Each file is written with other properties than the file before, by a writer that stays open.

use super::support::{Images, noise};
use cenote::PoolWriter;
use cenote::files::{FilesystemWriter, XattrHow};
use cenote_admin::PoolVerbs;

const SIZE: u64 = 256 << 20;

/// A block pointer as `zdb -bbbbbb` prints it.
#[derive(Debug, Clone, Default)]
struct Block {
    level: u32,
    /// Vdevs of its copies; empty for an embedded block.
    vdevs: Vec<u32>,
    /// Offset and size of its first copy, as printed.
    place: String,
    checksum: String,
    compression: String,
    lsize: u64,
    psize: u64,
    birth: u64,
}

/// An object as `zdb -ddddd` prints it.
#[derive(Debug, Default)]
struct Object {
    path: String,
    dblk: String,
    dnsize: String,
    text: String,
    blocks: Vec<Block>,
}

impl Object {
    fn data(&self) -> &Block {
        self.blocks.iter().find(|block| block.level == 0).expect("a block of data")
    }

    fn level(&self, level: u32) -> &Block {
        self.blocks.iter().find(|block| block.level == level).expect("a block of this level")
    }
}

fn block(line: &str) -> Option<Block> {
    let text = &line[line.find("[L").or_else(|| line.find("EMBEDDED [L"))?..];
    let level = text.trim_start_matches("EMBEDDED ").get(2..3)?.parse().ok()?;
    let after: Vec<&str> = text[text.find(']')? + 1..].split_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let sizes = after.iter().find_map(|word| word.strip_prefix("size="))?;
    let (lsize, psize) = sizes.split_once("L/")?;
    let birth = after.iter().find_map(|word| word.strip_prefix("birth="))?;
    let mut block = Block {
        level,
        lsize: hex(lsize)?,
        psize: hex(psize.trim_end_matches('P'))?,
        birth: birth.split('L').next()?.parse().ok()?,
        ..Block::default()
    };
    if line.contains("EMBEDDED") {
        block.compression = (*after.get(1)?).to_owned();
        return Some(block);
    }
    for dva in line.split("DVA[").skip(1) {
        let inner = dva.split(['<', '>']).nth(1)?;
        let (vdev, place) = inner.split_once(':')?;
        block.vdevs.push(vdev.parse().ok()?);
        if block.place.is_empty() {
            block.place = place.to_owned();
        }
    }
    block.checksum = (*after.first()?).to_owned();
    block.compression = (*after.get(1)?).to_owned();
    Some(block)
}

fn objects_of(images: &Images, dataset: &str) -> Option<Vec<Object>> {
    let text = images.zdb(&["-ddddd", "-bbbbbb", dataset])?;
    let mut all = Vec::new();
    for part in text.split("    Object  lvl   iblk").skip(1) {
        let mut lines = part.lines().skip(1);
        let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let path = part.lines().find_map(|line| line.strip_prefix("\tpath\t")).unwrap_or_default();
        all.push(Object {
            path: path.to_owned(),
            dblk: (*head.get(3).unwrap_or(&"")).to_owned(),
            dnsize: (*head.get(5).unwrap_or(&"")).to_owned(),
            text: part.to_owned(),
            blocks: part.lines().filter(|line| line.contains("birth=")).filter_map(block).collect(),
        });
    }
    Some(all)
}

/// Compressible text; more effort makes it smaller.
fn words(len: usize) -> Vec<u8> {
    let dice = noise(99, len / 3);
    let mut text = Vec::new();
    for byte in dice {
        text.extend_from_slice(format!("{} ", u32::from(byte) * u32::from(byte) % 977).as_bytes());
    }
    text.truncate(len);
    text
}

struct Pool<'a> {
    pool: &'a PoolWriter,
    fs: FilesystemWriter,
    count: usize,
}

impl<'a> Pool<'a> {
    fn new(pool: &'a PoolWriter) -> Pool<'a> {
        pool.create_filesystem("p/fs", &[]).expect("made");
        Pool { pool, fs: pool.filesystem("p/fs").expect("opened"), count: 0 }
    }

    /// Writes a file while these properties are set; returns its path.
    fn file(&mut self, props: &[(&str, &str)], content: &[u8]) -> String {
        self.pool.set("p/fs", props).expect("set");
        self.count += 1;
        let path = format!("/f{}", self.count);
        self.fs.write(path.as_bytes(), content).expect("written");
        self.fs.sync().expect("synced");
        path
    }
}

fn find<'o>(objects: &'o [Object], path: &str) -> &'o Object {
    objects.iter().find(|object| object.path == path).unwrap_or_else(|| panic!("{path} is there"))
}

const LAYOUTS: [&str; 3] = ["a", "mirror a b special mirror c d log e", "raidz1 a b c log d"];

#[test]
fn compression_and_checksum_and_copies() {
    let text = words(128 << 10);
    let compressions = [
        ("off", "uncompressed"),
        ("on", "lz4"),
        ("lz4", "lz4"),
        ("lzjb", "lzjb"),
        ("zle", "zle"),
        ("gzip", "gzip-6"),
        ("gzip-1", "gzip-1"),
        ("gzip-2", "gzip-2"),
        ("gzip-3", "gzip-3"),
        ("gzip-4", "gzip-4"),
        ("gzip-5", "gzip-5"),
        ("gzip-6", "gzip-6"),
        ("gzip-7", "gzip-7"),
        ("gzip-8", "gzip-8"),
        ("gzip-9", "gzip-9"),
        ("zstd", "zstd"),
        ("zstd-1", "zstd"),
        ("zstd-12", "zstd"),
        ("zstd-19", "zstd"),
        ("zstd-fast", "zstd"),
        ("zstd-fast-10", "zstd"),
        ("zstd-fast-1000", "zstd"),
    ];
    let checksums = ["fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3", "on"];
    for layout in LAYOUTS {
        let images = Images::new();
        let pool = images.pool(SIZE, layout, &[]);
        let mut files = Pool::new(&pool);
        // Zeros in runs, for zle.
        let mut content = text.clone();
        content[1000..60_000].fill(0);
        let compressed: Vec<_> = compressions
            .iter()
            .map(|(value, shown)| (*value, *shown, files.file(&[("compression", value)], &content)))
            .collect();
        let checked: Vec<_> =
            checksums.iter().map(|value| (*value, files.file(&[("checksum", value)], &text))).collect();
        let copied: Vec<_> = ["1", "2", "3"]
            .iter()
            .map(|value| (value.parse::<usize>().expect("a number"), files.file(&[("copies", value)], &text)))
            .collect();
        drop(files);
        pool.close().expect("closed");
        let Some(objects) = objects_of(&images, "p/fs") else { return };
        let mut sizes = std::collections::BTreeMap::new();
        for (value, shown, path) in compressed {
            let block = find(&objects, &path).data();
            assert_eq!(block.compression, shown, "compression={value} on {layout}");
            assert!((block.psize < block.lsize) == (value != "off"), "{value}: {block:?}");
            sizes.insert(value, block.psize);
            if shown == "zstd" && layout == "a" {
                // The header of the compressed block contains the level: docs/on-disk/13.
                let raw = images.raw(&format!("0:{}:r", block.place)).expect("readable");
                let wanted = match value {
                    "zstd" => 3,
                    "zstd-fast" => 103,
                    "zstd-fast-10" => 112,
                    "zstd-fast-1000" => 123,
                    value => value.trim_start_matches("zstd-").parse().expect("a level"),
                };
                assert_eq!(raw[4], wanted, "{value}");
            }
        }
        assert!(sizes["zstd-19"] < sizes["zstd-1"] && sizes["zstd-1"] < sizes["zstd-fast-1000"]);
        assert!(sizes["gzip-9"] < sizes["gzip-1"]);
        for (value, path) in checked {
            let object = find(&objects, &path);
            let shown = if value == "on" { "fletcher4" } else { value };
            assert_eq!(object.data().checksum, shown, "checksum={value} on {layout}");
        }
        for (copies, path) in copied {
            let block = find(&objects, &path).data();
            assert_eq!(block.vdevs.len(), copies, "copies={copies} on {layout}: {block:?}");
        }
        images.judge();
    }
}

#[test]
fn sizes_of_records_and_dnodes() {
    let (large, small) = (noise(5, 17 << 20), noise(6, 200_000));
    for layout in LAYOUTS {
        let images = Images::new();
        let pool = images.pool(SIZE, layout, &[("compression", "off")]);
        let mut files = Pool::new(&pool);
        let mut expected = Vec::new();
        for (size, shown) in [("512", "512"), ("4k", "4K"), ("128k", "128K"), ("1m", "1M"), ("16m", "16M")] {
            let content = if size == "512" { &large[..100_000] } else { &large };
            expected.push((files.file(&[("recordsize", size)], content), shown, "512"));
        }
        for (value, shown) in [
            ("auto", "1K"),
            ("1k", "1K"),
            ("2k", "2K"),
            ("4k", "4K"),
            ("8k", "8K"),
            ("16k", "16K"),
            ("legacy", "512"),
        ] {
            let path = files.file(&[("dnodesize", value), ("recordsize", "128k")], &small);
            expected.push((path, "128K", shown));
        }
        drop(files);
        pool.close().expect("closed");
        let Some(objects) = objects_of(&images, "p/fs") else { return };
        for (path, dblk, dnsize) in expected {
            let object = find(&objects, &path);
            assert_eq!((object.dblk.as_str(), object.dnsize.as_str()), (dblk, dnsize), "{path} on {layout}");
        }
        images.judge();
    }
}

#[test]
fn copies_of_metadata() {
    // As in OpenZFS 2.3.2: copies of data, of indirect blocks of levels 1 and 2, of dnodes, of their indirect
    // blocks, of directories, of critical objects such as the delete queue, and of the root.
    let expected = [
        ("all", [1, 2, 2, 2, 2, 2, 2, 2]),
        ("most", [1, 1, 2, 2, 2, 2, 2, 2]),
        ("some", [1, 1, 1, 1, 1, 1, 2, 2]),
        ("none", [1; 8]),
    ];
    for (value, wanted) in expected {
        let images = Images::new();
        let pool = images.pool(
            SIZE,
            "a",
            &[("redundant_metadata", value), ("compression", "off"), ("recordsize", "512")],
        );
        pool.create_filesystem("p/fs", &[]).expect("made");
        let fs = pool.filesystem("p/fs").expect("opened");
        fs.write(b"/f", &noise(1, 1 << 20)).expect("written");
        fs.create_dir(b"/d", 0o755).expect("made");
        for i in 0..300 {
            fs.write(format!("/d/{i}").as_bytes(), b"").expect("written");
        }
        drop(fs);
        pool.close().expect("closed");
        let Some(objects) = objects_of(&images, "p/fs") else { return };
        let file = find(&objects, "/f");
        let dnodes = objects.iter().find(|object| object.text.contains("DMU dnode")).expect("there");
        let dir = find(&objects, "/d");
        let layouts = objects.iter().find(|object| object.text.contains("SA attr layouts")).expect("there");
        let text = images.zdb(&["-ddddd", "-bbbbbb", "p/fs", "1"]).expect("there");
        let root = text.lines().find(|line| line.contains("rootbp")).expect("a root").matches("DVA[").count();
        let found = [
            file.data().vdevs.len(),
            file.level(1).vdevs.len(),
            file.level(2).vdevs.len(),
            dnodes.data().vdevs.len(),
            dnodes.level(1).vdevs.len(),
            dir.data().vdevs.len(),
            layouts.data().vdevs.len(),
            root,
        ];
        assert_eq!(found, wanted, "redundant_metadata={value}");
        images.judge();
    }
}

#[test]
fn small_blocks_go_to_special_vdevs() {
    for layout in ["a special b", "mirror a b special mirror c d", "raidz1 a b c special mirror d e"] {
        let images = Images::new();
        let pool = images.pool(SIZE, layout, &[("compression", "off"), ("recordsize", "64k")]);
        let mut files = Pool::new(&pool);
        let content = noise(1, 128 << 10);
        let zero = files.file(&[("special_small_blocks", "0")], &content[..4096]);
        let at_most = files.file(&[("special_small_blocks", "8k")], &content[..8192]);
        let more = files.file(&[("special_small_blocks", "8k")], &content[..8193]);
        let all = files.file(&[("special_small_blocks", "64k")], &content);
        let mut zeros = content.clone();
        zeros[5000..].fill(0);
        // The size on disk decides.
        let packed = files.file(&[("special_small_blocks", "8k"), ("compression", "lz4")], &zeros[..60_000]);
        drop(files);
        // Blocks of volumes are never put there.
        pool.set("p", &[("special_small_blocks", "64k")]).expect("set");
        pool.create_volume("p/vol", 1 << 20, &[]).expect("made");
        pool.volume("p/vol").expect("opened").write_at(0, &content).expect("written");
        pool.close().expect("closed");
        let Some(volume) = objects_of(&images, "p/vol") else { return };
        let data = volume.iter().find(|object| object.text.contains("zvol object")).expect("there").data();
        assert_eq!(data.vdevs, [0], "{layout}: {data:?}");
        let Some(objects) = objects_of(&images, "p/fs") else { return };
        let vdev = |path: &str| find(&objects, path).data().vdevs[0];
        assert_eq!(
            [vdev(&zero), vdev(&at_most), vdev(&more), vdev(&all), vdev(&packed)],
            [0, 1, 0, 1, 1],
            "{layout}"
        );
        let pointers = find(&objects, &all).level(1);
        assert!(pointers.vdevs.iter().all(|vdev| *vdev == 1), "{layout}: {pointers:?}");
        images.judge();
    }
}

#[test]
fn same_content_is_not_written_again() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let mut files = Pool::new(&pool);
    let content = words(128 << 10);
    let mut paths = Vec::new();
    for (checksum, compression, is_kept) in [
        ("sha256", "lz4", true),
        ("sha512", "lz4", true),
        ("skein", "gzip", true),
        ("edonr", "lz4", true),
        ("blake3", "zstd", true),
        ("fletcher4", "lz4", false),
        ("sha256", "off", false),
    ] {
        let path = files.file(&[("checksum", checksum), ("compression", compression)], &content);
        let first = pool.sync().expect("synced").0;
        let file = files.fs.open_file(path.as_bytes()).expect("there");
        file.write_at(0, &content).expect("written");
        files.fs.sync().expect("synced");
        // Other data is written.
        let other = files.file(&[], &noise(8, 128 << 10));
        let file = files.fs.open_file(other.as_bytes()).expect("there");
        file.write_at(0, &noise(9, 128 << 10)).expect("written");
        let second = pool.sync().expect("synced").0;
        paths.push((path, first, is_kept, other, second, checksum));
    }
    drop(files);
    pool.close().expect("closed");
    let Some(objects) = objects_of(&images, "p/fs") else { return };
    for (path, first, is_kept, other, second, checksum) in paths {
        let block = find(&objects, &path).data();
        assert_eq!(block.birth <= first, is_kept, "{checksum}, {first}: {block:?}");
        let block = find(&objects, &other).data();
        assert_eq!(block.birth, second, "{checksum}");
    }
    images.judge();
}

#[test]
fn embedded_and_attributes() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let mut files = Pool::new(&pool);
    let tiny = files.file(&[("compression", "lz4")], &[7; 4000]);
    let tiny_off = files.file(&[("compression", "off")], &[7; 4000]);
    let at = |files: &Pool<'_>, path: &str, value: &str, len: usize| {
        pool.set("p/fs", &[("xattr", value)]).expect("set");
        files.fs.set_xattr(path.as_bytes(), b"user.x", &noise(3, len), XattrHow::Either).expect("set");
        files.fs.sync().expect("synced");
    };
    let mut made = Vec::new();
    for (value, len) in [("sa", 10), ("sa", 5000), ("dir", 10), ("on", 10)] {
        let path = files.file(&[("compression", "lz4")], b"x");
        at(&files, &path, value, len);
        made.push((path, value, len));
    }
    pool.set("p/fs", &[("xattr", "off")]).expect("set");
    files.fs.set_xattr(tiny.as_bytes(), b"user.x", b"1", XattrHow::Either).expect_err("there are none");
    drop(files);
    pool.close().expect("closed");
    let Some(objects) = objects_of(&images, "p/fs") else { return };
    assert!(find(&objects, &tiny).data().vdevs.is_empty(), "embedded");
    assert_eq!(find(&objects, &tiny_off).data().vdevs.len(), 1);
    for (path, value, len) in made {
        let text = &find(&objects, &path).text;
        let is_packed = text.contains("SA xattrs:");
        let is_spilled = text.contains("SPILL");
        let has_dir = text.contains("\txattr\t");
        let found = (is_packed, is_spilled, has_dir);
        let wanted = match (value, len) {
            ("dir", _) => (false, false, true),
            (_, 10) => (true, false, false),
            _ => (true, true, false),
        };
        assert_eq!(found, wanted, "xattr={value}, {len} bytes: {text}");
    }
    images.judge();
}

/// The log of a dataset as on disk, in a pool that was not closed.
fn log_of(images: &Images, dataset: &str) -> Option<String> {
    for _ in 0..20 {
        let copy = tempfile::tempdir().expect("a folder");
        let copied = std::process::Command::new("cp")
            .args(["-r", "--sparse=always"])
            .arg(images.dir.path())
            .arg(copy.path().join("images"))
            .status();
        assert!(copied.expect("cp runs").success());
        // If a txg was written during the copy, the copy is not consistent.
        if let Some(text) =
            super::support::try_zdb(&copy.path().join("images"), &["-dddd", "-iiiii", dataset])?
        {
            return Some(text);
        }
    }
    panic!("no copy of {dataset} can be read");
}

#[test]
fn sync_and_logbias() {
    let images = Images::new();
    let pool = images.pool(SIZE, "mirror a b log c", &[]);
    for (name, props, fsync, wanted) in [
        ("p/standard", &[("sync", "standard")][..], false, None),
        ("p/fsynced", &[("sync", "standard")][..], true, Some(1)),
        ("p/always", &[("sync", "always")][..], false, Some(1)),
        ("p/disabled", &[("sync", "disabled")][..], true, None),
        ("p/throughput", &[("logbias", "throughput")][..], true, Some(0)),
    ] {
        pool.create_filesystem(name, props).expect("made");
        let fs = pool.filesystem(name).expect("opened");
        let file = fs.create(b"/x").expect("made");
        for i in 0..3 {
            // The first commit of a chain may wait for a txg instead.
            file.write_at(i * 1000, &noise(i, 1000)).expect("written");
            if fsync {
                file.sync().expect("durable");
            }
        }
        let Some(text) = log_of(&images, name) else { return };
        let blocks: Vec<Block> =
            text.lines().filter(|line| line.contains("[L0 ZIL intent log]")).filter_map(block).collect();
        let on: Vec<u32> = blocks.iter().flat_map(|block| block.vdevs.clone()).collect();
        match wanted {
            Some(vdev) => assert!(!on.is_empty() && on.iter().all(|on| *on == vdev), "{name}: {on:?}"),
            None => assert!(on.is_empty() && !text.contains("TX_WRITE  "), "{name}: {text}"),
        }
    }
    pool.close().expect("closed");
    images.judge();
}
