//! Keeps pools open in a namespace: imports the listed pools at its start, and leaves or exports them.
//!
//! # What always holds
//! - The labels of an open pool say that this host has imported it. They still do after a crash and after
//!   [`Namespace::leave_all`]: the same host then imports it again automatically, and other hosts refuse it.
//! - The cache file, and our own file beside it, list the pools that are to be imported again.

use super::device_holder::with_holder;
use super::pool_open::{check_admin, forget, listed_now, note_again, noting, warn_of};
use super::{ChangeError, cache_path};
use crate::cachefile::{self, ImportedPool};
use crate::{Imported, Namespace, NotTaken, Opened, Search};
use ::pool::LivePool;
use ::pool::{ImportOptions, Leave};
use ::pool::{OpenOptions, Which};
use cenote::Budget;
use cenote::{Pool, PoolWriter};
use cenote::{history_command as line, this_host};
use format::PoolGuid;
use format::config::PoolConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vdev::scan::Found;

/// How long an export waits for verbs that use the pool.
const PATIENCE: Duration = Duration::from_secs(5);

/// Import options of a pool that stays open.
pub(super) fn options() -> ImportOptions {
    let Budget { cache_bytes, limits } = Budget::to_stay();
    let open = OpenOptions { cache_bytes, ..OpenOptions::default() };
    ImportOptions { open, limits, host: this_host(), ..ImportOptions::default() }
}

/// Paths of a listed pool's devices that the cache file lacks, taken from the pool's own configuration: they were
/// added just before a power failure.
fn added_since(pool: &ImportedPool, guid: PoolGuid, found: &Found) -> Vec<PathBuf> {
    let known: Vec<PathBuf> = pool.paths().collect();
    let candidates = ::pool::import::candidates(found);
    let configs = candidates.iter().filter(|candidate| candidate.guid == guid).map(|found| &found.config);
    let nodes = configs.flat_map(|config| config.vdev_tree.leaves());
    let paths = nodes.filter_map(|node| node.path.as_ref()).map(PathBuf::from);
    paths.filter(|path| !known.contains(path)).collect()
}

/// The present guid of a listed pool, from the devices that the cache file names. It differs from the listed one
/// after a power failure between `zpool reguid` and the update of the file; name and leaves are still the same.
fn guid_now(pool: &ImportedPool, found: &Found) -> PoolGuid {
    let is_it = |label: &PoolConfig| {
        label.guid.is_some_and(|leaf| pool.has_leaf(leaf))
            && (label.name == pool.name || pool.settings.temporary)
    };
    let guids = ::pool::guids_with(found, is_it);
    guids.iter().copied().find(|guid| *guid == pool.guid).or(guids.first().copied()).unwrap_or(pool.guid)
}

/// Takes a pool out of the namespace: exports or destroys it.
pub(super) fn close(search: &Search, name: &str, how: Leave, command: &str) -> Result<(), ChangeError> {
    let namespace = search.namespace.as_ref().ok_or(ChangeError::NoPool)?;
    // A pool that was given up can be exported, but it cannot be marked as destroyed, because it accepts no writes.
    let is_stopped =
        |live: &LivePool| live.suspended().is_some() || (how == Leave::Destroyed && live.is_given_up());
    if namespace.live(name).is_some_and(|live| is_stopped(&live)) {
        return Err(ChangeError::Suspended);
    }
    // If devices fail here, the pool is still in the namespace, and can be resumed.
    if let Some(live) = namespace.live(name).filter(|live| !live.is_given_up()) {
        live.sync_all()?;
    }
    let taken = namespace.take(name, PATIENCE).map_err(|why| match why {
        NotTaken::Missing => ChangeError::NoPool,
        NotTaken::Busy => ChangeError::InUse,
    })?;
    let caller = search.caller.clone().unwrap_or_else(crate::Caller::this_process);
    // A pool that was given up is left as after a crash, with the txgs that are on disk.
    let is_given_up = |live: &LivePool| live.is_given_up();
    if let Opened::Live(live) = taken.entry().opened()
        && !is_given_up(live)
        && !command.is_empty()
    {
        live.record(line(command, &caller))?;
    }
    taken.close(|entry| {
        let guid = entry.guid();
        if let Opened::Live(live) = entry.opened() {
            let (live, is_left) = (Arc::clone(live), is_given_up(live));
            drop(entry);
            let left = live.export(how);
            if !is_left {
                left?;
            }
        }
        forget(guid)
    })
}

