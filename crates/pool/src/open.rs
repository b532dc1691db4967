//! Opening a pool, step by step (docs/on-disk/10-overview.md, section 4).
//!
//! # What always holds
//! - An uberblock counts only if the checksum of its slot is right, so a torn uberblock is ignored.
//! - The newest uberblock is the state of the pool. If its state cannot be read, opening fails; an older
//!   uberblock is tried only if the caller asked for it.
//! - No block on a removed vdev is read before the mapping of that vdev is loaded.
//! - No space map is read: files are readable before the free space is known.
//!
//! # Order
//! labels -> untrusted tree -> uberblock -> MOS -> trusted tree, sum of guids -> MOS again -> salt, features
//! -> mappings of removed vdevs -> DTLs -> datasets.

use crate::assemble::{Group, Member, aux_devices, groups, label_of};
use crate::directory::{Directory, packed_list};
use crate::error::PoolError;
use crate::features::Features;
use crate::missing_vdev::MissingVdev;
use crate::view::Pool;
use crate::{checkpoint, indirect, missing, space};
use codec::checksum::Salt;
use dmu::{DmuError, KeyState, ObjSet, Store};
use dsl::{Dsl, Heads};
use format::config::{PoolConfig, VdevKind, VdevNode};
use format::names;
use format::uberblock::Uberblock;
use format::{PoolGuid, Txg, VdevGuid, feature};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use vdev::scan::Found;
use vdev::tree::{Aux, FaultKind, VdevState, VdevStatus};
use vdev::{Device, Devices, VdevTree};
use zio::{Zio, ZioError};

/// Version of pools with feature flags.
const VERSION_FEATURES: u64 = 5000;
/// Bytes of cache for reading the MOS before the tree is trusted.
const BOOT_CACHE: usize = 4 << 20;

/// Selection of one of the found pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one with this name.
    Name(String),
    /// The one with this guid.
    Guid(PoolGuid),
}

impl Which {
    fn wants(&self, group: &Group<'_>) -> bool {
        match self {
            Which::Name(name) => group.name() == name,
            Which::Guid(guid) => group.guid == *guid,
        }
    }

    fn text(&self) -> String {
        match self {
            Which::Name(name) => format!("'{name}'"),
            Which::Guid(guid) => guid.to_string(),
        }
    }
}

/// Options of opening a pool.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Size of the block cache in bytes.
    pub cache_bytes: usize,
    /// Newest txg whose state may be opened (`-T`).
    pub max_txg: Option<Txg>,
    /// If the newest state cannot be read, try older ones (`-F`).
    pub recover: bool,
    /// Open the state of the checkpoint.
    pub checkpoint: bool,
    /// Open even if log devices are missing (`-m`).
    pub allow_missing_logs: bool,
    /// Open even if top-level vdevs with data are missing.
    pub allow_missing_tops: bool,
    /// Include destroyed pools (`-D`).
    pub destroyed: bool,
    /// Name of the pool while it is open, in place of the name in its labels (`-t`).
    pub name: Option<String>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            cache_bytes: 64 << 20,
            max_txg: None,
            recover: false,
            checkpoint: false,
            allow_missing_logs: false,
            allow_missing_tops: false,
            destroyed: false,
            name: None,
        }
    }
}

/// A state of the pool that could be opened.
struct State<'a> {
    uberblock: Uberblock,
    label: &'a PoolConfig,
}

/// The parts of a pool that opening has found, whether or not all of its vdevs are there.
pub(crate) struct Opened {
    pub(crate) label: PoolConfig,
    pub(crate) config: PoolConfig,
    pub(crate) uberblock: Uberblock,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) mos: Arc<ObjSet>,
    pub(crate) directory: Directory,
    pub(crate) features: Features,
}

