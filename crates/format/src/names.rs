//! Names on disk: the keys of ZAPs and name-value lists that other crates look up.
//!
//! One module for each kind of object. A key that ends with a number or an algorithm is built by a function of the
//! module that decodes the object it refers to ([`crate::ddt`], [`crate::brt`]). Names of features are in
//! [`crate::feature`], names of properties in [`crate::prop`], names of attributes in [`crate::sa`].
//!
//! # What always holds
//! - A name is written once, here: readers and writers of a key use the same constant.
//! - The documentation of a constant describes its value. "Object" is an object id in the meta object set (for the
//!   master node, in the set of the file system), stored as one `u64`.

/// The object directory of the pool's own object set: a ZAP (docs/on-disk/22-mos-dsl.md, section 1).
pub mod directory {
    use crate::ObjectId;

    /// Object id of the object directory.
    pub const OBJECT: ObjectId = ObjectId(1);

    /// Object: the root directory of the DSL.
    pub const ROOT_DATASET: &str = "root_dataset";
    /// Object: the configuration of the pool, a packed name-value list.
    pub const CONFIG: &str = "config";
    /// Object: a ZAP from the guids of features without which the pool cannot be read to their counts.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// Object: a ZAP from the guids of features without which the pool cannot be written to their counts.
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    /// Object: a ZAP from the guids of features to texts.
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    /// Object: a ZAP from the guids of features to the txgs in which they were enabled.
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    /// Object: a bpobj of the blocks that late passes of the last txg have freed.
    pub const SYNC_BPLIST: &str = "sync_bplist";
    /// Object: a bpobj of blocks that wait to be freed.
    pub const FREE_BPOBJ: &str = "free_bpobj";
    /// Object: the queue of destroyed object sets that still have blocks to free (15-space.md, section 6.4).
    pub const BPTREE_OBJ: &str = "bptree_obj";
    /// Object: the bpobj that all empty lists share.
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    /// Number: 1 if space is counted in deflated bytes.
    pub const DEFLATE: &str = "deflate";
    /// Number: the version that the pool was made with.
    pub const CREATION_VERSION: &str = "creation_version";
    /// Object: the history of the pool (section 10).
    pub const HISTORY: &str = "history";
    /// Object: a ZAP of the properties of the pool.
    pub const POOL_PROPS: &str = "pool_props";
    /// Object: a ZAP of the errors found by reads, and by scrubs that have ended (section 11).
    pub const ERRLOG_LAST: &str = "errlog_last";
    /// Object: a ZAP of the errors that the current scrub has found.
    pub const ERRLOG_SCRUB: &str = "errlog_scrub";
    /// Object: a packed name-value list of the spares. Also the key of the array in that list.
    pub const SPARES: &str = "spares";
    /// Object: a packed name-value list of the cache devices. Also the key of the array in that list.
    pub const L2CACHE: &str = "l2cache";
    /// 24 words: the current or last scrub or resilver (section 12).
    pub const SCAN: &str = "scan";
    /// Words: position of a scan by Cenote.
    pub const SCAN_POSITION: &str = "org.cenote:scan";
    /// 9 words: the current or last scrub of the error log.
    pub const ERROR_SCRUB: &str = "error_scrub";
    /// Number: the txg up to which the last complete scrub has read all blocks.
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    /// Object: a ZAP of temporary holds, `<dataset in hex>-<tag>` to time (section 8).
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    /// 32 bytes: the salt of the checksums that have one.
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    /// Object: the set of all ZAPs of vdevs (15-space.md, section 7).
    pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
    /// Object: a ZAP from txgs in hex to their log space maps (15-space.md, section 4).
    pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
    /// 7 words: the current or last removal of a vdev (14-vdevs.md, section 6).
    pub const REMOVING: &str = "com.delphix:removing";
    /// Object: a bpobj of remapped blocks that have become obsolete.
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
    /// 3 words: the mapping that is being condensed.
    pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
    /// 27 words: the uberblock of the checkpoint.
    pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
    /// Object: the set of the livelists of destroyed clones (22-mos-dsl.md, section 7).
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
    /// Object: a ZAP of the histograms of dedup tables, by the name of the ZAP of each class
    /// (32-dedup-cloning.md, section 2).
    pub const DDT_STATISTICS: &str = "DDT-statistics";
    /// Object; the prefix is followed by the number of a vdev: its block reference table (32-dedup-cloning.md,
    /// section 3).
    pub(crate) const BRT_PREFIX: &str = "com.fudosecurity:brt:vdev:";
}

