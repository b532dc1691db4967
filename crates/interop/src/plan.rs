//! The plan of a pool, from a seed: its vdevs, its features, and the emphasis of the work.

use crate::disk_provider::DiskProvider;
use format::Ashift;
use pool::space::Class;
use pool::{CreateSpec, FeatureSet, Layout, TopSpec};
use vdev::env::Random;

/// A planned top-level vdev.
#[derive(Debug, Clone, Copy)]
pub struct Top {
    /// Redundancy of its disks.
    pub layout: Layout,
    /// Number of disks of the vdev.
    pub disks: usize,
    /// Allocation class of the vdev.
    pub class: Class,
}

impl Top {
    fn new(layout: Layout, disks: usize) -> Top {
        Top { layout, disks, class: Class::Normal }
    }

    fn of(self, class: Class) -> Top {
        Top { class, ..self }
    }
}

/// Emphasis of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// No special setting.
    Ordinary,
    /// The pool is nearly full, and freed space is filled again.
    Full,
    /// Free space is in small pieces, so that gang blocks are written.
    Pieces,
    /// Datasets and files are cloned, and clones destroyed; there are default quotas.
    Clones,
}

impl Setting {
    fn of_layout(name: &str) -> Setting {
        match name.split('-').next() {
            Some("full") => Setting::Full,
            Some("pieces") => Setting::Pieces,
            Some("clones") => Setting::Clones,
            _ => Setting::Ordinary,
        }
    }
}

/// Plan of a pool.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the layout, for messages.
    pub title: &'static str,
    /// Emphasis of the work.
    pub setting: Setting,
    /// Top-level vdevs.
    pub tops: Vec<Top>,
    /// Binary logarithm of the sector size in bytes.
    pub ashift: u8,
    /// Features that are enabled at creation.
    pub features: FeatureSet,
    /// Whether files share blocks (block cloning).
    pub clones_files: bool,
    /// Whether a thread writes txgs; a run is then not reproducible.
    pub has_thread: bool,
    /// Greatest number of top-level vdevs, of all classes.
    pub tops_max: usize,
}

/// All layouts with their names.
pub fn layouts() -> Vec<(&'static str, Vec<Top>)> {
    let single = Top::new(Layout::Single, 1);
    let mirror = Top::new(Layout::Mirror, 2);
    let raidz = |parity: u8, disks| Top::new(Layout::Raidz(parity), disks);
    vec![
        ("single", vec![single]),
        ("stripe", vec![single; 3]),
        ("mirror", vec![mirror]),
        ("mirrors", vec![mirror, Top::new(Layout::Mirror, 3)]),
        ("raidz1", vec![raidz(1, 3)]),
        ("raidz2", vec![raidz(2, 5)]),
        ("raidz3", vec![raidz(3, 6)]),
        ("raidz1s", vec![raidz(1, 4), raidz(1, 4)]),
        ("log", vec![single, single.of(Class::Log)]),
        ("mirrored-log", vec![mirror, mirror.of(Class::Log)]),
        ("special", vec![raidz(1, 3), mirror.of(Class::Special)]),
        ("special-log", vec![mirror, single.of(Class::Special), single.of(Class::Log)]),
        ("dedup-class", vec![mirror, single.of(Class::Dedup)]),
        (
            "all-classes",
            [Class::Normal, Class::Special, Class::Dedup, Class::Log].map(|c| single.of(c)).into(),
        ),
        ("sectors-1k", vec![raidz(1, 3), single.of(Class::Log)]),
        ("sectors-16k", vec![mirror, single.of(Class::Special), single.of(Class::Log)]),
        ("sectors-64k", vec![single]),
        ("full", vec![single]),
        ("full-raidz1", vec![raidz(1, 3)]),
        ("pieces", vec![single]),
        ("pieces-raidz1", vec![raidz(1, 3)]),
        ("clones", vec![single]),
        ("clones-log", vec![mirror, single.of(Class::Log)]),
    ]
}

