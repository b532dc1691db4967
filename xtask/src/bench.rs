//! `cargo xtask bench` and `bench verify`: compares Cenote with the other implementation, in the same run.
//!
//! Wall time on a shared machine varies, so each result is a ratio of two programs that do the same work
//! alternately on the same files, together with the CPU time of both.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::Fixture;

use crate::{Outcome, cargo, must, root};

/// Number of runs of each side. The best run counts, because it is the least disturbed one.
const ROUNDS: usize = 5;

/// Fixtures on which `verify` is measured: layouts with different costs.
const POOLS: [&str; 4] = ["compression", "raidz2", "recordsize", "manyfiles"];

/// Runs `cargo xtask bench`, `cargo xtask bench verify [DIR POOL]` or `cargo xtask bench write [DIR]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [] => verify(&golden_pools()),
        [what] if what == "verify" => verify(&golden_pools()),
        [what, dir, pool] if what == "verify" => verify(&[(dir.clone(), pool.clone())]),
        [what] if what == "write" => crate::bench_write::run(None),
        [what, dir] if what == "write" => crate::bench_write::run(Some(dir)),
        [what, rest @ ..] if what == "mount" => crate::bench_mount::run(rest),
        [what, rest @ ..] if what == "stream" => crate::bench_mount::stream(rest),
        [what, rest @ ..] if what == "read" => crate::bench_read::read(rest),
        [what, rest @ ..] if what == "codec" => crate::bench_read::codec(rest),
        _ => Err(
            "what can be measured: verify [DIR POOL], write [DIR], codec, read [--peer] [--quick] [--help], \
             stream [--quick] [--only WHAT] [--help], mount [--quick] [--only TEST] [--help]"
                .to_owned(),
        ),
    }
}

/// Folders and names of the pools that are measured by default.
fn golden_pools() -> Vec<(String, String)> {
    println!(
        "Small pools: zdb takes seconds for a pool of any size. `bench verify DIR POOL` measures one of yours."
    );
    let pools = POOLS.map(Fixture::open);
    pools
        .iter()
        .map(|pool| (pool.dir().to_string_lossy().into_owned(), pool.manifest().pool.clone()))
        .collect()
}

/// Time that one side took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

/// Reads and checks every block of a pool: `cenote verify` against `zdb -bcc`.
fn verify(pools: &[(String, String)]) -> Outcome {
    let zdb = testkit::tool("zdb")
        .ok_or("verify is measured against zdb, which is not here (`cargo xtask judges`)")?;
    must(&mut cargo(&["build", "--release", "--package", "cenote-cli"]))?;
    let ours = root().join("target/release/cenote");
    println!(
        "{:<16} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "verify", "ours s", "cpu s", "zdb s", "cpu s", "ratio"
    );
    for (dir, pool) in pools {
        let (mut us, mut them) = (None, None);
        for _ in 0..ROUNDS {
            us = best(us, measure(&ours, &["verify", "--quiet", "-d", dir, pool])?);
            them = best(them, measure(&zdb, &["-e", "-p", dir, "-bcc", pool])?);
        }
        if let (Some(us), Some(them)) = (us, them) {
            row(pool, us, them);
        }
    }
    Ok(())
}

fn row(name: &str, us: Cost, them: Cost) {
    let ratio = us.wall.as_secs_f64() / them.wall.as_secs_f64();
    let [a, b, c, d] = [us.wall, us.cpu, them.wall, them.cpu].map(|time| time.as_secs_f64());
    println!("{name:<16} {a:>10.3} {b:>10.3} {c:>10.3} {d:>10.3} {ratio:>7.3}");
}

fn best(before: Option<Cost>, now: Cost) -> Option<Cost> {
    match before {
        Some(before) if before.wall <= now.wall => Some(before),
        _ => Some(now),
    }
}

fn measure(program: &Path, words: &[&str]) -> Result<Cost, String> {
    let cpu_before = children_cpu();
    let start = Instant::now();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| format!("{}: {error}", program.display()))?;
    let wall = start.elapsed();
    if !status.success() {
        return Err(format!("{} {}: {status}", program.display(), words.join(" ")));
    }
    Ok(Cost { wall, cpu: children_cpu().saturating_sub(cpu_before) })
}

/// CPU time of all ended children so far: fields `cutime` and `cstime` of /proc/self/stat, in ticks of 10 ms.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
