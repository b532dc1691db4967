//! A large file sent by a daemon that has nothing of it in its cache, beside direct reads of as many bytes of the device.

use super::{Choices, large};
use crate::Failure;
use crate::cost::{best, cpu_note, timed};
use crate::mount::{LoopImage, System, run_command};
use crate::pools::noise;
use crate::report::Report;
use std::fs::File;
use std::io::Write;
use std::process::Command;

/// The snapshot.
const SNAPSHOT: &str = "cenotebench/files@s";

pub(super) fn run(image: &LoopImage, choices: &Choices, report: &mut Report) -> Result<(), Failure> {
    let bytes = choices.bytes();
    let mut site = image.open(System::Cenote)?;
    let mut file = File::create(site.dir().join("large"))?;
    let data = noise(4 << 20, 5);
    for _ in 0..bytes / data.len() as u64 {
        file.write_all(&data)?;
    }
    drop(file);
    run_command(image.cenote().args(["zfs", "snapshot", SNAPSHOT]))?;
    let (mut us, mut them) = (None, None);
    for _ in 0..choices.rounds {
        site.cool()?;
        us = best(us, timed(image.cenote().args(["zfs", "send", "-L", SNAPSHOT]))?);
        let mut raw = Command::new("dd");
        raw.arg(format!("if={}", image.device().display())).args(["of=/dev/null", "bs=4M", "iflag=direct"]);
        them = best(them, timed(raw.arg(format!("count={}", bytes >> 22)))?);
    }
    let (Some(us), Some(them)) = (us, them) else { return Ok(()) };
    let peer = Some(("dd of the device".to_owned(), bytes as f64 / 1e6 / them.wall.as_secs_f64()));
    // The processor time of the daemon is not in this.
    report.add(large::rate("zfs send, cold", bytes, us.wall, peer, 0.9, cpu_note(us, them)));
    Ok(())
}
