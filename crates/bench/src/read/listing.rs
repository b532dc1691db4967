//! Lists a million files with everything that `ls -lR` shows.

use super::{Choices, ours};
use crate::Failure;
use crate::cost::{best, timed};
use crate::pools::{Bench, NAME, Wanted};
use crate::report::{Goal, Line, Report};
use pool::Layout;
use std::path::Path;
use zpl::FileKind;
use zpl::NewFile;

/// Goal for a million files, in seconds.
const SECONDS: f64 = 10.0;

pub(super) fn run(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let files: u64 = if choices.quick { 50_000 } else { 1_000_000 };
    let wanted = Wanted {
        disks: 1,
        size: 8 << 30,
        layout: Layout::Single,
        record_size: 128 << 10,
        cache_bytes: 1 << 30,
        prefill: 0,
    };
    let bench = Bench::new(dir, &wanted)?;
    let fs = &bench.fs.fs;
    let mut folder = fs.root();
    for n in 0..files {
        if n % 1000 == 0 {
            let new = NewFile::of(FileKind::Directory, 0o755);
            folder = fs.create(fs.root(), format!("folder{n}").as_bytes(), &new)?.id;
        }
        fs.create(folder, format!("file{n}").as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?;
    }
    let made = bench.close()?;
    let mut us = None;
    // The first run warms the system's cache; each run opens the pool anew.
    for _ in 0..=choices.rounds {
        let mut list = ours(choices, "ls", made.path());
        us = best(us, timed(list.args(["-lR", &format!("{NAME}:/")]))?);
    }
    let Some(us) = us else { return Ok(()) };
    report.add(Line {
        what: format!("ls -lR of {files} files"),
        unit: "s",
        ours: us.wall.as_secs_f64(),
        peer: Some(("the goal".to_owned(), SECONDS * files as f64 / 1e6)),
        goal: Some(Goal::AtMost(1.0)),
        note: format!("CPU {:.2} s", us.cpu.as_secs_f64()),
    });
    Ok(())
}
