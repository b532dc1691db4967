//! What the verbs return: plain data, in the units that are stored, with nothing formatted.

use serde::{Deserialize, Serialize};

/// A property's value, before anyone formats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A number: bytes, a count, seconds since 1970, a ratio in hundredths, or an index's number.
    Number(u64),
    /// A string.
    Text(String),
    /// It has none.
    Absent,
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// Where a property's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Nowhere: it is computed.
    None,
    /// Set nowhere.
    Default,
    /// Set here.
    Local,
    /// Set for this import or mount only.
    Temporary,
    /// Set on this dataset above.
    Inherited(String),
    /// Came with a received stream.
    Received,
}

/// A property as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// The value in force.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
    /// The value that a stream brought, in force or not.
    pub received: Option<Value>,
}

impl Property {
    /// A computed value.
    pub fn computed(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::None, received: None }
    }

    /// A value set nowhere.
    pub fn default(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::Default, received: None }
    }

    /// A value set here.
    pub fn local(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::Local, received: None }
    }
}

/// State of a vdev or a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// All is well.
    Online,
    /// Works, with less redundancy than it should have.
    Degraded,
    /// Too damaged to be used, or declared so.
    Faulted,
    /// Taken out by the administrator.
    Offline,
    /// Cannot be opened.
    Unavail,
    /// Taken out of the machine.
    Removed,
}

impl Health {
    /// The word in lists.
    pub fn word(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Degraded => "DEGRADED",
            Health::Faulted => "FAULTED",
            Health::Offline => "OFFLINE",
            Health::Unavail => "UNAVAIL",
            Health::Removed => "REMOVED",
        }
    }

    /// The word in JSON, where states of the library are not renamed for people.
    pub fn state_word(self) -> &'static str {
        match self {
            Health::Unavail => "CANT_OPEN",
            other => other.word(),
        }
    }

    /// The state with this number.
    pub fn from_number(number: u64) -> Option<Health> {
        let all = [
            Health::Offline,
            Health::Removed,
            Health::Unavail,
            Health::Faulted,
            Health::Degraded,
            Health::Online,
        ];
        all.into_iter().find(|health| health.number() == number)
    }

    /// The number of the state in `zpool get -p state`.
    pub fn number(self) -> u64 {
        match self {
            Health::Offline => 2,
            Health::Removed => 3,
            Health::Unavail => 4,
            Health::Faulted => 5,
            Health::Degraded => 6,
            Health::Online => 7,
        }
    }
}

/// Why a vdev is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aux {
    /// No reason to tell.
    None,
    /// It could not be opened.
    OpenFailed,
    /// It holds something else than it should, or nothing readable.
    CorruptData,
    /// Too few of its children work.
    NoReplicas,
    /// The guids of the tree do not add up: a device is missing.
    BadGuidSum,
    /// The device is smaller than it was.
    TooSmall,
    /// No valid label.
    BadLabel,
    /// Made by newer software.
    VersionNewer,
    /// Features that are not supported.
    UnsupportedFeature,
    /// Too many errors.
    ErrExceeded,
    /// Declared faulted from outside.
    External,
    /// A spare that serves in this or another pool.
    SpareInUse,
    /// The intent log could not be read.
    BadLog,
    /// Split off into another pool.
    SplitPool,
    /// All its children are offline.
    ChildrenOffline,
    /// Its sectors are larger than the pool's.
    AshiftTooBig,
    /// In use by another host.
    Active,
}

impl Aux {
    /// The words behind the state in `zpool status` and `zpool import`.
    pub fn words(self) -> &'static str {
        match self {
            Aux::None => "",
            Aux::OpenFailed => "cannot open",
            Aux::CorruptData => "corrupted data",
            Aux::NoReplicas => "insufficient replicas",
            Aux::BadGuidSum => "missing device",
            Aux::TooSmall => "corrupted data",
            Aux::BadLabel => "invalid label",
            Aux::VersionNewer => "newer version",
            Aux::UnsupportedFeature => "unsupported feature(s)",
            Aux::ErrExceeded => "too many errors",
            Aux::External => "external device fault",
            Aux::SpareInUse | Aux::Active => "currently in use",
            Aux::BadLog => "bad intent log",
            Aux::SplitPool => "split into new pool",
            Aux::ChildrenOffline => "all children offline",
            Aux::AshiftTooBig => "unsupported minimum blocksize",
        }
    }
}

