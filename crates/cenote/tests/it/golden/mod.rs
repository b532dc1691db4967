//! Reads every golden pool through the library, and compares each file, attribute and byte with its manifest.
//!
//! There is one test for each pool, named after the fixture; its comment says what the pool covers.

pub(crate) mod compare;
mod damage;
mod logs;
mod shared;
mod silent;

use cenote::inspect::{Check, blocks};
use compare::{Open, check, check_with, open};

/// A test that compares a whole pool with its manifest.
macro_rules! golden {
    ($($(#[doc = $what:literal])* $test:ident = $fixture:literal;)*) => {
        $($(#[doc = $what])* #[test] fn $test() { check($fixture); })*
    };
}

golden! {
    /// raidz1 of three, sectors of 4 KiB.
    ashift12 = "ashift12";
    /// Sectors of 512 bytes.
    ashift9 = "ashift9";
    /// A grown disk; a stripe of eight.
    big_labels = "big-labels";
    /// The live side of a pool with a checkpoint.
    checkpoint = "checkpoint";
    /// Every checksum algorithm.
    checksum = "checksum";
    /// Special and log mirrors, cache, spare; small blocks on the special class.
    classes = "classes";
    /// Block cloning.
    cloned = "cloned";
    /// Features of OpenZFS 2.0.
    compat_2_0 = "compat-2.0";
    /// Features that GRUB reads.
    compat_grub2 = "compat-grub2";
    /// Every compression algorithm.
    compression = "compression";
    /// Power lost during asynchronous writes: the last whole txg.
    crash_nolog = "crash-nolog";
    /// Deduplication with logs.
    dedup_fast = "dedup-fast";
    /// Classic deduplication.
    dedup_legacy = "dedup-legacy";
    /// Deep and wide directory trees.
    deeptree = "deeptree";
    /// raidz1 with one stale disk.
    degraded = "degraded";
    /// A file unlinked while open, another being freed.
    deleteq = "deleteq";
    /// Dnodes of every size, attributes in both forms and in spill blocks.
    dnodes = "dnodes";
    /// A distributed RAID.
    draid1 = "draid1";
    /// Blocks inside their pointers.
    embedded = "embedded";
    /// Encrypted datasets of all suites and key formats, a clone, a volume.
    encryption = "encryption";
    /// Inode flags and project ids.
    fileflags = "fileflags";
    /// Sparse files.
    holes = "holes";
    /// Only the labels at the front.
    labels_back = "labels-back";
    /// Only the labels at the end.
    labels_front = "labels-front";
    /// Pool version 28.
    legacy = "legacy";
    /// Names above 255 bytes.
    longname = "longname";
    /// Directories of all sizes.
    manyfiles = "manyfiles";
    /// A two-way mirror.
    mirror = "mirror";
    /// raidz2 with two disks withheld.
    missing_disk = "missing-disk";
    /// Case and normalisation.
    names = "names";
    /// An interrupted receive.
    partial_receive = "partial-receive";
    /// POSIX ACLs.
    posixacl = "posixacl";
    /// Properties and quotas of all kinds.
    properties = "properties";
    /// A stripe of mirrors.
    raid10 = "raid10";
    /// raidz1 grown from three to four, data of both widths.
    raidz_expanded = "raidz-expanded";
    /// raidz2 that grew; the copy was made just after the end, see `expanding`.
    raidz_expanding = "raidz-expanding";
    /// raidz1.
    raidz1 = "raidz1";
    /// raidz2.
    raidz2 = "raidz2";
    /// raidz3.
    raidz3 = "raidz3";
    /// Records from 512 bytes to 16 MiB.
    recordsize = "recordsize";
    /// Redacted datasets.
    redacted = "redacted";
    /// A mirror removed from a stripe.
    removed_mirror = "removed-mirror";
    /// A disk removed from a stripe.
    removed_vdev = "removed-vdev";
    /// One disk, all defaults.
    single = "single";
    /// Snapshots, clones, bookmarks, rollback, promotion.
    snapshots = "snapshots";
    /// A mirror with an active spare.
    spare_in_use = "spare-in-use";
    /// A disk added later.
    stripe_added = "stripe-added";
    /// A mirror that lost and gained sides.
    three_way = "three-way";
    /// The newest uberblock is torn.
    uberblock_torn = "uberblock-torn";
    /// Pool version 1.
    version1 = "version1";
    /// Pool version 10.
    version10 = "version10";
    /// GPT-partitioned whole disks.
    wholedisk = "wholedisk";
    /// Volumes.
    zvol = "zvol";
}

// Pools of `fixtures/openzfs-2.3.2-more`.
golden! {
    /// Gang blocks only: plain, encrypted, in two copies, with records of 16 MiB.
    gang = "gang";
    /// raidz2 with sectors of 4 KiB. It has no gang blocks; see `gangraidz-encrypted`.
    gang_on_raidz = "gangraidz";
    /// Sectors of 8 KiB.
    ashift13 = "ashift13";
    /// Sectors of 16 KiB and of 1 KiB in one pool.
    ashift14_and_10 = "ashift14";
    /// Sectors of 64 KiB.
    ashift16 = "ashift16";
    /// A directory with 60000 names, and normalizing directories with 4000.
    bigdir = "bigdir";
    /// Deduplication with pruned entries, special and dedup vdevs.
    dedupmix = "dedupmix";
    /// A distributed RAID with two spares, one of them in use.
    draid2 = "draid2";
    /// A removed log device has left a hole.
    holevdev = "holevdev";
    /// Many snapshots, clones of clones, promotions.
    manysnaps = "manysnaps";
    /// Micro ZAPs of more than 128 KiB.
    microzap1m = "microzap1m";
    /// A raw received file system; aes-192-gcm, aes-128-ccm, Edon-R.
    rawrecv = "rawrecv";
    /// One disk, two and three copies of everything.
    copies = "copies";
    /// A distributed RAID without a disk, rebuilt onto its distributed spare.
    draid1_spare_in_use = "draid1-spare";
    /// A distributed RAID with triple parity, both distributed spares in use.
    draid3_spares_in_use = "draid3-spare";
    /// raidz2 caught in the middle of growing: blocks of both layouts, and one that is cut by the border.
    expanding = "expanding";
    /// Gang blocks on raidz1, plain and encrypted.
    gangs_on_raidz_encrypted = "gangraidz-encrypted";
    /// A mirror removed in segments of 4 KiB: every larger block is split.
    split_blocks = "removed-split";
    /// The live side of a raidz1 with a checkpoint.
    checkpoint_on_raidz = "checkpoint-raidz";
    /// The live side of a pool with a checkpoint that was taken after a removal.
    checkpoint_after_removal = "checkpoint-removed";
    /// A raidz1 with the replacement of a disk in progress.
    replacing = "replacing";
}

/// The pools as of their checkpoints; every block of both states is good.
#[test]
fn checkpoints_rewound() {
    for fixture in ["checkpoint", "checkpoint-raidz", "checkpoint-removed"] {
        let then = check_with(fixture, &Open { manifest: "rewound", checkpoint: true, ..Open::default() });
        let now = open(&testkit::Fixture::open(fixture), &Open::default());
        assert!(then.spa().txg() < now.spa().txg(), "{fixture}");
        for (view, pool) in [("rewound", then), ("current", now)] {
            let report = cenote::verify::verify(&pool, &cenote::verify::Options::default(), &());
            assert!(report.is_clean() && report.is_space_right(), "{fixture}, {view}: {report:?}");
        }
    }
}

/// The fixtures for gang blocks have them: as many copies as `zdb -bcc` counts.
#[test]
fn gangs_are_counted() {
    for (fixture, gangs) in [("gang", 134), ("gangraidz-encrypted", 45), ("single", 0)] {
        let pool = open(&testkit::Fixture::open(fixture), &Open::default());
        let report = blocks(&pool, Check::Everything, true).expect("counted");
        assert_eq!(report.tally.total().gangs, gangs, "{fixture}");
        assert!(report.space.is_some_and(|space| space.matches()), "{fixture}");
    }
}

/// Every fixture of the directory has a test here, in `damage` or in `logs`.
#[test]
fn no_fixture_is_left_out() {
    let this = include_str!("mod.rs");
    let (damaged, logs) = (include_str!("damage.rs"), include_str!("logs.rs"));
    let more = testkit::workspace_root().join("fixtures/openzfs-2.3.2-more");
    let more = std::fs::read_dir(&more).expect("a folder").map(|entry| entry.expect("an entry").path());
    let more = more.filter(|path| path.join("manifest.json").is_file());
    let more = more.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    for name in testkit::Fixture::names().into_iter().chain(more) {
        let quoted = format!("\"{name}\"");
        assert!(
            this.contains(&quoted) || damaged.contains(&quoted) || logs.contains(&quoted),
            "{name} has no test"
        );
    }
}