/// Names of DSL directories that are hidden from users (docs/on-disk/22-mos-dsl.md, sections 1.1 and 4).
pub mod hidden {
    /// Child of the root directory that is charged for the meta object set.
    pub const MOS: &str = "$MOS";
    /// Child of the root directory that is charged for blocks waiting to be freed.
    pub const FREE: &str = "$FREE";
    /// Child of the root directory, and its only snapshot: the empty origin of all other datasets.
    pub const ORIGIN: &str = "$ORIGIN";
    /// Child that receives a stream into an existing file system (30-send-streams.md, section 8).
    pub const RECEIVE: &str = "%recv";
}

/// The ZAP of a DSL directory (docs/on-disk/22-mos-dsl.md, section 4.3).
pub mod dir {
    /// Number: file systems and volumes at and below the directory.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// Number: snapshots of the head and of descendants.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// 2 words, seconds and nanoseconds: time at which a snapshot was last created or destroyed.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
    /// Object: the livelist of a clone (section 7).
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// Object: the wrapped keys of an encrypted dataset ([`super::key_object`]).
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
}

/// The ZAP of a dataset (docs/on-disk/22-mos-dsl.md, section 4.3). The guids of per-dataset features are keys
/// too.
pub mod dataset {
    /// Object: a ZAP of the bookmarks of a head (section 8).
    pub const BOOKMARKS: &str = "com.delphix:bookmarks";
    /// Object: a deadlist of blocks of the previous snapshot that were remapped after a device removal.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    /// Number: identity of the IVs of an encrypted snapshot (31-encryption.md, section 12).
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
    /// Words: guids of the snapshots with respect to which the contents were redacted. The guid of a feature
    /// too.
    pub const REDACTED_DATASETS: &str = "com.delphix:redacted_datasets";

    // State of an interrupted receive (30-send-streams.md, sections 7 and 8).

    /// Number: guid of the snapshot that the stream is based on.
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    /// Number: object at which the receive resumes.
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// Number: offset in that object at which the receive resumes, in bytes.
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    /// Number: received bytes of the stream.
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    /// Number: guid of the snapshot that is received. Absent in datasets that cannot be resumed.
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    /// String: name of the snapshot that is received.
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    /// Words: guids of the snapshots of the redaction bookmark that was sent.
    pub const RESUME_REDACT_BOOK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
    /// Present if the stream has large blocks.
    pub const RESUME_LARGEBLOCKOK: &str = "com.delphix:resume_largeblockok";
    /// Present if the stream has embedded blocks.
    pub const RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
    /// Present if the stream has compressed blocks.
    pub const RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
    /// Present if the stream has encrypted blocks.
    pub const RESUME_RAWOK: &str = "com.datto:resume_rawok";
}

/// A key object: a ZAP with the wrapped keys of encrypted datasets (docs/on-disk/31-encryption.md, section
/// 3).
pub mod key_object {
    /// Number: the crypto suite, as in the property `encryption`.
    pub const SUITE: &str = "DSL_CRYPTO_SUITE";
    /// Number: random id of the keys.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// Number: version of the key object; absent: 0.
    pub const VERSION: &str = "DSL_CRYPTO_VERSION";
    /// Bytes: the IV with which the keys are wrapped.
    pub const IV: &str = "DSL_CRYPTO_IV";
    /// Bytes: the MAC over the wrapped keys.
    pub const MAC: &str = "DSL_CRYPTO_MAC";
    /// Bytes: the wrapped master key.
    pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    /// Bytes: the wrapped HMAC key.
    pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    /// Object: the directory of the encryption root.
    pub const ROOT_DIR: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// Number: directories that use the keys.
    pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
    /// Number: format of the user's key, as in the property `keyformat`.
    pub const KEYFORMAT: &str = "keyformat";
    /// Number: PBKDF2 salt of a passphrase.
    pub const PBKDF2_SALT: &str = "pbkdf2salt";
    /// Number: PBKDF2 iterations of a passphrase.
    pub const PBKDF2_ITERS: &str = "pbkdf2iters";
}

