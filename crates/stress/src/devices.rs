//! Devices that leave, are spoilt, and come back; one at a time, and only while all others have everything.

use crate::Random;
use crate::world::{DEVICE, Done, World};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const ACTOR: &str = "devices";
/// What is spoilt lies between the labels.
const LABELS: u64 = 5 << 20;
const NOISE: u64 = 256 << 10;

/// Works until the round is over; then all devices are there, with everything.
pub(crate) fn work(world: &World, mut random: Random) -> Done {
    while !world.is_over() {
        world.pause(Duration::from_millis(random.below(1000)));
        let device = random.of(&world.devices).display().to_string();
        let pause = Duration::from_millis(random.below(1500));
        match random.below(4) {
            0 => away(world, &["zpool", "offline", "tank", &device], &device, pause)?,
            1 => away(world, &["zpool", "offline", "-t", "tank", &device], &device, pause)?,
            2 => away(world, &["zpool", "offline", "-f", "tank", &device], &device, pause)?,
            _ => spoil(world, &device, &mut random)?,
        }
    }
    Ok(())
}

/// Takes a device out of service and brings it back.
fn away(world: &World, how: &[&str], device: &str, pause: Duration) -> Done {
    world.good(ACTOR, how)?;
    world.pause(pause);
    world.good(ACTOR, &["zpool", "clear", "tank"])?;
    world.good(ACTOR, &["zpool", "online", "tank", device])?;
    world.good(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"]).map(drop)
}

/// Overwrites parts of a device; a scrub repairs them.
fn spoil(world: &World, device: &str, random: &mut Random) -> Done {
    let file = OpenOptions::new().write(true).open(device)?;
    for _ in 0..8 {
        let offset = LABELS + random.below(DEVICE - 2 * LABELS - NOISE);
        file.write_all_at(&random.bytes(NOISE), offset)?;
    }
    drop(file);
    scrub(world)
}

/// Everything is read and repaired.
pub(crate) fn scrub(world: &World) -> Done {
    loop {
        world.good(ACTOR, &["zpool", "scrub", "-w", "tank"])?;
        let status = world.good(ACTOR, &["zpool", "status", "tank"])?.out;
        world.good(ACTOR, &["zpool", "clear", "tank"])?;
        // A kill may have ended the wait; and who does not wait spoils the next device too early.
        if !status.contains("in progress") {
            return Ok(());
        }
    }
}
