//! Feature flags: named extensions of the format
//! (docs/on-disk/16-features.md).
//!
//! A pool of version 5000 keeps a reference count for each feature in one of two ZAPs. This module has the
//! properties of features that do not depend on a pool; `pool` reads the counts.
//!
//! # What always holds
//! - Names and guids in [`FEATURES`] are unique, and every dependency is in the table.
//! - The order of [`FEATURES`] is the order in which the tools list them.

/// Software that does not know the feature may read the pool: counted in `features_for_write`.
const READ_ONLY: u8 = 1;
/// Needed for reading the MOS: also listed in the labels while active.
const MOS: u8 = 2;
/// The count becomes 1 when the feature is enabled.
const ON_ENABLE: u8 = 4;
/// Counted once for each dataset whose ZAP contains its guid.
const DATASET: u8 = 8;
/// Not enabled by `zpool upgrade POOL`, only by name.
const NO_UPGRADE: u8 = 16;

/// The first release line that supports a feature, as far as the documentation distinguishes release lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Since {
    /// A feature of OpenZFS 2.3 or an earlier release.
    V2_3,
    /// A feature that OpenZFS 2.4 added.
    V2_4,
    /// After 2.4: Cenote knows the name but not the format.
    Later,
}

/// Properties of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Short name; `feature@NAME` is the pool property.
    pub name: &'static str,
    /// Guid: the name in the feature ZAPs.
    pub guid: &'static str,
    /// Software without the feature can read the pool: it is counted in `features_for_write`.
    pub read_only_compatible: bool,
    /// Needed for reading the MOS: the labels list it too while it is active.
    pub mos: bool,
    /// Enabling the feature makes it active at once.
    pub active_on_enable: bool,
    /// Counted per dataset: the dataset's ZAP has an entry with the guid as its name.
    pub per_dataset: bool,
    /// Not enabled by `zpool upgrade POOL`, only by name.
    pub no_upgrade: bool,
    /// Names of the features that must be enabled first.
    pub depends: &'static [&'static str],
    /// First release line that has it.
    pub since: Since,
    /// A description of one line.
    pub description: &'static str,
}

impl Feature {
    /// True if Cenote can read pools in which the feature is active.
    pub fn is_supported(&self) -> bool {
        self.since < Since::Later
    }
}

/// Name of the property of a feature: `feature@NAME`.
pub const PROPERTY_PREFIX: &str = "feature@";

/// The feature with this short name.
pub fn by_name(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}

/// The feature with this guid.
pub fn by_guid(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

const fn feature(
    name: &'static str,
    guid: &'static str,
    class: u8,
    depends: &'static [&'static str],
    since: Since,
    description: &'static str,
) -> Feature {
    Feature {
        name,
        guid,
        read_only_compatible: class & READ_ONLY != 0,
        mos: class & MOS != 0,
        active_on_enable: class & ON_ENABLE != 0,
        per_dataset: class & DATASET != 0,
        no_upgrade: class & NO_UPGRADE != 0,
        depends,
        since,
        description,
    }
}

