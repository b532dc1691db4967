//! Administrators: two or three verbs at once on a dataset, its parent and its child.
//!
//! That a verb is refused because another one was faster is right; that the pool is suspended, a command panics or does
//! not end is not. What has become of the datasets is judged at the end of the round.

use crate::Random;
use crate::world::{Done, World, wrong};

const BASE: &str = "tank/t";

/// Bouts until the round is over.
pub(crate) fn work(world: &World, number: u64, mut random: Random) -> Done {
    let actor = format!("v{number}");
    while !world.is_over() {
        // Few names, so that verbs meet, also those of several administrators.
        let name = *random.of(&["a", "b"]);
        let together = 2 + usize::from(random.one_in(3));
        let bout: Vec<Vec<String>> = (0..together).map(|_| verb(name, &mut random)).collect();
        world.run_together(&actor, &bout)?;
        look(world, &actor)?;
    }
    Ok(())
}

/// The pool goes on, and everything can be listed.
fn look(world: &World, actor: &str) -> Done {
    let health = world.good(actor, &["zpool", "list", "-H", "-o", "health", "tank"])?.out;
    if !matches!(health.trim(), "ONLINE" | "DEGRADED") {
        return wrong(format!("the pool is {}", health.trim()));
    }
    world.good(actor, &["zfs", "list", "-H", "-r", "-t", "all", BASE]).map(drop)
}

fn verb(name: &str, random: &mut Random) -> Vec<String> {
    let base = format!("{BASE}/{name}");
    let other = format!("{BASE}/{}", random.of(&["a", "b", "k1", "k2"]));
    let place = random.of(&[base.clone(), format!("{base}/x"), base.clone(), BASE.to_owned()]).clone();
    let (one, two) = (random.below(3), random.below(3));
    let snapshot = format!("{place}@{one}");
    let clone = format!("{BASE}/k{}", 1 + random.below(2));
    let line = match random.below(34) {
        0..4 => format!("zfs create -p {base}/x"),
        4 => format!("zfs destroy -r {base}"),
        5 => format!("zfs destroy {base}/x"),
        6..9 => format!("zfs snapshot {snapshot}"),
        9..11 => format!("zfs snapshot -r {snapshot}"),
        11 => format!("zfs destroy {snapshot}"),
        12 => format!("zfs destroy -r {snapshot}"),
        13 => format!("zfs rollback -r {base}@{one}"),
        14 => format!("zfs rename {snapshot} {place}@{two}"),
        15 => format!("zfs rename -r {snapshot} {place}@{two}"),
        16 => format!("zfs rename {base} {other}"),
        17 => format!("zfs rename {base}/x {BASE}/{}", random.of(&["a/y", "b/y"])),
        18..20 => format!("zfs clone {snapshot} {clone}"),
        20 => format!("zfs promote {clone}"),
        21 => format!("zfs hold tag {snapshot}"),
        22 => format!("zfs release -r tag {snapshot}"),
        23 => format!("zfs bookmark {snapshot} {place}#{two}"),
        24 => format!("zfs destroy {place}#{two}"),
        25 => format!("zfs set compression={} {base}", random.of(&["lz4", "off", "zstd"])),
        26 => format!("zfs set quota={} {base}", random.of(&["none", "100M", "1G"])),
        27 => format!("zfs set canmount={} {base}", random.of(&["on", "noauto"])),
        28 => format!("zfs unmount {base}"),
        29 => format!("zfs mount {base}"),
        30 => format!("zfs inherit -r compression {BASE}"),
        31 => format!("zfs get -r all {base}"),
        32 => format!("zfs diff {snapshot}"),
        _ => format!("zfs destroy -R {place}@{one}"),
    };
    line.split(' ').map(str::to_owned).collect()
}
