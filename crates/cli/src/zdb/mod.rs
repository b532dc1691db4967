//! `zdb`: prints the structures of a pool.
//!
//! The pool is opened read-only in this process, whether or not `-e` is given. Content and, nearly
//! everywhere, layout are those of OpenZFS's `zdb`.
//!
//! # What always holds
//! - Exit codes: 0 no problems; 1 wrong usage, or the pool cannot be opened; 2 leaked space, a wrong feature
//!   count, or no valid label; 3 unreadable blocks.
// Zdb always runs in a process of its own, not in the daemon.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod blocks;
mod bonus;
mod bp;
mod clones;
mod contents;
mod copy;
mod datasets;
mod deadlists;
mod dedup;
mod dirty_times;
mod history;
mod io_stats;
mod labels;
mod livelists;
mod metaslabs;
pub(crate) mod nvprint;
mod object;
mod options;
mod raw;
pub(crate) mod text;
mod uberblock;
mod verdict;
mod view;
mod zil;
mod znode;

use cenote::error::chain;
use cenote::inspect::space_map_counts;
use cenote::{OpenOptions, Pool};
use options::{Options, USAGE, parse};
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use verdict::Verdict;

/// Suffix of the name of a pool that is opened as of its checkpoint.
const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";

/// Runs `zdb` with these arguments, the command's name left out.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let (options, operands) = match parse(args) {
        Ok(parsed) => parsed,
        Err(message) => {
            eprint!("{message}{USAGE}");
            return Verdict::Failed.into();
        }
    };
    let stdout = io::stdout().lock();
    let mut out: Box<dyn Write> = if stdout.is_terminal() {
        Box::new(text::Visible(BufWriter::new(stdout)))
    } else {
        Box::new(BufWriter::with_capacity(1 << 16, stdout))
    };
    let result = run(&options, &operands, &mut out);
    match result.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(141),
        Err(error) => {
            eprintln!("zdb: {error}");
            Verdict::Failed.into()
        }
    }
}

fn run(options: &Options, operands: &[String], out: &mut dyn Write) -> io::Result<ExitCode> {
    if options.has('l') {
        let Some(device) = operands.first() else { return usage() };
        return labels::print(options, device, out).map(ExitCode::from);
    }
    if options.has('E') {
        let [words] = operands else { return usage() };
        return raw::print_embedded(words, out).map(ExitCode::from);
    }
    let Some((target, rest)) = operands.split_first() else {
        eprintln!("zdb: no pool named");
        return usage();
    };
    let name = target.split(['/', '@', '#']).next().unwrap_or(target);
    let is_dataset = name.len() < target.len();
    // `POOL/` is the dataset of the pool.
    let target = target.strip_suffix('/').unwrap_or(target);
    let below = &target[name.len()..];
    if options.has('N') && is_dataset && !datasets::is_number(below) {
        println!("Supply a numeric objset ID with -N");
        return Ok(Verdict::Failed.into());
    }
    // A pool as of its checkpoint has another name, to distinguish it from the present pool.
    let seen_as = if options.has('k') { format!("{name}{CHECKPOINTED}") } else { name.to_owned() };
    let target = &format!("{seen_as}{below}");
    let pool = match open(name, &seen_as, options) {
        Ok(pool) => pool,
        Err(error) => {
            eprintln!("zdb: can't open '{name}{below}': {}", crate::zdb::chain(&error));
            return Ok(Verdict::Failed.into());
        }
    };
    if let Some(key) = &options.key
        && let Err(error) = pool.load_key(target, key.as_encoded_bytes())
    {
        eprintln!("zdb: can't load the key of '{target}': {}", chain(&error));
        return Ok(Verdict::Failed.into());
    }
    let verdict = match rest {
        [path, copy] if options.has('r') => return copy::copy(&pool, target, path, copy, out),
        [place] if options.has('R') => raw::print(&pool, place, options, out)?,
        [path] if options.has('O') => print_path(&pool, target, path, options, out)?,
        _ if ['r', 'R', 'O'].iter().any(|letter| options.has(*letter)) => return usage(),
        objects if is_dataset && !datasets::is_whole_pool(&pool, target, options.has('N')) => {
            datasets::print_one(&pool, Some(target), objects, options, out)?
        }
        objects => print_pool(&pool, objects, options, out)?,
    };
    Ok(verdict.into())
}

fn usage() -> io::Result<ExitCode> {
    eprint!("{USAGE}");
    Ok(Verdict::Failed.into())
}

/// Prints the object at a path in a file system.
fn print_path(
    pool: &Pool,
    dataset: &str,
    path: &str,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let found = || -> Result<Option<u64>, cenote::Error> {
        let files = pool.dataset(dataset)?.filesystem()?;
        let node = files.filesystem().resolve(path.as_bytes())?;
        Ok(node.map(|node| node.id().0))
    };
    let why = match found() {
        Ok(Some(object)) => {
            return datasets::print_one(pool, Some(dataset), &[object.to_string()], options, out);
        }
        Ok(None) => "No such file or directory".to_owned(),
        Err(error) => chain(&error),
    };
    eprintln!("failed to lookup {path} in {dataset}: {why}");
    Ok(Verdict::Failed)
}