/// Suffixes of property names in a ZAP of dataset properties (docs/on-disk/22-mos-dsl.md, section 6).
pub mod prop_suffix {
    /// A received value.
    pub const RECEIVED: &str = "$recvd";
    /// The received value is not in force: the value is inherited.
    pub const INHERIT: &str = "$inherit";
    /// The number of an index value that older software does not know.
    pub const INDEX_UNKNOWN: &str = "$iuv";
    /// A whole key, not a suffix. Present if properties were ever received.
    pub const HAS_RECEIVED: &str = "$hasrecvd";
}

/// The ZAP of a dedup table with a log (docs/on-disk/32-dedup-cloning.md, section 2).
pub mod dedup_table {
    /// Number: version of the table.
    pub const VERSION: &str = "version";
    /// Number: flags of the table.
    pub const FLAGS: &str = "flags";
}

/// The ZAP of a top-level vdev (docs/on-disk/15-space.md, section 7).
pub mod top_vdev {
    /// String: the allocation class, unless it is the normal one.
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    /// Object: for each metaslab the txg before which its space map is complete.
    pub const UNFLUSHED_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    /// Object: a space map of the space freed since the checkpoint.
    pub const CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    /// Object: a space map of the obsolete ranges of a removed vdev.
    pub const OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    /// Number: 1 if the counts of obsolete parts are exact.
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    /// Number: state of the last expansion of a RAID-Z vdev (14-vdevs.md, section 4).
    pub const EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    /// Number: when that expansion began, in seconds since 1970.
    pub const EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    /// Number: when that expansion ended, in seconds since 1970.
    pub const EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    /// Number: bytes that the expansion has moved.
    pub const EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
}

/// The ZAP of a leaf vdev (docs/on-disk/14-vdevs.md, section 10).
pub mod leaf_vdev {
    /// Number: state of the initialization of the leaf.
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    /// Number: byte of the leaf that is initialized next.
    pub const INITIALIZE_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    /// Number: when that state began, in seconds since 1970.
    pub const INITIALIZE_TIME: &str = "com.delphix:vdev_initialize_action_time";
    /// Number: state of the trim of the leaf.
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    /// Number: byte of the leaf that is trimmed next.
    pub const TRIM_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    /// Number: when that state began, in seconds since 1970.
    pub const TRIM_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
}

/// The configuration of a pool, in the pool, in labels and in cache files: keys of the whole list and of the
/// lists of vdevs (docs/on-disk/11-labels-config.md). [`crate::config`] reads and writes nearly all of them.
pub mod config {
    // The whole list.

