//! `cargo xtask check`: everything a reviewer would run, in the order of what is quickest to say no.

use crate::{Outcome, cargo, layers, must, suite};

/// `cargo xtask check`.
pub(crate) fn run() -> Outcome {
    must(&mut cargo(&["fmt", "--all", "--check"]))?;
    layers::run()?;
    must(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    must(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    must(&mut cargo(&["deny", "check"]))
        .map_err(|reason| format!("{reason} (`cargo install --locked cargo-deny`?)"))?;
    suite::run(&[])
}
