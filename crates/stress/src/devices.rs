//! Devices that leave, are spoilt, and come back; one at a time, and only while all others have everything.
//!
//! Files are moved away, removed, cut, and replaced by a copy of some time before; loop devices are made read-only. Now and then no
//! device can be written to: the pool stops, and goes on with nothing lost when it is told that they are well again.

use crate::Random;
use crate::world::{DEVICE, Done, Medium, World, lock, system, text, wrong};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ACTOR: &str = "devices";
/// What is spoilt lies between the labels.
const LABELS: u64 = 5 << 20;
const NOISE: u64 = 256 << 10;

/// Works until the round is over; then all devices are there, with everything.
pub(crate) fn work(world: &World, mut random: Random) -> Done {
    while !world.is_over() {
        world.pause(Duration::from_millis(random.below(1000)));
        let at = random.below(world.devices.len() as u64) as usize;
        let (device, image) = (text(&world.devices[at]), &world.images[at]);
        let pause = Duration::from_millis(random.below(1500));
        match random.below(10) {
            0 => offline(world, &["zpool", "offline", "tank", &device], &device, pause)?,
            1 => offline(world, &["zpool", "offline", "-t", "tank", &device], &device, pause)?,
            2 => offline(world, &["zpool", "offline", "-f", "tank", &device], &device, pause)?,
            3 => spoil(world, image, &mut random)?,
            4 | 5 => stop(world, pause)?,
            _ if world.medium == Medium::Loops => read_only(world, &device, pause)?,
            6 | 7 => away(world, &device, image, pause, &mut random)?,
            _ => old_copy(world, &device, image, pause, &mut random)?,
        }
    }
    Ok(())
}

/// Takes a device out of service and brings it back.
fn offline(world: &World, how: &[&str], device: &str, pause: Duration) -> Done {
    let _identity = lock(&world.identity);
    world.good(ACTOR, how)?;
    world.pause(pause);
    back(world, device)
}

/// A device is there again.
fn back(world: &World, device: &str) -> Done {
    world.good(ACTOR, &["zpool", "clear", "tank"])?;
    world.good(ACTOR, &["zpool", "online", "tank", device])?;
    world.good(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"])?;
    is_well(world)
}

/// The next device may leave when this one has everything.
fn is_well(world: &World) -> Done {
    let status = world.good(ACTOR, &["zpool", "status", "-v", "tank"])?;
    world.note(&status.out);
    if !status.out.contains("errors: No known data errors") {
        return wrong(format!("the pool is damaged:\n{}", status.out));
    }
    Ok(())
}

/// Overwrites parts of a device; a scrub repairs them.
fn spoil(world: &World, image: &Path, random: &mut Random) -> Done {
    world.note(&format!("devices: spoils {}", image.display()));
    let file = OpenOptions::new().write(true).open(image)?;
    for _ in 0..8 {
        let offset = LABELS + random.below(DEVICE - 2 * LABELS - NOISE);
        file.write_all_at(&random.bytes(NOISE), offset)?;
    }
    drop(file);
    scrub(world)
}

/// A device takes no writes for a while.
fn read_only(world: &World, device: &str, pause: Duration) -> Done {
    world.note(&format!("devices: {device} is read-only"));
    system("blockdev", &["--setro", device])?;
    world.pause(pause);
    system("blockdev", &["--setrw", device])?;
    back(world, device)
}

/// No device takes writes for a while.
fn stop(world: &World, pause: Duration) -> Done {
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
        Medium::Loops => world.in_trouble(|| {
            all("--setro")?;
            world.pause(pause);
            all("--setrw")?;
            goes_on(world)
        })?,
        Medium::Memory => world.in_trouble(|| {
            // Not less than is in use, which grows meanwhile; then the next one.
            for _ in 0..20 {
                let stat = rustix::fs::statvfs(world.folder.join("store"))?;
                if room(&((stat.f_blocks - stat.f_bfree) * stat.f_frsize).to_string()).is_ok() {
                    break;
                }
            }
            world.pause(pause);
            room("3g")?;
            goes_on(world)
        })?,
    }
    scrub(world)
}

/// The pool is told that its devices are well again.
fn goes_on(world: &World) -> Done {
    for _ in 0..20 {
        world.good(ACTOR, &["zpool", "clear", "tank"])?;
        let health = world.good(ACTOR, &["zpool", "list", "-H", "-o", "health", "tank"])?.out;
        if health.trim() != "SUSPENDED" {
            return world.good(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"]).map(drop);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    wrong("the pool does not go on after zpool clear")
}

/// A device's file is somewhere else for a while.
fn away(world: &World, device: &str, image: &Path, pause: Duration, random: &mut Random) -> Done {
    let kept = kept(image);
    let _identity = lock(&world.identity);
    world.note(&format!("devices: {device} is moved away"));
    std::fs::rename(image, &kept)?;
    notice(world, random)?;
    world.pause(pause);
    std::fs::rename(&kept, image)?;
    world.good(ACTOR, &["zpool", "reopen", "tank"])?;
    back(world, device)
}

/// A device's file is removed, cut, or just replaced by a copy of some time before.
fn old_copy(world: &World, device: &str, image: &Path, pause: Duration, random: &mut Random) -> Done {
    let kept = kept(image);
    let _identity = lock(&world.identity);
    world.good(ACTOR, &["zpool", "offline", "tank", device])?;
    system("cp", &["--sparse=always", &text(image), &text(&kept)])?;
    back(world, device)?;
    world.pause(pause);
    match random.below(3) {
        0 => {
            world.note(&format!("devices: {device} is removed"));
            std::fs::remove_file(image)?;
            notice(world, random)?;
        }
        1 => {
            let size = *random.of(&[0, LABELS, DEVICE / 2]);
            world.note(&format!("devices: {device} is cut to {size}"));
            OpenOptions::new().write(true).open(image)?.set_len(size)?;
            notice(world, random)?;
        }
        _ => {}
    }
    world.pause(pause);
    world.note(&format!("devices: {device} is a copy of some time before"));
    std::fs::rename(&kept, image)?;
    world.good(ACTOR, &["zpool", "reopen", "tank"])?;
    back(world, device)
}

/// Now and then somebody asks for the devices while one is away.
fn notice(world: &World, random: &mut Random) -> Done {
    match random.below(3) {
        0 => world.good(ACTOR, &["zpool", "reopen", "tank"]).map(drop),
        1 => world.good(ACTOR, &["zpool", "clear", "tank"]).map(drop),
        _ => Ok(()),
    }
}

/// Where a file stays that is no device now: in the same file system.
fn kept(image: &Path) -> PathBuf {
    let name = image.file_name().unwrap_or_default();
    image.parent().and_then(Path::parent).unwrap_or(image).join("kept").join(name)
}

/// Everything is read and repaired.
pub(crate) fn scrub(world: &World) -> Done {
    loop {
        // Of one that has begun before, the beginning is not what is wanted; where there is none, that is said.
        world.run(ACTOR, &["zpool", "scrub", "-s", "tank"])?;
        let ran = world.run(ACTOR, &["zpool", "scrub", "-w", "tank"])?;
        let status = world.good(ACTOR, &["zpool", "status", "-v", "tank"])?.out;
        world.note(&status);
        world.good(ACTOR, &["zpool", "clear", "tank"])?;
        // A kill may have ended the wait, or somebody the scrub; and who does not wait spoils the next device too early.
        if ran.is_good() && status.contains("scrub repaired") {
            return is_well(world);
        }
    }
}
