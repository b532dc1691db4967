//! The judges: `zdb`, our own check of every block, the sums of the dataset layer, and the model.

use crate::content::{Content, File, Model, Tree};
use crate::{Failure, sums, wrong};
use cenote::inspect::{Check, blocks, census, leaked_objects, space_map_counts};
use dsl::Dataset;
use pool::{OpenOptions, Which};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use vdev::scan::Search;
use zpl::{FileKind, Filesystem, Volume};

/// Words in the output of `zdb` that report an error.
const COMPLAINTS: [&str; 8] =
    ["leak", "mismatch", "error", "corrupt", "can't", "cannot", "assert", "inconsistent"];
/// Lines with such words that report no error.
const FINE: [&str; 6] =
    ["No leaks", "verify nothing leaked", "leaked_space", "errors: 0", "errlog", "error scrub"];

/// Script that runs `ztest` in an environment in which it works.
const IN_OWN_DEV: &str = include_str!("ztest.sh");

/// Runs `zdb` over a closed pool; `false` if this machine has no `zdb`.
///
/// # Errors
/// The output of `zdb`, if it reports an error.
pub fn zdb(dir: &Path, name: &str, how: &[&str]) -> Result<bool, Failure> {
    let Some(zdb) = testkit::need_tool("zdb") else { return Ok(false) };
    let output = testkit::hurried(zdb).args(["-e", "-p"]).arg(dir).args(how).arg(name).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let complains = |line: &&str| {
        let lower = line.to_lowercase();
        let is_data = line.trim_start().starts_with("user.x");
        !is_data
            && COMPLAINTS.iter().any(|word| lower.contains(word))
            && !FINE.iter().any(|fine| line.contains(fine))
    };
    // Errors, and progress.
    let is_progress =
        |line: &&str| line.trim().is_empty() || line.starts_with("loading") || line.contains("completed");
    let errors: Vec<&str> = errors.split(['\n', '\r']).filter(|line| !is_progress(line)).collect();
    let found: Vec<&str> = text.lines().filter(complains).chain(errors).collect();
    if !output.status.success() || !found.is_empty() {
        let tail: Vec<&str> = text.lines().rev().take(5).collect();
        return wrong(format!(
            "zdb {}: {}\n{}\n{}",
            how.join(" "),
            output.status,
            found.join("\n"),
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        ));
    }
    if how.contains(&"-bcc") && !text.contains("No leaks") {
        return wrong("zdb does not say that there are no leaks");
    }
    Ok(true)
}

/// Runs OpenZFS's `ztest` on a closed pool for so many seconds; `ztest` runs `zdb` on it now and then. The
/// disks are files in `dir`. `false` if `ztest` cannot run here.
///
/// # Errors
/// The output of `ztest`, if it fails.
pub(crate) fn ztest(dir: &Path, name: &str, seconds: u64) -> Result<bool, Failure> {
    let (Some(ztest), Some(unshare)) = (testkit::need_tool("ztest"), testkit::need_tool("unshare")) else {
        return Ok(false);
    };
    let can_mount = Command::new(&unshare).args(["-m", "sh", "-c", ":"]).output()?;
    if !can_mount.status.success() {
        testkit::skip("ztest needs a /dev of its own, which only root can mount");
        return Ok(false);
    }
    let output = Command::new(unshare)
        .args(["-m", "sh", "-c", IN_OWN_DEV, "ztest.sh"])
        .arg(ztest)
        .args(["-E", "-p", name, "-f"])
        .arg(dir)
        .args(["-T", &seconds.to_string(), "-P", &seconds.to_string()])
        // Few threads and datasets, no expansion of raidz, no kills.
        .args(["-t", "4", "-d", "2", "-K", "raidz", "-C", "special=off", "-F", "1", "-k", "0", "-G", "-V"])
        .output()?;
    if output.status.success() {
        return Ok(true);
    }
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("metaslab")).collect();
    wrong(format!("ztest: {}\n{}", output.status, lines[..lines.len().min(40)].join("\n")))
}

