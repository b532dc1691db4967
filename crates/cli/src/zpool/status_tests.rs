//! The exact text and JSON of `zpool status`, for pools like those of the transcripts.

use super::{Options, Row, parse, status_json, text};
use crate::out::Out;
use crate::zpool::samples::{LAYOUTS, LISTING, MAINTENANCE, disk, in_class, printed, status, tank, vdev};
use admin::{Aux, Class, Diagnosis, Health, PoolStatus, Vdev};

fn options(flags: &[&str]) -> Options {
    parse(flags.iter().map(Into::into).collect()).expect("good options").0
}

fn row(status: PoolStatus) -> Row {
    Row { status, not_mounted: Vec::new() }
}

#[test]
fn text_in_all_styles() {
    for flags in
        [&[][..], &["-v"], &["-P"], &["-g"], &["-L"], &["-s"], &["-i"], &["-t"], &["-D"], &["-p"], &["-e"]]
    {
        let command = ["zpool", "status"].iter().chain(flags).copied().collect::<Vec<_>>().join(" ");
        let found = text(&options(flags), &tank(), &Out::new());
        assert_eq!(found, printed(LISTING, &command, 0), "{command}");
    }
}

#[test]
fn json_in_all_styles() {
    for flags in [
        &["-j"][..],
        &["-j", "--json-int"],
        &["-j", "--json-flat-vdevs"],
        &["-j", "--json-pool-key-guid"],
        &["-jv"],
    ] {
        let command = ["zpool", "status"].iter().chain(flags).copied().collect::<Vec<_>>().join(" ");
        let found = status_json::answer(&options(flags), &[row(tank())]);
        assert_eq!(found, printed(LISTING, &command, 0), "{command}");
    }
}

#[test]
fn classes_have_headings() {
    let mirror = |guid, a: &str, b: &str| vdev("mirror", guid, vec![disk(a, guid + 1), disk(b, guid + 2)]);
    let tops = vec![
        in_class(Class::Normal, 0, mirror(10, "/disks/c0t1d0", "/disks/c0t2d0")),
        in_class(Class::Special, 1, mirror(20, "/disks/c0t3d0", "/disks/c0t4d0")),
        in_class(Class::Dedup, 2, mirror(30, "/disks/c0t5d0", "/disks/small")),
        in_class(Class::Log, 3, disk("/disks/c0t6d0", 40)),
    ];
    let mut lay = status("lay", 1, vdev("root", 1, tops));
    lay.vdevs.cache = vec![in_class(Class::Cache, 0, disk("/disks/c0t7d0", 50))];
    lay.vdevs.spares = vec![in_class(Class::Spare, 0, disk("/disks/c0t8d0", 60))];
    let commands = LAYOUTS.matches("\n$ zpool status lay\n").count();
    let real = (0..commands).map(|n| printed(LAYOUTS, "zpool status lay", n)).find(|t| t.contains("dedup\t"));
    assert_eq!(text(&options(&[]), &lay, &Out::new()), real.expect("in the transcript"));
}

#[test]
fn a_lost_disk() {
    let missing = Vdev {
        health: Health::Unavail,
        aux: Aux::OpenFailed,
        not_present: true,
        psize: 0,
        ..disk("/disks/c0t2d0", 1_431_573_141_747_803_009)
    };
    let disks = vec![
        disk("/disks/c0t1d0", 9_222_968_723_079_422_700),
        missing,
        disk("/disks/c0t3d0", 12_628_921_046_230_111_853),
    ];
    let raidz = Vdev { nparity: 1, health: Health::Degraded, ..vdev("raidz", 7, disks) };
    let root = Vdev { health: Health::Degraded, ..vdev("root", 0, vec![raidz]) };
    let mut tank = status("tank", 4_377_883_191_250_644_663, root);
    tank.diagnosis = Diagnosis::Missing;
    let commands = MAINTENANCE.matches("\n$ zpool status -v tank\n").count();
    let real = (0..commands)
        .map(|n| printed(MAINTENANCE, "zpool status -v tank", n))
        .find(|t| t.contains("was /disks"));
    assert_eq!(text(&options(&["-v"]), &tank, &Out::new()), real.expect("in the transcript"));
}

#[test]
fn names_from_a_pool_stay_one_line_of_json() {
    let mut evil = tank();
    evil.facts.name = "a\n\u{1b}[2J".into();
    let found = status_json::answer(&options(&["-j"]), &[row(evil)]);
    assert_eq!(found.lines().count(), 1);
}