/// Binary logarithm of the sector size, for layouts that test a sector size.
fn own_ashift(layout: &str) -> Option<u8> {
    match layout {
        "sectors-1k" => Some(10),
        "sectors-16k" => Some(14),
        "sectors-64k" => Some(16),
        _ => None,
    }
}

/// A random set of features for a pool.
fn features(random: &mut Random) -> FeatureSet {
    let named = |names: &[&str]| FeatureSet::Named(names.iter().map(|name| (*name).to_owned()).collect());
    match random.below(10) {
        0 => FeatureSet::None,
        1 => named(&["async_destroy", "lz4_compress", "extensible_dataset"]),
        2 => named(&["spacemap_histogram", "hole_birth", "embedded_data", "large_blocks", "enabled_txg"]),
        3 => {
            named(&["log_spacemap", "spacemap_histogram", "bookmark_written", "project_quota", "zilsaxattr"])
        }
        4 => named(&["livelist", "large_dnode", "zstd_compress", "sha512", "skein", "edonr", "blake3"]),
        _ => FeatureSet::Default,
    }
}

impl Plan {
    /// The plan of a seed. `layout`: use this layout instead of the seed's; `None` if there is no such
    /// layout.
    pub fn of_seed(seed: u64, layout: Option<&str>) -> Option<Plan> {
        let mut random = Random::from_seed(seed);
        let all = layouts();
        let drawn = random.below(all.len() as u64) as usize;
        let index = match layout {
            Some(name) => all.iter().position(|(known, _)| *known == name)?,
            None => drawn,
        };
        let (title, tops) = all.into_iter().nth(index)?;
        let setting = Setting::of_layout(title);
        let mut features = features(&mut random);
        if setting == Setting::Clones {
            features = FeatureSet::Default;
        }
        if let FeatureSet::Named(names) = &mut features {
            names.push("allocation_classes".to_owned());
        }
        if features == FeatureSet::None
            && tops.iter().any(|top| matches!(top.class, Class::Special | Class::Dedup))
        {
            features = FeatureSet::Named(vec!["allocation_classes".to_owned()]);
        }
        let ashift = [9, 12, 12, 9, 13][random.below(5) as usize];
        let ashift = own_ashift(title).unwrap_or(ashift);
        let clones_files = features == FeatureSet::Default && random.one_in(2);
        let has_thread = random.one_in(4);
        Some(Plan { title, setting, tops, ashift, features, clones_files, has_thread, tops_max: 4 })
    }

    /// Makes the disks, and returns the specification of the pool on them.
    ///
    /// # Errors
    /// A disk cannot be made.
    pub(crate) fn spec(
        &self,
        name: &str,
        disks: &mut dyn DiskProvider,
    ) -> Result<CreateSpec, crate::Failure> {
        let mut tops = Vec::new();
        for top in &self.tops {
            tops.push(new_top(*top, self.ashift, disks)?);
        }
        let mut spec = CreateSpec::new(name, tops);
        spec.features = self.features.clone();
        Ok(spec)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let features = match &self.features {
            FeatureSet::Default => "all features".to_owned(),
            FeatureSet::None => "no features".to_owned(),
            FeatureSet::Named(names) => names.join(","),
        };
        write!(f, "{}, ashift {}, {features}", self.title, self.ashift)?;
        if self.clones_files {
            f.write_str(", blocks of files shared")?;
        }
        if self.has_thread {
            f.write_str(", a thread syncs")?;
        }
        Ok(())
    }
}

/// Makes the disks of a top-level vdev.
///
/// # Errors
/// A disk cannot be made.
pub(crate) fn new_top(top: Top, ashift: u8, disks: &mut dyn DiskProvider) -> Result<TopSpec, crate::Failure> {
    let leaves = (0..top.disks).map(|_| disks.new_leaf()).collect::<Result<_, _>>()?;
    Ok(TopSpec { layout: top.layout, class: top.class, ashift: Some(Ashift(ashift)), leaves })
}