impl Pool {
    /// Opens one of the pools on the found devices.
    ///
    /// # Errors
    /// [`PoolError::NoSuchPool`] or [`PoolError::Ambiguous`]; also if its newest state cannot be read (unless
    /// `opts` allow an older one), devices are missing, or it uses unsupported features.
    pub fn open(
        found: impl Borrow<Found>,
        which: &Which,
        opts: &OpenOptions,
    ) -> Result<Arc<Pool>, PoolError> {
        let found = found.borrow();
        let all = groups(found);
        let group = choose(&all, which, opts)?;
        let aux = aux_devices(found);
        let opener = Opener { group, devices: group.devices(&aux), opts };
        let opened = opener.open()?;
        opener.check_missing(&opened.tree)?;
        Pool::from_opened(opened, &opener.devices, found.source(), opts.name.as_deref())
    }

    pub(crate) fn from_opened(
        opened: Opened,
        devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        source: Devices,
        name: Option<&str>,
    ) -> Result<Arc<Pool>, PoolError> {
        let Opened { label, config, uberblock, tree, mos, directory, features } = opened;
        let name = name.unwrap_or(&label.name).to_owned();
        let dsl = Dsl::open(mos.clone(), directory.required(names::directory::ROOT_DATASET)?, &name);
        measure(&dsl, &directory, &tree);
        let devices = devices.keys().copied().collect();
        Ok(Arc::new(Pool {
            name,
            label,
            config,
            uberblock,
            tree,
            mos,
            directory,
            features,
            dsl,
            devices,
            source,
            lease: None,
            status: OnceLock::new(),
        }))
    }

    /// A view of a pool that is open for writing, as of an uberblock. `aux`: its present spares and cache
    /// devices; `heads`: its open heads, with the keys that are loaded.
    pub(crate) fn of_live(
        heads: &Heads,
        config: &PoolConfig,
        uberblock: &Uberblock,
        tree: &Arc<VdevTree>,
        store: &Arc<Store>,
        aux: HashSet<VdevGuid>,
        lease: Arc<dyn dmu::Lease>,
    ) -> Result<Arc<Pool>, PoolError> {
        let mos = ObjSet::open_leased(store, Some(Arc::clone(&lease)), &uberblock.root, 0, KeyState::None)?;
        let directory = Directory::open(&mos)?;
        let features = Features::load(&directory)?;
        let dsl = heads.view(mos.clone(), directory.required(names::directory::ROOT_DATASET)?);
        measure(&dsl, &directory, tree);
        let is_open = |guid: &VdevGuid| tree.device(*guid).is_some();
        let devices = tree.leaf_guids().into_iter().filter(is_open).chain(aux).collect();
        let (label, config, uberblock) = (config.clone(), config.clone(), *uberblock);
        let (name, tree, lease) = (heads.pool_name().to_owned(), tree.clone(), Some(lease));
        Ok(Arc::new(Pool {
            name,
            label,
            config,
            uberblock,
            tree,
            mos,
            directory,
            features,
            dsl,
            devices,
            // Not used: a pool that is open for writing holds its spares and cache devices.
            source: Devices::default(),
            lease,
            status: OnceLock::new(),
        }))
    }
}

pub(crate) fn choose<'a>(
    all: &'a [Group<'a>],
    which: &Which,
    opts: &OpenOptions,
) -> Result<&'a Group<'a>, PoolError> {
    let named: Vec<&Group<'_>> = all.iter().filter(|g| which.wants(g)).collect();
    let usable: Vec<&Group<'_>> =
        named.iter().copied().filter(|g| opts.destroyed || !g.is_destroyed()).collect();
    match (&usable[..], &named[..]) {
        ([one], _) => Ok(one),
        ([], []) => {
            let found = all.iter().map(|g| g.name().to_owned()).collect();
            Err(PoolError::NoSuchPool { wanted: which.text(), found })
        }
        ([], [gone, ..]) => Err(PoolError::Destroyed { name: gone.name().to_owned(), guid: gone.guid }),
        (several, _) => Err(PoolError::Ambiguous {
            name: several.first().map_or_else(String::new, |g| g.name().to_owned()),
            guids: several.iter().map(|g| g.guid).collect(),
        }),
    }
}