/// Call before a pool's file systems are unmounted for its export. A suspended pool is refused unless `force` is
/// given; it is then given up, so that callers stop waiting for its devices. Changes of such a pool that are not on
/// disk are lost, so a pool that was given up before needs `force` too.
///
/// # Errors
/// [`ChangeError::Suspended`], [`ChangeError::Denied`].
pub(crate) fn before_close(search: &Search, name: &str, force: bool) -> Result<(), ChangeError> {
    check_admin(search)?;
    let live = search.namespace.as_ref().and_then(|namespace| namespace.live(name));
    match live {
        Some(live) if force => live.give_up(),
        Some(live) if live.suspended().is_some() || live.is_given_up() => return Err(ChangeError::Suspended),
        _ => {}
    }
    Ok(())
}

impl Namespace {
    /// Imports the pools listed in a cache file, by default the usual one, and those imported without a cache file
    /// since the machine was started. Pools that commands have created or imported in their own processes are
    /// skipped, because commands may open them at any time. Returns the names of pools that cannot be opened, with
    /// the errors.
    pub fn import_all(self: &Arc<Self>, cachefile: Option<&Path>) -> Vec<(String, ChangeError)> {
        self.import_listed(cachefile, |_| true)
    }

    /// Imports those of the listed pools whose device paths all exist. Devices of the others may be files in a file
    /// system that is mounted later.
    pub fn import_whole(self: &Arc<Self>) -> Vec<(String, ChangeError)> {
        self.import_listed(None, |pool| pool.paths().all(|path| path.exists()))
    }

    fn import_listed(
        self: &Arc<Self>,
        cachefile: Option<&Path>,
        is_wanted: impl Fn(&ImportedPool) -> bool,
    ) -> Vec<(String, ChangeError)> {
        let listed = match cachefile {
            Some(file) if file != cache_path() => cachefile::read(file, false),
            _ => Imported::load(),
        };
        let is_ours = |pool: &ImportedPool| !pool.in_process && is_wanted(pool);
        let pools = match listed {
            Ok(imported) => imported.pools.into_iter().filter(is_ours).collect::<Vec<_>>(),
            Err(error) => return vec![("cache file".to_owned(), error.into())],
        };
        let paths: Vec<PathBuf> =
            pools.iter().flat_map(ImportedPool::paths).filter(|path| path.exists()).collect();
        let search = |paths| vdev::scan::Search { paths, ..vdev::scan::Search::default() }.run();
        let known = if paths.is_empty() { Found::default() } else { search(paths) };
        let mut everywhere = None;
        let mut failed = Vec::new();
        for pool in &pools {
            let guid = guid_now(pool, &known);
            if self.has(pool.guid) || self.has(guid) {
                continue;
            }
            let mut outcome = self.bring_back(pool, guid, &known);
            if matches!(outcome, Err(ChangeError::Unavailable { .. })) {
                let added = added_since(pool, guid, &known);
                if !added.is_empty() {
                    let found = search(pool.paths().chain(added).filter(|path| path.exists()).collect());
                    outcome = self.bring_back(pool, guid, &found);
                }
            }
            if matches!(outcome, Err(ChangeError::NoPool | ChangeError::Unavailable { .. })) {
                // Disks may have other names than when the file was written.
                let found = everywhere.get_or_insert_with(|| search(Vec::new()));
                outcome = self.bring_back(pool, guid, found).or(outcome);
            }
            if let Err(error) = outcome {
                failed.push((pool.name.clone(), error));
            }
        }
        failed
    }

    fn bring_back(
        self: &Arc<Self>,
        pool: &ImportedPool,
        guid: PoolGuid,
        found: &Found,
    ) -> Result<(), ChangeError> {
        let reserved = self.reserve(&pool.name).ok_or(ChangeError::Exists)?;
        let mut options = options();
        options.open.allow_missing_logs = pool.without_logs;
        options.open.checkpoint = pool.settings.checkpoint;
        options.open.name = Some(pool.name.clone()).filter(|_| pool.settings.temporary);
        if pool.settings.readonly {
            let opened = ::pool::Pool::open(found.clone(), &Which::Guid(guid), &options.open)?;
            reserved.fill(Opened::ReadOnly(Pool::from(opened), found.clone()), pool.settings.clone());
            return Ok(());
        }
        let writer = PoolWriter::import(found, guid, &options).map_err(|error| with_holder(error.into()))?;
        let config = listed_now(&writer)?;
        if guid != pool.guid || config.vdev_tree.leaves().any(|leaf| !pool.has_leaf(leaf.guid)) {
            let _noting = noting();
            warn_of(note_again(pool, &pool.settings, config));
        }
        reserved.fill(Opened::Live(writer.into_live()), pool.settings.clone());
        Ok(())
    }

    /// Closes all pools so that the next start imports them again: everything is on disk, and the labels and cache
    /// files stay unchanged. File systems must have been unmounted before. Returns what could not be written.
    pub fn leave_all(self: &Arc<Self>) -> Vec<(String, ChangeError)> {
        let leave = |name: String| self.leave(&name).err().map(|error| (name, error));
        self.names().into_iter().filter_map(leave).collect()
    }