/// Opens a pool whose disks lie in a folder, for reading.
///
/// # Errors
/// The pool cannot be opened.
pub fn open(dir: &Path, name: &str) -> Result<cenote::Pool, Failure> {
    let found = Search::in_paths([dir]).run();
    let which = Which::Name(name.to_owned());
    Ok(cenote::Pool::from(pool::Pool::open(found, &which, &OpenOptions::default())?))
}

/// Our own check of every block of a pool.
///
/// # Errors
/// Description of the errors found.
pub fn verify(pool: &cenote::Pool) -> Result<(), Failure> {
    let report = blocks(pool, Check::Everything, true)?;
    if let Some(bad) = report.damaged.first() {
        return wrong(format!("{} damaged blocks: {:?} {}", report.damaged.len(), bad.at, bad.cause));
    }
    if let Some(problem) = report.problems.first() {
        return wrong(problem.to_string());
    }
    match report.space {
        Some(space) if space.matches() => {}
        Some(space) => return wrong(space.to_string()),
        None => return wrong("the space could not be counted"),
    }
    if let Some(count) = census(pool)?.iter().find(|count| count.counted != count.recorded) {
        return wrong(format!(
            "feature {}: {} counted, {} recorded",
            count.name, count.counted, count.recorded
        ));
    }
    if let Some((counted, recorded)) = space_map_counts(pool)?
        && counted != recorded
    {
        return wrong(format!("spacemap_histogram: {counted} maps, {recorded} recorded"));
    }
    Ok(())
}

/// Objects of the meta object set to which no object refers.
///
/// # Errors
/// The objects cannot be listed.
pub fn leaks(pool: &cenote::Pool) -> Result<Vec<String>, Failure> {
    let leaked = leaked_objects(pool)?;
    Ok(leaked.iter().map(|leaked| format!("object {} of type {}", leaked.id, leaked.kind)).collect())
}

/// Checks that every object of the meta object set is referenced.
///
/// # Errors
/// The name of the first object that is not.
pub fn no_leaks(pool: &cenote::Pool) -> Result<(), Failure> {
    match leaks(pool)?.first() {
        Some(leaked) => wrong(format!("{leaked} is nobody's")),
        None => Ok(()),
    }
}

/// Recomputes the sums that datasets and directories keep, and compares them.
///
/// # Errors
/// Description of the first wrong sum.
pub fn sums(pool: &cenote::Pool) -> Result<(), Failure> {
    let dsl = pool.spa().dsl().clone();
    match catch_unwind(AssertUnwindSafe(|| sums::check(dsl))) {
        Ok(_) => Ok(()),
        Err(why) => {
            let text = why.downcast_ref::<String>().cloned();
            let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            wrong(format!("sums: {}", text.unwrap_or_default()))
        }
    }
}