    /// Number: version of the format, 5000 or 1 to 28.
    pub(crate) const VERSION: &str = "version";
    /// String: name of the pool.
    pub(crate) const NAME: &str = "name";
    /// Number: state of the pool, or of a device that belongs to none ([`crate::config::PoolState`]).
    pub(crate) const STATE: &str = "state";
    /// Number: the txg in which the configuration was written.
    pub(crate) const TXG: &str = "txg";
    /// Number: guid of the pool.
    pub const POOL_GUID: &str = "pool_guid";
    /// Number of a known erratum of the pool's format; 0: none.
    pub(crate) const ERRATA: &str = "errata";
    /// String: the pool property `comment`.
    pub(crate) const COMMENT: &str = "comment";
    /// String: the pool property `compatibility`, names of feature sets.
    pub(crate) const COMPATIBILITY: &str = "compatibility";
    /// Number: id of the host that last had the pool open.
    pub(crate) const HOSTID: &str = "hostid";
    /// String: name of the host that last had the pool open.
    pub(crate) const HOSTNAME: &str = "hostname";
    /// Number: guid of the top-level vdev that a label belongs to; of a distributed spare, its dRAID vdev.
    pub(crate) const TOP_GUID: &str = "top_guid";
    /// Number: guid of the vdev; in the list of a label, guid of the leaf on which the label is.
    pub const GUID: &str = "guid";
    /// Number: 1 if the leaf is an active hot spare.
    pub(crate) const IS_SPARE: &str = "is_spare";
    /// Number: 1 if the vdev is a separate log device.
    pub(crate) const IS_LOG: &str = "is_log";
    /// Number: guid of the pool from which this one is being split off.
    pub(crate) const SPLIT_GUID: &str = "split_guid";
    /// Numbers: ids of top-level slots that are holes.
    pub(crate) const HOLE_ARRAY: &str = "hole_array";
    /// Number of top-level slots, holes included.
    pub const VDEV_CHILDREN: &str = "vdev_children";
    /// List: the tree of vdevs; in a label, one top-level vdev.
    pub const VDEV_TREE: &str = "vdev_tree";
    /// List: a flag for each active feature without which the pool cannot be read.
    pub(crate) const FEATURES_FOR_READ: &str = "features_for_read";
    /// Flag of the pool's list, in the MOS only: all object ids of vdev ZAPs are valid.
    pub(crate) const HAS_PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";

    // The list of a vdev.

