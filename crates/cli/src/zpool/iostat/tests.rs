//! Against what OpenZFS printed: its numbers are read back from its histograms, and the rest of its output must
//! follow from them.

use super::*;
use crate::zpool::samples::{disk, vdev};
use crate::zpool::scripts::Columns;
use admin::{IoStats, Op, Priority, Vdevs};
use std::collections::HashMap;

const FIRST: &str = include_str!("../../../../../fixtures/cli-transcripts/04-iostat.txt");
const MORE: &str = include_str!("../../../../../fixtures/cli-transcripts/14-iostat.txt");

/// What the transcript has for a command.
fn printed<'a>(transcript: &'a str, command: &str) -> &'a str {
    let start = format!("\n$ {command}\n");
    let body = transcript.split(&start).nth(1).unwrap_or_else(|| panic!("no '{command}'"));
    &body[..body.find("[exit ").expect("ends")]
}

/// The cells of a histogram's lines.
fn cells(text: &str) -> Vec<Vec<u64>> {
    let rows = text.lines().skip(4).take_while(|line| !line.starts_with("---"));
    rows.map(|row| row.split_whitespace().skip(1).map(|n| n.parse().expect("a number")).collect()).collect()
}

fn stats_of(times: Option<&str>, sizes: Option<&str>) -> IoStats {
    let mut stats = IoStats::default();
    for (i, row) in times.map(cells).unwrap_or_default().into_iter().enumerate() {
        for (column, count) in row.into_iter().enumerate() {
            match column {
                0 | 1 => stats.total_wait[column][i] = count,
                2 | 3 => stats.disk_wait[column - 2][i] = count,
                other => stats.queue_wait[other - 4][i] = count,
            }
        }
    }
    for (i, row) in sizes.map(cells).unwrap_or_default().into_iter().enumerate() {
        for (column, count) in row.into_iter().enumerate() {
            let to = if column % 2 == 0 { &mut stats.individual } else { &mut stats.aggregated };
            to[column / 2][i + 9] = count;
        }
    }
    stats
}

fn io(stats: IoStats, reads: u64, writes: u64, read: u64, written: u64) -> VdevIo {
    let mut stats = stats;
    (stats.ops[Op::Read as usize], stats.ops[Op::Write as usize]) = (reads, writes);
    (stats.bytes[Op::Read as usize], stats.bytes[Op::Write as usize]) = (read, written);
    VdevIo { age: Duration::from_secs(1), stats }
}

/// A pool of one mirror, as in the first transcript.
fn tank(stats: &IoStats, rates: [[u64; 4]; 3]) -> PoolIo {
    let sides = vec![disk("/disks/c0t1d0", 3), disk("/disks/c0t2d0", 4)];
    let mut mirror = vdev("mirror", 2, sides);
    (mirror.alloc, mirror.space) = (4_450_816, 4_450_816 + 247_207_424);
    let mut root = vdev("root", 1, vec![mirror]);
    root.pool_name = Some("tank".to_owned());
    (root.alloc, root.space) = (root.children[0].alloc, root.children[0].space);
    let [pool, first, second] = rates.map(|[a, b, c, d]| io(stats.clone(), a, b, c, d));
    let io = HashMap::from([(1, pool.clone()), (2, pool), (3, first), (4, second)]);
    let vdevs = Vdevs { root, cache: Vec::new(), spares: Vec::new() };
    PoolIo { name: "tank".to_owned(), vdevs, io }
}

fn shown(options: Options, selection: Selection, pools: &[PoolIo]) -> String {
    let out = Out::new();
    let scripts = Scripts::default();
    Report { options, stamp: Stamp::Off, scripts, out: &out, selection, samples: 0, lines: 0 }.text(pools)
}

/// Vdevs of whatever pool.
fn vdevs(names: &[&str]) -> Selection {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Selection { pools: Vec::new(), vdevs: Some(names) }
}

#[test]
fn a_table_of_vdevs() {
    let kib = |n: f64| (n * 1024.0).ceil() as u64;
    let rates =
        [[0, 30, kib(22.9), kib(346.0)], [0, 15, kib(11.4), kib(173.0)], [0, 15, kib(11.5), kib(173.0)]];
    let pool = tank(&IoStats::default(), rates);
    let verbose = Options { verbose: true, ..Options::default() };
    assert_eq!(
        shown(verbose, Selection::default(), std::slice::from_ref(&pool)),
        printed(FIRST, "zpool iostat -v tank")
    );
    let one = vdevs(&["/disks/c0t1d0"]);
    let text = shown(Options::default(), one, std::slice::from_ref(&pool));
    let real = printed(FIRST, "zpool iostat -v tank /disks/c0t1d0");
    assert_eq!(text.lines().take(3).collect::<Vec<_>>(), real.lines().take(3).collect::<Vec<_>>());
    assert!(text.contains("/disks/c0t1d0          -      -      0     15  11.4K   173K\n-----"), "{text}");
}

