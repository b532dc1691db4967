//! `cargo xtask check`: everything a reviewer would run, and what `.ci/run` is.
//!
//! Every step runs whatever became of the one before, so that one look shows all that is wrong; each
//! step that fails adds one to the failed count of the last line.

use std::process::Command;

use crate::{Outcome, cargo, layers, must, root, suite};

/// A name for messages, and what to do.
type Step = (&'static str, fn() -> Outcome);

/// `cargo xtask check`.
pub(crate) fn run() -> Outcome {
    let steps: [Step; 5] =
        [("fmt", fmt), ("layers", layers::run), ("clippy", clippy), ("docs", docs), ("deny", deny)];
    let mut failed = Vec::new();
    for (name, step) in steps {
        eprintln!("== {name}");
        if let Err(reason) = step() {
            eprintln!("== {name} FAILED: {reason}");
            failed.push(name);
        }
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

/// Licences, sources and bans always; advisories where their database can be fetched.
fn deny() -> Outcome {
    let deny = |words: &[&str]| -> Result<Command, String> {
        let mut command = cargo_deny()?;
        command.args(words);
        Ok(command)
    };
    must(&mut deny(&["--log-level", "error", "check", "bans", "licenses", "sources"])?)?;
    match must(&mut deny(&["--log-level", "off", "fetch", "db"])?) {
        Ok(()) => must(&mut deny(&["check", "advisories"])?),
        Err(_) => {
            eprintln!("NOT CHECKED: advisories, for their database cannot be fetched from here");
            Ok(())
        }
    }
}

/// cargo-deny of this machine, else our own in `target/tools`, built once without optimisation: it
/// runs for a second, and its optimised build would take longer than all our tests.
fn cargo_deny() -> Result<Command, String> {
    let installed =
        Command::new("cargo-deny").arg("--version").output().is_ok_and(|output| output.status.success());
    let tools = root().join("target/tools");
    let ours = tools.join("bin/cargo-deny");
    if !installed && !ours.is_file() {
        let mut install =
            cargo(&["install", "--quiet", "--locked", "--no-default-features", "cargo-deny", "--root"]);
        install.arg(&tools).arg("--target-dir").arg(tools.join("build"));
        let cheap = [
            ("OPT_LEVEL", "0"),
            ("LTO", "off"),
            ("CODEGEN_UNITS", "16"),
            ("DEBUG", "false"),
            ("STRIP", "none"),
        ];
        for (setting, value) in cheap {
            install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        must(&mut install)?;
        // Of no use once the program is there.
        let _ = std::fs::remove_dir_all(tools.join("build"));
    }
    let mut command = Command::new(if installed { "cargo-deny".into() } else { ours });
    command.current_dir(root());
    Ok(command)
}