/// What a vdev is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Data.
    Normal,
    /// Intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// Second-level cache.
    Cache,
    /// Hot spare.
    Spare,
}

impl Class {
    /// The name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Class::Normal => "normal",
            Class::Log => "log",
            Class::Special => "special",
            Class::Dedup => "dedup",
            Class::Cache => "l2cache",
            Class::Spare => "spare",
        }
    }
}

/// Progress of initializing or trimming a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// 1 active, 2 canceled, 3 suspended, 4 complete (docs/on-disk/14-vdevs.md, section 10).
    pub state: u64,
    /// Bytes done.
    pub done: u64,
    /// Bytes to do in all.
    pub total: u64,
    /// When it got into this state, seconds since 1970.
    pub since: u64,
}

/// A vdev and its children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdev {
    /// Type as stored: `root`, `mirror`, `raidz`, `draid`, `file`, `disk`, `replacing`, `spare`, `dspare`,
    /// `indirect`, `hole`, `missing`.
    pub kind: String,
    /// Place among its siblings: top-level vdevs are named by it.
    pub id: u64,
    /// Guid.
    pub guid: u64,
    /// Name of the pool for the root, nothing else.
    pub pool_name: Option<String>,
    /// Path of a leaf: where it was found, or where it was when it is missing.
    pub path: Option<String>,
    /// Device id of a leaf.
    pub devid: Option<String>,
    /// Physical path of a leaf.
    pub phys_path: Option<String>,
    /// A disk that is ZFS's as a whole: its partition is not shown.
    pub whole_disk: bool,
    /// Parity of raidz and draid.
    pub nparity: u64,
    /// Data disks per group, children and spares of a draid.
    pub draid: Option<(u64, u64, u64)>,
    /// What it is for.
    pub class: Class,
    /// State.
    pub health: Health,
    /// Why.
    pub aux: Aux,
    /// It was missing when the pool was opened: shown by its guid and `was PATH`.
    pub not_present: bool,
    /// Log, special and dedup vdevs, at top level only: asks for a heading of its own.
    pub is_log: bool,
    /// log2 of its sector.
    pub ashift: u64,
    /// Bytes allocated; top-level vdevs and the root.
    pub alloc: u64,
    /// Bytes that can be allocated; top-level vdevs and the root, else 0.
    pub space: u64,
    /// The same, less parity.
    pub deflated: u64,
    /// Bytes that a checkpoint holds.
    pub checkpoint: u64,
    /// Bytes that it could grow by.
    pub expandsize: u64,
    /// Fragmentation in percent, `None` if unknown.
    pub fragmentation: Option<u64>,
    /// Bytes of its allocatable part as configured.
    pub asize: u64,
    /// Bytes that a replacement must have at least.
    pub replace_size: u64,
    /// Bytes of the device itself; leaves.
    pub psize: u64,
    /// Read errors.
    pub read_errors: u64,
    /// Write errors.
    pub write_errors: u64,
    /// Checksum errors.
    pub checksum_errors: u64,
    /// Slow reads and writes.
    pub slow_ios: u64,
    /// A resilver is bringing it up to date.
    pub resilvering: bool,
    /// A resilver waits for the running one.
    pub resilver_deferred: bool,
    /// Being removed.
    pub removing: bool,
    /// Nothing is allocated on it.
    pub non_allocating: bool,
    /// Being expanded.
    pub expanding: bool,
    /// Initializing of a leaf.
    pub initialize: Option<Activity>,
    /// Trimming of a leaf.
    pub trim: Option<Activity>,
    /// Children, in order.
    pub children: Vec<Vdev>,
}

impl Vdev {
    /// A healthy vdev of which nothing more is known.
    pub fn new(kind: impl Into<String>, guid: u64) -> Vdev {
        Vdev {
            kind: kind.into(),
            id: 0,
            guid,
            pool_name: None,
            path: None,
            devid: None,
            phys_path: None,
            whole_disk: false,
            nparity: 0,
            draid: None,
            class: Class::Normal,
            health: Health::Online,
            aux: Aux::None,
            not_present: false,
            is_log: false,
            ashift: 0,
            alloc: 0,
            space: 0,
            deflated: 0,
            checkpoint: 0,
            expandsize: 0,
            fragmentation: None,
            asize: 0,
            replace_size: 0,
            psize: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            slow_ios: 0,
            resilvering: false,
            resilver_deferred: false,
            removing: false,
            non_allocating: false,
            expanding: false,
            initialize: None,
            trim: None,
            children: Vec::new(),
        }
    }