    /// Number: binary logarithm of the sector size of a top-level vdev in bytes.
    pub(crate) const ASHIFT: &str = "ashift";
    /// String: path of the device when it was last seen.
    pub const PATH: &str = "path";
    /// String: type of the vdev ([`crate::config::VdevKind`]).
    pub const TYPE: &str = "type";
    /// Number of the vdev among the children of its parent.
    pub const ID: &str = "id";
    /// Number: 1 if the partition table of the disk belongs to the pool.
    pub(crate) const WHOLE_DISK: &str = "whole_disk";
    /// Number: 1 if the device was missing when the configuration was written.
    pub(crate) const NOT_PRESENT: &str = "not_present";
    /// Object: a space map of the txgs that the leaf missed.
    pub(crate) const DTL: &str = "DTL";
    /// Number: 1 if the top-level slot is empty.
    pub(crate) const IS_HOLE: &str = "is_hole";
    /// Number: the txg in which the vdev was added.
    pub const CREATE_TXG: &str = "create_txg";
    /// Lists: the vdevs below, in order.
    pub const CHILDREN: &str = "children";
    /// String: device id given by the system.
    pub(crate) const DEVID: &str = "devid";
    /// String: physical location of the device.
    pub(crate) const PHYS_PATH: &str = "phys_path";
    /// String: path in sysfs of the slot of an enclosure that holds the device.
    pub(crate) const ENC_PATH: &str = "vdev_enc_sysfs_path";
    /// Number: index of a distributed spare in its dRAID vdev.
    pub(crate) const SPAREID: &str = "spareid";
    /// Number of parity columns of a RAID-Z or dRAID vdev.
    pub(crate) const NPARITY: &str = "nparity";
    /// Flag: an expansion of the RAID-Z vdev is in progress.
    pub(crate) const RAIDZ_EXPANDING: &str = "raidz_expanding";
    /// Numbers: for each finished expansion the first birth txg of blocks with the new width, ascending.
    pub(crate) const RAIDZ_EXPAND_TXGS: &str = "raidz_expand_txgs";
    /// Number of data columns of a dRAID group.
    pub(crate) const DRAID_NDATA: &str = "draid_ndata";
    /// Number of distributed spares of a dRAID vdev.
    pub(crate) const DRAID_NSPARES: &str = "draid_nspares";
    /// Number of groups in a permutation of a dRAID vdev.
    pub(crate) const DRAID_NGROUPS: &str = "draid_ngroups";
    /// Number of children of a dRAID vdev with failure domains, which this implementation does not read.
    pub(crate) const DRAID_NCHILDREN: &str = "draid_nchildren";
    /// Object: the object ids of the space maps of a top-level vdev's metaslabs.
    pub(crate) const METASLAB_ARRAY: &str = "metaslab_array";
    /// Number: binary logarithm of the size of a metaslab in bytes.
    pub(crate) const METASLAB_SHIFT: &str = "metaslab_shift";
    /// Number: allocatable bytes of a top-level vdev.
    pub(crate) const ASIZE: &str = "asize";
    /// Number: minimum allocation in bytes.
    pub(crate) const MIN_ALLOC: &str = "min_alloc";
    /// Number: 1 if no new blocks are allocated on the vdev.
    pub(crate) const NON_ALLOCATING: &str = "non_allocating";
    /// Number: 1 while the vdev is being removed.
    pub(crate) const REMOVING: &str = "removing";
    /// Number: txg since which the leaf is being resilvered.
    pub(crate) const RESILVER_TXG: &str = "resilver_txg";
    /// Number: txg since which the vdev is being rebuilt.
    pub(crate) const REBUILD_TXG: &str = "rebuild_txg";
    /// Number: 1 if an administrator took the leaf offline.
    pub(crate) const OFFLINE: &str = "offline";
    /// Number: 1 if the leaf is persistently faulted.
    pub(crate) const FAULTED: &str = "faulted";
    /// Number: 1 if the leaf is persistently degraded.
    pub(crate) const DEGRADED: &str = "degraded";
    /// Number: 1 if the device was pulled from the machine.
    pub(crate) const REMOVED: &str = "removed";
    /// Number: 1 if the spare is detached when the original device is resilvered.
    pub(crate) const UNSPARE: &str = "unspare";
    /// String: why the leaf is persistently faulted.
    pub(crate) const AUX_STATE: &str = "aux_state";
    /// Number: guid of the vdev before a split, while the split is in progress.
    pub(crate) const ORIG_GUID: &str = "orig_guid";
    /// Object: the ZAP of the root vdev.
    pub(crate) const VDEV_ZAP_ROOT: &str = "com.klarasystems:vdev_zap_root";
    /// Object: the ZAP of a top-level vdev ([`super::top_vdev`]).
    pub(crate) const VDEV_ZAP_TOP: &str = "com.delphix:vdev_zap_top";
    /// Object: the ZAP of a leaf ([`super::leaf_vdev`]).
    pub(crate) const VDEV_ZAP_LEAF: &str = "com.delphix:vdev_zap_leaf";
    /// Object: the mapping of a removed vdev.
    pub(crate) const INDIRECT_OBJECT: &str = "com.delphix:indirect_object";
    /// Object: the births in the mapping of a removed vdev.
    pub(crate) const INDIRECT_BIRTHS: &str = "com.delphix:indirect_births";
    /// Number of the vdev that was removed before this one.
    pub(crate) const PREV_INDIRECT_VDEV: &str = "com.delphix:prev_indirect_vdev";
    /// Flag of a leaf: its resilver starts after the running one.
    pub(crate) const RESILVER_DEFER: &str = "com.datto:resilver_defer";
}

/// The master node of a file system: a ZAP (docs/on-disk/23-zpl.md, section 1). The names of the properties
/// `normalization`, `utf8only` and `casesensitivity` are keys too.
pub mod master_node {
    use crate::ObjectId;

    /// Number of the master node.
    pub const OBJECT: ObjectId = ObjectId(1);