/// Every feature, in the order in which the tools list them.
#[rustfmt::skip]
pub static FEATURES: &[Feature] = &[
    feature("async_destroy", "com.delphix:async_destroy", READ_ONLY, &[], Since::V2_3, "Destroy filesystems asynchronously."),
    feature("empty_bpobj", "com.delphix:empty_bpobj", READ_ONLY, &[], Since::V2_3, "Snapshots use less space."),
    feature("lz4_compress", "org.illumos:lz4_compress", ON_ENABLE, &[], Since::V2_3, "LZ4 compression algorithm support."),
    feature("multi_vdev_crash_dump", "com.joyent:multi_vdev_crash_dump", 0, &[], Since::V2_3, "Crash dumps to multiple vdev pools."),
    feature("spacemap_histogram", "com.delphix:spacemap_histogram", READ_ONLY, &[], Since::V2_3, "Spacemaps maintain space histograms."),
    feature("enabled_txg", "com.delphix:enabled_txg", READ_ONLY, &[], Since::V2_3, "Record txg at which a feature is enabled"),
    feature("hole_birth", "com.delphix:hole_birth", MOS | ON_ENABLE, &["enabled_txg"], Since::V2_3, "Retain hole birth txg for more precise zfs send"),
    feature("extensible_dataset", "com.delphix:extensible_dataset", 0, &[], Since::V2_3, "Enhanced dataset functionality, used by other features."),
    feature("embedded_data", "com.delphix:embedded_data", MOS | ON_ENABLE, &[], Since::V2_3, "Blocks which compress very well use even less space."),
    feature("bookmarks", "com.delphix:bookmarks", READ_ONLY, &["extensible_dataset"], Since::V2_3, "\"zfs bookmark\" command"),
    feature("filesystem_limits", "com.joyent:filesystem_limits", READ_ONLY, &["extensible_dataset"], Since::V2_3, "Filesystem and snapshot limits."),
    feature("large_blocks", "org.open-zfs:large_blocks", DATASET, &["extensible_dataset"], Since::V2_3, "Support for blocks larger than 128KB."),
    feature("large_dnode", "org.zfsonlinux:large_dnode", DATASET, &["extensible_dataset"], Since::V2_3, "Variable on-disk size of dnodes."),
    feature("sha512", "org.illumos:sha512", DATASET, &["extensible_dataset"], Since::V2_3, "SHA-512/256 hash algorithm."),
    feature("skein", "org.illumos:skein", DATASET, &["extensible_dataset"], Since::V2_3, "Skein hash algorithm."),
    feature("edonr", "org.illumos:edonr", DATASET, &["extensible_dataset"], Since::V2_3, "Edon-R hash algorithm."),
    feature("userobj_accounting", "org.zfsonlinux:userobj_accounting", READ_ONLY | DATASET, &["extensible_dataset"], Since::V2_3, "User/Group object accounting."),
    feature("encryption", "com.datto:encryption", DATASET, &["extensible_dataset", "bookmark_v2"], Since::V2_3, "Support for dataset level encryption"),
    feature("project_quota", "org.zfsonlinux:project_quota", READ_ONLY | DATASET, &["extensible_dataset"], Since::V2_3, "space/object accounting based on project ID."),
    feature("device_removal", "com.delphix:device_removal", MOS, &[], Since::V2_3, "Top-level vdevs can be removed, reducing logical pool size."),
    feature("obsolete_counts", "com.delphix:obsolete_counts", READ_ONLY, &["extensible_dataset", "device_removal"], Since::V2_3, "Reduce memory used by removed devices when their blocks are freed or remapped."),
    feature("zpool_checkpoint", "com.delphix:zpool_checkpoint", READ_ONLY, &[], Since::V2_3, "Pool state can be checkpointed, allowing rewind later."),
    feature("spacemap_v2", "com.delphix:spacemap_v2", READ_ONLY | ON_ENABLE, &[], Since::V2_3, "Space maps representing large segments are more efficient."),
    feature("allocation_classes", "org.zfsonlinux:allocation_classes", READ_ONLY, &[], Since::V2_3, "Support for separate allocation classes."),
    feature("resilver_defer", "com.datto:resilver_defer", READ_ONLY, &[], Since::V2_3, "Support for deferring new resilvers when one is already running."),
    feature("bookmark_v2", "com.datto:bookmark_v2", 0, &["extensible_dataset", "bookmarks"], Since::V2_3, "Support for larger bookmarks"),
    feature("redaction_bookmarks", "com.delphix:redaction_bookmarks", 0, &["bookmark_v2", "extensible_dataset", "bookmarks"], Since::V2_3, "Support for bookmarks which store redaction lists for zfs redacted send/recv."),
    feature("redacted_datasets", "com.delphix:redacted_datasets", DATASET, &["extensible_dataset"], Since::V2_3, "Support for redacted datasets, produced by receiving a redacted zfs send stream."),
    feature("bookmark_written", "com.delphix:bookmark_written", 0, &["bookmark_v2", "extensible_dataset", "bookmarks"], Since::V2_3, "Additional accounting, enabling the written#<bookmark> property (space written since a bookmark), and estimates of send stream sizes for incrementals from bookmarks."),
    feature("log_spacemap", "com.delphix:log_spacemap", READ_ONLY, &["spacemap_v2"], Since::V2_3, "Log metaslab changes on a single spacemap and flush them periodically."),
    feature("livelist", "com.delphix:livelist", READ_ONLY, &["extensible_dataset"], Since::V2_3, "Improved clone deletion performance."),
    feature("device_rebuild", "org.openzfs:device_rebuild", READ_ONLY, &[], Since::V2_3, "Support for sequential mirror/dRAID device rebuilds"),
    feature("zstd_compress", "org.freebsd:zstd_compress", DATASET, &["extensible_dataset"], Since::V2_3, "zstd compression algorithm support."),
    feature("draid", "org.openzfs:draid", MOS, &[], Since::V2_3, "Support for distributed spare RAID"),
    feature("zilsaxattr", "org.openzfs:zilsaxattr", READ_ONLY | DATASET, &["extensible_dataset"], Since::V2_3, "Support for xattr=sa extended attribute logging in ZIL."),
    feature("head_errlog", "com.delphix:head_errlog", ON_ENABLE, &[], Since::V2_3, "Support for per-dataset on-disk error logs."),
    feature("blake3", "org.openzfs:blake3", DATASET, &["extensible_dataset"], Since::V2_3, "BLAKE3 hash algorithm."),
    feature("block_cloning", "com.fudosecurity:block_cloning", READ_ONLY, &[], Since::V2_3, "Support for block cloning via Block Reference Table."),
    feature("vdev_zaps_v2", "com.klarasystems:vdev_zaps_v2", MOS, &[], Since::V2_3, "Support for root vdev ZAP."),
    feature("redaction_list_spill", "com.delphix:redaction_list_spill", 0, &["redaction_bookmarks"], Since::V2_3, "Support for increased number of redaction_snapshot arguments in zfs redact."),
    feature("raidz_expansion", "org.openzfs:raidz_expansion", MOS, &[], Since::V2_3, "Support for raidz expansion"),
    feature("fast_dedup", "com.klarasystems:fast_dedup", READ_ONLY, &[], Since::V2_3, "Support for advanced deduplication"),
    feature("longname", "org.zfsonlinux:longname", DATASET, &["extensible_dataset"], Since::V2_3, "support filename up to 1024 bytes"),
    feature("large_microzap", "com.klarasystems:large_microzap", READ_ONLY | DATASET, &["extensible_dataset", "large_blocks"], Since::V2_3, "Support for microzaps larger than 128KB."),
    feature("dynamic_gang_header", "com.klarasystems:dynamic_gang_header", MOS | NO_UPGRADE, &[], Since::V2_4, "Gang headers larger than 512 bytes."),
    feature("block_cloning_endian", "com.truenas:block_cloning_endian", READ_ONLY, &[], Since::V2_4, "Block reference table entries are independent of byte order."),
    feature("physical_rewrite", "com.truenas:physical_rewrite", READ_ONLY | DATASET, &["extensible_dataset"], Since::V2_4, "Rewritten blocks keep their logical birth time."),
    feature("draid_failure_domains", "com.seagate:draid_failure_domains", MOS, &["draid"], Since::Later, "Failure domains of distributed spare RAID."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_guids_are_unique_and_dependencies_known() {
        let names: HashSet<_> = FEATURES.iter().map(|f| f.name).collect();
        let guids: HashSet<_> = FEATURES.iter().map(|f| f.guid).collect();
        assert_eq!((names.len(), guids.len()), (FEATURES.len(), FEATURES.len()));
        for feature in FEATURES {
            assert_eq!(feature.guid.split(':').nth(1), Some(feature.name));
            assert!(feature.depends.iter().all(|d| names.contains(d)), "{}", feature.name);
            assert!(!feature.per_dataset || feature.depends.contains(&"extensible_dataset"));
        }
    }

    #[test]
    fn counts_of_the_release_lines() {
        let upto = |since| FEATURES.iter().filter(|f| f.since <= since).count();
        assert_eq!((upto(Since::V2_3), upto(Since::V2_4)), (44, 47));
    }

    #[test]
    fn lookups() {
        assert_eq!(by_name("lz4_compress").map(|f| f.guid), Some("org.illumos:lz4_compress"));
        assert!(by_guid("com.delphix:hole_birth").is_some_and(|f| f.mos && f.active_on_enable));
        assert!(by_guid("com.example:other").is_none());
    }
}
