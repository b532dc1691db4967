//! Opening a pool for writing (docs/on-disk/10-overview.md, section 4, steps 13 and 14).
//!
//! # What always holds
//! - The checks run before the first write: [`refusal`] names the first reason why the pool cannot be
//!   written, and the pool may then be opened for reading.
//! - Intent logs that a crash left are claimed in the first txg, before any other allocation.
//! - The state of the pool is read while its devices are locked: an earlier search only tells which devices
//!   to lock.
//!
//! # Order
//! devices opened for writing and locked -> labels -> the pool is opened for reading -> refusals, other hosts
//! -> spares and cache devices locked -> space maps and logs -> first txg: claims, labels -> further txgs
//! until no claimed block has a birth later than the synced txg.

use crate::assemble::{Group, aux_devices, groups};
use crate::attach::lacking_since;
use crate::aux::change as aux;
use crate::config::{Host, find_mut};
use crate::error::PoolError;
use crate::events::Context;
use crate::layout::{NewDevices, set_path};
use crate::live::{LivePool, Parts};
use crate::open::{self, Opener};
use crate::open::{OpenOptions, Which};
use crate::refusal::{DeviceRefusal, WriteRefusal};
use crate::scan::recorded::Expansion;
use crate::space_maps::{SpaceBook, known_tops};
use crate::status::FailMode;
use crate::view::Pool;
use crate::{assemble, indirect, missing};
use crate::{claim, diagnosis, resume_unfinished as leftovers, scan, vdev_zaps};
use dmu::{KeyState, Limits, LiveSet, Store, Txgs};
use dsl::brt::Brt;
use dsl::{FeatureCounts, Heads, mos_policy};
use format::config::{PoolConfig, PoolState, VdevKind, VdevNode};
use format::label::ring_slots;
use format::names;
use format::nvlist::NvList;
use format::scan::ScanState;
use format::uberblock::Uberblock;
use format::{Ashift, Endian, PoolGuid, Txg, VdevGuid};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vdev::device::file::Access;
use vdev::device::held::Hold;
use vdev::env::Env;
use vdev::scan::Found;
use vdev::sync::lock;
use vdev::tree::VdevState;
use vdev::{Device, VdevTree, label};
use zio::Zio;
use zio::alloc::Allocator;

/// Version of pools that can be written.
const VERSION_FEATURES: u64 = 5000;
/// Features that prevent writing while they are active, each with the reason.
const UNWRITTEN: [(&str, &str); 4] = [
    ("draid", "it has a dRAID vdev"),
    ("device_rebuild", "a device is being rebuilt"),
    ("dynamic_gang_header", "it has large gang headers"),
    ("physical_rewrite", "it has rewritten blocks"),
];
/// Features that are written only in part: existing blocks are freed correctly, new ones are not created.
/// [`ImportOptions::partly_supported`] lets such pools be written.
const PARTLY_WRITTEN: [(&str, &str); 1] = [("fast_dedup", "it has dedup tables")];
/// Number of intervals that an import waits for activity if the writer has not set it.
const IMPORT_INTERVALS: u64 = 20;
/// Shortest interval of activity, in milliseconds.
const INTERVAL_MS: u64 = 1000;
/// Pause between two reads of the labels.
const LOOK: Duration = Duration::from_millis(250);

/// Options of opening a pool for writing.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Options that also apply to reading. With a checkpoint, the pool goes back to it: what was written later is lost.
    /// Missing data vdevs are not possible.
    pub open: OpenOptions,
    /// Import although another machine has not exported the pool (`-f`).
    pub force: bool,
    /// New name of the pool; `None`: it keeps its name.
    pub new_name: Option<String>,
    /// The machine that opens the pool.
    pub host: Host,
    /// Writes are held back until the first change ([`LivePool::release`]). A pool that is never changed is
    /// left as it was found.
    pub hold: bool,
    /// Access mode of files and disks.
    pub access: Access,
    /// Limits of dirty memory, and of the time between txgs.
    pub limits: Limits,
    /// Also opens pools with dedup tables. Freed blocks are removed from the tables, and no new block is
    /// deduplicated. Used by tests and as a base for that support: no command sets it.
    pub partly_supported: bool,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions {
            open: OpenOptions::default(),
            force: false,
            new_name: None,
            host: Host::default(),
            hold: false,
            access: Access::Auto,
            limits: Limits::default(),
            partly_supported: false,
        }
    }
}

