//! The results of listings and verbs: plain data in stored units, not formatted.

use serde::{Deserialize, Serialize};

/// A property's value, before anyone formats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A number: bytes, a count, seconds since 1970, a ratio in hundredths, or the number of an index value.
    Number(u64),
    /// Text of a string property.
    Text(String),
    /// The property has no value (`-` in listings).
    Absent,
}

impl Value {
    /// The number; `None` for other values.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text; `None` for other values.
    pub(crate) fn text(&self) -> Option<&str> {
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
    /// Computed; the property cannot be set.
    None,
    /// The default value.
    Default,
    /// Set on this object.
    Local,
    /// Set for this import or mount only.
    Temporary,
    /// Inherited; holds the name of the ancestor that has the value.
    Inherited(String),
    /// Set by a received stream.
    Received,
}

/// A property as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// The value in force.
    pub value: Value,
    /// Source of the value in force.
    pub source: Source,
    /// The value that a received stream has set, whether or not it is in force.
    pub received: Option<Value>,
}

impl Property {
    /// A property with a computed value.
    pub(crate) fn computed(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::None, received: None }
    }

    /// A property with its default value.
    pub(crate) fn default(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::Default, received: None }
    }

    /// A property with a local value.
    pub(crate) fn local(value: impl Into<Value>) -> Property {
        Property { value: value.into(), source: Source::Local, received: None }
    }
}

/// Health of a vdev or a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Works as configured.
    Online,
    /// Works with reduced redundancy.
    Degraded,
    /// Too damaged to be used, or marked faulted by an administrator.
    Faulted,
    /// Taken offline by an administrator.
    Offline,
    /// Cannot be opened.
    Unavail,
    /// The device was physically removed.
    Removed,
}

impl Health {
    /// The state as listings show it: `ONLINE`, `DEGRADED`…
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

    /// The state as the `-j` output shows it.
    pub fn state_word(self) -> &'static str {
        match self {
            Health::Unavail => "CANT_OPEN",
            other => other.word(),
        }
    }

    /// The state with this number on disk; `None` if there is none.
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

    /// The number that `zpool get -p state` shows.
    pub(crate) fn number(self) -> u64 {
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

/// Details of why a vdev has its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aux {
    /// There are no details.
    None,
    /// The device could not be opened.
    OpenFailed,
    /// The device's contents are unreadable, or are not those of this vdev.
    CorruptData,
    /// Too few children work.
    NoReplicas,
    /// The sum of the guids is wrong: a device is missing.
    BadGuidSum,
    /// The device has become smaller.
    TooSmall,
    /// No label is valid.
    BadLabel,
    /// Written by a newer version.
    VersionNewer,
    /// Uses unsupported features.
    UnsupportedFeature,
    /// Exceeded the error limit.
    ErrExceeded,
    /// Marked faulted by an administrator or another program.
    External,
    /// A spare that is in use in this or another pool.
    SpareInUse,
    /// The intent log cannot be read.
    BadLog,
    /// The device was split off into another pool.
    SplitPool,
    /// All children are offline.
    ChildrenOffline,
    /// The device's sectors are larger than the vdev's ashift.
    AshiftTooBig,
    /// In use by another host.
    Active,
}

impl Aux {
    /// The text after the state in `zpool status` and `zpool import`.
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

/// Allocation class or role of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Data vdev.
    Normal,
    /// Intent log device.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// Cache device (L2ARC).
    Cache,
    /// Hot spare.
    Spare,
}

impl Class {
    /// The name in `-j` output.
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

/// Progress of initializing or trimming a leaf vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// 1 active, 2 canceled, 3 suspended, 4 complete (docs/on-disk/14-vdevs.md, section 10).
    pub state: u64,
    /// Bytes that are done.
    pub done: u64,
    /// Total number of bytes to process.
    pub total: u64,
    /// Time of the last change of state, in seconds since 1970.
    pub since: u64,
}

