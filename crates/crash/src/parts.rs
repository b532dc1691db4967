//! Checks that the contents of a head consist of permitted versions.
//!
//! Names are one sequence of versions; each file is a sequence of its own. The intent log may bring back
//! a newer version of the names than of a file that was not synced, but never a version older than the
//! last durable one.

use crate::run::Failure;
use cenote_interop::content::{Content, File, Head, Model, Tree};
use cenote_interop::judge::walk;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use zpl::VolumeWriter;
use zpl::{FileKind, Filesystem, Node};

const SECTOR: usize = 512;

/// The permitted versions of a head.
pub(crate) struct Span<'a> {
    /// Versions of the whole pool, in the order of their steps.
    pub versions: &'a [(u64, Model)],
    /// Serial number of the head in the model.
    pub head: u64,
    /// Earliest step of its names.
    pub names: u64,
    /// Earliest step of all its contents.
    pub of_head: u64,
    /// Earliest steps of single files, by head and file number.
    pub files: &'a BTreeMap<(u64, u64), u64>,
    /// Latest step of any content.
    pub until: u64,
}

impl Span<'_> {
    /// Versions of the head from the last durable one on.
    pub(crate) fn since(&self, durable: u64) -> impl Iterator<Item = (u64, &Head)> {
        let first = self.versions.iter().rposition(|(step, _)| *step <= durable).unwrap_or(0);
        let possible = self.versions[first..].iter().take_while(|(step, _)| *step <= self.until);
        possible.filter_map(|(step, model)| {
            let head = model.heads.values().find(|head| head.serial == self.head)?;
            Some((*step, head))
        })
    }

    fn trees(&self, durable: u64) -> impl Iterator<Item = (u64, &Tree)> {
        self.since(durable).filter_map(|(step, head)| match &head.content {
            Content::Files(tree) => Some((step, tree)),
            Content::Volume(_) => None,
        })
    }

    /// Permitted versions of a file.
    fn file(&self, object: u64, serial: u64) -> Vec<&Rc<File>> {
        let durable = self.files.get(&(self.head, serial)).copied().unwrap_or(0).max(self.of_head);
        let mut found: Vec<&Rc<File>> = Vec::new();
        for (_, tree) in self.trees(durable) {
            let Some(file) = tree.files.get(&object).filter(|file| file.serial == serial) else { continue };
            if !found.last().is_some_and(|last| Rc::ptr_eq(last, file)) {
                found.push(file);
            }
        }
        found
    }

    /// Checks the data of a volume.
    ///
    /// # Errors
    /// [`Failure`]: the first sector that has no permitted version.
    pub(crate) fn check_volume(&self, volume: &VolumeWriter) -> Result<(), Failure> {
        let contents = self.since(self.of_head).filter_map(|(_, head)| match &head.content {
            Content::Volume(bytes) => Some(&***bytes),
            Content::Files(_) => None,
        });
        let versions: Vec<&[u8]> = contents.collect();
        let size = volume.size() as usize;
        if !versions.iter().any(|bytes| bytes.len() == size) {
            return Err(format!("{size} bytes are of no version").into());
        }
        let mut bytes = vec![0; size];
        volume.read_at(0, &mut bytes)?;
        Ok(check_sectors(&bytes, &versions)?)
    }
}

/// Checks that every sector, or every byte of it, is of one of these versions.
fn check_sectors(bytes: &[u8], versions: &[&[u8]]) -> Result<(), String> {
    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
        let fits = versions.iter().any(|version| {
            let known = version.get(i * SECTOR..).unwrap_or(&[]);
            let known = &known[..known.len().min(sector.len())];
            // Bytes after the end of a version are zeros.
            sector[..known.len()] == *known && sector[known.len()..].iter().all(|byte| *byte == 0)
        });
        // A log record has the bytes at the time when it was written, so up to its first or last byte there
        // may be newer ones than its own.
        let is_known = |at: usize, byte: u8| {
            versions.iter().any(|version| version.get(at).copied().unwrap_or(0) == byte)
        };
        if !fits && !sector.iter().enumerate().all(|(n, byte)| is_known(i * SECTOR + n, *byte)) {
            return Err(format!("the bytes from {} on are of no version", i * SECTOR));
        }
    }
    Ok(())
}

/// Checks the names and files of a file system.
///
/// # Errors
/// [`Failure`]: the reasons why no permitted version matches.
pub(crate) fn check_head(fs: &Arc<Filesystem>, span: &Span<'_>) -> Result<(), Failure> {
    let found = walk(fs)?;
    let mut reasons = Vec::new();
    let mut before: Option<&Tree> = None;
    for (step, tree) in span.trees(span.names) {
        if before.is_some_and(|before| same_names(before, tree)) {
            continue;
        }
        before = Some(tree);
        match check_tree(fs, span, tree, &found) {
            Ok(()) => return Ok(()),
            Err(why) => reasons.push(format!("step {step}: {why}")),
        }
    }
    Err(format!("no version fits:\n  {}", reasons.join("\n  ")).into())
}

