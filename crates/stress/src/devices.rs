//! Device faults during a round: a device leaves, is corrupted, and returns. One device at a time, and only
//! while all others hold all data.
//!
//! Image files are moved away, removed, truncated, and replaced by an older copy; loop devices are made
//! read-only. Now and then no device accepts writes: the pool suspends, and resumes without loss after `zpool
//! clear`.

use crate::Random;
use crate::world::{DEVICE, Medium, Outcome, World, fail, lock, system, text};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ACTOR: &str = "devices";
/// Bytes at each end of a device that are never overwritten: the labels and the boot area.
const LABELS: u64 = 5 << 20;
const NOISE: u64 = 256 << 10;

/// Injects faults until the round is over; afterwards all devices are present and complete.
pub(crate) fn work(world: &World, mut random: Random) -> Outcome {
    while !world.is_over() {
        world.pause(Duration::from_millis(random.below(1000)));
        let at = random.below(world.devices.len() as u64) as usize;
        let (device, image) = (text(&world.devices[at]), &world.images[at]);
        let pause = Duration::from_millis(random.below(1500));
        match random.below(10) {
            0 => offline(world, &["zpool", "offline", "tank", &device], &device, pause)?,
            1 => offline(world, &["zpool", "offline", "-t", "tank", &device], &device, pause)?,
            2 => offline(world, &["zpool", "offline", "-f", "tank", &device], &device, pause)?,
            3 => corrupt(world, image, &mut random)?,
            4 | 5 => stop_all(world, pause)?,
            _ if world.medium == Medium::Loops => read_only(world, &device, pause)?,
            6 | 7 => move_away(world, &device, image, pause, &mut random)?,
            _ => old_copy(world, &device, image, pause, &mut random)?,
        }
    }
    Ok(())
}

/// Takes a device offline with a command, pauses, and brings it back.
fn offline(world: &World, how: &[&str], device: &str, pause: Duration) -> Outcome {
    let _identity = lock(&world.identity);
    world.run_ok(ACTOR, how)?;
    world.pause(pause);
    bring_back(world, device)
}

