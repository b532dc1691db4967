//! Compares our `zdb` with the real one on the same images: output and exit code must be equal, line by line.
//!
//! Exceptions are named with their reasons: [`is_senseless`] for whole runs in which the real one crashes,
//! does not end or finds less than there is; [`is_own`] for lines that it makes up or reads from the wrong
//! place.
//!
//! Every run of the tests compares block counts, all checksums and leaks of every golden pool, and for some
//! pools the options that show their special features. All options for all pools and their labels, some 2500
//! runs in six minutes: `CENOTE_ZDB_MATRIX=all cargo xtask test conformance -- zdb --nocapture`.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::Fixture;

/// Variable that requests all options for all pools.
const ALL: &str = "CENOTE_ZDB_MATRIX";
/// Number of concurrent runs. The real one sleeps most of the time.
const THREADS: usize = 4;

/// All options with equal output, for runs with [`ALL`].
const OPTIONS: &str = "-b -bb -bbb -bbbb -bL -c -cc -bcc -bbccL -d -dd -ddd -dddd -ddddd -dddddd -m -mm -mmm -mmmm -M -MM -S -i -ii -iii -iiii -h -hh -u -C -D -DD -DDD -DDDD -DDDDD -T -TT -TTT -TTTT -y";
/// The same, for a pool as of its checkpoint.
const CHECKPOINTED: &str =
    "-kb -kbcc -kbbbb -kd -kdd -kdddd -kddddd -km -kmm -kmmmm -kMM -ki -kh -kS -ku -kC";
/// The options that every test run compares, besides `-bcc` for all pools.
const CHOSEN: &[(&str, &str)] = &[
    ("single", "-u -C -d -i -b -c -h -hh -D -y"),
    ("snapshots", "-dd -dddd -S"),
    // Logs of space maps, with blocks that are kept for the checkpoint; and the pool as of the checkpoint.
    ("checkpoint", "-bbbb -d -mmmm -MM -kbcc -kdd -kmmmm -ku -kS"),
    // Mappings of removed vdevs, and the list of remapped blocks.
    ("removed-vdev", "-bb -d -mmmm -MM"),
    ("removed-mirror", "-mmm -M"),
    ("holevdev", "-m -MM"),
    ("classes", "-bb -mmm -M -MM"),
    ("dedupmix", "-bbb -MM -S -DD -DDDD"),
    // Tables whose ZAPs hash their keys again, and tables whose ZAPs do not; without unique blocks.
    ("dedup-legacy", "-b -M -S -D -DDD -DDDDD"),
    ("dedup-fast", "-b -S"),
    // Blocks without checksums, and blocks with more copies in one place than in another.
    ("checksum", "-S"),
    ("cloned", "-b -S -T -TT -TTT -TTTT"),
    ("zil-slog", "-TTT -TTTT"),
    ("removed-split", "-mmmm"),
    // Gang blocks, some with one copy only; those of more than 128 KiB are in the last row of histograms.
    ("gang", "-bbbb -M"),
    ("raidz-expanded", "-bbb -mmm"),
    ("draid1", "-mmmm"),
    // Large sectors: fragmentation of segments of up to 128 MiB.
    ("ashift16", "-mmm -M"),
    // No histograms, and names of sizes below 1 KiB; no data to deduplicate.
    ("legacy", "-mmm -M -S"),
    ("version1", "-m -M -T"),
    ("fileflags", "-S"),
    // Names that the real one reads from the wrong place; data of a write that is shorter than its block.
    ("zil-raidz", "-iiii -dddddd"),
    // A block that is reported as damaged, with its pointer.
    ("lost-block", "-bbccL"),
];

/// Output and exit code.
type Said = (String, Option<i32>);