    /// Closes one pool so that the next start imports it again. Does nothing if there is no pool of that name.
    ///
    /// # Errors
    /// Changes could not be written; the pool is closed nevertheless.
    pub fn leave(self: &Arc<Self>, name: &str) -> Result<(), ChangeError> {
        let Some(taken) = self.take_whatever(name, PATIENCE) else { return Ok(()) };
        taken.close(|entry| match entry.opened() {
            Opened::Live(live) => Arc::clone(live).export(Leave::Imported).map_err(ChangeError::from),
            Opened::ReadOnly(..) => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImportSettings;
    use crate::change::{clear_pool, destroy_pool, export_pool, online_vdev, reopen_pool};
    use ::pool::space::Class;
    use ::pool::{CreateSpec, Layout, LeafSpec, TopSpec};
    use format::Txg;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;
    use vdev::device::sim::SimDisk;
    use vdev::scan::Leaf;
    use vdev::{Device, Env, label};

    const SIZE: u64 = 96 << 20;

    /// A pool `tank` that a namespace keeps, on two disks.
    struct World {
        disks: [Arc<SimDisk>; 2],
        search: Search,
        _folder: tempfile::TempDir,
    }

    impl World {
        fn new(failmode: &str) -> World {
            let disks = [1, 2].map(|seed| Arc::new(SimDisk::new(SIZE, seed)));
            let leaf = |(n, disk): (usize, &Arc<SimDisk>)| {
                LeafSpec::file(format!("/nowhere/d{n}"), Arc::clone(disk) as Arc<dyn Device>)
            };
            let leaves = disks.iter().enumerate().map(leaf).collect();
            let top = TopSpec { layout: Layout::Mirror, class: Class::Normal, ashift: None, leaves };
            let live = LivePool::create(CreateSpec::new("tank", vec![top]), Env::system()).expect("a pool");
            live.set_props(vec![("failmode".into(), failmode.into())]).expect("set");
            let namespace = Namespace::new(None);
            let reserved = namespace.reserve("tank").expect("there is none");
            reserved.fill(Opened::Live(live), ImportSettings::default());
            let folder = tempfile::tempdir().expect("a folder");
            let paths = vec![folder.path().to_path_buf()];
            let search = Search { paths, namespace: Some(namespace), ..Search::default() };
            World { disks, search, _folder: folder }
        }

        fn live(&self) -> Arc<LivePool> {
            self.search.namespace.as_ref().and_then(|all| all.live("tank")).expect("it is kept")
        }

        /// Starts a change while no disk is present. The flag tells whether it was made: if the pool is suspended
        /// before, a writer that does not wait is refused.
        fn suspend(&self, name: &'static str) -> (Writer, Arc<AtomicBool>) {
            self.disks.iter().for_each(|disk| disk.vanish());
            let (live, is_made) = (self.live(), Arc::new(AtomicBool::new(false)));
            let made = Arc::clone(&is_made);
            let change = move || {
                live.run(move |ctx| {
                    made.store(true, Ordering::SeqCst);
                    ctx.m().set_entry(name, 1)
                })
            };
            let writer = std::thread::spawn(change);
            while self.live().suspended().is_none() {
                std::thread::yield_now();
            }
            (writer, is_made)
        }

        fn has(&self, name: &str) -> bool {
            let live = self.live();
            live.sync().expect("it is written");
            live.view().expect("a view").directory().number(name).expect("readable") == Some(1)
        }
    }

    type Writer = JoinHandle<Result<(), ::pool::PoolError>>;
    type Verb = fn(&Search, u64) -> Result<(), ChangeError>;

    #[test]
    fn a_suspended_pool_goes_on_after_clear_online_and_reopen_and_nothing_is_lost() {
        let verbs: [(&'static str, Verb); 3] = [
            ("org.cenote:clear", |search, _| clear_pool(search, "tank", None, "zpool clear tank")),
            ("org.cenote:online", |search, leaf| {
                online_vdev(search, "tank", leaf, false, "zpool online tank d0").map(drop)
            }),
            ("org.cenote:reopen", |search, _| reopen_pool(search, "tank", false, "zpool reopen tank")),
        ];
        for mode in ["wait", "continue"] {
            let world = World::new(mode);
            let leaf = world.live().config().vdev_tree.leaves().next().expect("two").guid.0;
            for (name, verb) in verbs {
                let (writer, is_made) = world.suspend(name);
                let refused = verb(&world.search, leaf);
                assert!(matches!(refused, Err(ChangeError::Suspended)), "{mode} {name}: {refused:?}");
                // A writer that must not wait has received its error before the pool is resumed.
                while mode == "continue" && !writer.is_finished() {
                    std::thread::yield_now();
                }
                world.disks.iter().for_each(|disk| disk.come_back());
                verb(&world.search, leaf).expect("the disks are back");
                assert!(world.live().suspended().is_none());
                let written = writer.join().expect("no panic");
                assert_eq!(written.is_ok(), mode == "wait", "{name}: {written:?}");
                let is_made = is_made.load(Ordering::SeqCst);
                assert!(is_made || mode == "continue", "{name}: a writer that waits makes its change");
                assert_eq!(world.has(name), is_made, "{mode} {name}");
            }
        }
    }

    #[test]
    fn a_suspended_pool_is_exported_by_force_with_all_that_was_on_disk() {
        for mode in ["wait", "continue"] {
            let world = World::new(mode);
            world.live().run(|ctx| ctx.m().set_entry("org.cenote:kept", 1)).expect("written");
            let synced = world.live().txgs().synced_txg();
            let (writer, _) = world.suspend("org.cenote:lost");
            let export = || export_pool(&world.search, "tank", "zpool export -f tank");
            assert!(matches!(before_close(&world.search, "tank", false), Err(ChangeError::Suspended)));
            assert!(matches!(export(), Err(ChangeError::Suspended)));
            before_close(&world.search, "tank", true).expect("given up");
            assert!(writer.join().expect("no panic").is_err());
            assert!(matches!(before_close(&world.search, "tank", false), Err(ChangeError::Suspended)));
            export().expect("left as after a crash");
            assert!(world.search.namespace.as_ref().expect("one").names().is_empty());
            world.disks.iter().for_each(|disk| disk.come_back());
            let leaf = |disk: &Arc<SimDisk>| Leaf {
                path: PathBuf::from("/nowhere"),
                probe: label::probe(&**disk),
                device: Arc::clone(disk) as Arc<dyn Device>,
                partition: None,
            };
            let found = Found::from(world.disks.iter().map(leaf).collect::<Vec<_>>());
            let which = Which::Name("tank".into());
            let live =
                LivePool::import(&found, &which, &ImportOptions::default(), Env::system()).expect("whole");
            assert!(live.txgs().synced_txg() > Txg(synced.0));
            let view = live.view().expect("a view");
            assert_eq!(view.directory().number("org.cenote:kept").expect("readable"), Some(1));
        }
    }

    #[test]
    fn an_export_that_waits_for_devices_can_be_helped() {
        let world = World::new("wait");
        world.disks.iter().for_each(|disk| disk.vanish());
        let search = world.search.clone();
        let export = std::thread::spawn(move || export_pool(&search, "tank", "zpool export tank"));
        while !export.is_finished() && world.live().suspended().is_none() {
            std::thread::yield_now();
        }
        world.disks.iter().for_each(|disk| disk.come_back());
        clear_pool(&world.search, "tank", None, "zpool clear tank").expect("it is here still");
        export.join().expect("no panic").expect("the disks are back");
        assert!(world.search.namespace.as_ref().expect("one").names().is_empty());
    }

    #[test]
    fn a_pool_that_is_left_without_devices_is_not_waited_for() {
        let world = World::new("wait");
        world.live().run(|ctx| ctx.m().set_entry("org.cenote:kept", 1)).expect("written");
        let namespace = Arc::clone(world.search.namespace.as_ref().expect("one"));
        let live = world.live();
        live.record(line("changes something", &crate::Caller::this_process())).expect("noted");
        drop(live);
        world.disks.iter().for_each(|disk| disk.vanish());
        namespace.leave("tank").expect_err("it cannot be written");
        assert!(namespace.names().is_empty());
    }

    #[test]
    fn a_pool_that_has_stopped_is_not_said_to_be_destroyed() {
        let world = World::new("wait");
        let (writer, _) = world.suspend("org.cenote:lost");
        let destroy = || destroy_pool(&world.search, "tank", "zpool destroy tank");
        assert!(matches!(destroy(), Err(ChangeError::Suspended)));
        // The pool was given up, but is still in the namespace.
        before_close(&world.search, "tank", true).expect("given up");
        assert!(writer.join().expect("no panic").is_err());
        assert!(matches!(destroy(), Err(ChangeError::Suspended)));
        assert_eq!(world.search.namespace.as_ref().expect("one").names(), ["tank"]);
        world.disks.iter().for_each(|disk| disk.come_back());
        assert!(matches!(destroy(), Err(ChangeError::Suspended)));
        export_pool(&world.search, "tank", "zpool export -f tank").expect("left as after a crash");
        for disk in &world.disks {
            let state = label::probe(&**disk).newest_config().expect("a label").state;
            assert_eq!(state, format::config::PoolState::Active);
        }
    }
}
