//! `cargo xtask bench`: ourselves against the other implementation, in the same run.
//!
//! Wall time on a shared machine is noise; so each number is a ratio of two programs doing the same
//! work alternately on the same files, with the CPU time of both beside it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::Fixture;

use crate::{Outcome, cargo, must, root};

/// How often each side runs; the best run counts, which is the one least disturbed.
const ROUNDS: usize = 5;

/// Fixtures that `verify` is measured on: the layouts that cost different work.
const POOLS: [&str; 4] = ["compression", "raidz2", "recordsize", "manyfiles"];

/// `cargo xtask bench [WHAT…]`; without WHAT, all of them.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    if let Some(unknown) = arguments.iter().find(|argument| argument.as_str() != "verify") {
        return Err(format!("no measurement named {unknown}; there is: verify"));
    }
    if wanted("verify") { verify() } else { Ok(()) }
}

/// What one side took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

/// Every block of a pool read and checked: `cenote verify` against `zdb -bcc`.
fn verify() -> Outcome {
    let zdb = testkit::tool("zdb")
        .ok_or("verify is measured against zdb, which is not here (`cargo xtask judges`)")?;
    must(&mut cargo(&["build", "--release", "--package", "cenote-cli"]))?;
    let ours = root().join("target/release/cenote");
    println!(
        "{:<14} {:>12} {:>12} {:>12} {:>12} {:>7}",
        "verify", "ours s", "ours cpu s", "zdb s", "zdb cpu s", "ratio"
    );
    for name in POOLS {
        let pool = Fixture::open(name);
        let dir = pool.dir().to_string_lossy().into_owned();
        let our_words = ["verify", "-d", &dir, &pool.manifest().pool];
        let their_words = ["-e", "-p", &dir, "-bcc", &pool.manifest().pool];
        let (mut us, mut them) = (None, None);
        for _ in 0..ROUNDS {
            us = best(us, measure(&ours, &our_words)?);
            them = best(them, measure(&zdb, &their_words)?);
        }
        if let (Some(us), Some(them)) = (us, them) {
            row(name, us, them);
        }
    }
    Ok(())
}

fn row(name: &str, us: Cost, them: Cost) {
    let ratio = us.wall.as_secs_f64() / them.wall.as_secs_f64();
    let [a, b, c, d] = [us.wall, us.cpu, them.wall, them.cpu].map(|time| time.as_secs_f64());
    println!("{name:<14} {a:>12.3} {b:>12.3} {c:>12.3} {d:>12.3} {ratio:>7.2}");
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

/// CPU time of all children waited for so far: fields `cutime` and `cstime` of /proc/self/stat,
/// in ticks of 10 ms.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
