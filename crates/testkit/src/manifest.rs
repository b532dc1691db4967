//! `manifest.json` of a fixture, typed. Fields not named here are kept in `extra`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// What the other implementation reported about one golden pool.
#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    /// Name of the fixture, and of its folder.
    pub fixture: String,
    /// Purpose of the fixture, in one line.
    pub what: String,
    /// Version of the manifest's own format.
    pub format: u32,
    /// `exported`, or `unclean`: copied while in use, as after a power cut.
    pub state: String,
    /// The images, in their order in `images.zst`.
    pub images: Vec<Image>,
    /// The commands that made the pool.
    pub commands: Vec<String>,
    /// Name of the pool.
    pub pool: String,
    /// Release of OpenZFS that made it.
    pub zfs_version: String,
    /// Pool properties by name, from `zpool get -Hp all`.
    pub pool_properties: BTreeMap<String, Property>,
    /// Feature name to `disabled`, `enabled` or `active`; empty for pools without features.
    pub features: BTreeMap<String, String>,
    /// File systems, snapshots and volumes.
    pub datasets: Vec<Dataset>,
    /// Result of `zdb -bcc`.
    #[serde(default)]
    pub zdb: ZdbResult,
    /// `disk` when the vdevs are of that type (`wholedisk`); files otherwise.
    pub vdev_type: Option<String>,
    /// `gpt` when the images are whole disks.
    pub partition_table: Option<String>,
    /// Partitions of each image of a whole-disk pool.
    #[serde(default)]
    pub partitions: BTreeMap<String, Vec<Partition>>,
    /// All other fields of the file.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One vdev image.
#[derive(Debug, Clone, Deserialize)]
pub struct Image {
    /// File name in [`Fixture::dir`](crate::Fixture::dir).
    #[serde(alias = "file")]
    pub name: String,
    /// Offset in the unpacked stream, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the raw image, hexadecimal.
    #[serde(default)]
    pub sha256: String,
}

/// A property's value and source, as the commands print them with `-Hp`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Property {
    /// Value, with exact numbers.
    pub value: String,
    /// `default`, `local`, `inherited from …`, `received`, `temporary` or `-`.
    pub source: String,
}

/// A partition of a whole-disk image, in sectors of 512 bytes. The range includes both ends.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Partition {
    /// Number in the partition table, from 1.
    pub number: u32,
    /// Number of the first sector.
    pub first_sector: u64,
    /// Number of the last sector.
    pub last_sector: u64,
}

/// One row of user, group or project space: type, name, used, quota, objused, objquota, as
/// `zfs userspace -Hp` prints them.
pub type SpaceRow = [String; 6];

/// A file system, a snapshot or a volume.
#[derive(Debug, Clone, Deserialize)]
pub struct Dataset {
    /// Full name, `pool/fs@snapshot`.
    pub name: String,
    /// `filesystem`, `snapshot` or `volume`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Properties by name, from `zfs get -Hp all`.
    #[serde(default)]
    pub properties: BTreeMap<String, Property>,
    /// Number of its lines in `entries.jsonl.zst`; absent for volumes and datasets that were not mounted.
    pub entries: Option<u64>,
    /// Sum of the file sizes in bytes.
    pub file_bytes: Option<u64>,
    /// Why it could not be mounted when the manifest was made.
    pub not_mounted: Option<String>,
    /// SHA-256 of a volume's content, hexadecimal.
    pub volume_sha256: Option<String>,
    /// Size of a volume in bytes.
    pub volume_bytes: Option<u64>,
    /// Tags of the holds on a snapshot.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Output of `zfs allow` for the dataset; absent if there are no permissions.
    pub allow: Option<String>,
    /// Space by user (`zfs userspace -Hp`).
    #[serde(default)]
    pub userspace: Vec<SpaceRow>,
    /// Space by group (`zfs groupspace -Hp`).
    #[serde(default)]
    pub groupspace: Vec<SpaceRow>,
    /// Space by project (`zfs projectspace -Hp`).
    #[serde(default)]
    pub projectspace: Vec<SpaceRow>,
    /// All other fields of the dataset.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Dataset {
    /// The value of a property, if the manifest has it.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(|property| property.value.as_str())
    }

    /// Whether it is a snapshot, such as `a/b@s`.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.name.contains('@')
    }
}

/// Result of `zdb -e -p DIR -bcc POOL` on the images.
#[derive(Debug, Clone, Deserialize, Default)]
pub struct ZdbResult {
    /// The command line.
    pub command: String,
    /// Exit code of the command.
    pub exit: i32,
    /// Whether it reported that no block is leaked.
    pub no_leaks: Option<bool>,
    /// Relevant lines of its output.
    #[serde(default)]
    pub messages: Vec<String>,
    /// All other fields of the result.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Manifest {
    /// The dataset with that full name.
    #[must_use]
    pub fn dataset(&self, name: &str) -> Option<&Dataset> {
        self.datasets.iter().find(|dataset| dataset.name == name)
    }

    /// Whether the pool was copied while in use.
    #[must_use]
    pub fn is_unclean(&self) -> bool {
        self.state == "unclean"
    }

    /// Whether the manifest describes the contents after the replay of an intent log, which a read-only
    /// import does not do.
    #[must_use]
    pub fn is_after_replay(&self) -> bool {
        self.is_unclean() && self.fixture.starts_with("zil")
    }
}
