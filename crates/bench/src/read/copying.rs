//! Copies a large file out of a cold pool.

use super::{Choices, ours};
use crate::Failure;
use crate::cost::{best, cpu_note, timed};
use crate::pools::{NAME, cool, one_file};
use crate::report::{Goal, Line, Report};
use std::path::Path;
use std::process::Command;

pub(super) fn run(dir: &Path, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes: u64 = if choices.quick { 256 << 20 } else { 4 << 30 };
    let made = one_file(dir, "large", bytes, 128 << 10)?;
    let image = made.path().join("disk0");
    let size = image.metadata()?.len();
    let (mut us, mut them) = (None, None);
    for _ in 0..choices.rounds {
        cool(made.path())?;
        let mut copy = ours(choices, "cp", made.path());
        us = best(us, timed(copy.args([&format!("{NAME}:/large"), "/dev/null"]))?);
        cool(made.path())?;
        them = best(them, timed(Command::new("cat").arg(&image))?);
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