/// Clears the errors of a device, brings it online and waits for the resilver.
fn bring_back(world: &World, device: &str) -> Outcome {
    world.run_ok(ACTOR, &["zpool", "clear", "tank"])?;
    world.run_ok(ACTOR, &["zpool", "online", "tank", device])?;
    world.run_ok(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"])?;
    check_health(world)
}

/// Checks that the pool is healthy: the next fault waits until all devices are complete.
fn check_health(world: &World) -> Outcome {
    let status = world.run_ok(ACTOR, &["zpool", "status", "-v", "tank"])?;
    world.note(&status.out);
    if !status.out.contains("errors: No known data errors") {
        return fail(format!("the pool is damaged:\n{}", status.out));
    }
    Ok(())
}

/// Overwrites parts of a device, which a scrub then repairs.
fn corrupt(world: &World, image: &Path, random: &mut Random) -> Outcome {
    world.note(&format!("devices: corrupts {}", image.display()));
    let file = OpenOptions::new().write(true).open(image)?;
    for _ in 0..8 {
        let offset = LABELS + random.below(DEVICE - 2 * LABELS - NOISE);
        file.write_all_at(&random.bytes(NOISE), offset)?;
    }
    drop(file);
    scrub(world)
}

/// Makes a loop device read-only for a while.
fn read_only(world: &World, device: &str, pause: Duration) -> Outcome {
    world.note(&format!("devices: {device} is read-only"));
    system("blockdev", &["--setro", device])?;
    world.pause(pause);
    system("blockdev", &["--setrw", device])?;
    bring_back(world, device)
}

/// Makes all devices refuse writes for a while, by read-only loop devices or by a full file system.
fn stop_all(world: &World, pause: Duration) -> Outcome {
    let all = |how: &str| {
        world.devices.iter().try_for_each(|device| system("blockdev", &[how, &text(device)]).map(drop))
    };
    let room = |size: &str| {
        let store = text(&world.folder.join("store"));
        system("mount", &["-o", &format!("remount,size={size}"), &store]).map(drop)
    };
    world.note(&format!("devices: none can be written to for {} ms", pause.as_millis()));
    match world.medium {
        Medium::Files => return Ok(()),
        Medium::Loops => world.while_failing(|| {
            all("--setro")?;
            world.pause(pause);
            all("--setrw")?;
            resume_pool(world)
        })?,
        Medium::Memory => world.while_failing(|| {
            // tmpfs refuses a size below what is in use, which grows meanwhile; the next attempt is larger.
            for _ in 0..20 {
                let stat = rustix::fs::statvfs(world.folder.join("store"))?;
                if room(&((stat.f_blocks - stat.f_bfree) * stat.f_frsize).to_string()).is_ok() {
                    break;
                }
            }
            world.pause(pause);
            room("3g")?;
            resume_pool(world)
        })?,
    }
    scrub(world)
}

/// Clears the errors of the suspended pool, until it is online again.
fn resume_pool(world: &World) -> Outcome {
    for _ in 0..20 {
        world.run_ok(ACTOR, &["zpool", "clear", "tank"])?;
        let health = world.run_ok(ACTOR, &["zpool", "list", "-H", "-o", "health", "tank"])?.out;
        if health.trim() != "SUSPENDED" {
            return world.run_ok(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"]).map(drop);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    fail("the pool stays suspended after zpool clear")
}

/// Moves a device's image away for a while, and back.
fn move_away(world: &World, device: &str, image: &Path, pause: Duration, random: &mut Random) -> Outcome {
    let parked = parked_path(image);
    let _identity = lock(&world.identity);
    world.note(&format!("devices: {device} is moved away"));
    std::fs::rename(image, &parked)?;
    access_devices(world, random)?;
    world.pause(pause);
    std::fs::rename(&parked, image)?;
    world.run_ok(ACTOR, &["zpool", "reopen", "tank"])?;
    bring_back(world, device)
}

/// Removes, truncates or just replaces a device's image, then restores an older copy of it.
fn old_copy(world: &World, device: &str, image: &Path, pause: Duration, random: &mut Random) -> Outcome {
    let parked = parked_path(image);
    let _identity = lock(&world.identity);
    world.run_ok(ACTOR, &["zpool", "offline", "tank", device])?;
    system("cp", &["--sparse=always", &text(image), &text(&parked)])?;
    bring_back(world, device)?;
    world.pause(pause);
    match random.below(3) {
        0 => {
            world.note(&format!("devices: {device} is removed"));
            std::fs::remove_file(image)?;
            access_devices(world, random)?;
        }
        1 => {
            let size = *random.of(&[0, LABELS, DEVICE / 2]);
            world.note(&format!("devices: {device} is cut to {size}"));
            OpenOptions::new().write(true).open(image)?.set_len(size)?;
            access_devices(world, random)?;
        }
        _ => {}
    }
    world.pause(pause);
    world.note(&format!("devices: {device} is replaced by an older copy"));
    std::fs::rename(&parked, image)?;
    world.run_ok(ACTOR, &["zpool", "reopen", "tank"])?;
    bring_back(world, device)
}

/// Runs a command that accesses the devices, now and then, while one is away.
fn access_devices(world: &World, random: &mut Random) -> Outcome {
    match random.below(3) {
        0 => world.run_ok(ACTOR, &["zpool", "reopen", "tank"]).map(drop),
        1 => world.run_ok(ACTOR, &["zpool", "clear", "tank"]).map(drop),
        _ => Ok(()),
    }
}

/// The path of a parked image, in the same file system.
fn parked_path(image: &Path) -> PathBuf {
    let name = image.file_name().unwrap_or_default();
    image.parent().and_then(Path::parent).unwrap_or(image).join("kept").join(name)
}

/// Scrubs the pool until one scrub has run from beginning to end.
pub(crate) fn scrub(world: &World) -> Outcome {
    loop {
        // A scrub started earlier does not cover the latest fault. Stopping fails where none runs.
        world.run(ACTOR, &["zpool", "scrub", "-s", "tank"])?;
        let completed = world.run(ACTOR, &["zpool", "scrub", "-w", "tank"])?;
        let status = world.run_ok(ACTOR, &["zpool", "status", "-v", "tank"])?.out;
        world.note(&status);
        world.run_ok(ACTOR, &["zpool", "clear", "tank"])?;
        // A kill may have ended the wait, or another actor the scrub. The next fault must not come before a
        // complete scrub.
        if completed.is_success() && status.contains("scrub repaired") {
            return check_health(world);
        }
    }
}
