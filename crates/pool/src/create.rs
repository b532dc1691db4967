//! Pool creation (docs/on-disk/10-overview.md, section 5.2; docs/on-disk/22-mos-dsl.md, section 1.1).
//!
//! # Order
//! check the specification and the devices -> labels with txg 0 on all devices -> txg 4: the MOS and its
//! objects, the root file system, the first uberblock -> the command in the history.

use crate::config;
use crate::config::Host;
use crate::error::PoolError;
use crate::events::Context;
use crate::history::record as history;
use crate::history::record::Command;
use crate::labels::FIRST_TXG;
use crate::layout::{FeatureSet, NewDevices, TopSpec};
use crate::live::{LivePool, Parts, Task};
use crate::props::change as props;
use crate::refusal::{NAME_MAX, SpecRefusal};
use crate::space::Class;
use crate::space_maps::{SpaceBook, class_of};
use crate::vdev_zaps;
use codec::checksum::Salt;
use dmu::Store;
use dmu::zap::ZapValue;
use dmu::{Limits, LiveSet, NewObject, SetPolicy, SyncTx, Txgs};
use dsl::DslError;
use dsl::bpobj::Bpobj;
use dsl::prop::PropValue;
use format::names;
use vdev::sync::lock;

use dsl::brt::Brt;
use dsl::create::NewHead;
use dsl::{FeatureCounts, Heads, HistoryNote, MosTx, bootstrap, create_root, mos_policy};
use format::config::{PoolConfig, VdevNode};
use format::feature::Feature;
use format::nvlist::NvList;
use format::objset::ObjsetType;
use format::uberblock::{ReflowInfo, Uberblock};
use format::{BlockPtr, Endian, ObjType, ObjectId, PoolGuid, Txg, VdevId};
use std::sync::Arc;
use vdev::VdevTree;
use vdev::env::Env;
use vdev::label_write;
use zio::alloc::Allocator;
use zio::{AllocTx, Zio};

/// Prefixes that the names of pools must not have.
const RESERVED: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// Fills the root file system: given its object set and the txg.
pub type FillRoot = Box<dyn FnMut(&Arc<LiveSet>, &SyncTx) -> Result<(), DslError> + Send>;

/// The root file system of a new pool.
pub struct RootDataset {
    /// Local properties of the file system, in stored form.
    pub props: Vec<(String, PropValue)>,
    /// Names in the file system are compared without case.
    pub case_insensitive: bool,
    /// Closure that fills the new root dataset.
    pub fill: FillRoot,
}

/// Specification of a new pool.
pub struct CreateSpec {
    /// Name of the pool.
    pub name: String,
    /// Specifications of its top-level vdevs, in order.
    pub tops: Vec<TopSpec>,
    /// Features that are enabled from the start.
    pub features: FeatureSet,
    /// Properties of the pool, as `zpool set` takes them.
    pub props: Vec<(String, String)>,
    /// The root file system, with its contents.
    pub root: RootDataset,
    /// The machine that creates the pool.
    pub host: Host,
    /// The command to be written to the history, if any.
    pub command: Option<Command>,
    /// Size of the block cache in bytes.
    pub cache_bytes: usize,
    /// Limits of dirty memory, and of the time between txgs.
    pub limits: Limits,
}

impl CreateSpec {
    /// A pool with all features, and an empty object set as its root file system.
    pub fn new(name: &str, tops: Vec<TopSpec>) -> CreateSpec {
        let root = RootDataset { props: Vec::new(), case_insensitive: false, fill: Box::new(|_, _| Ok(())) };
        CreateSpec {
            name: name.to_owned(),
            tops,
            features: FeatureSet::Default,
            props: Vec::new(),
            root,
            host: Host::default(),
            command: None,
            cache_bytes: 64 << 20,
            limits: Limits::default(),
        }
    }
}

/// Checks that a pool can have this name.
///
/// # Errors
/// [`PoolError::BadSpec`] if not.
pub fn check_name(name: &str) -> Result<(), PoolError> {
    let bad = |why: SpecRefusal| Err(PoolError::BadSpec { why });
    let named = || name.to_owned();
    let may_stand = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    if name.is_empty() || name.len() > NAME_MAX {
        return bad(SpecRefusal::NameLength);
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return bad(SpecRefusal::NameStart { name: named() });
    }
    if let Some(character) = name.chars().find(|c| !may_stand(*c)) {
        return bad(SpecRefusal::NameCharacter { name: named(), character });
    }
    let is_reserved = RESERVED.iter().any(|word| name.starts_with(word)) || name == "log";
    if is_reserved || name.ends_with(' ') {
        return bad(SpecRefusal::NameReserved { name: named() });
    }
    Ok(())
}