/// Why Cenote cannot write a pool. `None`: it can.
fn refusal(pool: &Pool) -> Result<Option<WriteRefusal>, PoolError> {
    let why = firm_refusal(pool)?.or_else(|| active(pool, &PARTLY_WRITTEN));
    if why.is_some() {
        return Ok(why);
    }
    // No feature announces the classic tables.
    Ok((!pool.dedup_tables()?.is_empty()).then_some(WriteRefusal::DedupTables))
}

/// The first of these features that is active.
fn active(pool: &Pool, features: &[(&'static str, &'static str)]) -> Option<WriteRefusal> {
    let found = features.iter().find(|(feature, _)| pool.features().is_active(feature));
    found.map(|&(feature, state)| WriteRefusal::Unwritten { feature, state })
}

/// Like [`refusal`], except for the features that [`ImportOptions::partly_supported`] allows.
fn firm_refusal(pool: &Pool) -> Result<Option<WriteRefusal>, PoolError> {
    if pool.version() != VERSION_FEATURES {
        return Ok(Some(WriteRefusal::Version { version: pool.version() }));
    }
    if pool.uberblock().order == Endian::Big {
        return Ok(Some(WriteRefusal::BigEndian));
    }
    let features = pool.features().unsupported(true);
    if !features.is_empty() {
        return Ok(Some(WriteRefusal::UnknownFeatures { features }));
    }
    if let Some(why) = active(pool, &UNWRITTEN) {
        return Ok(Some(why));
    }
    if pool.label_config().split_guid.is_some() {
        return Ok(Some(WriteRefusal::Splitting));
    }
    if let Some(state) = pool.config().vdev_tree.walk().find_map(refused_vdev) {
        return Ok(Some(WriteRefusal::Vdev { state }));
    }
    let is_running = |e: &Expansion| e.state == 1;
    Ok(pool.expansions()?.iter().any(is_running).then_some(WriteRefusal::Expansion))
}

fn refused_vdev(node: &VdevNode) -> Option<&'static str> {
    match node.kind {
        VdevKind::Draid | VdevKind::DistributedSpare => Some("it has a dRAID vdev"),
        VdevKind::Log | VdevKind::L2cache => Some("its configuration is of an old form"),
        _ if node.raidz_expanding => Some("a raidz expansion is under way"),
        _ => None,
    }
}

impl LivePool {
    /// Opens one of the pools on the found devices, for writing.
    ///
    /// Devices that were opened for reading, as a search does, are opened again; others, as in tests, are
    /// used directly.
    ///
    /// # Errors
    /// Those of [`Pool::open`]; [`PoolError::NotWritable`] with the reason, [`PoolError::OtherHost`],
    /// [`PoolError::ActiveElsewhere`], [`PoolError::BadDevice`] if a device is in use.
    pub fn import(
        found: &Found,
        which: &Which,
        opts: &ImportOptions,
        env: Env,
    ) -> Result<Arc<LivePool>, PoolError> {
        let guid = open::choose(&groups(found), which, &opts.open)?.guid;
        let found = &lock_devices(found, guid, opts, &env)?;
        let all = groups(found);
        let group = open::choose(&all, &Which::Guid(guid), &opts.open)?;
        let aux = aux_devices(found);
        let opener = Opener { group, devices: group.devices(&aux), opts: &opts.open };
        let opened = opener.open()?;
        opener.check_missing(&opened.tree)?;
        let pool =
            Pool::from_opened(opened, &opener.devices, env.devices().clone(), opts.open.name.as_deref())?;
        let name = || pool.name().to_owned();
        let refused = if opts.partly_supported { firm_refusal(&pool)? } else { refusal(&pool)? };
        if let Some(why) = refused {
            return Err(PoolError::NotWritable { name: name(), why });
        }
        check_host(pool.label_config(), opts)?;
        check_activity(group, &pool, opts)?;
        let held = aux::hold_all(&pool, found, opts.access, env.devices())?;
        let goes_back = opts.open.checkpoint;
        // To go back is a change.
        let hold = (opts.hold && !goes_back).then(Arc::<Hold>::default);
        let devices = writable_devices(found, hold.as_ref());
        let newest = group.uberblocks().first().map_or(pool.txg(), |(ub, _)| ub.txg.max(pool.txg()));
        let newest = if goes_back { Txg(newest.0 + 1) } else { newest };
        let live = assemble(&pool, &devices, newest, opts, env, hold)?;
        let reference = match group.uberblocks().first() {
            Some((newest, _)) if goes_back => **newest,
            _ => live.uberblock(),
        };
        live.note_stale(group, &reference);
        // Nothing is written before all that could refuse the pool has been looked at.
        let left = claim::find(&live, &pool, opts.open.allow_missing_logs)?;
        if goes_back {
            live.go_back(newest)?;
        }
        live.note_unknown();
        live.events.opened(&live.tree());
        live.name_devices(group);
        *lock(&live.aux) = held;
        live.first_txgs(&pool, left)?;
        if !opts.hold {
            live.relabel_spares()?;
        }
        live.is_open.store(true, Ordering::Release);
        live.events.set_context(Context::Open);
        live.events.sysevent("config_sync", NvList::new());
        live.events.sysevent("pool_import", NvList::new());
        Ok(live)
    }