/// A vdev and its descendants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdev {
    /// Type as stored: `root`, `mirror`, `raidz`, `draid`, `file`, `disk`, `replacing`, `spare`, `dspare`,
    /// `indirect`, `hole`, `missing`.
    pub kind: String,
    /// Index among its siblings; names of top-level vdevs contain it.
    pub id: u64,
    /// Guid of the vdev.
    pub guid: u64,
    /// Name of the pool; only for the root.
    pub pool_name: Option<String>,
    /// Path of a leaf: where it was found, or its last known path if it is missing.
    pub path: Option<String>,
    /// Device id of a leaf, as the configuration stores it.
    pub devid: Option<String>,
    /// Physical path of a leaf, as the configuration stores it.
    pub phys_path: Option<String>,
    /// ZFS uses the whole disk: the partition number is not shown.
    pub whole_disk: bool,
    /// Number of parity devices of a raidz or draid.
    pub nparity: u64,
    /// Data disks per group, children, and spares of a draid.
    pub draid: Option<(u64, u64, u64)>,
    /// Allocation class or role.
    pub class: Class,
    /// Health of the vdev, from its device or its children.
    pub health: Health,
    /// Details of the health.
    pub aux: Aux,
    /// The device was missing when the pool was opened; it is shown by its guid and `was PATH`.
    pub not_present: bool,
    /// A top-level log, special or dedup vdev, which listings show under a heading of its own.
    pub is_log: bool,
    /// Binary logarithm of the sector size in bytes.
    pub ashift: u64,
    /// Bytes allocated. Only top-level vdevs and the root.
    pub alloc: u64,
    /// Bytes that can be allocated. Only top-level vdevs and the root; 0 for others.
    pub space: u64,
    /// The same as `space`, less parity.
    pub deflated: u64,
    /// Bytes that only the checkpoint holds.
    pub checkpoint: u64,
    /// Bytes by which it can grow.
    pub expandsize: u64,
    /// Fragmentation in percent; `None` if it is not known.
    pub fragmentation: Option<u64>,
    /// Bytes of its allocatable part, from the configuration.
    pub asize: u64,
    /// Minimum size in bytes of a replacement device.
    pub replace_size: u64,
    /// Size of the device in bytes. Only leaves.
    pub psize: u64,
    /// Count of read errors.
    pub read_errors: u64,
    /// Count of write errors.
    pub write_errors: u64,
    /// Count of checksum errors.
    pub checksum_errors: u64,
    /// Count of slow reads and writes.
    pub slow_ios: u64,
    /// A resilver of this vdev is running.
    pub resilvering: bool,
    /// Its resilver starts after the running one.
    pub resilver_deferred: bool,
    /// It is being removed.
    pub removing: bool,
    /// No new blocks are allocated on it.
    pub non_allocating: bool,
    /// It is being expanded.
    pub expanding: bool,
    /// Progress of initializing. Only leaves.
    pub initialize: Option<Activity>,
    /// Progress of trimming. Only leaves.
    pub trim: Option<Activity>,
    /// Children, in the order of the configuration.
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

    /// True if it has no children.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
            && !matches!(self.kind.as_str(), "root" | "indirect" | "hole" | "missing" | "mirror" | "raidz")
    }

    /// This vdev and its descendants, in depth-first order, parents first.
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