#[test]
fn exact_numbers_have_wider_columns() {
    let pool = tank(&IoStats::default(), [[0, 29, 22_914, 346_693]; 3]);
    let options = Options { exact: true, ..Options::default() };
    assert_eq!(
        shown(options, Selection::default(), std::slice::from_ref(&pool)),
        printed(FIRST, "zpool iostat -p tank")
    );
    let options = Options { scripted: true, ..options };
    assert_eq!(
        shown(options, Selection::default(), &[pool]),
        "tank\t4450816\t247207424\t0\t29\t22914\t346693\n"
    );
    let header = |options| table::Table::new(options, 10, false, &Columns::default()).header();
    let real = printed(MORE, "zpool iostat -p -lqv tp");
    let options = Options { exact: true, latency: true, queues: true, ..Options::default() };
    assert!(real.starts_with(&header(options)), "{}", header(options));
}

#[test]
fn histograms() {
    for (kind, command) in
        [(Histogram::Times, "zpool iostat -w tank"), (Histogram::Sizes, "zpool iostat -r tank")]
    {
        let real = printed(FIRST, command);
        let (times, sizes) = match kind {
            Histogram::Times => (Some(real), None),
            Histogram::Sizes => (None, Some(real)),
        };
        let pool = tank(&stats_of(times, sizes), [[0; 4]; 3]);
        let options = Options { histogram: Some(kind), ..Options::default() };
        assert_eq!(shown(options, Selection::default(), &[pool]), real);
    }
}

#[test]
fn histograms_for_scripts() {
    let real = printed(MORE, "zpool iostat -rH tp");
    let pool = tank(&stats_of(None, Some(printed(MORE, "zpool iostat -r tp"))), [[0; 4]; 3]);
    let options = Options { histogram: Some(Histogram::Sizes), scripted: true, ..Options::default() };
    assert_eq!(shown(options, Selection::default(), &[pool]).replace("tank", "tp"), real);
}

#[test]
fn mean_times_follow_from_the_histograms() {
    let stats = stats_of(Some(printed(MORE, "zpool iostat -w tq")), None);
    let pool = tank(&stats, [[0; 4]; 3]);
    let options = Options { latency: true, scripted: true, ..Options::default() };
    let ours = shown(options, Selection::default(), &[pool]);
    let real = printed(MORE, "zpool iostat -vl tq");
    let real: Vec<&str> = real.lines().nth(3).expect("the pool").split_whitespace().skip(7).collect();
    assert_eq!(ours.trim_end().split('\t').skip(7).collect::<Vec<_>>(), real);
}

#[test]
fn depths_are_those_of_the_moment() {
    let mut stats = IoStats::default();
    stats.active[Priority::AsyncWrite.index()] = 3;
    stats.pending[Priority::SyncRead.index()] = 2;
    let pool = tank(&stats, [[0; 4]; 3]);
    let since = pool.since(Some(&pool));
    let options = Options { queues: true, ..Options::default() };
    let text = shown(options, Selection::default(), &[since]);
    let real = printed(FIRST, "zpool iostat -q tank");
    assert_eq!(text.lines().take(3).collect::<Vec<_>>(), real.lines().take(3).collect::<Vec<_>>());
    assert!(text.ends_with(
        "      2      0      0      0      0      0      0      3      0      0      0      0      0      0\n"
    ));
}

#[test]
fn classes_have_headings_and_lists_of_vdevs_have_none() {
    let mut pool = tank(&IoStats::default(), [[0; 4]; 3]);
    let log = Vdev { class: Class::Log, alloc: 0, space: 288 << 20, ..disk("/img/c", 9) };
    pool.vdevs.root.children.push(log);
    let verbose = Options { verbose: true, ..Options::default() };
    let text = shown(verbose, Selection::default(), std::slice::from_ref(&pool));
    assert!(text.contains("\nlogs                   -      -      -      -      -      -\n"), "{text}");
    assert!(text.contains("\n  /img/c               0   288M      0      0      0      0\n---"), "{text}");
    let one = vdevs(&["3"]);
    let text = shown(Options::default(), one, std::slice::from_ref(&pool));
    assert!(text.contains("/disks/c0t1d0          -      -      0      0      0      0\n\n---"), "{text}");
    let scripted = Options { scripted: true, ..verbose };
    assert!(shown(scripted, Selection::default(), &[pool]).contains("\n\n/img/c\t0\t288M"));
}

#[test]
fn operands_as_the_real_one_takes_them() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let split = |text: &str| operands::split(&words(text));
    let good = split("tank 1.5 3").unwrap();
    assert_eq!((good.names, good.interval, good.count), (words("tank"), Some(1.5), Some(3)));
    assert_eq!(split("tank 17886979107003252814").unwrap().names.len(), 2, "a guid is no time");
    for zero in ["0", "tank 0", "tank 1 0"] {
        assert!(matches!(split(zero), Err(Stop::Usage(text)) if text == "interval cannot be zero"));
    }
    let pool = tank(&IoStats::default(), [[0; 4]; 3]);
    let select = |text: &str| Selection::of(&words(text), std::slice::from_ref(&pool));
    assert_eq!(select("").unwrap(), Selection::default());
    assert_eq!(select("tank").unwrap(), Selection { pools: words("tank"), vdevs: None });
    assert_eq!(select("mirror-0 4").unwrap(), vdevs(&["mirror-0", "4"]));
    assert_eq!(select("tank mirror-0").unwrap(), Selection { pools: words("tank"), ..vdevs(&["mirror-0"]) });
    assert!(matches!(refused(select("tank nodev").unwrap_err()), Stop::Usage(_)));
    assert!(matches!(refused(select("nopool").unwrap_err()), Stop::Failed(Some(_))));
}
