//! The workload while devices are attached, replaced and detached and spares stand in, with a resilver that goes on
//! slice by slice.
//!
//! # Requirements
//! - No operation fails except for a reason that it names, and all data reads as it was written, at any time.
//! - After a power cut the pool has one of the trees between two operations, and the resilver continues. At its end
//!   every device has all data, replaced devices have left, and the data are read from as few devices as the tree
//!   promises to need.

use crate::check::{check_contents, check_contents_without, check_space};
use crate::disks::{Disks, Layout};
use crate::run::{Failure, POOL, Run};
use crate::workload::Work;
use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use pool::{AuxKind, LeafSpec, Leave, LivePool, NewSide, PoolError, Purpose};
use std::sync::Arc;
use vdev::env::Random;

/// Disks besides those of the layout.
pub(crate) const FREE: usize = 3;
/// Bytes of blocks in one slice of a resilver, so that it lasts for several steps.
const SLICE: u64 = 32 << 10;
/// Steps between two changes of the tree.
const PAUSE: u64 = 3;

/// Runs the workload with changes of the tree.
///
/// # Errors
/// An operation fails.
pub(crate) fn run(layout: Layout, seed: u64, steps: u64) -> Result<Run, Failure> {
    let mut work = Work::new_beside(layout, seed, FREE)?;
    let mut random = Random::from_seed(seed ^ 0x7ee5);
    for step in 1..=steps {
        work.advance()?;
        if step % PAUSE == 0 {
            change(&work, &mut random)?;
        }
        work.pool().scan_step_within(SLICE)?;
        if work.pool().scan_progress().is_none() {
            work.pool().resilver_if_needed()?;
        }
    }
    Ok(work.end().0)
}

/// The disk of a leaf, by its path.
fn disk_of(leaf: &VdevNode) -> Option<usize> {
    leaf.path.as_deref()?.strip_prefix("/disks/")?.parse().ok()
}

/// A disk that the pool does not use.
fn free_disk(work: &Work, random: &mut Random) -> Option<LeafSpec> {
    let pool = work.pool();
    let mut used: Vec<usize> = pool.config().vdev_tree.leaves().filter_map(disk_of).collect();
    let spares = pool.view().ok()?.spares().ok()?;
    used.extend(spares.iter().filter_map(|spare| disk_of(&spare.node)));
    let free: Vec<usize> = (0..work.disks().disks().len()).filter(|disk| !used.contains(disk)).collect();
    let chosen = free.get(random.below(free.len().max(1) as u64) as usize)?;
    Some(work.disks().leaf(*chosen))
}

/// One change of the tree. The pool may refuse it.
fn change(work: &Work, random: &mut Random) -> Result<(), Failure> {
    let pool = work.pool();
    let config = pool.config();
    let leaves: Vec<VdevGuid> = config.vdev_tree.leaves().map(|leaf| leaf.guid).collect();
    let leaf = leaves[random.below(leaves.len() as u64) as usize];
    let outcome = match random.below(10) {
        0..=2 => attach(pool, leaf, free_disk(work, random), Purpose::Mirror),
        3..=5 => attach(pool, leaf, free_disk(work, random), Purpose::Replace),
        6 => match free_disk(work, random) {
            Some(disk) if pool.view()?.spares()?.is_empty() => pool.add_aux(AuxKind::Spare, vec![disk]),
            _ => Ok(()),
        },
        7 => match pool.view()?.spares()?.first() {
            Some(spare) => pool.attach(leaf, NewSide::Spare(spare.node.guid), Purpose::Replace),
            None => Ok(()),
        },
        _ => pool.detach(leaf),
    };
    match outcome {
        Ok(()) | Err(PoolError::Shape { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn attach(pool: &LivePool, to: VdevGuid, disk: Option<LeafSpec>, purpose: Purpose) -> Result<(), PoolError> {
    disk.map_or(Ok(()), |disk| pool.attach(to, NewSide::Device(disk), purpose))
}

/// Checks the pool after a power cut, lets it finish what it had begun, and takes as many disks away as the tree
/// promises to do without.
///
/// # Errors
/// [`Failure`]: the first deviation.
pub(crate) fn check(run: &Run, disks: &Disks, operation: u64, seed: u64) -> Result<(), Failure> {
    let (durable, begun) = run.at(operation);
    let pool = check_contents(run, disks, durable, begun, seed)?;
    finish(&pool)?;
    let config = pool.config().vdev_tree;
    pool.export(Leave::Exported)?;
    check_space(disks)?;
    let mut random = Random::from_seed(seed);
    let mut kept = Vec::new();
    config.children.iter().for_each(|top| keep(top, &mut random, &mut kept));
    let missing: Vec<usize> = (0..disks.disks().len()).filter(|disk| !kept.contains(disk)).collect();
    check_contents_without(run, disks, &missing, (durable, begun), seed)
        .map_err(|why| format!("without disks {missing:?}: {why}").into())
}

/// Runs everything to its end, and checks that it is.
fn finish(pool: &Arc<LivePool>) -> Result<(), Failure> {
    pool.scan_to_end()?;
    pool.resilver_if_needed()?;
    pool.scan_to_end()?;
    let tree = pool.tree();
    if let Some(leaf) = tree.leaf_guids().into_iter().find(|leaf| !tree.dtl(*leaf).is_empty()) {
        return Err(format!("{POOL}: leaf {leaf} still lacks {:?}", tree.dtl(leaf)).into());
    }
    let config = pool.config().vdev_tree;
    if let Some(leaf) = config.leaves().find(|leaf| leaf.resilver_txg.0 != 0) {
        return Err(format!("{POOL}: leaf {} still counts as resilvering", leaf.guid).into());
    }
    if config.walk().any(|node| node.kind == VdevKind::Replacing) {
        return Err(format!("{POOL}: a replaced device has not left").into());
    }
    Ok(())
}

/// Chooses the disks with which a vdev must get along.
fn keep(node: &VdevNode, random: &mut Random, kept: &mut Vec<usize>) {
    let count = node.children.len() as u64;
    match node.kind {
        VdevKind::Mirror | VdevKind::Spare => {
            keep(&node.children[random.below(count) as usize], random, kept)
        }
        VdevKind::Raidz => {
            let first = random.below(count);
            let wanted = count - u64::from(node.nparity);
            let chosen = (first..first + wanted).map(|child| &node.children[(child % count) as usize]);
            chosen.for_each(|child| keep(child, random, kept));
        }
        _ => kept.extend(disk_of(node)),
    }
}