/// Condition of a pool. The order of the variants is their priority: `zpool status` shows the first that applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Diagnosis {
    /// No problem.
    Healthy,
    /// A resilver is running.
    Resilvering,
    /// Last used by another host, which did not export it.
    HostidMismatch,
    /// In use by another host (multihost protection).
    ActiveElsewhere,
    /// Written by a newer version.
    VersionNewer,
    /// Uses unsupported features that prevent reading; holds their names.
    UnsupportedForRead(Vec<String>),
    /// Uses unsupported features that prevent writing; holds their names.
    UnsupportedForWrite(Vec<String>),
    /// The sum of the guids is wrong: top-level vdevs are missing.
    BadGuidSum,
    /// Suspended after device failures; writers wait.
    SuspendedWaiting,
    /// Suspended after device failures; writers get errors.
    SuspendedFailing,
    /// The pool accepts no writes until it is imported again; holds the reason.
    Stopped(String),
    /// The intent log is damaged.
    BadLog,
    /// A device is faulted, and redundancy is not sufficient.
    FaultedNoReplicas,
    /// A device is missing, and redundancy is not sufficient.
    MissingNoReplicas,
    /// The label of a device is corrupt, and redundancy is not sufficient.
    CorruptLabelNoReplicas,
    /// The pool's metadata is corrupt.
    CorruptPool,
    /// The pool has data errors.
    CorruptData,
    /// A device is faulted; redundancy is sufficient.
    Faulted,
    /// A device is missing; redundancy is sufficient.
    Missing,
    /// The label of a device is corrupt; redundancy is sufficient.
    CorruptLabel,
    /// Devices have had errors, which were corrected.
    Failing,
    /// An administrator has taken a device offline.
    Offline,
    /// A device was physically removed.
    Removed,
    /// The pool has an old version of the format.
    OldVersion,
    /// Supported features are not enabled.
    FeaturesDisabled,
    /// Features are enabled that the property `compatibility` does not include.
    Incompatible,
}

/// The last scrub or resilver, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// 1 scrub, 2 resilver.
    pub function: u64,
    /// 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    /// Start time, in seconds since 1970.
    pub start: u64,
    /// End time, in seconds since 1970.
    pub end: u64,
    /// Total number of bytes to examine, as allocated.
    pub to_examine: u64,
    /// Number of bytes examined so far.
    pub examined: u64,
    /// Number of bytes skipped so far.
    pub skipped: u64,
    /// Number of bytes repaired so far.
    pub processed: u64,
    /// Count of errors found.
    pub errors: u64,
    /// True if it is paused.
    pub paused: bool,
    /// Progress of the current pass. `None`: the scan does not run in this process.
    pub pass: Option<ScanPass>,
}

/// Progress of a scan since the pool was opened or the scan was last resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPass {
    /// Start of the pass, in seconds since 1970.
    pub start: u64,
    /// Bytes of blocks read during the whole scan.
    pub issued: u64,
    /// Bytes examined since `start`.
    pub pass_examined: u64,
    /// Bytes read since `start`.
    pub pass_issued: u64,
    /// Time of the pause, in seconds since 1970; 0 if it is not paused.
    pub paused_since: u64,
    /// Seconds of pauses since `start`.
    pub spent_paused: u64,
}

/// A scrub of the blocks with known errors only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorScrub {
    /// 1 scanning, 2 finished, 3 canceled.
    pub state: u64,
    /// Start time, in seconds since 1970.
    pub start: u64,
    /// End time, in seconds since 1970.
    pub end: u64,
    /// Blocks with errors to examine.
    pub to_examine: u64,
    /// Blocks with errors examined.
    pub examined: u64,
    /// Count of errors that remain.
    pub errors: u64,
    /// True if it is paused.
    pub paused: bool,
}

/// The removal of a top-level vdev, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// 1 copying, 2 finished, 3 canceled.
    pub state: u64,
    /// Id of the top-level vdev.
    pub vdev: u64,
    /// Start time, in seconds since 1970.
    pub start: u64,
    /// End time, in seconds since 1970.
    pub end: u64,
    /// Total number of bytes to copy.
    pub to_copy: u64,
    /// Number of bytes copied so far.
    pub copied: u64,
    /// Bytes of memory for the mappings of all removed vdevs, when loaded.
    pub mapping_memory: u64,
}

/// The expansion of a raidz vdev, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expansion {
    /// 1 running, 2 finished.
    pub state: u64,
    /// Id of the top-level vdev.
    pub vdev: u64,
    /// Start time, in seconds since 1970.
    pub start: u64,
    /// End time, in seconds since 1970.
    pub end: u64,
    /// Total number of bytes to copy.
    pub to_copy: u64,
    /// Number of bytes copied so far.
    pub copied: u64,
}

/// A pool checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Time of its creation, in seconds since 1970.
    pub time: u64,
    /// Bytes that only the checkpoint holds.
    pub space: u64,
    /// True if it is being discarded.
    pub discarding: bool,
}