impl LivePool {
    /// Creates a pool. On return the pool is on its devices; their previous contents are lost.
    ///
    /// # Errors
    /// [`PoolError::BadSpec`], [`PoolError::BadDevice`] or [`PoolError::Property`] if the specification makes
    /// no pool: no device has been written to then. Otherwise the error of the device that failed.
    pub fn create(spec: CreateSpec, env: Env) -> Result<Arc<LivePool>, PoolError> {
        check_name(&spec.name)?;
        let features = wanted_features(&spec)?;
        let mut devices = NewDevices::new();
        let mut config = config::new_pool(&spec.name, PoolGuid(env.random()), FIRST_TXG, &spec.host);
        for top in &spec.tops {
            let node = top.node(&env, FIRST_TXG, &mut devices)?;
            config::push_top(&mut config, node);
        }
        let tree = VdevTree::open(&config.vdev_tree, &devices, ReflowInfo::default())?;
        let template = first_uberblock(&config);
        init_labels(&config, &devices, &config.vdev_tree.children, &template)?;

        let zio = Arc::new(Zio::new(Arc::clone(&tree)));
        let store = Store::new(Arc::clone(&zio), spec.cache_bytes);
        store.set_env(env.clone());
        let txgs = Txgs::new(Txg(FIRST_TXG.0 - 1), spec.limits);
        let tx = txgs.quiesce();
        let mos = LiveSet::create(&store, txgs.meter(), 0, ObjsetType::Meta, SetPolicy::mos(), &tx);
        let space = SpaceBook::new(&mos);
        let new = NewMos { spec: &spec, env: &env, mos: &mos, tx: &tx };
        let (counts, notes) = new.fill(&mut config, &features, &space, &zio)?;
        // The configuration has object numbers by now.
        let tree = tree.reconfigured(&config.vdev_tree, &NewDevices::new())?;
        zio.set_tree(Arc::clone(&tree));
        let class = |(vdev, _): (VdevId, &VdevNode)| class_of(spec.tops[vdev.0 as usize].class);
        let tops = tree.tops().map(|top| SpaceBook::fresh_top(top.0, top.1, class(top)));
        let allocator = Arc::new(Allocator::new(Arc::clone(&tree), tops.collect(), Arc::clone(&space) as _));
        zio.set_allocator(Arc::clone(&allocator));
        let brt = Brt::load(&mos.view())?;
        let heads = Heads::new(&mos, &txgs, &counts, &brt, &spec.name)?;
        let pool = LivePool::assemble(Parts {
            name: config.name.clone(),
            hold: None,
            env,
            zio,
            store,
            mos,
            allocator,
            txgs,
            heads,
            features: counts,
            brt,
            space,
            host: spec.host,
            config,
            uberblock: template,
            context: Context::Create,
        });
        pool.announce_space()?;
        pool.events.sysevent("pool_create", NvList::new());
        pool.write_first(tx, spec.root, notes)?;
        pool.set_props(spec.props)?;
        if let Some(command) = spec.command {
            pool.record(command)?;
        }
        pool.events.sysevent("config_sync", NvList::new());
        pool.events.set_context(Context::Open);
        Ok(pool)
    }

    /// Writes the first txg, with the root file system in it.
    fn write_first(
        &self,
        tx: SyncTx,
        mut root: RootDataset,
        notes: Vec<HistoryNote>,
    ) -> Result<(), PoolError> {
        let outcome = Arc::new(std::sync::Mutex::new(Ok(())));
        let (slot, name) = (Arc::clone(&outcome), self.name.clone());
        let run = Box::new(move |ctx: &mut dsl::TaskCtx<'_>, pool: &mut crate::live::PoolTask<'_>| {
            pool.state.mark_all();
            ctx.notes.extend(notes);
            let new = NewHead {
                props: &root.props,
                case_insensitive: root.case_insensitive,
                ..NewHead::named(&name)
            };
            let made = create_root(ctx, new, &mut *root.fill).map(|_| ());
            let failure = made.as_ref().err().map(|error| crate::error::chain(error));
            *lock(&slot) = made;
            failure.map_or(Ok(()), Err)
        });
        lock(&self.tasks).push(Task { txg: tx.txg(), is_alone: false, run });
        let mut state = lock(&self.state);
        let written = self.finish(&mut state, tx);
        std::mem::replace(&mut *lock(&outcome), Ok(()))?;
        written.map(|_| ())
    }
}