/// Checks that the contents of a pool are exactly those of the model.
///
/// # Errors
/// Description of the first difference.
pub(crate) fn contents(pool: &cenote::Pool, model: &Model) -> Result<(), Failure> {
    let dsl = pool.spa().dsl();
    let mut found = Vec::new();
    for dir in dsl.dirs()? {
        let Some(head) = dir.head()? else { continue };
        found.push(head.name().to_owned());
        found.extend(head.snapshots()?.iter().map(|snapshot| snapshot.name().to_owned()));
    }
    let heads = model.heads.iter().map(|(name, head)| (name, &head.content));
    let expected: BTreeMap<&String, &Content> =
        heads.chain(model.snapshots.iter().map(|(name, s)| (name, &s.content))).collect();
    if let Some(extra) = found.iter().find(|name| !expected.contains_key(name)) {
        return wrong(format!("{extra} should not be there"));
    }
    for (name, content) in expected {
        let dataset = dsl.dataset(name).map_err(|error| format!("{name}: {error}"))?;
        same_content(&dataset, content).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// Checks that the contents of a dataset are exactly the expected ones.
///
/// # Errors
/// Description of the first difference.
pub fn same_content(dataset: &Dataset, content: &Content) -> Result<(), Failure> {
    let set = dataset.open_objset()?;
    match content {
        Content::Files(tree) => same_tree(&Filesystem::open(set)?, tree),
        Content::Volume(bytes) => {
            let volume = Volume::open(&set)?;
            let mut there = vec![0; volume.size() as usize];
            volume.read_at(0, &mut there)?;
            if there == **bytes { Ok(()) } else { wrong("other bytes") }
        }
    }
}

/// All names in a file system, with their object numbers.
///
/// # Errors
/// A directory or file cannot be read.
pub fn walk(fs: &Arc<Filesystem>) -> Result<BTreeMap<String, u64>, Failure> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut dirs = vec![(String::new(), fs.node(fs.root())?)];
    while let Some((path, dir)) = dirs.pop() {
        for entry in dir.entries()? {
            let entry = entry?;
            let node = fs.node(entry.id)?;
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            found.insert(path.clone(), entry.id.0);
            if node.is_dir() {
                dirs.push((path, node));
            }
        }
    }
    Ok(found)
}

fn same_tree(fs: &Arc<Filesystem>, tree: &Tree) -> Result<(), Failure> {
    let found = walk(fs)?;
    if let Some((path, id)) = tree.names.iter().find(|(path, id)| found.get(*path) != Some(id)) {
        return wrong(format!("{path} should be object {id}, is {:?}", found.get(path)));
    }
    if let Some((path, _)) = found.iter().find(|(path, _)| !tree.names.contains_key(*path)) {
        return wrong(format!("{path} should not be there"));
    }
    let mut links: BTreeMap<u64, u64> = BTreeMap::new();
    tree.names.values().for_each(|id| *links.entry(*id).or_default() += 1);
    for (id, file) in &tree.files {
        same_file(fs, *id, file, links[id]).map_err(|why| format!("object {id}: {why}"))?;
    }
    Ok(())
}

fn same_file(fs: &Arc<Filesystem>, id: u64, file: &Rc<File>, links: u64) -> Result<(), Failure> {
    let node = fs.node(format::ObjectId(id))?;
    let attrs = node.attrs();
    let here = (node.kind(), attrs.mode & 0o7777, attrs.uid, attrs.gid, attrs.projid);
    let expected = (file.kind, file.mode, file.uid.into(), file.gid.into(), file.project.into());
    if here != expected {
        return wrong(format!("{here:?} instead of {expected:?}"));
    }
    if file.mtime.is_some_and(|secs| attrs.mtime.secs != secs) {
        return wrong(format!("changed at {:?} instead of {:?}", attrs.mtime, file.mtime));
    }
    if file.kind != FileKind::Directory && attrs.links != links {
        return wrong(format!("{} links instead of {links}", attrs.links));
    }
    match file.kind {
        FileKind::Regular => {
            let mut bytes = vec![0; attrs.size as usize];
            let read = node.read_at(0, &mut bytes)?;
            if attrs.size != file.bytes.len() as u64 || read != bytes.len() {
                return wrong(format!("{} bytes, {read} read, expected {}", attrs.size, file.bytes.len()));
            }
            // Files are many and large: the slices are compared as a whole first.
            if bytes != file.bytes {
                let at = bytes.iter().zip(&file.bytes).position(|(a, b)| a != b);
                return wrong(format!("another byte at {} of {}", at.unwrap_or_default(), bytes.len()));
            }
        }
        FileKind::Symlink if node.readlink()? != file.bytes => return wrong("another target"),
        _ => {}
    }
    let found: BTreeMap<String, Vec<u8>> = node
        .xattr_values()?
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
        .collect();
    if found != file.xattrs {
        let sizes = |set: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, usize> {
            set.iter().map(|(name, value)| (name.clone(), value.len())).collect()
        };
        return wrong(format!("attributes {:?} instead of {:?}", sizes(&found), sizes(&file.xattrs)));
    }
    Ok(())
}