/// A line of the dedup histogram: the blocks whose reference count has the same power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DedupBucket {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes allocated on disk.
    pub dsize: u64,
    /// Number of blocks, counted once for each reference.
    pub ref_blocks: u64,
    /// Bytes before compression, counted once for each reference.
    pub ref_lsize: u64,
    /// Bytes after compression, counted once for each reference.
    pub ref_psize: u64,
    /// Bytes allocated on disk, counted once for each reference.
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

/// Totals of a pool's dedup tables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Dedup {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of the tables on disk.
    pub on_disk: u64,
    /// Bytes of the tables in memory, if all were loaded.
    pub in_core: u64,
    /// Bytes of the tables that are in the cache.
    pub cached: u64,
    /// One line for each power of two of the reference count.
    pub histogram: Vec<DedupBucket>,
}

/// The facts of a pool that every listing shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Name under which the pool is imported.
    pub name: String,
    /// Guid of the pool.
    pub guid: u64,
    /// Health of the root vdev.
    pub health: Health,
    /// The pool is suspended: it does not accept writes at present.
    pub suspended: bool,
    /// Txg in which its configuration was written.
    pub config_txg: u64,
    /// Version of the on-disk format: 1 to 28, or 5000.
    pub version: u64,
    /// Newest file system version that the pool's version allows.
    pub zpl_version: u64,
}

impl PoolFacts {
    /// The state as listings show it.
    pub fn state_word(&self) -> &'static str {
        if self.suspended { "SUSPENDED" } else { self.health.word() }
    }
}

/// The vdevs of a pool: the tree, and the devices beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdevs {
    /// The root vdev; its children include log, special and dedup vdevs.
    pub root: Vdev,
    /// Cache devices (L2ARC).
    pub cache: Vec<Vdev>,
    /// Hot spares.
    pub spares: Vec<Vdev>,
}

/// All facts that `zpool status` shows of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name, guid and state.
    pub facts: PoolFacts,
    /// Condition of the pool.
    pub diagnosis: Diagnosis,
    /// The last scrub or resilver; `None` if there was none.
    pub scan: Option<Scan>,
    /// The last scrub of known errors; `None` if there was none.
    pub error_scrub: Option<ErrorScrub>,
    /// The last removal of a vdev; `None` if there was none.
    pub removal: Option<Removal>,
    /// The last raidz expansion; `None` if there was none.
    pub expansion: Option<Expansion>,
    /// The checkpoint; `None` if the pool has none.
    pub checkpoint: Option<Checkpoint>,
    /// The vdev tree, cache devices and spares.
    pub vdevs: Vdevs,
    /// Number of data errors in the pool's error log.
    pub error_count: u64,
    /// Files and objects with data errors, sorted, without duplicates.
    pub errors: Vec<String>,
    /// Totals of the dedup tables; `None` if the pool has none.
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
    /// The value of the property `type`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Filesystem => "filesystem",
            Kind::Volume => "volume",
            Kind::Snapshot => "snapshot",
            Kind::Bookmark => "bookmark",
        }
    }
}

/// A hold on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Tag of the hold.
    pub tag: String,
    /// Time of its creation, in seconds since 1970.
    pub time: u64,
}

/// Whose space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// A user, by uid or Windows identity.
    User,
    /// A group, by gid or Windows identity.
    Group,
    /// A project, by project id.
    Project,
}

/// What one owner uses and may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRow {
    /// Kind of the owner.
    pub owner: Owner,
    /// Domain of a Windows identity (`S-1-5-…`); `None` for POSIX ids and projects.
    pub domain: Option<String>,
    /// Number within the domain, POSIX id, or project id.
    pub id: u64,
    /// Bytes used. `None`, as `quota` then is, if only objects are known.
    pub used: Option<u64>,
    /// Quota in bytes; 0: no limit.
    pub quota: Option<u64>,
    /// Objects used. `None`, as `object_quota` then is, if the pool does not count objects.
    pub objects: Option<u64>,
    /// Quota of objects; 0: no limit.
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