fn open(name: &str, seen_as: &str, options: &Options) -> Result<Pool, cenote::Error> {
    let mut how = OpenOptions::new().destroyed(true).allow_missing_logs(true);
    let places: Vec<_> = match &options.paths[..] {
        [] => crate::zdb::default_places(name, options.has('e')),
        paths => paths.iter().map(Into::into).collect(),
    };
    for place in places {
        how = how.search(place);
    }
    if options.has('k') {
        how = how.checkpoint(true).known_as(seen_as);
    }
    if let Some(txg) = options.txg {
        how = how.max_txg(txg);
    }
    Pool::open(name, &how)
}

/// Where devices are looked for: the search paths of the environment, as for all other commands; else the
/// devices that the cache file names for an imported pool; else all devices of the machine.
fn default_places(name: &str, is_exported: bool) -> Vec<std::path::PathBuf> {
    let named = admin::Search::from_env().paths;
    if !named.is_empty() || is_exported {
        return named;
    }
    let imported = admin::Imported::load().unwrap_or_default();
    imported.by_name(name).map_or_else(Vec::new, |pool| pool.paths().collect())
}

fn print_pool(
    pool: &Pool,
    objects: &[String],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let mut verdict = Verdict::Clean;
    if options.has('S') {
        return dedup::print_simulated(pool, out);
    }
    if options.has('m') && !objects.is_empty() {
        return metaslabs_of(pool, objects, options, out);
    }
    if !objects.is_empty() {
        return datasets::print_one(pool, None, objects, options, out);
    }
    if options.has('y') {
        verdict = verdict.max(livelists::verify(pool, out)?);
    }
    if options.has('C') {
        writeln!(out, "\nMOS Configuration:")?;
        write!(out, "{}", nvprint::Indented { list: &pool.spa().config().raw, indent: 8 })?;
    }
    if options.has('u') {
        writeln!(out, "\nUberblock:")?;
        uberblock::print(out, pool.spa().uberblock())?;
        writeln!(out)?;
    }
    if options.has('D') {
        verdict = verdict.max(dedup::print(pool, options, out)?);
    }
    if options.has('T') {
        verdict = verdict.max(clones::print(pool, options, out)?);
    }
    if options.detail('d') > 2 || options.has('m') || options.has('M') {
        verdict = verdict.max(metaslabs::print(pool, options, None, out)?);
    }
    if options.has('d') || options.has('i') {
        verdict = verdict.max(datasets::print_all(pool, options, out)?);
    }
    if verdict == Verdict::Clean && (options.has('b') || options.has('c')) {
        verdict = blocks::print(pool, options, out)?;
    }
    if verdict == Verdict::Clean {
        verdict = print_space_map_counts(pool, out)?;
    }
    if options.has('s') {
        verdict = verdict.max(io_stats::print(pool, options, out)?);
    }
    if options.has('h') {
        verdict = verdict.max(history::print(pool, options.detail('h'), out)?);
    }
    if verdict == Verdict::Clean {
        verdict = print_checkpoint(pool, options, out)?;
    }
    Ok(verdict)
}

fn metaslabs_of(
    pool: &Pool,
    operands: &[String],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let numbers: Result<Vec<u64>, _> = operands.iter().map(|o| o.parse::<u64>()).collect();
    match numbers.as_deref() {
        Ok([vdev, metaslabs @ ..]) => metaslabs::print(pool, options, Some((*vdev, metaslabs)), out),
        _ => {
            eprintln!("zdb: bad vdev or metaslab number");
            Ok(Verdict::Failed)
        }
    }
}

/// Compares the count of space maps with histograms to the feature's count; prints a line only if they
/// differ.
fn print_space_map_counts(pool: &Pool, out: &mut dyn Write) -> io::Result<Verdict> {
    match space_map_counts(pool) {
        Ok(Some((expected, actual))) if expected != actual => {
            writeln!(out, "space map refcount mismatch: expected {expected} != actual {actual}")?;
            Ok(Verdict::Inconsistent)
        }
        Ok(_) => Ok(Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}

/// Prints the uberblock that a checkpoint keeps, if there is one, and with four `m` the blocks that were
/// freed since.
fn print_checkpoint(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    match pool.spa().checkpoint() {
        Ok(Some(uberblock)) => {
            writeln!(out, "\nCheckpointed uberblock found:")?;
            uberblock::print(out, &uberblock)?;
            writeln!(out)?;
            if options.count('m') > 3 {
                metaslabs::print_checkpoint(pool, options, out)
            } else {
                Ok(Verdict::Clean)
            }
        }
        Ok(None) => Ok(Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}