fn wanted_features(spec: &CreateSpec) -> Result<Vec<&'static Feature>, PoolError> {
    let bad = |why: SpecRefusal| Err(PoolError::BadSpec { why });
    let features = spec.features.features()?;
    if !spec.tops.iter().any(|top| top.class == Class::Normal) {
        return bad(SpecRefusal::NoDataVdev);
    }
    let needs_classes = |top: &TopSpec| matches!(top.class, Class::Special | Class::Dedup);
    if spec.tops.iter().any(needs_classes) && !features.iter().any(|f| f.name == "allocation_classes") {
        return bad(SpecRefusal::NeedsAllocationClasses);
    }
    props::check_all(&spec.props)?;
    Ok(features)
}

/// The uberblock before the first.
fn first_uberblock(config: &PoolConfig) -> Uberblock {
    Uberblock {
        version: config.version,
        txg: Txg(0),
        guid_sum: config.vdev_tree.guid_sum(),
        timestamp: 0,
        root: BlockPtr::HOLE,
        software_version: config::VERSION,
        mmp: Some(format::uberblock::Mmp::default()),
        checkpoint_txg: Txg(0),
        reflow: ReflowInfo::default(),
        order: Endian::Little,
    }
}

/// Writes the first labels onto the devices of new vdevs.
pub(crate) fn init_labels(
    config: &PoolConfig,
    devices: &NewDevices,
    tops: &[VdevNode],
    template: &Uberblock,
) -> Result<(), PoolError> {
    for leaf in tops.iter().flat_map(VdevNode::leaves) {
        let Some(device) = devices.get(&leaf.guid) else { continue };
        let list = config::initial_label(config, leaf.guid, leaf.create_txg);
        let path = leaf.path.clone().unwrap_or_default();
        label_write::init(&**device, &list, template).map_err(|cause| PoolError::Label { path, cause })?;
    }
    Ok(())
}

/// The MOS of a new pool, in its first txg.
struct NewMos<'a> {
    spec: &'a CreateSpec,
    env: &'a Env,
    mos: &'a Arc<LiveSet>,
    tx: &'a SyncTx,
}

impl NewMos<'_> {
    /// Creates the objects of the MOS except the root file system, and puts their object numbers into the
    /// configuration.
    fn fill(
        &self,
        config: &mut PoolConfig,
        features: &[&'static Feature],
        space: &SpaceBook,
        zio: &Zio,
    ) -> Result<(Arc<FeatureCounts>, Vec<HistoryNote>), PoolError> {
        let directory = self.mos.claim(ObjectId(1), &NewObject::of(ObjType::OBJECT_DIRECTORY), self.tx)?;
        directory.create_zap(self.tx, self.env.random(), 0)?;
        let counts = FeatureCounts::create(self.mos, self.tx, self.env)?;
        let m = MosTx { mos: self.mos, tx: self.tx, features: &counts, env: self.env };
        m.set_entry(names::directory::CREATION_VERSION, config.version)?;
        m.set_entry(names::directory::DEFLATE, 1)?;
        bootstrap(m)?;
        let mut notes = vec![note("create", history::software_text(config.version, &self.spec.host))];
        for feature in features {
            counts.enable(m, feature.name)?;
            notes.push(note("set", format!("feature@{}=enabled", feature.name)));
        }
        self.mos.set_policy(mos_policy(&counts));
        let size = config.vdev_tree.children.iter().map(|top| top.asize).fold(0, u64::saturating_add);
        history::create(m, size)?;
        m.set_entry(names::directory::SYNC_BPLIST, Bpobj::create_deferred(m)?.0)?;
        self.create_vdevs(m, config, space)?;
        let salt = self.salt();
        m.zap(ObjectId(1))?.upsert(names::directory::CHECKSUM_SALT.as_bytes(), ZapValue::Bytes(&salt))?;
        zio.set_salt(Salt(salt));
        Ok((counts, notes))
    }

    fn create_vdevs(
        &self,
        m: MosTx<'_>,
        config: &mut PoolConfig,
        space: &SpaceBook,
    ) -> Result<(), PoolError> {
        vdev_zaps::create_root(m, &mut config.vdev_tree)?;
        for (spec, top) in self.spec.tops.iter().zip(&mut config.vdev_tree.children) {
            vdev_zaps::create_top(m, top, spec.class)?;
            top.metaslab_array = space.add_top(m, VdevId(top.id), top)?;
        }
        Ok(())
    }

    fn salt(&self) -> [u8; 32] {
        let mut salt = [0; 32];
        for chunk in salt.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.env.random().to_le_bytes());
        }
        salt
    }
}

fn note(name: &str, text: String) -> HistoryNote {
    HistoryNote { name: name.to_owned(), text, dataset: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_pools_cannot_have() {
        for name in ["", "1tank", "mirror", "raidz1", "log", "a/b", "a@b", "tank "] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["tank", "t-1_2.3:4", "logs"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
