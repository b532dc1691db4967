//! `cargo xtask test`: set up, run every test of the workspace, count.
//!
//! # What always holds
//! - The last line of standard output is `N passed, N failed, N skipped`.
//! - A test that could not do its job is counted as skipped, not as passed, and named with its
//!   reason: cargo swallows what a passing test prints, so `testkit::skip` writes to a file too.
//! - A workspace that does not build has failed, whatever was counted.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::{Outcome, cargo, judges, layers};

/// Tests of every order of threads: they need locks of their own, so they are built apart.
const ORDERS: [&[&str]; 2] = [
    &["--package", "cenote-dmu", "--features", "shuttle", "--test", "shuttle"],
    &["--package", "cenote-zpl", "--features", "shuttle", "--lib", "every_order"],
];

/// What the test programs counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Count {
    /// Adds a line `test result: ok. 3 passed; 0 failed; 1 ignored; …`; other lines add nothing.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let after_verdict = result.split_once(". ").map_or("", |(_, counts)| counts);
        for part in after_verdict.split(';') {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// `cargo xtask test [NAME…]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let out_of_order = layers::run().inspect_err(|reason| eprintln!("{reason}"));
    let failed: &[&str] = if out_of_order.is_err() { &["layers"] } else { &[] };
    count_all(arguments, failed)
}

/// All tests, after other steps of which some have failed.
pub(crate) fn run_after(failed: &[&str]) -> Outcome {
    count_all(&[], failed)
}

fn count_all(arguments: &[String], failed_before: &[&str]) -> Outcome {
    judges::set_up();
    let skips = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
    let mut count = run_cargo(arguments, skips.path())?;
    if arguments.is_empty() {
        for further in ORDERS {
            let words: Vec<String> = further.iter().map(|word| (*word).to_owned()).collect();
            let more = run_cargo(&words, skips.path())?;
            count.passed += more.passed;
            count.failed += more.failed;
            count.ignored += more.ignored;
        }
    }
    let skipped = skipped(&std::fs::read_to_string(skips.path()).unwrap_or_default());
    report(&skipped);
    for step in failed_before {
        println!("failed before the tests: {step}");
    }
    count.failed += failed_before.len() as u64;
    let skipped = skipped.len() as u64;
    let passed = count.passed.saturating_sub(skipped);
    println!("{passed} passed, {} failed, {} skipped", count.failed, skipped + count.ignored);
    if count.failed == 0 { Ok(()) } else { Err(String::new()) }
}

/// Runs cargo, passes its output on and counts; that it ended badly without a failed test counts as one.
fn run_cargo(arguments: &[String], skip_log: &std::path::Path) -> Result<Count, String> {
    let mut command = cargo(&["test", "--no-fail-fast"]);
    if arguments.is_empty() {
        command.arg("--workspace");
    }
    command.args(arguments).env("CENOTE_SKIP_LOG", skip_log).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cargo test: {error}"))?;
    let mut count = Count::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|error| format!("cargo test: {error}"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            count.add(&line);
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    if !status.success() && count.failed == 0 {
        eprintln!("cargo test ended badly without naming a failed test");
        count.failed += 1;
    }
    Ok(count)
}

/// The tests that said they were skipped, each once, with the first reason given.
fn skipped(log: &str) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let rows = log.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")?.split_once(": "));
    rows.filter(|(test, _)| seen.insert(*test)).map(|(test, why)| (test.to_owned(), why.to_owned())).collect()
}

fn report(skipped: &[(String, String)]) {
    for (test, why) in skipped {
        println!("skipped {test}: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_test_programs_are_counted() {
        let mut count = Count::default();
        count.add("running 3 tests");
        count.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.2s",
        );
        count.add("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        assert_eq!(count, Count { passed: 8, failed: 2, ignored: 1 });
    }

    #[test]
    fn a_test_that_lacks_two_tools_is_skipped_once() {
        let log = "SKIPPED: zdb/reads: no zdb on this machine\nSKIPPED: zdb/reads: needs root\n\
            SKIPPED: mount/reads: no /dev/fuse on this machine\n";
        let skipped = skipped(log);
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped[0], ("zdb/reads".to_owned(), "no zdb on this machine".to_owned()));
    }
}
