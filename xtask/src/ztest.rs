//! `cargo xtask ztest`: OpenZFS's `ztest` works on pools of its own, with its default settings; Cenote and
//! `zdb` then read the pools that it leaves.
//!
//! # What always holds
//! - Cenote only reads. OpenZFS's `zdb -bcc` is the judge: both must count the same blocks, bytes and
//!   classes, line by line, and if `zdb` finds no leak, our space maps must match too.
//! - Damage is part of the pools: `ztest` damages devices within the redundancy. So all data must be
//!   readable, but not every copy must be good.
//! - The folder of a pool is removed only if both agree; that of a failure is kept and named, with the output
//!   of both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::{Outcome, cargo, must, root};

/// Name of the pool that `ztest` makes.
const POOL: &str = "ztest";
/// Time that `ztest` may take beyond its set time, which does not include its own runs of `zdb`, in seconds.
const GRACE_SECONDS: u64 = 900;

/// Parameters of the task.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    runs: u64,
    seconds: u64,
    /// Parent folder of the folders of all runs.
    dir: PathBuf,
    /// Options that are passed to `ztest`.
    options: Vec<String>,
}

impl Plan {
    fn read(arguments: &[String]) -> Result<Plan, String> {
        let mut plan = Plan { runs: 10, seconds: 60, dir: root().join("target/ztest"), options: Vec::new() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &String| text.parse().map_err(|_| format!("{text} is not a number"));
            match word.as_str() {
                "--runs" => plan.runs = value().and_then(number)?,
                "--seconds" => plan.seconds = value().and_then(number)?,
                "--dir" => plan.dir = PathBuf::from(value()?),
                "--" => {
                    plan.options = words.cloned().collect();
                    break;
                }
                _ => return Err(format!("'{word}'? --runs N, --seconds S, --dir DIR, -- OPTIONS OF ZTEST")),
            }
        }
        Ok(plan)
    }
}

/// Runs `cargo xtask ztest [--runs N] [--seconds S] [--dir DIR] [-- OPTION…]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let plan = Plan::read(arguments)?;
    let tool = |name| testkit::tool(name).ok_or_else(|| format!("no {name} on this machine"));
    let (ztest, zdb) = (tool("ztest")?, tool("zdb")?);
    must(&mut cargo(&["build", "--quiet", "--package", "cenote-cli"]))?;
    let mut failed = Vec::new();
    for number in 1..=plan.runs {
        let dir = plan.dir.join(format!("run-{number}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let ended = work(&ztest, &dir, &plan)?;
        match judge(&zdb, &dir) {
            Ok(verdict) => {
                println!("run {number}: ztest {ended}; {verdict}");
                fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            }
            Err(why) => {
                println!("run {number}: ztest {ended}; FAILED, kept in {}\n{why}", dir.display());
                failed.push(number.to_string());
            }
        }
    }
    println!("{} runs of {} s, {} failed", plan.runs, plan.seconds, failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("runs {} failed", failed.join(", "))) }
}

/// Runs `ztest` in a folder; returns how it ended. It may fail and still leave a good pool.
fn work(ztest: &Path, dir: &Path, plan: &Plan) -> Result<String, String> {
    // `timeout` also ends the processes that ztest starts.
    let output = Command::new("timeout")
        .args(["-k", "10", &(plan.seconds + GRACE_SECONDS).to_string()])
        .arg(ztest)
        .args(["-T", &plan.seconds.to_string(), "-f"])
        .arg(dir)
        .args(&plan.options)
        .current_dir(dir)
        .output()
        .map_err(|error| format!("ztest: {error}"))?;
    keep(dir, "ztest.out", &output)?;
    Ok(if output.status.success() {
        "ended well".to_owned()
    } else {
        format!("ended with {}", output.status)
    })
}

fn keep(dir: &Path, name: &str, output: &Output) -> Outcome {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    let path = dir.join(name);
    fs::write(&path, all).map_err(|error| format!("{}: {error}", path.display()))
}