    /// Marks leaves that may have missed writes. All leaves of a top-level vdev get the same uberblocks. A
    /// leaf without the last one is an earlier copy, or the power failed in between: it may also lack other
    /// writes since its newest uberblock. `uberblock` is the newest one of the pool.
    fn note_stale(&self, group: &Group<'_>, uberblock: &Uberblock) {
        let tree = self.tree();
        let status = tree.status();
        for top in &tree.config().children {
            let slots = ring_slots(top.ashift.unwrap_or(Ashift(9)));
            let newest_of = |leaf: &VdevNode| {
                status.find(leaf.guid).filter(|leaf| leaf.state >= VdevState::Degraded)?;
                let member = group.members.iter().find(|member| member.config.guid == Some(leaf.guid))?;
                let found = member.leaf.probe.uberblocks.iter();
                let of_state = found.filter(|found| {
                    let ub = &found.uberblock;
                    // Multihost uberblocks in the last slot are on one leaf only.
                    ub.guid_sum == uberblock.guid_sum
                        && ub.txg <= uberblock.txg
                        && found.slot == ub.slot(slots)
                });
                let newest = of_state.map(|found| found.uberblock.txg).max().unwrap_or(Txg(0));
                // The labels of a txg are written after its data. When vdevs change, the last uberblock with
                // the new sum of guids is the first one.
                let label = assemble::label_of(*member, uberblock.txg).map_or(Txg(0), |label| label.txg);
                Some((leaf.guid, newest.max(label)))
            };
            let known: Vec<(VdevGuid, Txg)> = top.leaves().filter_map(newest_of).collect();
            let newest = known.iter().map(|(_, txg)| *txg).max().unwrap_or(Txg(0));
            for (leaf, has) in known.into_iter().filter(|(_, has)| *has < newest) {
                tracing::warn!(pool = self.name, %leaf, has = has.0, newest = newest.0, "a leaf is older than those beside it");
                tree.note_missed(leaf, has.0 + 1..newest.0 + 1);
            }
        }
    }

    /// Marks leaves that were being resilvered and whose DTL cannot be read: they may lack anything.
    fn note_unknown(&self) {
        let tree = self.tree();
        for leaf in tree.config().leaves().filter(|leaf| leaf.resilver_txg != Txg(0)) {
            if tree.dtl(leaf.guid).is_empty() {
                tree.note_missed(leaf.guid, lacking_since(leaf.resilver_txg));
            }
        }
    }

    /// Updates the paths of devices and the host in the configuration.
    fn name_devices(&self, group: &Group<'_>) {
        let mut state = lock(&self.state);
        let root = &mut state.config.vdev_tree;
        for member in &group.members {
            // A leaf in a partition is found through its disk, but recorded by its own path.
            if let (Some(guid), Some(path), false) =
                (member.config.guid, member.leaf.path.to_str(), member.leaf.partition.is_some())
            {
                set_path(root, guid, path);
            }
        }
        let known: Vec<VdevGuid> = root.leaves().map(|leaf| leaf.guid).collect();
        for guid in known {
            if let Some(leaf) = find_mut(root, guid).filter(|_| self.tree().device(guid).is_some()) {
                leaf.not_present = false;
            }
        }
        diagnosis::lift(&self.tree(), &mut state.config.vdev_tree);
        state.mark_all();
    }

