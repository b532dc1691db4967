//! Judges that live outside the project: a kernel with real OpenZFS, and OpenZFS's test suite.
//!
//! Both are found through the environment or in `../shared`, a folder beside the checkout.

use std::path::PathBuf;
use std::process::Command;

use crate::{Outcome, must, root};

/// `cargo xtask kernel-peer ARGUMENT…`: hands the arguments to the peer's `run.sh`.
pub(crate) fn kernel_peer(arguments: &[String]) -> Outcome {
    let script = outside("CENOTE_KERNEL_PEER", "kernel-peer", "run.sh")?;
    must(Command::new(script).args(arguments))
}

/// `cargo xtask zts ARGUMENT…`: runs the suite on the commands built in release mode.
pub(crate) fn zts(arguments: &[String]) -> Outcome {
    let script = outside("CENOTE_ZTS", "zts", "zts_run.py")?;
    must(&mut crate::cargo(&["build", "--release", "--package", "cenote-cli"]))?;
    let programs = root().join("target/release");
    must(Command::new("python3").arg(script).arg("--bin").arg(programs).args(arguments))
}

fn outside(variable: &str, folder: &str, file: &str) -> Result<PathBuf, String> {
    let beside = || root().join("../shared").join(folder);
    let folder = std::env::var_os(variable).map_or_else(beside, PathBuf::from);
    let path = folder.join(file);
    match path.is_file() {
        true => Ok(path),
        false => {
            Err(format!("needs {} (or {variable}=FOLDER); it is not part of the project", path.display()))
        }
    }
}