    /// The name by which the commands show it: the last part of a disk's path, the whole path of a file, the kind and
    /// number of a vdev that is made of others; the guid of one that is missing.
    pub fn name(&self) -> String {
        match &self.pool_name {
            Some(pool) => pool.clone(),
            None if self.not_present && self.kind != "dspare" => self.guid.to_string(),
            None => self.name_if_present(),
        }
    }

    /// The name that it would have if it were not missing.
    pub fn name_if_present(&self) -> String {
        match (&self.pool_name, &self.path, self.kind.as_str()) {
            (Some(pool), ..) => pool.clone(),
            (None, Some(path), "dspare") => path.clone(),
            (None, Some(path), _) => self.short_path(path),
            (None, None, "raidz") => format!("raidz{}-{}", self.nparity, self.id),
            (None, None, "draid") => match self.draid {
                Some((data, children, spares)) => {
                    format!("draid{}:{data}d:{children}c:{spares}s-{}", self.nparity, self.id)
                }
                None => format!("draid{}-{}", self.nparity, self.id),
            },
            (None, None, kind) => format!("{kind}-{}", self.id),
        }
    }

    /// What the commands show of a path by which it is reached: of a disk the last part, without the partition if the
    /// whole disk is ZFS's.
    pub fn short_path(&self, path: &str) -> String {
        let short = path.strip_prefix("/dev/").filter(|_| self.kind == "disk");
        let short = short.map(|path| path.rsplit('/').next().unwrap_or(path));
        match short {
            Some(name) if self.whole_disk => without_partition(name).to_owned(),
            Some(name) => name.to_owned(),
            None => path.to_owned(),
        }
    }

    /// It is a device and not made of others.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
            && !matches!(self.kind.as_str(), "root" | "indirect" | "hole" | "missing" | "mirror" | "raidz")
    }

    /// This vdev and all below it, each followed by what is below it.
    pub fn walk(&self) -> Vec<&Vdev> {
        let below = self.children.iter().flat_map(Vdev::walk);
        std::iter::once(self).chain(below).collect()
    }
}

/// The name of a disk without its partition: `sda1` is `sda`, `nvme0n1p1` is `nvme0n1`, `wwn-1-part1` is
/// `wwn-1`.
fn without_partition(name: &str) -> &str {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let Some(stem) = name.get(..name.len() - digits).filter(|_| digits > 0) else { return name };
    if let Some(disk) = stem.strip_suffix("-part") {
        return disk;
    }
    let disk_prefix = ["hd", "sd", "vd", "xvd", "ubd"].iter().any(|p| stem.starts_with(p));
    match stem.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ if disk_prefix => stem,
        _ => name,
    }
}

/// What ails a pool, in the order in which one diagnosis hides the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Diagnosis {
    /// Nothing.
    Healthy,
    /// A resilver runs.
    Resilvering,
    /// Last used by another host that did not export it.
    HostidMismatch,
    /// In use by another host (multihost).
    ActiveElsewhere,
    /// Made by newer software.
    VersionNewer,
    /// Features needed to read it are not supported.
    UnsupportedForRead(Vec<String>),
    /// Features needed to write it are not supported.
    UnsupportedForWrite(Vec<String>),
    /// The guids do not add up: top-level vdevs are missing.
    BadGuidSum,
    /// Devices failed, so that nothing can be written: writers wait.
    SuspendedWaiting,
    /// Devices failed, so that nothing can be written: writers get errors.
    SuspendedFailing,
    /// Nothing more is written until the pool is imported again, for this reason.
    Stopped(String),
    /// The intent log is damaged.
    BadLog,
    /// A device is faulted, and no others stand in for it.
    FaultedNoReplicas,
    /// A device is missing, and no others stand in for it.
    MissingNoReplicas,
    /// A device's label is gone, and no others stand in for it.
    CorruptLabelNoReplicas,
    /// The pool's metadata is damaged.
    CorruptPool,
    /// Data is lost.
    CorruptData,
    /// A device is faulted; others stand in for it.
    Faulted,
    /// A device is missing; others stand in for it.
    Missing,
    /// A device's label is gone; others stand in for it.
    CorruptLabel,
    /// Errors were counted, and corrected.
    Failing,
    /// Taken offline by the administrator.
    Offline,
    /// A device was taken out of the machine.
    Removed,
    /// An old version of the format.
    OldVersion,
    /// Supported features are not enabled.
    FeaturesDisabled,
    /// Features outside of the `compatibility` property are enabled.
    Incompatible,
}

