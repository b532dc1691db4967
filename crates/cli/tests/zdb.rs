//! Our `zdb` beside the real one on the same images: what both print must be equal, line by line, and
//! so must the exit code. Nothing is normalised.

use std::process::Command;
use testkit::Fixture;

/// Output and exit code.
type Said = (String, Option<i32>);

fn run(program: &str, tool: &[&str], fixture: &Fixture, options: &[&str]) -> Said {
    let output = Command::new(program)
        .args(tool)
        .args(["-e", "-p"])
        .arg(fixture.dir())
        .args(options)
        .arg(&fixture.manifest().pool)
        .env("TZ", "UTC")
        .output()
        .expect("runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

fn same(fixture: &str, options: &[&[&str]]) {
    let Some(judge) = testkit::need_tool("zdb") else { return };
    let fixture = Fixture::open(fixture);
    for options in options {
        let real = run(judge.to_str().expect("a path"), &[], &fixture, options);
        let ours = run(env!("CARGO_BIN_EXE_cenote"), &["zdb"], &fixture, options);
        assert_eq!(ours.1, real.1, "exit code of {options:?}");
        for (at, (ours, real)) in ours.0.lines().zip(real.0.lines()).enumerate() {
            assert_eq!(ours, real, "{} {options:?}, line {}", fixture.name(), at + 1);
        }
        assert_eq!(ours.0.lines().count(), real.0.lines().count(), "{} {options:?}: lines", fixture.name());
    }
}

#[test]
fn configuration_uberblock_datasets_and_blocks() {
    same("single", &[&["-u"], &["-C"], &["-d"], &["-i"], &["-b"], &["-bcc"]]);
}

#[test]
fn objects_of_snapshots_and_clones() {
    same("snapshots", &[&["-dd"], &["-dddd"]]);
}

#[test]
fn blocks_of_removed_vdevs() {
    same("removed-vdev", &[&["-bb"]]);
}

#[test]
fn shared_blocks() {
    same("cloned", &[&["-b"]]);
    same("dedup-legacy", &[&["-b"]]);
}

#[test]
fn a_lost_block_is_exit_code_3() {
    same("lost-block", &[&["-bcc"]]);
}