fn same_names(a: &Tree, b: &Tree) -> bool {
    a.names == b.names && a.names.values().all(|id| a.files[id].serial == b.files[id].serial)
}

fn check_tree(
    fs: &Arc<Filesystem>,
    span: &Span<'_>,
    tree: &Tree,
    found: &BTreeMap<String, u64>,
) -> Result<(), String> {
    if let Some((path, id)) = tree.names.iter().find(|(path, id)| found.get(*path) != Some(id)) {
        return Err(format!("{path} should be object {id}, is {:?}", found.get(path)));
    }
    if let Some(extra) = found.keys().find(|path| !tree.names.contains_key(*path)) {
        return Err(format!("{extra} should not be there"));
    }
    let mut links: BTreeMap<u64, u64> = BTreeMap::new();
    tree.names.values().for_each(|id| *links.entry(*id).or_default() += 1);
    for (object, file) in &tree.files {
        let node = fs.node(format::ObjectId(*object)).map_err(|error| error.to_string())?;
        if !node.is_dir() && node.attrs().links != links[object] {
            return Err(format!("object {object}: {} links, not {}", node.attrs().links, links[object]));
        }
        check_file(&node, &span.file(*object, file.serial))
            .map_err(|why| format!("object {object}: {why}"))?;
    }
    Ok(())
}

/// Checks each part of a file against these versions.
fn check_file(node: &Node, versions: &[&Rc<File>]) -> Result<(), String> {
    let attrs = node.attrs();
    let any = |what: &str, test: &dyn Fn(&File) -> bool| match versions.iter().any(|file| test(file)) {
        true => Ok(()),
        false => Err(format!("{what} is of no version: {attrs:?}")),
    };
    any("the kind", &|file| file.kind == node.kind())?;
    any("the mode", &|file| file.mode == attrs.mode & 0o7777)?;
    any("the owner", &|file| u64::from(file.uid) == attrs.uid)?;
    any("the group", &|file| u64::from(file.gid) == attrs.gid)?;
    any("the project", &|file| u64::from(file.project) == attrs.projid)?;
    any("the time", &|file| file.mtime.is_none_or(|secs| secs == attrs.mtime.secs))?;
    match node.kind() {
        FileKind::Symlink => {
            let target = node.readlink().map_err(|error| error.to_string())?;
            any("the target", &|file| file.bytes == target)?;
        }
        FileKind::Regular => check_bytes(node, versions)?,
        _ => {}
    }
    check_xattrs(node, versions)
}

fn check_bytes(node: &Node, versions: &[&Rc<File>]) -> Result<(), String> {
    let size = node.attrs().size as usize;
    let sizes: Vec<usize> = versions.iter().map(|file| file.bytes.len()).collect();
    let is_between = sizes.windows(2).enumerate().any(|(i, pair)| {
        versions[i + 1].in_parts && (pair[0].min(pair[1])..=pair[0].max(pair[1])).contains(&size)
    });
    if !sizes.contains(&size) && !is_between {
        return Err(format!("{size} bytes, expected one of {sizes:?}"));
    }
    let mut bytes = vec![0; size];
    let read = node.read_at(0, &mut bytes).map_err(|error| error.to_string())?;
    if read != size {
        return Err(format!("{read} of {size} bytes could be read"));
    }
    let versions: Vec<&[u8]> = versions.iter().map(|file| &*file.bytes).collect();
    check_sectors(&bytes, &versions)
}

fn check_xattrs(node: &Node, versions: &[&Rc<File>]) -> Result<(), String> {
    let values = node.xattr_values().map_err(|error| error.to_string())?;
    let found: BTreeMap<String, Vec<u8>> = values
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
        .collect();
    let names = versions.iter().flat_map(|file| file.xattrs.keys()).chain(found.keys());
    for name in names {
        let value = found.get(name);
        // A value that is stored as a file comes in several records, so a part of it may be there.
        let is_changing = versions.iter().any(|file| file.xattrs.get(name) != versions[0].xattrs.get(name));
        let has_begun = |file: &&Rc<File>| {
            value.zip(file.xattrs.get(name)).is_some_and(|(found, whole)| whole.starts_with(found))
        };
        if is_changing && versions[1..].iter().any(has_begun) {
            continue;
        }
        if !versions.iter().any(|file| file.xattrs.get(name) == value) {
            let size = |value: Option<&Vec<u8>>| value.map_or("none".to_owned(), |v| v.len().to_string());
            let known: Vec<String> = versions.iter().map(|file| size(file.xattrs.get(name))).collect();
            return Err(format!(
                "extended attribute {name}, of {} bytes, is of no version: {known:?}",
                size(value)
            ));
        }
    }
    Ok(())
}
