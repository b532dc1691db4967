//! Pools for a kernel with OpenZFS, and checks of what that kernel has done with them.
//!
//! The folder of a layout has the disks of a pool and lists of its contents: `ours` as we wrote it, and
//! `theirs` as the kernel left it. A list has a line for each file and volume: dataset or snapshot, SHA-256,
//! path (`-` for a volume), separated by tabs, sorted.
//!
//! # Order
//! [`make`] -> the kernel imports, scrubs, compares with `ours`, changes, writes `theirs`, exports ->
//! [`check`].

use crate::content::{Content, Model, Tree};
use crate::judge;
use crate::plan::{Plan, layouts};
use crate::world::{POOL, World};
use crate::{Failure, wrong};
use pool::FeatureSet;
use std::path::Path;
use std::sync::Arc;
use testkit::sha256;
use zpl::{FileKind, Filesystem, Volume};

/// Name of the list of the contents that we wrote.
const OURS: &str = "ours";
/// Name of the list of the contents that the kernel left.
const THEIRS: &str = "theirs";

/// Makes the pool of a layout in a folder.
///
/// # Errors
/// The pool cannot be made, or our own judges find an error in it.
pub fn make(dir: &Path, layout: &str, seed: u64, steps: u64) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    let Some(mut plan) = Plan::of_seed(seed, Some(layout)) else { return wrong("there is no such layout") };
    // With fewer features, the kernel prints a warning.
    plan.features = FeatureSet::Default;
    // So that each layout gets another workload.
    let own = layout.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let mut world = World::create(plan, own, dir)?;
    world.create_volume(format!("{POOL}/volume"))?;
    for _ in 0..steps {
        world.step()?;
    }
    world.lift_limits()?;
    world.export()?;
    std::fs::write(dir.join(OURS), list_of(&world.model))?;
    let pool = judge::open(dir, POOL)?;
    judge::contents(&pool, &world.model)?;
    judge::verify(&pool)?;
    judge::no_leaks(&pool)
}

/// Names of the layouts with enough space for the kernel's changes.
pub fn layout_names() -> Vec<&'static str> {
    let has_room = |name: &&str| !name.starts_with("full") && !name.starts_with("pieces");
    layouts().into_iter().map(|(name, _)| name).filter(has_room).collect()
}

fn list_of(model: &Model) -> String {
    let mut lines = Vec::new();
    let heads = model.heads.iter().map(|(name, head)| (name, &head.content));
    for (name, content) in heads.chain(model.snapshots.iter().map(|(name, s)| (name, &s.content))) {
        match content {
            Content::Files(tree) => list_tree(name, tree, &mut lines),
            Content::Volume(bytes) => lines.push(format!("{name}\t{}\t-\n", sha256(bytes))),
        }
    }
    lines.sort();
    lines.concat()
}

fn list_tree(name: &str, tree: &Tree, lines: &mut Vec<String>) {
    for (path, id) in &tree.names {
        let file = &tree.files[id];
        if file.kind == FileKind::Regular {
            lines.push(format!("{name}\t{}\t.{path}\n", sha256(&file.bytes)));
        }
    }
}

/// The contents of a pool as a list.
fn list_pool(pool: &cenote::Pool) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for dir in pool.spa().dsl().dirs()? {
        let Some(head) = dir.head()? else { continue };
        for dataset in head.snapshots()?.into_iter().chain([head]) {
            let (name, set) = (dataset.name().to_owned(), dataset.open_objset()?);
            if dataset.is_volume()? {
                let volume = Volume::open(&set)?;
                let mut bytes = vec![0; volume.size() as usize];
                volume.read_at(0, &mut bytes)?;
                lines.push(format!("{name}\t{}\t-\n", sha256(&bytes)));
            } else {
                list_filesystem(&name, &Filesystem::open(set)?, &mut lines)?;
            }
        }
    }
    lines.sort();
    Ok(lines.concat())
}

fn list_filesystem(name: &str, fs: &Arc<Filesystem>, lines: &mut Vec<String>) -> Result<(), Failure> {
    let mut dirs = vec![(".".to_owned(), fs.node(fs.root())?)];
    while let Some((path, dir)) = dirs.pop() {
        for entry in dir.entries()? {
            let entry = entry?;
            let node = fs.node(entry.id)?;
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            match node.kind() {
                FileKind::Directory => dirs.push((path, node)),
                FileKind::Regular => {
                    let mut bytes = vec![0; node.attrs().size as usize];
                    node.read_at(0, &mut bytes)?;
                    lines.push(format!("{name}\t{}\t{path}\n", sha256(&bytes)));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Checks the contents that the kernel has left, changes them, and runs `zdb`.
///
/// # Errors
/// Description of the first error.
pub fn check(dir: &Path, seed: u64) -> Result<(), Failure> {
    let theirs = std::fs::read_to_string(dir.join(THEIRS))?;
    let pool = judge::open(dir, POOL)?;
    let found = list_pool(&pool)?;
    if let Some((ours, kernel)) = found.lines().zip(theirs.lines()).find(|(a, b)| a != b) {
        return wrong(format!("we read     {ours}\nthe kernel  {kernel}"));
    }
    if found != theirs {
        return wrong(format!("{} files here, {} there", found.lines().count(), theirs.lines().count()));
    }
    judge::verify(&pool)?;
    drop(pool);
    change(dir, seed)?;
    judge::verify(&judge::open(dir, POOL)?)?;
    judge::zdb(dir, POOL, &["-bcc"])?;
    Ok(())
}

/// Writes a further file to each file system, takes a recursive snapshot, and destroys what the kernel has
/// cloned.
fn change(dir: &Path, seed: u64) -> Result<(), Failure> {
    let mut world = World::open(dir, seed)?;
    world.touch_everything()?;
    world.export()
}
