//! `cargo xtask check`: everything a reviewer would run, and what `.ci/run` is.
//!
//! Every step runs whatever became of the one before, so that one look shows all that is wrong; each
//! step that fails adds one to the failed count of the last line.

use std::time::Instant;

use crate::{Outcome, cargo, deny, layers, must, suite};

/// A name for messages, and what to do.
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

/// The library's documentation; that of the commands, a program of the same name, would overwrite it.
fn docs() -> Outcome {
    must(
        cargo(&["doc", "--workspace", "--exclude", "cenote-cli", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}
