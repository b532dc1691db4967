//! Opens the pools, datasets and files that arguments name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use ::admin::{Imported, Namespace, Search, open_pools};
use ::cenote::copy::{Content, Kind};
use ::cenote::{Dataset, Error, Filesystem, Node, OpenOptions, Pool, PoolWriter, Target, Volume};

use super::{Failure, term};
use crate::console;
use crate::keys::{self, ATTEMPTS, prompt};

/// Most symbolic links that are followed in one path, as in Linux.
const LINKS_MAX: usize = 40;

/// What stands in the place of the file of a key that is asked for.
pub(super) const PROMPT: &str = "prompt";

/// Options of all verbs: where the pool is, and how it is opened.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Look here for the pool's devices: a folder, a device or an image file; repeatable
    #[arg(short = 'd', long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
    /// Load the key of DATASET from FILE, or ask for it when FILE is `prompt`; repeatable
    #[arg(long = "key", value_name = "DATASET=FILE")]
    keys: Vec<OsString>,
    /// Bytes of memory for cached blocks (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_bytes)]
    cache: u64,
    /// Open the newest state that is not newer than this transaction group
    #[arg(long, value_name = "TXG")]
    txg: Option<u64>,
    /// If the newest state cannot be read, open the newest that can
    #[arg(long)]
    recover: bool,
    /// Open the pool as it was when its checkpoint was taken
    #[arg(long)]
    checkpoint: bool,
    /// Open a pool that was destroyed
    #[arg(long)]
    destroyed: bool,
    /// Open the pool although top-level or log devices are missing: read what is left
    #[arg(long)]
    missing: bool,
    /// Set if the pool is made of streams.
    #[arg(skip)]
    streams: Option<OfStreams>,
}

/// What differs where the datasets are those of streams.
#[derive(Debug, Clone, Default)]
pub(super) struct OfStreams {
    /// Where the key of every encryption root without one of its own is: a file, or `prompt`.
    pub(super) key: Option<OsString>,
    /// What the pool has in front of the senders' names.
    pub(super) prefix: String,
}

impl Source {
    /// The source of the datasets of streams, with their keys: `DATASET=FILE`, by the names in the pool.
    pub(super) fn of_streams(keys: Vec<OsString>, streams: OfStreams) -> Source {
        Source {
            devices: Vec::new(),
            keys,
            streams: Some(streams),
            cache: 0,
            txg: None,
            recover: false,
            checkpoint: false,
            destroyed: false,
            missing: false,
        }
    }

    /// Whether no option says where the pool is or how it is opened: then a pool that is open already is
    /// used.
    fn is_plain(&self) -> bool {
        let is_as_of_now = self.txg.is_none() && !self.checkpoint && !self.recover;
        self.devices.is_empty() && is_as_of_now && !self.destroyed && !self.missing
    }

    /// Whether an option names the devices.
    pub(super) fn names_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Checks that no option was given that makes sense for reading only.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        let given = [
            ("--txg", self.txg.is_some()),
            ("--recover", self.recover),
            ("--checkpoint", self.checkpoint),
            ("--destroyed", self.destroyed),
            ("--missing", self.missing),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Err(Failure::Message(format!("{option} is for reading: a pool is changed as it is")))
            }
            None => Ok(()),
        }
    }
}

/// Parses a size such as `128M`.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("use a number with K, M, G or T".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "use a number with K, M, G or T".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// The pools that this command has opened, by the name that was used for them.
pub(super) struct Session<'a> {
    source: &'a Source,
    /// Image files are read past the system's cache.
    direct: bool,
    pools: RefCell<HashMap<String, Pool>>,
}

/// The object that a target names.
pub(super) enum Found {
    /// A file of a file system.
    File(Box<FoundFile>),
    /// A volume.
    Volume(Dataset, Volume),
}

impl Found {
    /// The bytes of a regular file or a volume.
    ///
    /// # Errors
    /// It is a file without contents; the error names its kind.
    pub(super) fn content(&self) -> Result<&dyn Content, String> {
        match self {
            Found::Volume(_, volume) => Ok(volume),
            Found::File(file) if file.node.is_dir() => Err("Is a directory".to_owned()),
            Found::File(file) if file.node.kind() != Kind::Regular => {
                Err(format!("is a {}", file.node.kind()))
            }
            Found::File(file) => Ok(&file.node),
        }
    }
}