/// Compares the results of both for the pool in a folder. Its devices are all files named `ztest.…` there.
fn judge(zdb: &Path, dir: &Path) -> Result<String, String> {
    let begun = Instant::now();
    let words = [std::ffi::OsStr::new("-e"), "-p".as_ref(), dir.as_os_str(), "-bcc".as_ref(), POOL.as_ref()];
    let theirs = testkit::hurried(zdb).args(words).output().map_err(|error| format!("zdb: {error}"))?;
    keep(dir, "zdb.out", &theirs)?;
    let ours = cenote().arg("zdb").args(words).output().map_err(|error| format!("cenote zdb: {error}"))?;
    keep(dir, "cenote-zdb.out", &ours)?;
    let no_leaks = String::from_utf8_lossy(&theirs.stdout).contains("No leaks");
    let mut verify = cenote();
    verify.args(["verify", "-q"]).arg("-d").arg(dir).args((!no_leaks).then_some("-L")).arg(POOL);
    let verified = verify.output().map_err(|error| format!("cenote verify: {error}"))?;
    keep(dir, "cenote-verify.out", &verified)?;
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();

    let (left, right) = (Counts::of(&theirs), Counts::of(&ours));
    let mut wrong = left.differences(&right);
    if left.0.is_empty() {
        wrong.push(format!("zdb counts nothing: {}", last_line(&theirs)));
    }
    if theirs.status.success() && !verified.status.success() {
        wrong.push(format!("cenote verify: {}\n{said}{}", verified.status, last_line(&verified)));
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    let result = said.lines().last().unwrap_or_default();
    Ok(format!(
        "{} blocks, {} bytes, {}, {result}, judged in {} s",
        left.first("bp count"),
        left.first("bp allocated"),
        if no_leaks { "no leaks" } else { "zdb FINDS LEAKS" },
        begun.elapsed().as_secs()
    ))
}

/// The `cenote` program, without a daemon: no daemon has these pools.
fn cenote() -> Command {
    let mut command = Command::new(root().join("target/debug/cenote"));
    command.env("CENOTE_DIRECT", "1");
    command
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

/// The summary of `zdb -b`: counted items with their numbers, and each leak.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts(BTreeMap<String, Vec<String>>);

impl Counts {
    fn of(output: &Output) -> Counts {
        Counts::read(&String::from_utf8_lossy(&output.stdout))
    }

    fn read(text: &str) -> Counts {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let line = line.trim();
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            if line.contains("No leaks") {
                counts.insert("leaks".to_owned(), vec!["none".to_owned()]);
            } else if line.starts_with("leaked space:") || line.starts_with("block traversal size") {
                // Each leak counts by itself: both must find the same ones.
                counts.insert(line.to_owned(), Vec::new());
            } else if let Some((label, rest)) = line.split_once(':')
                && rest.trim_start().starts_with(|first: char| first.is_ascii_digit())
                && label.len() < 40
            {
                counts.insert(label.to_owned(), words(rest));
            } else if let Some((label, rest)) = line.split_once(" class ") {
                counts.insert(format!("{label} class"), words(rest));
            }
        }
        Counts(counts)
    }

    fn first(&self, label: &str) -> &str {
        self.0.get(label).and_then(|words| words.first()).map_or("?", String::as_str)
    }

    /// The differences between two summaries, one a line.
    fn differences(&self, other: &Counts) -> Vec<String> {
        let labels: std::collections::BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let said = |counts: &Counts, label: &String| {
            counts.0.get(label).map_or_else(|| "nothing".to_owned(), |words| words.join(" "))
        };
        labels
            .into_iter()
            .filter(|label| self.0.get(*label) != other.0.get(*label))
            .map(|label| format!("{label}: zdb {}, cenote {}", said(self, label), said(other, label)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "
\tNo leaks (block sum matches space maps exactly)

\tbp count:                   138
\tbp allocated:            681984      avg:   4941     compression:   9.12
\tNormal class:            743424     used:  0.07%
\tEmbedded log class              0     used:  -nan%
\tadditional, non-pointer bps of type 0:         52
";

    #[test]
    fn a_summary_is_read() {
        let counts = Counts::read(SAID);
        assert_eq!((counts.first("bp count"), counts.first("bp allocated")), ("138", "681984"));
        assert_eq!(counts.first("leaks"), "none");
        assert_eq!(counts.first("Embedded log class"), "0");
        assert_eq!(counts.0.len(), 6);
        let other = Counts::read(&SAID.replace("681984", "681472"));
        assert_eq!(
            counts.differences(&other),
            [
                "bp allocated: zdb 681984 avg: 4941 compression: 9.12, cenote 681472 avg: 4941 compression: 9.12"
            ]
        );
        assert!(counts.differences(&counts).is_empty());
    }

    #[test]
    fn arguments() {
        let read = |words: &[&str]| Plan::read(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let plan = read(&["--runs", "3", "--seconds", "5", "--", "-K", "draid"]).expect("a plan");
        assert_eq!(
            (plan.runs, plan.seconds, plan.options),
            (3, 5, vec!["-K".to_owned(), "draid".to_owned()])
        );
        assert!(read(&["--runs"]).is_err() && read(&["--runs", "x"]).is_err() && read(&["5"]).is_err());
    }
}