fn said(command: &mut Command, options: &str, operands: &[&str]) -> Said {
    let output = command.arg(options).args(operands).env("TZ", "UTC").output().expect("runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

fn ours() -> Command {
    let mut command = Command::new(testkit::cenote());
    command.arg("zdb");
    command
}

/// Whether a run of the real one cannot be compared.
fn is_senseless(fixture: &str, options: &str) -> bool {
    let objects = options.matches('d').count();
    match fixture {
        // It takes the image of a whole disk for a partition, and finds no label.
        "wholedisk" => true,
        // It does not end.
        "redacted" => objects > 0 || options.contains('i'),
        // It stops with an assertion, at a partially received file system.
        "partial-receive" => objects > 3,
        // It finds no data in an encrypted or otherwise large file after a hole of 1 TiB.
        "encryption" | "rawrecv" | "gang" => objects > 4,
        // It takes minutes.
        "bigdir" | "manyfiles" => objects > 4,
        "microzap1m" => objects > 5,
        _ => false,
    }
}

/// Whether a line is specific to the real one.
fn is_own(fixture: &str, options: &str, real: &str) -> bool {
    match fixture {
        // It reads the names of this record at the offsets of other rename records.
        "zil-raidz" => real.trim() == "src - tgt",
        // For the checkpoint, it rewinds to it in memory, which makes a txg and a time of its own.
        "checkpoint" if options.contains('k') => {
            ["\ttxg = ", "\ttimestamp = ", "\tcheckpoint_txg = "].iter().any(|name| real.starts_with(name))
        }
        _ => false,
    }
}

/// The first difference; empty if there is none.
fn difference(fixture: &str, options: &str, ours: &Said, real: &Said) -> String {
    if ours.1 != real.1 {
        return format!("{fixture} {options}: exit code {:?}, the real one's is {:?}\n", ours.1, real.1);
    }
    for (at, (a, b)) in ours.0.lines().zip(real.0.lines()).enumerate() {
        if a != b && !is_own(fixture, options, b) {
            return format!("{fixture} {options}, line {}:\n  {a}\n  {b}\n", at + 1);
        }
    }
    let (a, b) = (ours.0.lines().count(), real.0.lines().count());
    if a == b { String::new() } else { format!("{fixture} {options}: {a} lines, the real one has {b}\n") }
}

/// Compares both programs with these options on these pools.
fn compare(runs: &[(&str, &str)]) {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = String::new();
        while let Some((name, options)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_senseless(name, options) {
                continue;
            }
            let fixture = Fixture::open(name);
            let dir = fixture.dir().to_str().expect("a path");
            let operands = ["-e", "-p", dir, &fixture.manifest().pool];
            let ours = said(&mut ours(), options, &operands);
            let mut real = said(&mut testkit::hurried(&judge), options, &operands);
            if ours.1 != real.1 && real.1 == Some(1) {
                // It has races: once in 2200 runs it ended in this way, and never again for the same run.
                real = said(&mut testkit::hurried(&judge), options, &operands);
            }
            wrong += &difference(name, options, &ours, &real);
        }
        wrong
    };
    let wrong: String = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// Compares both programs with these options and operands on this pool.
fn compare_operands(name: &str, runs: &[(&str, &[&str])]) {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    let fixture = Fixture::open(name);
    let dir = fixture.dir().to_str().expect("a path");
    let mut wrong = String::new();
    for (options, more) in runs {
        let (below, more) = more.split_first().expect("what is behind the pool");
        let target = format!("{}{below}", fixture.manifest().pool);
        let operands = [&["-e", "-p", dir, &target], more].concat();
        let ours = said(&mut ours(), options, &operands);
        let real = said(&mut testkit::hurried(&judge), options, &operands);
        wrong += &difference(&format!("{target} {more:?}"), options, &ours, &real);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn datasets_by_a_slash_and_by_number() {
    compare_operands(
        "single",
        &[
            ("-d", &["/"]),
            ("-dd", &["/", "2"]),
            ("-d", &["//"]),
            ("-d", &["/fs/"]),
            ("-N", &["/80"]),
            ("-NN", &["/0x36"]),
            ("-N", &["/0"]),
            ("-Nd", &["/fs"]),
        ],
    );
}

#[test]
fn zstd_headers() {
    compare_operands(
        "compression",
        &[("-Zddddddbbbbbb", &["/zstd-9"]), ("-Zdddddbbbbb", &["/zstd-fast-1000"])],
    );
}

/// Places of blocks of the pool, one for each compression: block and image, image alone, and a place with
/// other contents. The real one tries for seconds on a zle image alone. For an lzjb block with one given size
/// see [`one_size_of_a_block_is_enough`].
#[test]
fn compression_is_guessed() {
    let places = [
        "0:172a00:20000L/ba00P:dr",
        "0:172a00:10000/ba00:d",
        "0:357800:20000L/6400P:dr",
        "0:357800:6400P:d",
        "0:25b200:20000/7e00:dr",
        "0:25b200:7e00:dr",
        "0:12c400:20000L/e000P:dr",
        "0:12c400:e000:dr",
        "0:14ce00:7400P:dr",
        "0:1fa200:20000/9a00:dr",
    ];
    let runs: Vec<[&str; 2]> = places.iter().map(|place| ["", *place]).collect();
    let runs: Vec<(&str, &[&str])> = runs.iter().map(|run| ("-R", &run[..])).collect();
    compare_operands("compression", &runs);
}

/// The sizes that the real one tries are larger than the given one, so it never finds a block whose size is
/// given.
#[test]
fn one_size_of_a_block_is_enough() {
    let fixture = Fixture::open("compression");
    let dir = fixture.dir().to_str().expect("a path");
    let read = |place: &str| {
        let mut command = ours();
        command.args(["-R", "-e", "-p", dir, "t_compression", place]).env("ZDB_NO_ZLE", "true");
        let output = command.output().expect("runs");
        (output.status.code(), output.stdout)
    };
    for (both, one) in [
        ("0:172a00:20000/ba00:dr", "0:172a00:20000L:dr"),
        ("0:12c400:20000/e000:dr", "0:12c400:20000L:dr"),
        ("0:25b200:20000/7e00:dr", "0:25b200:20000:dr"),
        ("0:357800:20000/6400:dr", "0:357800:20000:dr"),
    ] {
        let (code, block) = read(both);
        assert_eq!((code, block.len()), (Some(0), 0x20000), "{both}");
        assert_eq!(read(one), (Some(0), block), "{one}");
    }
    // Text of a zle block that did not compress.
    assert_eq!(read("0:1b5400:20000:dr").0, Some(1));
}

/// Without an option. Not compared: the configuration as an import would find it, which is that of the
/// labels, and counts of reads.
#[test]
fn nearly_everything() {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    for name in ["single", "dedupmix"] {
        let fixture = Fixture::open(name);
        let dir = fixture.dir().to_str().expect("a path");
        let operands = ["-p", dir, &fixture.manifest().pool];
        let (ours, real) =
            (said(&mut ours(), "-e", &operands), said(&mut testkit::hurried(&judge), "-e", &operands));
        let comparable = |(text, code): Said| {
            let from = text.find("\nMOS Configuration:").expect("the configuration");
            let lines = text.get(from..).expect("the rest").lines();
            let counts = |line: &&str| line.starts_with(&fixture.manifest().pool) || line.contains(dir);
            (lines.filter(|line| !counts(line)).map(|line| format!("{line}\n")).collect(), code)
        };
        let wrong = difference(name, "", &comparable(ours), &comparable(real));
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// The copy, the messages, and the exit code.
fn copied(command: &mut Command, fixture: &Fixture, from: &[&str; 2], to: &Path) -> (Said, Option<Vec<u8>>) {
    let dir = fixture.dir().to_str().expect("a path");
    let target = format!("{}{}", fixture.manifest().pool, from[0]);
    let operands = ["-e", "-p", dir, &target, from[1], to.to_str().expect("a path")];
    let said = said(command, "-r", &operands);
    (said, std::fs::read(to).ok())
}

#[test]
fn files_are_copied_out_of_a_pool() {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    let fixture = Fixture::open("holes");
    let folder = tempfile::tempdir().expect("a folder");
    for (i, from) in [
        ["/off4K", "holes/head"],
        ["/lz4128K@s1", "holes/tail"],
        ["/off128K", "text-513"],
        ["/off128K", "no such file"],
        ["/off128K", "/text-513"],
        ["/nothing", "text-513"],
    ]
    .iter()
    .enumerate()
    {
        let to = folder.path().join(i.to_string());
        let real = copied(&mut testkit::hurried(&judge), &fixture, from, &to);
        // An existing file is overwritten, and then has the length of its source.
        if real.1.is_some() {
            std::fs::write(&to, vec![0xff; 2 << 20]).expect("written");
        }
        let ours = copied(&mut ours(), &fixture, from, &to);
        assert_eq!(ours.0, real.0, "{from:?}");
        assert!(ours.1 == real.1, "{from:?}: other bytes");
    }
    // The real one fails with EINVAL.
    let to = folder.path().join("empty");
    assert_eq!(copied(&mut ours(), &fixture, &["/off128K", "empty"], &to).1, Some(Vec::new()));
    // A folder: EISDIR. Below a missing folder: ENOENT.
    for (to, code) in [(folder.path().to_path_buf(), 21), (folder.path().join("no/copy"), 2)] {
        let from = &["/off128K", "text-513"];
        let (real, _) = copied(&mut testkit::hurried(&judge), &fixture, from, &to);
        let (ours, _) = copied(&mut ours(), &fixture, from, &to);
        assert_eq!((&ours, ours.1), (&real, Some(code)));
    }
}

#[test]
fn holes_of_a_file_are_holes_of_its_copy() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::open("holes");
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("copy");
    let dir = fixture.dir().to_str().expect("a path");
    let mut command = ours();
    command.args(["-r", "-e", "-p", dir, "t_holes/off128K", "holes/huge"]).arg(&to);
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let copy = to.metadata().expect("a copy");
    assert_eq!(copy.size(), (1 << 40) + 17);
    assert!(copy.blocks() < 4096, "{} sectors", copy.blocks());
}

#[test]
fn what_was_read_is_counted() {
    let fixture = Fixture::open("classes");
    let dir = fixture.dir().to_str().expect("a path");
    let (text, code) = said(&mut ours(), "-s", &["-e", "-p", dir, "t_classes"]);
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "                            capacity   operations   bandwidth  ---- errors ----");
    assert_eq!(lines[1], "description                used avail  read write  read write  read write cksum");
    let numbers = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let pool = numbers(lines[2]);
    assert_eq!((pool[0].as_str(), pool.len()), ("t_classes", 10));
    assert!(pool[3].parse::<u64>().expect("a number") > 0, "nothing was read: {text}");
    // A special vdev, and a path that is too long for its column.
    assert!(text.lines().any(|line| line.starts_with("  mirror (special)         ")), "{text}");
    assert!(text.lines().any(|line| line.contains("l0.img") && numbers(line)[1] == "(log)"), "{text}");
}

/// Pointers of the golden pool `embedded`.
#[test]
fn the_block_in_a_pointer() {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    let gzip =
        "2a2d4e2d4a2b9c78:ca4a2d4a4d28554b:a230518664fc9:6b0601a700:0:0:8013008a380001ff:0:0:0:19:0:0:0:0:0";
    let ours_said = said(&mut ours(), "-E", &[gzip]);
    assert_eq!((ours_said.0.len(), ours_said.1), (512, Some(0)));
    assert_eq!(ours_said, said(&mut testkit::hurried(&judge), "-E", &[gzip]));
    // Too few words; no words; no embedded block, at which the real one stops with an assertion; a damaged
    // one.
    for bad in ["1:2:3", "t_embedded", "1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10", &gzip.replace("9c78:", "9c79:")] {
        assert_eq!(said(&mut ours(), "-E", &[bad]), (String::new(), Some(1)), "{bad}");
    }
}

/// All golden pools, including the second collection.
fn names() -> Vec<String> {
    let more = testkit::workspace_root().join("fixtures/openzfs-2.3.2-more");
    let listing = std::fs::read_dir(more).expect("the second collection");
    let entries = listing
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.path().join("manifest.json").is_file());
    let more = entries.map(|entry| entry.file_name().into_string().expect("a name"));
    Fixture::names().into_iter().chain(more).collect()
}

#[test]
fn block_counts_checksums_and_leaks_of_every_pool() {
    let names = names();
    let runs: Vec<_> = names.iter().map(|name| (name.as_str(), "-bcc")).collect();
    assert!(runs.len() > 70, "where are the golden pools?");
    compare(&runs);
}

#[test]
fn everything_else_of_chosen_pools() {
    let names = names();
    let chosen: Vec<(&str, &str)> = match std::env::var_os(ALL) {
        Some(_) => {
            let all = names.iter().map(|name| (name.as_str(), OPTIONS));
            all.chain([("checkpoint", CHECKPOINTED)]).collect()
        }
        None => CHOSEN.to_vec(),
    };
    let runs: Vec<(&str, &str)> =
        chosen.iter().flat_map(|(name, options)| options.split(' ').map(move |one| (*name, one))).collect();
    compare(&runs);
}

/// Compares the labels of every image by itself. With a second `l` the real one counts arrays of numbers
/// differently; such labels are left out.
fn compare_labels(fixture: &Fixture, options: &[&str]) -> String {
    let Some(judge) = testkit::need_tool("zdb") else { return String::new() };
    let mut wrong = String::new();
    for image in fixture.images() {
        let image: &Path = &image;
        let operands = [image.to_str().expect("a path")];
        for options in options {
            let real = said(&mut testkit::hurried(&judge), options, &operands);
            wrong += &difference(operands[0], options, &said(&mut ours(), options, &operands), &real);
        }
    }
    wrong
}

#[test]
fn labels() {
    let all: &[&str] = &["-l", "-lu", "-luuu", "-lq"];
    let wrong: String = match std::env::var_os(ALL) {
        // Uberblocks of uberblock-torn make it read from an invalid address.
        Some(_) => {
            let sound = names().into_iter().filter(|name| name != "uberblock-torn");
            sound.map(|name| compare_labels(&Fixture::open(&name), all)).collect()
        }
        None => ["labels-front", "classes"]
            .iter()
            .map(|name| compare_labels(&Fixture::open(name), &["-ll", "-luuu"]))
            .collect(),
    };
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_pool_without_a_checkpoint_is_not_seen_as_of_one() {
    let fixture = Fixture::open("single");
    let dir = fixture.dir().to_str().expect("a path");
    let output = ours().args(["-kd", "-e", "-p", dir, "t_single"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "zdb: can't open 't_single': checkpoint does not exist\n");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let output = ours().args(["-B", "t_single/80"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("zdb: option -B is not supported by this version of Cenote\n"), "{said}");
}
