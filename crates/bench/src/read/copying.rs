//! One large file out of a cold pool.

use super::{Choices, best, cool, cpu_note, ours, timed};
use crate::Failure;
use crate::pools::{Bench, NAME, Wanted, noise};
use crate::report::{Goal, Line, Report};
use pool::live::Layout;
use std::path::Path;
use std::process::Command;
use zpl::FileKind;
use zpl::write::{NewFile, WriteHow};

pub(super) fn run(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes: u64 = if choices.quick { 256 << 20 } else { 4 << 30 };
    // Little more than that file: what a pool keeps free for itself.
    let size = bytes + bytes / 16 + (256 << 20);
    let wanted = Wanted {
        disks: 1,
        size,
        layout: Layout::Single,
        record_size: 128 << 10,
        cache_bytes: 512 << 20,
        prefill: size,
    };
    let bench = Bench::new(dir, &wanted)?;
    let fs = &bench.fs.fs;
    let file = fs.create(fs.root(), b"large", &NewFile::of(FileKind::Regular, 0o644))?.id;
    let data = noise(1 << 20, 5);
    for at in (0..bytes).step_by(data.len()) {
        fs.write(file, at, &data, &WriteHow::default())?;
    }
    let made = bench.close()?;
    let (mut us, mut them) = (None, None);
    for _ in 0..choices.rounds {
        cool(made.path())?;
        let mut copy = ours(choices, "cp", made.path());
        us = best(us, timed(copy.args([&format!("{NAME}:/large"), "/dev/null"]))?);
        cool(made.path())?;
        them = best(them, timed(Command::new("cat").arg(made.path().join("disk0")))?);
    }
    let (Some(us), Some(them)) = (us, them) else { return Ok(()) };
    // Each by the bytes that it reads.
    let rate = |bytes: u64, wall: std::time::Duration| bytes as f64 / 1e6 / wall.as_secs_f64();
    report.add(Line {
        what: "cp of a large file, cold".to_owned(),
        unit: "MB/s",
        ours: rate(bytes, us.wall),
        peer: Some(("cat of the image".to_owned(), rate(size, them.wall))),
        goal: Some(Goal::AtLeast(0.9)),
        note: cpu_note(us, them),
    });
    Ok(())
}
