//! `cargo xtask test`: installs the judges, builds every test program once, runs them concurrently, and
//! counts the tests.
//!
//! [`programs`] builds and lists the programs, [`schedule`] runs them, and this module counts and reports.
//!
//! # What always holds
//! - The last line of standard output is `N passed, N failed, N skipped`.
//! - A test that could not do its job counts as skipped, not as passed, and is named with the reason: the
//!   test harness hides the output of a test that passes, so `testkit::skip` also writes to a file.
//! - A workspace that does not build counts as failed, and so does a program that fails without a failed
//!   test.
//! - The output of a program is printed as a whole, when it ends.

mod programs;
mod schedule;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::{Outcome, judges, layers};
use programs::Program;
use schedule::Ran;

/// Number of programs that are listed with their times at the end.
const SLOWEST: usize = 20;

/// Numbers of passed, failed and skipped tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Count {
    /// Adds a line `test result: ok. 3 passed; 0 failed; 1 ignored; …`; ignores other lines.
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

    /// The counts of a program. If it fails without a failed test, that counts as one failure.
    fn of(ran: &Ran<'_>) -> Count {
        let mut count = Count::default();
        ran.output.lines().for_each(|line| count.add(line));
        if !ran.has_succeeded && count.failed == 0 {
            count.failed = 1;
        }
        count
    }
}

/// Runs `cargo xtask test [CRATE…] [-- ARG…]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (crates, rest) = arguments.split_at(end);
    let arguments = rest.get(1..).unwrap_or_default();
    if !crates.is_empty() {
        return count_all(&programs::of_crates(crates), arguments, &[]);
    }
    let out_of_order = layers::run().inspect_err(|reason| eprintln!("{reason}"));
    let failed: &[&str] = if out_of_order.is_err() { &["layers"] } else { &[] };
    judges::set_up();
    count_all(&programs::of_workspace(), arguments, failed)
}

/// Builds everything with clippy's lints and runs all tests, after other steps of which `failed` have failed. A
/// warning counts as a failure.
pub(crate) fn check_after(failed: &[&str]) -> Outcome {
    judges::set_up();
    let begun = Instant::now();
    let built = programs::of_workspace_with_lints();
    eprintln!("== clippy and build: {:.1} s", begun.elapsed().as_secs_f64());
    let warned: Vec<String> = built.warned.iter().map(|package| format!("warnings in {package}")).collect();
    let failed: Vec<&str> = failed.iter().copied().chain(warned.iter().map(String::as_str)).collect();
    count_all(&built, &[], &failed)
}

/// Runs and counts the programs that were built; each build that failed counts as one failure.
fn count_all(built: &programs::Built, arguments: &[String], failed_before: &[&str]) -> Outcome {
    let skips = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
    let mut times: Vec<(Duration, &Program)> = Vec::new();
    let mut count = Count::default();
    for ran in schedule::run(&built.programs, arguments, skips.path()) {
        let ran = ran?;
        let seconds = ran.time.as_secs_f64();
        println!("\n== {} ({seconds:.1} s)\n{}", ran.program.label(), ran.output.trim_end());
        let one = Count::of(&ran);
        if !ran.has_succeeded {
            println!("== {} FAILED: {}", ran.program.label(), ran.end);
        }
        count.passed += one.passed;
        count.failed += one.failed;
        count.ignored += one.ignored;
        times.push((ran.time, ran.program));
    }
    report_times(times);
    let skipped = skipped(&std::fs::read_to_string(skips.path()).unwrap_or_default());
    for (test, why) in &skipped {
        println!("skipped {test}: {why}");
    }
    for reason in &built.failed {
        println!("not built: {reason}");
    }
    for step in failed_before {
        println!("failed before the tests: {step}");
    }
    count.failed += (failed_before.len() + built.failed.len()) as u64;
    let skipped = skipped.len() as u64;
    let passed = count.passed.saturating_sub(skipped);
    println!("{passed} passed, {} failed, {} skipped", count.failed, skipped + count.ignored);
    if count.failed == 0 { Ok(()) } else { Err(String::new()) }
}

/// Prints the programs that took longest, and the total time.
fn report_times(mut times: Vec<(Duration, &Program)>) {
    times.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    println!("\n{:.1} s in {} programs, of which:", all.as_secs_f64(), times.len());
    for (time, program) in times.iter().take(SLOWEST) {
        println!("{:8.1} s  {}", time.as_secs_f64(), program.label());
    }
}

/// The skipped tests, each once, with the first reason given.
fn skipped(log: &str) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let rows = log.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")?.split_once(": "));
    rows.filter(|(test, _)| seen.insert(*test)).map(|(test, why)| (test.to_owned(), why.to_owned())).collect()
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
