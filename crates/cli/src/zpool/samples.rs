//! Pools like those of the transcripts, for tests.

use admin::{Class, Diagnosis, PoolFacts, PoolStatus, Vdev, Vdevs};

pub(super) const LISTING: &str = include_str!("../../../../fixtures/cli-transcripts/03-listing.txt");
pub(super) const LAYOUTS: &str = include_str!("../../../../fixtures/cli-transcripts/02-layouts.txt");
pub(super) const MAINTENANCE: &str = include_str!("../../../../fixtures/cli-transcripts/08-maintenance.txt");

/// What the transcript has for a command, of which `nth` says which of several.
pub(super) fn printed(transcript: &str, command: &str, nth: usize) -> String {
    let start = format!("\n$ {command}\n");
    let body = transcript.split(&start).nth(nth + 1).expect("in the transcript");
    body[..body.find("[exit ").expect("ends")].to_owned()
}

pub(super) fn vdev(kind: &str, guid: u64, children: Vec<Vdev>) -> Vdev {
    Vdev { ashift: 9, children, ..Vdev::new(kind, guid) }
}

pub(super) fn disk(path: &str, guid: u64) -> Vdev {
    let size = 256 << 20;
    Vdev { path: Some(path.to_owned()), psize: size, replace_size: size, ..vdev("file", guid, Vec::new()) }
}

pub(super) fn sized(alloc: u64, space: u64, vdev: Vdev) -> Vdev {
    Vdev { alloc, space, deflated: space, replace_size: space, ..vdev }
}

pub(super) fn in_class(class: Class, id: u64, mut vdev: Vdev) -> Vdev {
    vdev.children.iter_mut().for_each(|child| child.class = class);
    Vdev { class, id, ..vdev }
}

pub(super) fn status(name: &str, guid: u64, root: Vdev) -> PoolStatus {
    PoolStatus {
        facts: PoolFacts {
            name: name.to_owned(),
            guid,
            health: root.health,
            suspended: false,
            config_txg: 4,
            version: 5000,
            zpl_version: 5,
        },
        diagnosis: Diagnosis::Healthy,
        scan: None,
        error_scrub: None,
        removal: None,
        expansion: None,
        checkpoint: None,
        vdevs: Vdevs {
            root: Vdev { pool_name: Some(name.to_owned()), guid, kind: "root".into(), ..root },
            cache: Vec::new(),
            spares: Vec::new(),
        },
        error_count: 0,
        errors: Vec::new(),
        dedup: None,
    }
}

/// The pool of part 3: a mirror.
pub(super) fn tank() -> PoolStatus {
    let disks = vec![
        disk("/disks/c0t1d0", 17_886_979_107_003_252_814),
        disk("/disks/c0t2d0", 14_099_805_059_408_775_234),
    ];
    let mirror = sized(4_397_056, 251_658_240, vdev("mirror", 5_707_151_530_500_729_568, disks));
    let root = sized(4_397_056, 251_658_240, vdev("root", 0, vec![mirror]));
    status("tank", 5_575_431_439_012_803_511, root)
}
