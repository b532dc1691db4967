//! The judges of a round.

use crate::devices::scrub;
use crate::world::{Done, Failure, Ran, World, wrong};
use crate::writer::Writer;
use std::path::{Path, PathBuf};

const ACTOR: &str = "judge";

/// Everything that is left is right.
///
/// # Errors
/// What is not.
pub(crate) fn judge(world: &World, writers: &[Writer]) -> Done {
    let read = |what: &str| {
        let all = writers.iter().try_for_each(Writer::check_snapshots);
        all.map_err(|failure| Failure(format!("{what}: {failure}")))
    };
    read("after the round")?;
    for device in &world.devices {
        world.good(ACTOR, &["zpool", "online", "tank", &device.display().to_string()])?;
    }
    scrub(world)?;
    let status = world.good(ACTOR, &["zpool", "status", "-v", "tank"])?.out;
    if !status.contains("errors: No known data errors") {
        return wrong(format!("the pool is damaged:\n{status}"));
    }
    world.good(ACTOR, &["zpool", "export", "tank"])?;
    zdb(world)?;
    verify(world, &world.folder.join("devices"), "all devices")?;
    for set in sufficient(world) {
        with_only(world, &set)?;
    }
    world.good(
        ACTOR,
        &["zpool", "import", "-d", &world.folder.join("devices").display().to_string(), "tank"],
    )?;
    writers.iter().try_for_each(|writer| writer.check(&world.mount().join(&writer.dataset[5..])))?;
    read("after an export and import")?;
    world.good(ACTOR, &["zpool", "destroy", "tank"]).map(drop)
}

/// OpenZFS finds every block, and counts the space as we do.
pub(crate) fn zdb(world: &World) -> Done {
    let Some(zdb) = testkit::tool("zdb") else { return Ok(()) };
    let mut command = testkit::hurried(zdb);
    let output =
        command.args(["-e", "-p"]).arg(world.folder.join("devices")).args(["-bcc", "tank"]).output()?;
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    world.note(&text);
    if output.status.success() && text.contains("No leaks") {
        return Ok(());
    }
    let last: Vec<&str> = text.lines().rev().take(12).collect();
    wrong(format!("zdb -bcc: {}\n{}", output.status, last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// We do too, in process.
pub(crate) fn verify(world: &World, devices: &Path, what: &str) -> Done {
    let mut command = world.command(&["verify", "-q", "tank"]);
    let output = command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", devices).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let ran = Ran { code: output.status.code().unwrap_or(-1), out, err };
    if ran.is_good() {
        return Ok(());
    }
    wrong(format!("cenote verify with {what}: {}\n{}{}", ran.code, ran.out, ran.err))
}

/// The sets of devices that have just enough.
fn sufficient(world: &World) -> Vec<Vec<PathBuf>> {
    let (count, without) = (world.devices.len(), world.layout.spared());
    let sets = (0..1_u32 << count).filter(|set| set.count_ones() as usize == count - without);
    let of = |set: u32| (0..count).filter(|n| set >> n & 1 == 1).map(|n| world.devices[n].clone()).collect();
    sets.map(of).collect()
}

fn with_only(world: &World, set: &[PathBuf]) -> Done {
    let folder = world.folder.join("some");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder)?;
    let mut names = Vec::new();
    for device in set {
        let name = device.file_name().unwrap_or_default();
        names.push(name.to_string_lossy().into_owned());
        std::os::unix::fs::symlink(device, folder.join(name))?;
    }
    verify(world, &folder, &format!("only {}", names.join(" ")))
}