/// A scrub or resilver, running or past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// 1 scrub, 2 resilver.
    pub function: u64,
    /// 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    /// Start, seconds since 1970.
    pub start: u64,
    /// End, seconds since 1970.
    pub end: u64,
    /// Bytes to look at.
    pub to_examine: u64,
    /// Bytes looked at.
    pub examined: u64,
    /// Bytes passed over.
    pub skipped: u64,
    /// Bytes repaired.
    pub processed: u64,
    /// Errors found.
    pub errors: u64,
    /// Paused.
    pub paused: bool,
    /// What only whoever scans knows; `None`: nobody does.
    pub pass: Option<ScanPass>,
}

/// The part of a scan since the pool was opened, or since it was last let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPass {
    /// Start, seconds since 1970.
    pub start: u64,
    /// Bytes of blocks read, in the whole scan.
    pub issued: u64,
    /// Bytes looked at since `start`.
    pub pass_examined: u64,
    /// Bytes read since `start`.
    pub pass_issued: u64,
    /// Since when it is paused, seconds since 1970; 0: it is not.
    pub paused_since: u64,
    /// Seconds that it was paused since `start`.
    pub spent_paused: u64,
}

/// A scrub of known errors only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorScrub {
    /// 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    /// Start, seconds since 1970.
    pub start: u64,
    /// End, seconds since 1970.
    pub end: u64,
    /// Error blocks to look at.
    pub to_examine: u64,
    /// Error blocks looked at.
    pub examined: u64,
    /// Errors left.
    pub errors: u64,
    /// Paused.
    pub paused: bool,
}

/// The removal of a top-level vdev, running or past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// 1 copying, 2 finished, 3 canceled.
    pub state: u64,
    /// Id of the vdev.
    pub vdev: u64,
    /// Start, seconds since 1970.
    pub start: u64,
    /// End, seconds since 1970.
    pub end: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Memory that mappings of removed vdevs take when loaded, in bytes.
    pub mapping_memory: u64,
}

/// The expansion of a raidz vdev, running or past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expansion {
    /// 1 running, 2 finished.
    pub state: u64,
    /// Id of the vdev.
    pub vdev: u64,
    /// Start, seconds since 1970.
    pub start: u64,
    /// End, seconds since 1970.
    pub end: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
}

/// A pool checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When it was made, seconds since 1970.
    pub time: u64,
    /// Bytes that only it holds.
    pub space: u64,
    /// It is being discarded.
    pub discarding: bool,
}

/// One line of the dedup histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DedupBucket {
    /// Blocks.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes on disk.
    pub dsize: u64,
    /// Blocks times references.
    pub ref_blocks: u64,
    /// Bytes before compression, times references.
    pub ref_lsize: u64,
    /// Bytes after compression, times references.
    pub ref_psize: u64,
    /// Bytes on disk, times references.
    pub ref_dsize: u64,
}

impl From<&format::ddt::DdtStat> for DedupBucket {
    fn from(b: &format::ddt::DdtStat) -> DedupBucket {
        DedupBucket {
            blocks: b.blocks,
            lsize: b.lsize,
            psize: b.psize,
            dsize: b.dsize,
            ref_blocks: b.ref_blocks,
            ref_lsize: b.ref_lsize,
            ref_psize: b.ref_psize,
            ref_dsize: b.ref_dsize,
        }
    }
}

/// The dedup tables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Dedup {
    /// Entries.
    pub entries: u64,
    /// Bytes of the tables on disk.
    pub on_disk: u64,
    /// Bytes of the tables in memory if all were loaded.
    pub in_core: u64,
    /// Bytes of the tables that are cached.
    pub cached: u64,
    /// By power of two of the reference count.
    pub histogram: Vec<DedupBucket>,
}

