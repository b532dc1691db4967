//! `cargo xtask check`: all checks of a reviewer; `.ci/run` runs it.
//!
//! Every step runs, even if earlier ones have failed, so that one run shows all errors. Each failed step adds
//! one to the count of failures in the last line.

use std::time::Instant;

use crate::{Outcome, cargo, deny, layers, must, suite};

/// A name for messages, and the function to call.
type Step = (&'static str, fn() -> Outcome);

/// `cargo xtask check`.
pub(crate) fn run() -> Outcome {
    let steps: [Step; 3] = [("fmt", fmt), ("layers", layers::run), ("deny", deny::run)];
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
    eprintln!("== clippy, build, documentation and test");
    suite::check_after(&failed)
}

fn fmt() -> Outcome {
    must(&mut cargo(&["fmt", "--all", "--check"]))
}
