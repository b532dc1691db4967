//! `cargo xtask check`: all checks of a reviewer; `.ci/run` runs it.
//!
//! Every step runs, even if earlier ones have failed, so that one run shows all errors. Each failed step adds
//! one to the count of failures in the last line.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::{Outcome, cargo, deny, layers, must, suite};

/// What `cargo clippy -- -D warnings` passes to its compiler, as that expects it.
const CLIPPY_ARGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Features of crates that tests need, and clippy's `--all-targets` with them.
const FEATURES_OF_TESTS: &str = "cenote-dmu/testing,cenote-zio/testing";

/// A name for messages, and the function to call.
type Step = (&'static str, fn() -> Outcome);

/// `cargo xtask check`.
pub(crate) fn run() -> Outcome {
    let steps: [Step; 5] =
        [("fmt", fmt), ("layers", layers::run), ("clippy", clippy), ("docs", docs), ("deny", deny::run)];
    let mut failed = Vec::new();
    for (name, step) in steps {
        eprintln!("== {name}");
        let begun = Instant::now();
        if let Err(reason) = step() {
            eprintln!("== {name} FAILED: {reason}");
            failed.push(name);
        }
        eprintln!("== {name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    eprintln!("== test");
    suite::run_after(&failed)
}

fn fmt() -> Outcome {
    must(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Outcome {
    must(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Builds the documentation of all crates.
///
/// It needs the metadata of every crate, which `cargo clippy` has made. Cargo uses that again if the crates are
/// checked with the same features by the same program in the same environment.
fn docs() -> Outcome {
    let mut command =
        cargo(&["doc", "--locked", "--workspace", "--no-deps", "--features", FEATURES_OF_TESTS]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    if let Some(driver) = clippy_driver() {
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", CLIPPY_ARGS);
    }
    must(&mut command)
}

/// The program that `cargo clippy` calls in place of the compiler.
fn clippy_driver() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let driver = PathBuf::from(sysroot.trim_end()).join("bin/clippy-driver");
    driver.is_file().then_some(driver)
}