    /// Writes the first txgs: claims, and the changes of an import.
    fn first_txgs(&self, pool: &Pool, left: claim::Left) -> Result<(), PoolError> {
        let claim::Left { claims, partial } = left;
        {
            let mut state = lock(&self.state);
            state.is_forced = true;
            state.claims = claims;
        }
        let checkpoint = pool.uberblock().checkpoint_txg;
        let stale = !pool.config().has_vdev_zaps;
        let scan = pool.scan()?.filter(|scan| scan.state == ScanState::Scanning);
        let words = pool.directory().words(names::directory::SCAN_POSITION)?;
        let saved = scan.as_ref().and_then(|phys| scan::state::position_of(&words, phys));
        let is_ours = saved.is_some();
        let newest = Arc::new(std::sync::Mutex::new(Txg(0)));
        let slot = Arc::clone(&newest);
        let scan = self.run_on_pool(move |ctx, task| {
            *lock(&slot) = task.state.claimed;
            let m = ctx.m();
            if checkpoint != Txg(0) {
                ctx.note("checkpoint rewind", None, format!("rewound state to txg={checkpoint}"));
            }
            let config = &mut task.state.config;
            if stale {
                vdev_zaps::free_all(m, &mut config.vdev_tree)?;
                config.has_vdev_zaps = true;
            }
            vdev_zaps::create_root(m, &mut config.vdev_tree)?;
            for top in &mut config.vdev_tree.children {
                vdev_zaps::create_missing(m, top)?;
            }
            task.pool.space.renew_zaps(&config.vdev_tree);
            leftovers::clear(ctx, scan, is_ours, &partial)
        })?;
        if let Some(phys) = scan {
            self.resume_scan(phys, saved);
        }
        // A replacement whose resilver has ended before the pool was closed.
        self.release_replaced()?;
        if let Some(phys) = pool.removal()? {
            self.resume_removal(phys);
        }
        let newest = *lock(&newest);
        while self.txgs.synced_txg() < newest {
            self.sync_here()?;
        }
        Ok(())
    }
}

/// Checks whether another machine may be using the pool.
fn check_host(label: &PoolConfig, opts: &ImportOptions) -> Result<(), PoolError> {
    let is_active = label.state == PoolState::Active;
    let is_other = label.hostid != 0 && opts.host.id != 0 && label.hostid != opts.host.id;
    if is_active && is_other && !opts.force {
        let host = label.hostname.clone().unwrap_or_default();
        let (name, hostid) = (label.name.clone(), label.hostid);
        return Err(PoolError::OtherHost { name, host, hostid, is_active });
    }
    Ok(())
}

/// Waits for activity of another writer, if the pool has multihost protection.
fn check_activity(group: &Group<'_>, pool: &Pool, opts: &ImportOptions) -> Result<(), PoolError> {
    let uberblock = pool.uberblock();
    let label = pool.label_config();
    let Some(mmp) = uberblock.mmp.filter(format::uberblock::Mmp::is_on) else { return Ok(()) };
    if opts.host.id == 0 {
        return Err(PoolError::NotWritable { name: label.name.clone(), why: WriteRefusal::NoHostId });
    }
    let is_ours = label.hostid == opts.host.id && label.state == PoolState::Exported;
    if is_ours || label.state == PoolState::Destroyed {
        return Ok(());
    }
    let interval = u64::from(mmp.interval_ms().unwrap_or(0)).max(INTERVAL_MS);
    let delay = mmp.delay_ns / 1_000_000;
    let wait = match mmp.fail_intervals() {
        Some(fails) if fails > 0 => u64::from(fails) * interval * 2,
        _ => interval.saturating_add(delay).saturating_mul(IMPORT_INTERVALS),
    };
    let wait = wait.max(IMPORT_INTERVALS * INTERVAL_MS).saturating_mul(5) / 4;
    let rank = newest_of(group, pool.guid());
    for _ in 0..wait / LOOK.as_millis() as u64 {
        std::thread::sleep(LOOK);
        if newest_of(group, pool.guid()) != rank {
            return Err(PoolError::ActiveElsewhere { name: label.name.clone() });
        }
    }
    Ok(())
}