/// The inputs and options of the opening steps.
pub(crate) struct Opener<'a> {
    pub(crate) group: &'a Group<'a>,
    pub(crate) devices: HashMap<VdevGuid, Arc<dyn Device>>,
    pub(crate) opts: &'a OpenOptions,
}

impl Opener<'_> {
    /// Opens the newest state or, if the options allow it, the newest that can be opened.
    pub(crate) fn open(&self) -> Result<Opened, PoolError> {
        // Checked first: in an unknown version any other field may have another meaning.
        check_version(self.group.newest().version)?;
        let mut states = self.states()?.into_iter();
        let Some(newest) = states.next() else {
            return Err(PoolError::NoUberblock { name: self.name(), limit: self.opts.max_txg });
        };
        let cause = match self.open_state(&newest) {
            Ok(opened) => return Ok(opened),
            // These errors would be the same at any txg.
            Err(
                error @ (PoolError::UnsupportedFeatures { .. }
                | PoolError::Version { .. }
                | PoolError::NoCheckpoint { .. }
                | PoolError::Reflowed { .. }),
            ) => return Err(error),
            Err(cause) => cause,
        };
        let txg = newest.uberblock.txg;
        let older: Vec<State<'_>> = states.filter(|state| state.uberblock.txg < txg).collect();
        if self.opts.recover {
            for state in &older {
                tracing::warn!(pool = self.group.name(), txg = state.uberblock.txg.0, "falling back");
                if let Ok(opened) = self.open_state(state) {
                    return Ok(opened);
                }
            }
        }
        if is_for_want_of_devices(&cause)
            && let Some(missing) = self.missing_by_labels(&newest.uberblock)
        {
            return Err(missing);
        }
        let older = older.iter().map(|state| state.uberblock.txg).collect();
        let absent = if is_for_want_of_devices(&cause) { self.absent() } else { Vec::new() };
        Err(PoolError::Unreadable { name: self.name(), txg, older, absent, cause: Box::new(cause) })
    }

    fn name(&self) -> String {
        self.group.name().to_owned()
    }

    /// The states that could be opened, best first, one for each txg.
    fn states(&self) -> Result<Vec<State<'_>>, PoolError> {
        let all = self.group.uberblocks();
        let Some((newest, _)) = all.first() else { return Ok(Vec::new()) };
        let newest = **newest;
        let mut states: Vec<State<'_>> = Vec::new();
        for (uberblock, member) in all {
            let in_reach = self.opts.max_txg.is_none_or(|limit| uberblock.txg <= limit);
            let is_new = states.last().is_none_or(|last| last.uberblock.txg != uberblock.txg);
            if in_reach && is_new && uberblock.txg != Txg(0) {
                let label = match self.label_at(uberblock.txg, member) {
                    Some(label) => label,
                    None if !states.is_empty() || self.opts.recover || self.opts.max_txg.is_some() => {
                        member.config
                    }
                    None => return Err(self.lost_uberblocks(uberblock.txg)),
                };
                states.push(State { uberblock: *uberblock, label });
            }
        }
        match states.first() {
            // A reflow has since moved rows that this state expects at their old places.
            Some(first) if first.uberblock.reflow != newest.reflow => {
                Err(PoolError::Reflowed { chosen: first.uberblock.txg, newest: newest.txg })
            }
            _ => {
                states.retain(|state| state.uberblock.reflow == newest.reflow);
                Ok(states)
            }
        }
    }

    /// The label that was valid at `txg`, preferably of `member`.
    fn label_at<'b>(&'b self, txg: Txg, member: Member<'b>) -> Option<&'b PoolConfig> {
        let others = self.group.members.iter().copied();
        std::iter::once(member).chain(others).find_map(|member| label_of(member, txg))
    }

    /// The labels are written before the uberblock of the same txg, and never all at once: if every label is
    /// newer than the newest uberblock, later uberblocks were lost.
    fn lost_uberblocks(&self, newest: Txg) -> PoolError {
        let labels = self.group.newest().txg;
        PoolError::LostUberblocks { name: self.name(), labels, newest, absent: self.absent() }
    }

    fn open_state(&self, state: &State<'_>) -> Result<Opened, PoolError> {
        check_version(state.uberblock.version)?;
        check_label_features(state.label)?;
        let tree = VdevTree::open(&self.group.tree()?, &self.devices, state.uberblock.reflow)?;
        let config = read_config(&tree, &state.uberblock)?;
        let opened = self.open_trusted(state, config)?;
        if !self.opts.checkpoint {
            return Ok(opened);
        }
        let uberblock = checkpoint::uberblock(&opened.directory)?
            .ok_or_else(|| PoolError::NoCheckpoint { name: self.name() })?;
        let config = read_config(&opened.tree, &uberblock)?;
        self.open_trusted(&State { uberblock, label: state.label }, config)
    }

    /// The steps of opening from the true configuration on.
    fn open_trusted(&self, state: &State<'_>, config: PoolConfig) -> Result<Opened, PoolError> {
        // A pool that was split off has its new identity only in its labels until it is opened
        // for writing.
        if config.pool_guid != self.group.guid && state.label.split_guid != Some(config.pool_guid) {
            let (found, expected) = (config.pool_guid, self.group.guid);
            return Err(PoolError::OtherPool { found, expected });
        }
        check_guid_sum(&config.vdev_tree, state.uberblock.guid_sum)?;
        let tree = VdevTree::open(&config.vdev_tree, &self.devices, state.uberblock.reflow)?;
        let zio = Arc::new(Zio::new(tree.clone()));
        let store = Store::new(zio.clone(), self.opts.cache_bytes);
        let mos = ObjSet::open(&store, &state.uberblock.root, 0, KeyState::None)?;
        let directory = Directory::open(&mos)?;
        // Anything else may be on removed vdevs.
        indirect::load(&mos, &directory, &tree)?;
        if let Some(salt) = salt(&directory)? {
            zio.set_salt(salt);
        }
        let features = Features::load(&directory)?;
        let unsupported = features.unsupported(false);
        if !unsupported.is_empty() {
            return Err(PoolError::UnsupportedFeatures { features: unsupported });
        }
        zio.set_dynamic_gang_headers(features.is_active("dynamic_gang_header"));
        missing::load(&mos, &tree);
        let (label, uberblock) = (state.label.clone(), state.uberblock);
        Ok(Opened { label, config, uberblock, tree, mos, directory, features })
    }

    /// Fails if required vdevs are missing.
    pub(crate) fn check_missing(&self, tree: &VdevTree) -> Result<(), PoolError> {
        let status = tree.status();
        let lost = |log: bool| -> Vec<&VdevStatus> {
            let unusable = |v: &&VdevStatus| v.state < VdevState::Degraded && v.is_log == log;
            status.children.iter().filter(unusable).collect()
        };
        let (tops, logs) = (lost(false), lost(true));
        let vdevs = |lost: &[&VdevStatus]| lost.iter().map(|v| MissingVdev::of(v)).collect();
        if !tops.is_empty() && !self.opts.allow_missing_tops {
            return Err(PoolError::MissingTops { name: self.name(), vdevs: vdevs(&tops) });
        }
        if !logs.is_empty() && !self.opts.allow_missing_logs {
            return Err(PoolError::MissingLogs { name: self.name(), vdevs: vdevs(&logs) });
        }
        Ok(())
    }

    /// The devices in the labels that were not found.
    fn absent(&self) -> Vec<String> {
        let reflow = format::uberblock::ReflowInfo::default();
        let tree = self.group.tree().ok().and_then(|root| VdevTree::open(&root, &self.devices, reflow).ok());
        let Some(status) = tree.map(|tree| tree.status()) else { return Vec::new() };
        let is_absent = |v: &&&VdevStatus| v.children.is_empty() && v.aux == Aux::OpenFailed;
        status.walk().iter().filter(is_absent).map(|leaf| MissingVdev::of(leaf).to_string()).collect()
    }

    /// The top-level vdevs that are missing according to the labels. Removed ones have no labels either, so
    /// this alone does not prove that a device is missing.
    fn missing_by_labels(&self, uberblock: &Uberblock) -> Option<PoolError> {
        let tree = VdevTree::open(&self.group.tree().ok()?, &self.devices, uberblock.reflow).ok()?;
        // Log devices hold no data that the state itself needs.
        self.check_missing(&tree).err().filter(|error| matches!(error, PoolError::MissingTops { .. }))
    }
}