/// Facts of a pool that every listing shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// State of its devices.
    pub health: Health,
    /// It cannot write at the moment.
    pub suspended: bool,
    /// Txg of its configuration.
    pub config_txg: u64,
    /// Version of the format: 1 to 28, or 5000.
    pub version: u64,
    /// Version of the file system that the root dataset could have.
    pub zpl_version: u64,
}

impl PoolFacts {
    /// The word for its state in lists.
    pub fn state_word(&self) -> &'static str {
        if self.suspended { "SUSPENDED" } else { self.health.word() }
    }
}

/// The vdevs of a pool: the tree, and what hangs beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdevs {
    /// The root; log, special and dedup vdevs are among its children.
    pub root: Vdev,
    /// Cache devices.
    pub cache: Vec<Vdev>,
    /// Hot spares.
    pub spares: Vec<Vdev>,
}

/// The whole of `zpool status` for one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name, guid, state.
    pub facts: PoolFacts,
    /// What is wrong.
    pub diagnosis: Diagnosis,
    /// Last scrub or resilver.
    pub scan: Option<Scan>,
    /// Last scrub of errors.
    pub error_scrub: Option<ErrorScrub>,
    /// Last removal.
    pub removal: Option<Removal>,
    /// Last expansion.
    pub expansion: Option<Expansion>,
    /// Checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Vdevs.
    pub vdevs: Vdevs,
    /// How many data errors the pool has recorded.
    pub error_count: u64,
    /// Which files they are in, sorted, each once.
    pub errors: Vec<String>,
    /// Dedup tables, if any.
    pub dedup: Option<Dedup>,
}

/// What a dataset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A file system.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot.
    Snapshot,
    /// A bookmark.
    Bookmark,
}

impl Kind {
    /// The word of the `type` property.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Filesystem => "filesystem",
            Kind::Volume => "volume",
            Kind::Snapshot => "snapshot",
            Kind::Bookmark => "bookmark",
        }
    }

    /// Its bit in `format::prop`.
    pub fn bit(self) -> u8 {
        match self {
            Kind::Filesystem => format::prop::FS,
            Kind::Volume => format::prop::VOL,
            Kind::Snapshot => format::prop::SNAP,
            Kind::Bookmark => format::prop::MARK,
        }
    }
}

/// A hold on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The snapshot.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When, seconds since 1970.
    pub time: u64,
}

/// Whose space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

/// What one owner uses and may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRow {
    /// Whose.
    pub owner: Owner,
    /// Domain of a Windows identity (`S-1-5-…`), `None` for POSIX ids and projects.
    pub domain: Option<String>,
    /// Number within the domain, or POSIX id, or project.
    pub id: u64,
    /// Bytes used; `None` together with `quota` if only objects are known.
    pub used: Option<u64>,
    /// Bytes allowed, 0: no limit.
    pub quota: Option<u64>,
    /// Objects used; `None` together with `object_quota` if the pool does not count them.
    pub objects: Option<u64>,
    /// Objects allowed, 0: no limit.
    pub object_quota: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::{Vdev, without_partition};

    #[test]
    fn partitions_of_whole_disks_are_not_named() {
        for (name, disk) in [
            ("sda1", "sda"),
            ("vdb1", "vdb"),
            ("nvme0n1p1", "nvme0n1"),
            ("wwn-0x5000-part1", "wwn-0x5000"),
            ("dm-3", "dm-3"),
            ("sda", "sda"),
        ] {
            assert_eq!(without_partition(name), disk);
        }
    }

    #[test]
    fn vdevs_have_names() {
        let raidz = Vdev { id: 3, nparity: 2, ..Vdev::new("raidz", 7) };
        assert_eq!(raidz.name(), "raidz2-3");
        let path = Some("/dev/disk/by-id/ata-X-part1".to_owned());
        let disk = Vdev { path, whole_disk: true, ..Vdev::new("disk", 7) };
        assert_eq!(disk.name(), "ata-X");
        let gone = Vdev { not_present: true, ..disk };
        assert_eq!((gone.name(), gone.name_if_present()), ("7".to_owned(), "ata-X".to_owned()));
    }
}
