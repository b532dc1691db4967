//! The checks at the end of a round.

use crate::devices::scrub;
use crate::world::{Failure, Outcome, World, fail, text};
use crate::writer::Writer;
use std::path::{Path, PathBuf};

const ACTOR: &str = "judge";

/// Checks everything that the round left: files, snapshots, datasets and space.
///
/// # Errors
/// The first check that fails.
pub(crate) fn check(world: &World, writers: &[Writer]) -> Outcome {
    let read = |what: &str| {
        let all = writers.iter().try_for_each(Writer::check_snapshots);
        all.map_err(|failure| Failure(format!("{what}: {failure}")))
    };
    let at = |writer: &Writer| world.mount().join(&writer.dataset[5..]);
    let check = |what: &str| {
        writers.iter().try_for_each(|writer| writer.check(&at(writer)))?;
        read(what)
    };
    let import = |devices: &Path, how: &[&str]| {
        let devices = text(devices);
        let words = [&["zpool", "import", "-d", &devices][..], how, &["tank"]].concat();
        let completed = world.run(ACTOR, &words)?;
        // The mount point may be missing in a parent file system that is read-only by now.
        if completed.is_success() || completed.err.lines().all(|line| line.starts_with("cannot mount")) {
            return Ok(());
        }
        fail(format!("'{}': {}", words.join(" "), completed.err))
    };
    read("after the round")?;
    for device in &world.devices {
        world.run_ok(ACTOR, &["zpool", "online", "tank", &text(device)])?;
    }
    world.run_ok(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"])?;
    world.run_ok(ACTOR, &["zpool", "export", "tank"])?;
    world.detach_loops();
    zdb(world)?;
    verify(world, &world.store(), "all devices")?;
    for set in sufficient(world) {
        let (folder, what) = directory_of(world, &set)?;
        verify(world, &folder, &what)?;
        import(&folder, &["-o", "readonly=on"])?;
        check(&what)?;
        world.run_ok(ACTOR, &["zpool", "export", "tank"])?;
    }
    import(&world.store(), &[])?;
    check("after an export and import")?;
    scrub(world)?;
    world.run_ok(ACTOR, &["zpool", "destroy", "tank"]).map(drop)
}

/// Runs `zdb -bcc` of OpenZFS, if it is installed: every block verifies, and the space adds up.
pub(crate) fn zdb(world: &World) -> Outcome {
    let Some(zdb) = testkit::tool("zdb") else { return Ok(()) };
    let mut command = testkit::hurried(zdb);
    let output = command.args(["-e", "-p"]).arg(world.store()).args(["-bcc", "tank"]).output()?;
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    world.note(&text);
    if output.status.success() && text.contains("No leaks") {
        return Ok(());
    }
    let last: Vec<&str> = text.lines().rev().take(12).collect();
    fail(format!("zdb -bcc: {}\n{}", output.status, last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// Runs `cenote verify` in process on the devices of a directory.
pub(crate) fn verify(world: &World, devices: &Path, what: &str) -> Outcome {
    let mut command = world.command(&["verify", "-q", "tank"]);
    let output = command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", devices).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    fail(format!("cenote verify with {what}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// The smallest sets of devices that hold all data.
fn sufficient(world: &World) -> Vec<Vec<PathBuf>> {
    let (count, without) = (world.images.len(), world.layout.redundancy());
    let sets = (0..1_u32 << count).filter(|set| set.count_ones() as usize == count - without);
    let of = |set: u32| (0..count).filter(|n| set >> n & 1 == 1).map(|n| world.images[n].clone()).collect();
    sets.map(of).collect()
}

/// Makes a directory with links to these devices alone; returns it with a description.
fn directory_of(world: &World, set: &[PathBuf]) -> Outcome<(PathBuf, String)> {
    let folder = world.folder.join("some");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder)?;
    let mut names = Vec::new();
    for device in set {
        let name = device.file_name().unwrap_or_default();
        names.push(name.to_string_lossy().into_owned());
        std::os::unix::fs::symlink(device, folder.join(name))?;
    }
    Ok((folder, format!("only {}", names.join(" "))))
}