/// Whether the state would be readable if all devices were present.
fn is_for_want_of_devices(cause: &PoolError) -> bool {
    let PoolError::Dmu(DmuError::Zio { source: ZioError::Unreadable { faults, .. }, .. }) = cause else {
        return false;
    };
    faults.iter().any(|fault| fault.kind == FaultKind::Missing)
}

fn check_version(version: u64) -> Result<(), PoolError> {
    if matches!(version, 1..=28 | VERSION_FEATURES) { Ok(()) } else { Err(PoolError::Version { version }) }
}

/// Checks the features without which the MOS cannot be read.
fn check_label_features(label: &PoolConfig) -> Result<(), PoolError> {
    let known = |guid: &&String| feature::by_guid(guid).is_some_and(feature::Feature::is_supported);
    let features: Vec<String> = label.features_for_read.iter().filter(|g| !known(g)).cloned().collect();
    if features.is_empty() { Ok(()) } else { Err(PoolError::UnsupportedFeatures { features }) }
}

fn check_guid_sum(root: &VdevNode, expected: u64) -> Result<(), PoolError> {
    let found = root.guid_sum();
    if found == expected { Ok(()) } else { Err(PoolError::GuidSum { found, expected }) }
}

/// Reads the configuration in the MOS through an untrusted tree.
fn read_config(tree: &Arc<VdevTree>, uberblock: &Uberblock) -> Result<PoolConfig, PoolError> {
    let store = Store::new(Arc::new(Zio::new(tree.clone())), BOOT_CACHE);
    let mos = ObjSet::open(&store, &uberblock.root, 0, KeyState::None)?;
    let id = Directory::open(&mos)?.required(names::directory::CONFIG)?;
    let list = packed_list(&mos, id)?;
    let config = PoolConfig::from_nvlist(&list).map_err(PoolError::decode(id))?;
    match config.vdev_tree.kind {
        VdevKind::Root => Ok(config),
        _ => Err(PoolError::Corrupt { object: id, why: "the tree of the configuration has no root" }),
    }
}

pub(crate) fn salt(directory: &Directory) -> Result<Option<Salt>, PoolError> {
    let name = names::directory::CHECKSUM_SALT;
    let Some(entry) = directory.entry(name)? else { return Ok(None) };
    let bytes: Result<[u8; 32], _> = entry.value[..].try_into();
    match bytes {
        Ok(bytes) if entry.int_size == 1 => Ok(Some(Salt(bytes))),
        _ => Err(PoolError::Directory { entry: name.to_owned() }),
    }
}

/// Has the datasets of a state of the pool know its size.
fn measure(dsl: &Dsl, directory: &Directory, tree: &Arc<VdevTree>) {
    let (mos, directory, tree) = (dsl.mos().clone(), directory.clone(), tree.clone());
    dsl.set_pool_space(move || match space::root_space(&mos, &directory, &tree) {
        Ok(space) => Some(space),
        Err(cause) => {
            tracing::warn!("size of the pool: {cause}");
            None
        }
    });
}