/// A file, and its place.
pub(super) struct FoundFile {
    pub(super) dataset: Dataset,
    pub(super) fs: Arc<Filesystem>,
    pub(super) node: Node,
    /// The path from the root, without slashes at its ends and with links resolved, except for the last
    /// component.
    pub(super) path: Vec<u8>,
    /// The name for messages: as the user wrote it, with `:/` after a dataset alone.
    pub(super) shown: Vec<u8>,
}

impl<'a> Session<'a> {
    pub(super) fn new(source: &'a Source) -> Session<'a> {
        Session { source, direct: false, pools: RefCell::default() }
    }

    /// A session for verbs that read much of a pool once: their reads displace no data from the system's
    /// cache.
    pub(super) fn past_the_cache(source: &'a Source) -> Session<'a> {
        Session { direct: true, ..Session::new(source) }
    }

    fn options(&self) -> OpenOptions {
        let source = self.source;
        let mut options = OpenOptions::new()
            .cache_bytes(usize::try_from(source.cache).unwrap_or(usize::MAX))
            .direct(self.direct)
            .recover(source.recover)
            .checkpoint(source.checkpoint)
            .destroyed(source.destroyed)
            .allow_missing_logs(source.missing)
            .allow_missing_devices(source.missing);
        if let Some(txg) = source.txg {
            options = options.max_txg(txg);
        }
        let devices =
            if source.devices.is_empty() { devices_of_environment() } else { source.devices.clone() };
        devices.into_iter().fold(options, OpenOptions::search)
    }

    /// A view of the present state of a pool that this process keeps open.
    fn seen(&self, writer: &PoolWriter) -> Result<Pool, Failure> {
        let console = console::current();
        if let Some(mounts) = console.as_ref().and_then(|console| console.namespace.mounts()) {
            mounts.write_back(writer.name())?;
        }
        writer.sync()?;
        Ok(writer.view()?)
    }

    /// Opens the pool with this name or guid for writing, unless it was imported read-only.
    pub(super) fn open_rw(&self, name: &str) -> Result<PoolWriter, Failure> {
        if let Some((namespace, search)) = self.kept(name)? {
            let known = namespace.get(name).map(|pool| pool.in_name_of(search.caller.as_ref()));
            return known.ok_or_else(|| {
                let name = term::escape(name.as_bytes());
                Failure::Message(format!("cannot open pool '{name}': pool is read-only"))
            });
        }
        let imported = Imported::load().map_err(|error| Failure::Message(error.to_string()))?;
        if imported.pools.iter().any(|pool| pool.settings.readonly) {
            let guid =
                Pool::open(name, &self.options()).map_err(|error| self.cannot_open(name, &error))?.guid();
            if imported.by_guid(guid).is_some_and(|pool| pool.settings.readonly) {
                let name = term::escape(name.as_bytes());
                return Err(Failure::Message(format!("cannot open pool '{name}': pool is read-only")));
            }
        }
        Pool::open_rw(name, &self.options()).map_err(|error| self.cannot_open(name, &error))
    }

    /// The pools that this process keeps open, if the named one is among them and no option changes how it is
    /// opened. The whole contents of a pool are for the administrator only: for other users, file permissions
    /// decide.
    fn kept(&self, name: &str) -> Result<Option<(Arc<Namespace>, Search)>, Failure> {
        let search = crate::search::from_env();
        if search.caller.as_ref().is_some_and(|caller| !caller.is_admin()) {
            let name = term::escape(name.as_bytes());
            return Err(Failure::Message(format!("cannot open pool '{name}': permission denied")));
        }
        let is_plain = self.source.is_plain();
        let namespace = search.namespace.clone().filter(|kept| is_plain && kept.settings(name).is_some());
        Ok(namespace.map(|namespace| (namespace, search)))
    }

    /// [`Session::adopt`], with the keys of the pool loaded.
    pub(super) fn adopt_unlocked(&self, called: &str, pool: Pool) -> Result<(), Failure> {
        self.load_keys(called, &pool)?;
        self.adopt(called, pool);
        Ok(())
    }

    /// Uses `pool` for this name from now on.
    pub(super) fn adopt(&self, called: &str, pool: Pool) {
        self.pools.borrow_mut().insert(called.to_owned(), pool);
    }

    /// The pool with this name or guid.
    pub(super) fn pool(&self, name: &str) -> Result<Pool, Failure> {
        if let Some(pool) = self.pools.borrow().get(name) {
            return Ok(pool.clone());
        }
        let pool = match self.kept(name)? {
            Some((namespace, search)) => {
                // Data that were written through mounts and by other commands are part of the view.
                if let Some(pool) = namespace.get(name).filter(|pool| pool.live().suspended().is_none()) {
                    let _ = self.seen(&pool)?;
                }
                let (pools, problems) = open_pools(&search, &[name.to_owned()]);
                if let Some(problem) = problems.first() {
                    return Err(Failure::Message(problem.to_string()));
                }
                pools.first().map(|open| open.pool().clone()).ok_or(Failure::Silent)?
            }
            None => Pool::open(name, &self.options()).map_err(|error| self.cannot_open(name, &error))?,
        };
        self.load_keys(name, &pool)?;
        self.pools.borrow_mut().insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    fn cannot_open(&self, name: &str, error: &Error) -> Failure {
        let hint = if self.source.devices.is_empty() {
            "\nthe devices of this machine were looked at; -d PATH names a folder, a device or an image"
        } else {
            ""
        };
        let name = term::escape(name.as_bytes());
        Failure::Message(format!("cannot open pool '{name}': {}{hint}", term::chain(error)))
    }

    /// Loads the keys that were given for datasets of this pool.
    fn load_keys(&self, called: &str, pool: &Pool) -> Result<(), Failure> {
        for key in &self.source.keys {
            let (dataset, from) = split_key(key)?;
            if dataset.split(['/', '@']).next() != Some(called) {
                continue;
            }
            let dataset = with_real_pool(&dataset, called, pool);
            self.load_key(pool, &dataset, &dataset, &from)?;
        }
        Ok(())
    }

    /// Loads the key of `root` for `dataset` from a file, or asks for it.
    fn load_key(&self, pool: &Pool, dataset: &str, root: &str, from: &OsStr) -> Result<(), Failure> {
        if from == PROMPT {
            return self.ask(pool, dataset, root);
        }
        let material = read_key(from)?;
        pool.load_key(dataset, &material).map_err(|error| {
            let (file, why) = (term::escape(from.as_bytes()), self.as_sent(&term::chain(&error)));
            Failure::Message(format!("cannot load the key of '{}' from {file}: {why}", self.sent(root)))
        })
    }

    /// A dataset as its sender calls it.
    fn sent<'n>(&self, name: &'n str) -> &'n str {
        let prefix = self.source.streams.as_ref().map_or("", |streams| &streams.prefix);
        name.strip_prefix(prefix).unwrap_or(name)
    }

    /// A message whose datasets are called as their senders call them.
    fn as_sent(&self, message: &str) -> String {
        match self.source.streams.as_ref().map(|streams| &streams.prefix) {
            Some(prefix) if !prefix.is_empty() => message.replace(&format!("'{prefix}"), "'"),
            _ => message.to_owned(),
        }
    }

    /// Asks for the key of `root` until it fits `dataset`.
    fn ask(&self, pool: &Pool, dataset: &str, root: &str) -> Result<(), Failure> {
        for attempt in 1..=ATTEMPTS {
            let answer = prompt::secret(&format!(
                "Enter passphrase or hex key for '{}': ",
                term::escape(self.sent(root).as_bytes())
            ));
            let answer = answer.map_err(|error| {
                let root = self.sent(root);
                Failure::Message(format!("cannot ask for the key of '{root}': {}", term::io_words(&error)))
            })?;
            let Some(answer) = answer else { break };
            match pool.load_key(dataset, &answer) {
                Ok(()) => return Ok(()),
                Err(error) if attempt < ATTEMPTS => term::complain(self.as_sent(&term::chain(&error))),
                Err(error) => {
                    let (root, why) = (self.sent(root), self.as_sent(&term::chain(&error)));
                    return Err(Failure::Message(format!("cannot load the key of '{root}': {why}")));
                }
            }
        }
        Err(Failure::Message(format!("no key for '{}'", self.sent(root))))
    }

    /// Calls `open`, and again after asking for a key if one is missing.
    fn unlocked<T>(
        &self,
        dataset: &Dataset,
        open: impl Fn(&Dataset) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let error = match open(dataset) {
            Err(error @ Error::Locked { .. }) => error,
            other => return Ok(other?),
        };
        let Error::Locked { root, .. } = &error else { return Err(error.into()) };
        let given = self.source.streams.as_ref().and_then(|streams| streams.key.as_deref());
        let from = given.or_else(|| prompt::is_possible().then_some(OsStr::new(PROMPT)));
        if let Some(from) = from {
            self.load_key(dataset.pool(), dataset.name(), root, from)?;
            return Ok(open(dataset)?);
        }
        let (why, root) = (self.as_sent(&term::chain(&error)), self.sent(root));
        Err(Failure::Message(match self.source.streams {
            Some(_) => format!("the stream is locked: {why}\n--key FILE loads it, or --key '{root}=FILE'"),
            None => format!("{why}\n--key '{root}=FILE' loads it"),
        }))
    }

    /// The dataset that a target names.
    pub(super) fn dataset(&self, target: &Target) -> Result<Dataset, Failure> {
        let called = target.pool();
        let pool = self.pool(called)?;
        let name = with_real_pool(&target.dataset, called, &pool);
        Ok(pool.dataset(&name)?)
    }

    /// [`Session::dataset`], which asks for the key of the dataset if necessary.
    pub(super) fn unlocked_dataset(&self, target: &Target) -> Result<Dataset, Failure> {
        let dataset = self.dataset(target)?;
        self.unlocked(&dataset, Dataset::filesystem)?;
        Ok(dataset)
    }

    /// Loads the key of a dataset, if it is encrypted.
    pub(super) fn unlock(&self, target: &Target) -> Result<(), Failure> {
        let dataset = self.dataset(target)?;
        if dataset.dsl().is_volume().map_err(Error::from)? {
            self.unlocked(&dataset, Dataset::volume).map(drop)
        } else {
            self.unlocked(&dataset, Dataset::filesystem).map(drop)
        }
    }

    /// Opens the object that a target names. A link as the last component is followed if `follow` is set or
    /// the path ends in a slash; other links on the path always are, within the file system.
    pub(super) fn find(&self, text: &OsStr, follow: bool) -> Result<Found, Failure> {
        let target = parse(text)?;
        let dataset = self.dataset(&target)?;
        let mut shown = text.as_bytes().to_vec();
        if target.path.is_none() && dataset.dsl().is_volume().map_err(Error::from)? {
            let volume = self.unlocked(&dataset, Dataset::volume)?;
            return Ok(Found::Volume(dataset, volume));
        }
        let fs = self.unlocked(&dataset, |dataset| Ok(Arc::clone(dataset.filesystem()?.filesystem())))?;
        if target.path.is_none() {
            shown.extend_from_slice(b":/");
        }
        let wanted = target.path.unwrap_or_else(|| b"/".to_vec());
        let follow = follow || wanted.ends_with(b"/");
        match resolve(&fs, &wanted, follow) {
            Ok(Resolved { node, path }) => {
                Ok(Found::File(Box::new(FoundFile { dataset, fs, node, path, shown })))
            }
            Err(Unresolved::Error(error)) => {
                Err(Failure::Message(format!("{}: {}", term::escape(&shown), term::chain(&*error))))
            }
            Err(Unresolved::Message(why)) => {
                Err(Failure::Message(format!("{}: {why}", term::escape(&shown))))
            }
        }
    }

    /// [`Session::find`] for verbs that do not work on volumes.
    pub(super) fn find_file(&self, text: &OsStr, follow: bool) -> Result<FoundFile, Failure> {
        match self.find(text, follow)? {
            Found::File(file) => Ok(*file),
            Found::Volume(dataset, _) => Err(Failure::Message(format!(
                "{}: is a volume; `cenote cat` and `cenote cp` read its image",
                term::escape(dataset.name().as_bytes())
            ))),
        }
    }
}

/// Parses a target; the error says what is wrong with it.
pub(super) fn parse(text: &OsStr) -> Result<Target, Failure> {
    Target::parse(text).ok_or_else(|| {
        let text = term::escape(text.as_bytes());
        Failure::Message(format!("'{text}': not of the form POOL/DATASET[@SNAPSHOT]:/PATH"))
    })
}

/// The name of a dataset with the pool's real name in place of the one that was used for it, which may be a
/// guid.
fn with_real_pool(dataset: &str, called: &str, pool: &Pool) -> String {
    match dataset.strip_prefix(called) {
        Some(rest) => format!("{}{rest}", pool.name()),
        None => dataset.to_owned(),
    }
}

fn devices_of_environment() -> Vec<PathBuf> {
    let split = |name: &str, at: u8| -> Vec<PathBuf> {
        let value = console::env(name).unwrap_or_default().into_vec();
        let parts = value.split(|&byte| byte == at).filter(|part| !part.is_empty());
        parts.map(|part| PathBuf::from(OsStr::from_bytes(part))).collect()
    };
    let mut all = split("CENOTE_DEVICES", b'\n');
    all.extend(split("ZPOOL_IMPORT_PATH", b':'));
    all
}

/// Splits `DATASET=FILE`. Names of datasets contain no equals sign.
pub(super) fn split_key(key: &OsStr) -> Result<(String, OsString), Failure> {
    let bytes = key.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=');
    let parts = at.and_then(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)));
    parts
        .and_then(|(name, file)| {
            Some((String::from_utf8(name.to_vec()).ok()?, OsStr::from_bytes(file).to_owned()))
        })
        .filter(|(name, file)| !name.is_empty() && !file.is_empty())
        .ok_or_else(|| {
            Failure::Message(format!("--key '{}': not of the form DATASET=FILE", term::escape(bytes)))
        })
}

