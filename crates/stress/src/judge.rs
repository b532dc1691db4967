//! The judges of a round.

use crate::devices::scrub;
use crate::world::{Done, Failure, World, text, wrong};
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
    let at = |writer: &Writer| world.mount().join(&writer.dataset[5..]);
    let check = |what: &str| {
        writers.iter().try_for_each(|writer| writer.check(&at(writer)))?;
        read(what)
    };
    let import = |devices: &Path, how: &[&str]| {
        let devices = text(devices);
        let words = [&["zpool", "import", "-d", &devices][..], how, &["tank"]].concat();
        let ran = world.run(ACTOR, &words)?;
        // A file system may have its place in one that is read-only now, which lacks it.
        if ran.is_good() || ran.err.lines().all(|line| line.starts_with("cannot mount")) {
            return Ok(());
        }
        wrong(format!("'{}': {}", words.join(" "), ran.err))
    };
    read("after the round")?;
    for device in &world.devices {
        world.good(ACTOR, &["zpool", "online", "tank", &text(device)])?;
    }
    world.good(ACTOR, &["zpool", "wait", "-t", "resilver", "tank"])?;
    world.good(ACTOR, &["zpool", "export", "tank"])?;
    world.take_loops_down();
    zdb(world)?;
    verify(world, &world.store(), "all devices")?;
    for set in sufficient(world) {
        let (folder, what) = only(world, &set)?;
        verify(world, &folder, &what)?;
        import(&folder, &["-o", "readonly=on"])?;
        check(&what)?;
        world.good(ACTOR, &["zpool", "export", "tank"])?;
    }
    import(&world.store(), &[])?;
    check("after an export and import")?;
    scrub(world)?;
    world.good(ACTOR, &["zpool", "destroy", "tank"]).map(drop)
}

/// OpenZFS finds every block, and counts the space as we do.
pub(crate) fn zdb(world: &World) -> Done {
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
    wrong(format!("zdb -bcc: {}\n{}", output.status, last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// We do too, in process.
pub(crate) fn verify(world: &World, devices: &Path, what: &str) -> Done {
    let mut command = world.command(&["verify", "-q", "tank"]);
    let output = command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", devices).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    wrong(format!("cenote verify with {what}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// The sets of devices that have just enough.
fn sufficient(world: &World) -> Vec<Vec<PathBuf>> {
    let (count, without) = (world.images.len(), world.layout.spared());
    let sets = (0..1_u32 << count).filter(|set| set.count_ones() as usize == count - without);
    let of = |set: u32| (0..count).filter(|n| set >> n & 1 == 1).map(|n| world.images[n].clone()).collect();
    sets.map(of).collect()
}

/// A folder with links to these devices alone, and what it is called.
fn only(world: &World, set: &[PathBuf]) -> Done<(PathBuf, String)> {
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