/// The newest uberblock on the devices now, reduced to the fields that a rewrite changes.
fn newest_of(group: &Group<'_>, _pool: PoolGuid) -> Option<(Txg, u64, u64)> {
    let of = |ub: &Uberblock| (ub.txg, ub.timestamp, ub.mmp.map_or(0, |mmp| mmp.config));
    let probes = group.members.iter().map(|member| label::probe(&*member.leaf.device));
    probes.flat_map(|probe| probe.uberblocks).map(|found| of(&found.uberblock)).max()
}

/// Locks the devices of the pool for writing, and reads their labels under the lock.
fn lock_devices(found: &Found, guid: PoolGuid, opts: &ImportOptions, env: &Env) -> Result<Found, PoolError> {
    let is_member = |leaf: &vdev::scan::Leaf| assemble::names_pool(leaf, guid);
    found.lock(is_member, opts.access, env).map_err(|(path, error)| PoolError::BadDevice {
        path: path.display().to_string(),
        why: DeviceRefusal::Open(error),
    })
}

/// The devices open for writing, behind the hold if there is one.
fn writable_devices(found: &Found, hold: Option<&Arc<Hold>>) -> NewDevices {
    let mut devices = found.devices_of(|leaf| !leaf.device.is_read_only());
    if let Some(hold) = hold {
        let put = |(leaf, device): (&VdevGuid, &mut Arc<dyn Device>)| {
            *device = Arc::new(hold.device(*leaf, Arc::clone(device)));
        };
        devices.iter_mut().for_each(put);
    }
    devices
}

fn assemble(
    pool: &Pool,
    devices: &NewDevices,
    newest: Txg,
    opts: &ImportOptions,
    env: Env,
    hold: Option<Arc<Hold>>,
) -> Result<Arc<LivePool>, PoolError> {
    let uberblock = *pool.uberblock();
    let mut config = pool.config().clone();
    config.name.clone_from(opts.new_name.as_ref().unwrap_or(&pool.label_config().name));
    let name = opts.open.name.clone().unwrap_or_else(|| config.name.clone());
    (config.state, config.hostid) = (PoolState::Active, opts.host.id);
    config.hostname = opts.host.stored_name();
    let tree = VdevTree::open(&config.vdev_tree, devices, uberblock.reflow)?;
    missing::load(pool.mos(), &tree);
    indirect::load(pool.mos(), pool.directory(), &tree)?;
    let zio = Arc::new(Zio::new(Arc::clone(&tree)));
    if let Some(salt) = open::salt(pool.directory())? {
        zio.set_salt(salt);
    }
    let store = Store::new(Arc::clone(&zio), opts.open.cache_bytes);
    store.set_env(env.clone());
    let txgs = Txgs::new(newest, opts.limits);
    let features = FeatureCounts::load(pool.mos())?;
    let mos = LiveSet::open(&store, txgs.meter(), &uberblock.root, 0, KeyState::None, mos_policy(&features))?;
    let spaces = pool.vdev_spaces()?;
    let space = SpaceBook::load(&mos, pool, &spaces)?;
    let source = Arc::clone(&space) as Arc<dyn zio::alloc::SpaceSource>;
    let allocator = Arc::new(Allocator::new(Arc::clone(&tree), known_tops(&tree, &spaces), source));
    zio.set_allocator(Arc::clone(&allocator));
    let brt = Brt::load(&mos.view())?;
    let heads = Heads::new(&mos, &txgs, &features, &brt, &name)?;
    let host = opts.host.clone();
    let live = LivePool::assemble(Parts {
        name,
        hold,
        env,
        zio,
        store,
        mos,
        allocator,
        txgs,
        heads,
        features,
        brt,
        space,
        host,
        config,
        uberblock,
        context: Context::Import,
    });
    live.load_checkpoint(pool)?;
    live.announce_space()?;
    let number =
        |name| Ok::<_, PoolError>(pool.property(name)?.flatten().and_then(|value| value.raw.number()));
    live.set_grows_by_itself(number("autoexpand")? == Some(1));
    live.outages.set_mode(FailMode::of_number(number("failmode")?.unwrap_or(0)));
    if number("multihost")? == Some(1) {
        // Other machines must see that the pool is in use.
        live.release()?;
        live.mmp.set(true, live.env.clock().monotonic());
    }
    Ok(live)
}