fn read_key(file: &OsStr) -> Result<Vec<u8>, Failure> {
    keys::read_file(file).map_err(|error| {
        let file = term::escape(file.as_bytes());
        Failure::Message(format!("cannot read key file {file}: {}", term::io_words(&error)))
    })
}

struct Resolved {
    node: Node,
    path: Vec<u8>,
}

enum Unresolved {
    Message(&'static str),
    Error(Box<Error>),
}

impl<E: Into<Error>> From<E> for Unresolved {
    fn from(error: E) -> Unresolved {
        Unresolved::Error(Box::new(error.into()))
    }
}

/// Resolves a path as the system does within a root directory: `..` at the root stays there, and an absolute
/// link starts again from the root of the file system.
fn resolve(fs: &Arc<Filesystem>, path: &[u8], follow: bool) -> Result<Resolved, Unresolved> {
    let root = fs.node(fs.root())?;
    let mut at: Vec<(Vec<u8>, Node)> = Vec::new();
    let components = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).rev().collect()
    };
    let mut todo = components(path);
    let mut links = 0;
    while let Some(name) = todo.pop() {
        let here = at.last().map_or(&root, |(_, node)| node);
        if !here.is_dir() {
            return Err(Unresolved::Message("Not a directory"));
        }
        match name.as_slice() {
            b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            _ => {}
        }
        let id = fs.lookup(here, &name)?.ok_or(Unresolved::Message("No such file or directory"))?;
        let node = fs.node(id)?;
        if node.kind() == Kind::Symlink && (follow || !todo.is_empty()) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Unresolved::Message("Too many levels of symbolic links"));
            }
            let target = node.readlink()?;
            if target.starts_with(b"/") {
                at.clear();
            }
            todo.extend(components(&target));
        } else {
            at.push((name, node));
        }
    }
    let node = at.last().map_or(root, |(_, node)| node.clone());
    let names: Vec<&[u8]> = at.iter().map(|(name, _)| name.as_slice()).collect();
    if path.ends_with(b"/") && !node.is_dir() {
        return Err(Unresolved::Message("Not a directory"));
    }
    Ok(Resolved { node, path: names.join(&b'/') })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("128M"), Ok(128 << 20));
        assert_eq!(parse_bytes("3"), Ok(3));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        assert!(parse_bytes("M").is_err() && parse_bytes("1X").is_err() && parse_bytes("99999999T").is_err());
    }

    #[test]
    fn keys_are_split_at_the_first_equals_sign() {
        let (name, file) = split_key("p/a=/x=y".as_ref()).unwrap_or_default();
        assert_eq!((name.as_str(), file.to_str()), ("p/a", Some("/x=y")));
        assert!(split_key("p/a".as_ref()).is_err() && split_key("=x".as_ref()).is_err());
    }
}