    /// Number: version of the file system, 1 to 5.
    pub const VERSION: &str = "VERSION";
    /// Object: the root directory of the file system.
    pub const ROOT: &str = "ROOT";
    /// Object: the set of unlinked files that are still open or not freed yet.
    pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
    /// Object: the ZAP with the tables of system attributes ([`super::sa_master`]).
    pub const SA_ATTRS: &str = "SA_ATTRS";
    /// Object: the table of FUID domains.
    pub const FUID: &str = "FUID";
    /// Number: the Unicode normalization form in which names are compared.
    pub const NORMALIZATION: &str = "normalization";
    /// Number: 1 if only names in UTF-8 are allowed.
    pub const UTF8ONLY: &str = "utf8only";
    /// Number: case sensitivity of names.
    pub const CASESENSITIVITY: &str = "casesensitivity";

    // Quotas of owners (23-zpl.md, section 7). Keys of the ZAPs are ids in hexadecimal; values are the quotas.

    /// Object: a ZAP of quotas of users, in bytes.
    pub const USER_QUOTA: &str = "userquota@";
    /// Object: a ZAP of quotas of users, in objects.
    pub const USER_OBJECT_QUOTA: &str = "userobjquota@";
    /// Object: a ZAP of quotas of groups, in bytes.
    pub const GROUP_QUOTA: &str = "groupquota@";
    /// Object: a ZAP of quotas of groups, in objects.
    pub const GROUP_OBJECT_QUOTA: &str = "groupobjquota@";
    /// Object: a ZAP of quotas of projects, in bytes.
    pub const PROJECT_QUOTA: &str = "projectquota@";
    /// Object: a ZAP of quotas of projects, in objects.
    pub const PROJECT_OBJECT_QUOTA: &str = "projectobjquota@";
    /// Number: quota in bytes of users without their own.
    pub const DEFAULT_USER_QUOTA: &str = "defaultuserquota";
    /// Number: quota in objects of users without their own.
    pub const DEFAULT_USER_OBJECT_QUOTA: &str = "defaultuserobjquota";
    /// Number: quota in bytes of groups without their own.
    pub const DEFAULT_GROUP_QUOTA: &str = "defaultgroupquota";
    /// Number: quota in objects of groups without their own.
    pub const DEFAULT_GROUP_OBJECT_QUOTA: &str = "defaultgroupobjquota";
    /// Number: quota in bytes of projects without their own.
    pub const DEFAULT_PROJECT_QUOTA: &str = "defaultprojectquota";
    /// Number: quota in objects of projects without their own.
    pub const DEFAULT_PROJECT_OBJECT_QUOTA: &str = "defaultprojectobjquota";
}

/// The ZAP of the tables of system attributes (docs/on-disk/23-zpl.md, section 2).
pub mod sa_master {
    /// Object: a ZAP from names of attributes to their numbers, sizes and kinds.
    pub const REGISTRY: &str = "REGISTRY";
    /// Object: a ZAP from numbers of layouts to lists of attributes.
    pub const LAYOUTS: &str = "LAYOUTS";
}

/// The objects of a volume (docs/on-disk/25-zvol.md, section 1).
pub mod volume {
    use crate::ObjectId;

    /// Object id of the data.
    pub const DATA: ObjectId = ObjectId(1);
    /// Object id of the ZAP with the properties.
    pub const PROPERTIES: ObjectId = ObjectId(2);

    /// Number in that ZAP: size of the volume in bytes.
    pub const SIZE: &str = "size";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Two constants of one object with the same value would be two names for one key.
    #[test]
    fn the_names_of_one_object_differ() {
        let source = include_str!("names.rs");
        let (mut module, mut seen, mut count) = ("", HashSet::new(), 0);
        for line in source.lines().take_while(|line| *line != "#[cfg(test)]") {
            if let Some(name) = line.strip_prefix("pub mod ") {
                module = name;
            }
            if let Some((_, text)) = line.split_once(": &str = ") {
                assert!(seen.insert((module, text)), "{module} has {text} twice");
                count += 1;
            }
        }
        assert!(count > 80, "{count} names were found");
    }

    #[test]
    fn names_that_are_features_too_are_spelt_as_there() {
        let guid = |name: &str| crate::feature::by_name(name).map(|feature| feature.guid);
        assert_eq!(guid("redacted_datasets"), Some(dataset::REDACTED_DATASETS));
    }
}
