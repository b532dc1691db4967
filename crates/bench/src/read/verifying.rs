//! Reads and checks every block of a pool.

use super::{Choices, ours};
use crate::Failure;
use crate::cost::{best, cpu_note, timed};
use crate::pools::{Bench, NAME, Wanted, cool, noise};
use crate::report::{Goal, Line, Report};
use pool::Layout;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

pub(super) fn run(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    if !choices.zdb.is_file() {
        println!("verify: {} is not here (cargo xtask judges)", choices.zdb.display());
        return Ok(());
    }
    let (_made, folder, name);
    match (&choices.pool_dir, &choices.pool) {
        (Some(given), Some(pool)) => (_made, folder, name) = (None, given.clone(), pool.as_str()),
        _ => {
            let made = make(dir, if choices.quick { 256 << 20 } else { 4 << 30 })?;
            (folder, name) = (made.path().to_owned(), NAME);
            _made = Some(made);
        }
    }
    let (mut us, mut them) = (None, None);
    for _ in 0..choices.rounds {
        cool(&folder)?;
        us = best(us, timed(ours(choices, "verify", &folder).args(["--quiet", name]))?);
        cool(&folder)?;
        let mut zdb = Command::new(&choices.zdb);
        them = best(them, timed(zdb.args(["-e", "-p"]).arg(&folder).args(["-bcc", name]))?);
    }
    let (Some(us), Some(them)) = (us, them) else { return Ok(()) };
    report.add(Line {
        what: format!("verify of '{name}', cold"),
        unit: "s",
        ours: us.wall.as_secs_f64(),
        peer: Some(("zdb -bcc".to_owned(), them.wall.as_secs_f64())),
        goal: Some(Goal::AtMost(0.5)),
        note: cpu_note(us, them),
    });
    Ok(())
}

/// Half of the data is in files of 8 KiB, half in a file with records of 128 KiB; half of each block is
/// compressible.
fn make(dir: &Path, bytes: u64) -> Result<TempDir, Failure> {
    let wanted = Wanted {
        disks: 1,
        size: bytes * 3 / 2 + (1 << 30),
        layout: Layout::Single,
        record_size: 128 << 10,
        cache_bytes: 512 << 20,
        prefill: 0,
    };
    let bench = Bench::new(dir, &wanted)?;
    let fs = &bench.fs.fs;
    let mut data = noise(1 << 20, 3);
    data.chunks_mut(4096).step_by(2).for_each(|part| part.fill(0));
    let how = WriteHow::default();
    let large = fs.create(fs.root(), b"large", &NewFile::of(FileKind::Regular, 0o644))?.id;
    for at in (0..bytes).step_by(data.len()) {
        fs.write(large, at, &data, &how)?;
    }
    let mut folder = fs.root();
    for n in 0..bytes / 8192 {
        if n % 1000 == 0 {
            let new = NewFile::of(FileKind::Directory, 0o755);
            folder = fs.create(fs.root(), format!("d{n}").as_bytes(), &new)?.id;
        }
        let file = fs.create(folder, format!("f{n}").as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
        fs.write(file.id, 0, &data[..8192], &how)?;
    }
    bench.close()
}
