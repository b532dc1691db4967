//! `cargo xtask bench write`: compares writes through the library with those of `fio` to a raw file in the
//! same folder, in the same run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, cargo, must, root};

/// Duration of each measurement of synchronous writes, in seconds.
const SECONDS: &str = "8";
/// Fields of fio's terse output: writes per second, and KiB per second.
const WRITE_IOPS: usize = 48;
const WRITE_KIB: usize = 47;

/// Measures in `dir`, which should be on the disk to measure.
pub(crate) fn run(dir: Option<&str>) -> Outcome {
    let dir = dir.map_or_else(|| root().join("target"), PathBuf::from);
    must(&mut cargo(&["build", "--release", "--package", "cenote-bench"]))?;
    let has_fio = Command::new("fio").arg("--version").output().is_ok_and(|out| out.status.success());
    if !has_fio {
        println!("fio is not here (Debian: apt install fio): no numbers of a raw file beside ours");
    }
    ours(&dir, &["tree"])?;
    ours(&dir, &["tree", "--threads", "2"])?;
    ours(&dir, &["overwrite"])?;
    for raidz in [false, true] {
        if has_fio && !raidz {
            let job = [
                "--rw=write",
                "--bs=1m",
                "--direct=1",
                "--size=8g",
                "--end_fsync=1",
                "--ioengine=libaio",
                "--iodepth=8",
            ];
            let kib = fio(&dir, &job, WRITE_KIB)?;
            println!("fio, direct, sequential: {:.0} MB/s", kib * 1.024 / 1000.0);
        }
        let words: &[&str] = if raidz { &["sequential", "--raidz"] } else { &["sequential"] };
        ours(&dir, words)?;
    }
    for threads in ["1", "8", "64"] {
        if has_fio {
            let jobs = format!("--numjobs={threads}");
            let runtime = format!("--runtime={SECONDS}");
            let job =
                ["--rw=randwrite", "--bs=8k", "--fdatasync=1", "--size=8m", "--time_based", &jobs, &runtime];
            println!("fio --fdatasync=1, {threads} jobs: {:.0}/s", fio(&dir, &job, WRITE_IOPS)?);
        }
        ours(&dir, &["fsync", "--threads", threads, "--seconds", SECONDS])?;
    }
    Ok(())
}

fn ours(dir: &Path, words: &[&str]) -> Outcome {
    let program = root().join("target/release/cenote-bench");
    must(Command::new(program).arg("--dir").arg(dir).args(words))
}

/// Runs a job; returns one field of its result.
fn fio(dir: &Path, job: &[&str], field: usize) -> Result<f64, String> {
    let mut command = Command::new("fio");
    command.args(["--name=bench-raw", "--group_reporting", "--output-format=terse"]);
    command.arg(format!("--directory={}", dir.display())).args(job);
    let output = command.output().map_err(|error| format!("fio: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().rev().find_map(|line| line.split(';').nth(field)?.parse().ok());
    let files = std::fs::read_dir(dir).map_err(|error| error.to_string())?;
    for file in files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with("bench-raw")) {
        let _ = std::fs::remove_file(file.path());
    }
    value.ok_or_else(|| format!("fio: {}", String::from_utf8_lossy(&output.stderr)))
}
