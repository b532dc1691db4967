//! `cargo xtask bench read` and `bench codec`: compares reads of pools, and the codecs for blocks, with other
//! programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outside::outside;
use crate::{Outcome, cargo, must, root};

/// Script for the guest that makes the pool on which `verify` is measured.
const GUEST: &str = "xtask/src/guest/large-pool.sh";
/// Length of the image of that pool in bytes.
const IMAGE_SIZE: u64 = 8 << 30;

/// Builds and measures. `arguments` are passed on, except for `--dir DIR`, the folder on the disk to measure,
/// and `--peer`, which has an OpenZFS kernel make the pool for `verify`, once.
pub(crate) fn read(arguments: &[String]) -> Outcome {
    let (dir, has_peer, mut rest) = own(arguments);
    let dir = dir.unwrap_or_else(|| root().join("target"));
    let pool;
    if has_peer {
        pool = large_pool(&dir)?;
        rest.extend(["--pool-dir", &pool, "--pool", "large"]);
    }
    must(&mut cargo(&["build", "--release", "--package", "cenote-bench", "--package", "cenote-cli"]))?;
    run(&dir, "read", &rest)
}

/// Builds and measures the codecs. `arguments` are passed on.
pub(crate) fn codec(arguments: &[String]) -> Outcome {
    let (dir, _, rest) = own(arguments);
    must(&mut cargo(&["build", "--release", "--package", "cenote-bench"]))?;
    run(&dir.unwrap_or_else(|| root().join("target")), "codec", &rest)
}

fn run(dir: &Path, what: &str, rest: &[&str]) -> Outcome {
    let programs = root().join("target/release");
    let mut bench = Command::new(programs.join("cenote-bench"));
    bench.current_dir(root()).arg("--dir").arg(dir).arg(what).args(rest);
    must(&mut bench)
}

/// Splits off the arguments for this task: the folder, and whether the peer is wanted. Returns them with the
/// rest.
fn own(arguments: &[String]) -> (Option<PathBuf>, bool, Vec<&str>) {
    let (mut dir, mut has_peer, mut rest) = (None, false, Vec::new());
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--dir" => dir = words.next().map(PathBuf::from),
            "--peer" => has_peer = true,
            other => rest.push(other),
        }
    }
    (dir, has_peer, rest)
}

/// Folder of the pool that the peer makes; has it made if it does not exist.
fn large_pool(dir: &Path) -> Result<String, String> {
    let folder = dir.join("bench-pool");
    let (image, unfinished) = (folder.join("large.img"), folder.join("large.img.unfinished"));
    let failed = |error: std::io::Error| format!("{}: {error}", image.display());
    if !image.is_file() {
        let run = outside("CENOTE_KERNEL_PEER", "kernel-peer", "run.sh")?;
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let file = std::fs::File::create(&unfinished).map_err(failed)?;
        file.set_len(IMAGE_SIZE).map_err(failed)?;
        let mut peer = Command::new(run);
        peer.args(["--timeout", "1800", "--disk"]).arg(&unfinished).arg(root().join(GUEST));
        must(peer.arg("large.img.unfinished"))?;
        std::fs::rename(&unfinished, &image).map_err(failed)?;
    }
    Ok(folder.to_string_lossy().into_owned())
}
