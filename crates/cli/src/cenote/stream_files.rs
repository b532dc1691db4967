//! `cenote stream ls`, `cat`, `cp`, `tar`, `find`, `diff`, `mount` and `join`: the files of streams, without receiving
//! them.
// It writes joined streams into files of the user's.
#![allow(clippy::disallowed_types)]

use super::open::{Session, Source, parse_bytes};
use super::stream_keys::Keys;
use super::{Failure, Outcome, cat, cp, cp_args, find, ls, mount, tar, tar_args, term};
use crate::colour;
use crate::console::{RawOut, Stream};
use crate::out::Out;
use crate::zfs::diff::{Shown, line, of_change};
use ::cenote::chain::{Chain, ChainOptions, ChainSnapshot, Input};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of standard input.
const STDIN: &str = "-";
/// Bytes of output that are collected.
const CHUNK: usize = 64 << 10;
/// Bytes for which the output of `join` is buffered.
const BUFFER: usize = 256 << 10;

/// How streams are opened.
#[derive(clap::Args)]
pub(super) struct Opening {
    #[command(flatten)]
    keys: Keys,
    /// The file of the index, instead of `.idx` beside the file with the newest snapshot
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// Make a new index even if there is one
    #[arg(long)]
    reindex: bool,
    /// Bytes of memory for cached blocks (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_bytes)]
    cache: u64,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

#[derive(clap::Args)]
pub(super) struct LsArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    how: ls::How,
    /// Files with streams, then [DATASET][@SNAPSHOT]:/PATH; without any, the root of the newest snapshot
    #[arg(required = true, value_name = "FILE... [TARGET...]")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct CatArgs {
    #[command(flatten)]
    opening: Opening,
    /// Go on behind what cannot be read, with zeros in its place, instead of stopping there
    #[arg(long)]
    partial: bool,
    /// Files with streams, then [DATASET][@SNAPSHOT]:/PATH or a volume; without any, the newest snapshot of the volume
    #[arg(required = true, value_name = "FILE... [TARGET...]")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct CpArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    how: cp_args::How,
    /// Files with streams, then [DATASET][@SNAPSHOT]:/PATH, then where to copy to
    #[arg(required = true, num_args = 2.., value_name = "FILE... [SOURCE...] DESTINATION")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct TarArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    how: tar_args::How,
    /// Files with streams, then [DATASET][@SNAPSHOT]:/PATH; without any, the root of the newest snapshot
    #[arg(required = true, value_name = "FILE... [TARGET...]")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct FindArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    tests: find::Tests,
    /// Files with streams, then [DATASET][@SNAPSHOT]:/PATH; without any, the root of the newest snapshot
    #[arg(required = true, value_name = "FILE... [TARGET...]")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    opening: Opening,
    /// The kind of each file
    #[arg(short = 'F')]
    kinds: bool,
    /// Tabs instead of arrows
    #[arg(short = 'H')]
    scripted: bool,
    /// Names as they are, instead of with escapes
    #[arg(long)]
    raw_names: bool,
    /// Times of change
    #[arg(short = 't')]
    times: bool,
    /// Files with streams, then [DATASET]@SNAPSHOT to start from, and a later one; without that, the newest
    #[arg(required = true, num_args = 2.., value_name = "FILE... FROM [TO]")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct MountArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    how: mount::How,
    /// Files with streams, then [DATASET]@SNAPSHOT, then the directory to mount on; without a snapshot, the file
    /// system with all its snapshots
    #[arg(required = true, num_args = 2.., value_name = "FILE... [TARGET] DIRECTORY")]
    words: Vec<OsString>,
}

#[derive(clap::Args)]
pub(super) struct JoinArgs {
    #[command(flatten)]
    opening: Opening,
    /// FILE instead of standard output; `-` is that
    #[arg(short, long, value_name = "FILE")]
    file: Option<OsString>,
    /// Files with streams, then [DATASET]@SNAPSHOT; without that, the newest
    #[arg(required = true, value_name = "FILE... [TARGET]")]
    words: Vec<OsString>,
}

/// Open streams, and what of them is wanted.
struct Opened {
    chain: Chain,
    source: Source,
}

impl Opened {
    fn new(opening: &Opening, files: &[&OsString]) -> Result<Opened, Failure> {
        let options = ChainOptions {
            index: opening.index.clone(),
            renew: opening.reindex,
            cache_bytes: usize::try_from(opening.cache).unwrap_or(usize::MAX),
        };
        let chain = read(files, &options, opening.quiet)?;
        let source = opening.keys.source(&chain)?;
        Ok(Opened { chain, source })
    }

    fn session(&self) -> Result<Session<'_>, Failure> {
        let session = Session::new(&self.source);
        let pool = self.chain.pool();
        session.adopt_unlocked(pool.name(), pool.clone())?;
        Ok(session)
    }

    /// Names of targets in the pool; without targets, of the newest snapshot.
    fn targets(&self, targets: &[&OsString]) -> Result<Vec<OsString>, Failure> {
        if targets.is_empty() {
            return Ok(vec![self.target(OsStr::new(""))?]);
        }
        targets.iter().map(|target| self.target(target)).collect()
    }

    fn target(&self, text: &OsStr) -> Result<OsString, Failure> {
        let bytes = text.as_bytes();
        let (name, path) = bytes.split_at(path_at(bytes).unwrap_or(bytes.len()));
        let snapshot = self.snapshot(name)?;
        let name = format!("{}@{}", snapshot.dataset, snapshot.snapshot);
        Ok(OsString::from_vec([self.chain.name_in_pool(&name).as_bytes(), path].concat()))
    }

    fn snapshot(&self, name: &[u8]) -> Result<&ChainSnapshot, Failure> {
        Ok(self.chain.find(&String::from_utf8_lossy(name))?)
    }

    /// The snapshot that a word without a path names.
    fn whole(&self, text: &OsStr) -> Result<&ChainSnapshot, Failure> {
        let bytes = text.as_bytes();
        let (name, path) = bytes.split_at(path_at(bytes).unwrap_or(bytes.len()));
        if !matches!(path, b"" | b":" | b":/") {
            let text = term::escape(bytes);
            return Err(Failure::Message(format!("'{text}': not of the form [DATASET]@SNAPSHOT")));
        }
        self.snapshot(name)
    }
}

/// Reads streams, with a progress bar unless `quiet`.
pub(super) fn read(files: &[&OsString], options: &ChainOptions, quiet: bool) -> Result<Chain, Failure> {
    let inputs = files.iter().map(|file| input(file)).collect();
    let target = if quiet { ProgressDrawTarget::hidden() } else { crate::console::progress_target() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{bytes} read, {bytes_per_sec} {wide_msg}") {
        bar.set_style(style);
    }
    let chain = Chain::open(inputs, options, &mut |file, bytes| {
        bar.set_message(term::escape(file.as_os_str().as_bytes()));
        bar.set_position(bytes);
    });
    bar.finish_and_clear();
    Ok(chain?)
}

fn input(file: &OsStr) -> Input {
    if file == STDIN {
        Input::Once { name: STDIN.into(), source: Box::new(crate::console::input()) }
    } else {
        Input::File(file.into())
    }
}

/// Where the path of a target begins, with its colon.
fn path_at(bytes: &[u8]) -> Option<usize> {
    let before_slash = bytes.windows(2).position(|two| two == b":/");
    before_slash.or_else(|| bytes.len().checked_sub(1).filter(|at| bytes.get(*at) == Some(&b':')))
}

/// Whether a word names something in the streams: it has a path after a colon, begins with `@`, or has an `@` and names no
/// file. Words that begin like a path are files.
fn is_target(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    if [&b"/"[..], b"./", b"../"].iter().any(|start| bytes.starts_with(start)) {
        return false;
    }
    let is_named = bytes.contains(&b'@') && Path::new(word).symlink_metadata().is_err();
    path_at(bytes).is_some() || bytes.starts_with(b"@") || is_named
}

/// Divides words into files and targets.
fn divide(words: &[OsString]) -> Result<(Vec<&OsString>, Vec<&OsString>), Failure> {
    let (targets, files): (Vec<_>, Vec<_>) = words.iter().partition(|word| is_target(word));
    if files.is_empty() {
        return Err(Failure::Message("no FILE with a stream: ./NAME is a file in any case".to_owned()));
    }
    Ok((files, targets))
}

pub(super) fn ls(args: &LsArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let opened = Opened::new(&args.opening, &files)?;
    ls::list(&opened.session()?, &args.how, &opened.targets(&targets)?)
}

pub(super) fn cat(args: &CatArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let opened = Opened::new(&args.opening, &files)?;
    cat::print(&opened.session()?, &opened.targets(&targets)?, args.partial)
}

pub(super) fn cp(args: &CpArgs) -> Outcome {
    let Some((to, words)) = args.words.split_last() else { return Err(Failure::Silent) };
    let (files, targets) = divide(words)?;
    let opened = Opened::new(&args.opening, &files)?;
    cp::copy_out(&opened.session()?, &args.how, &opened.targets(&targets)?, to)
}

pub(super) fn tar(args: &TarArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let opened = Opened::new(&args.opening, &files)?;
    tar::archive(&opened.session()?, &args.how, &opened.targets(&targets)?)
}

pub(super) fn find(args: &FindArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let opened = Opened::new(&args.opening, &files)?;
    find::find(&opened.session()?, &args.tests, &opened.targets(&targets)?)
}

pub(super) fn mount(args: &MountArgs) -> Outcome {
    let Some((directory, words)) = args.words.split_last() else { return Err(Failure::Silent) };
    let (files, targets) = divide(words)?;
    mount::read_only(&args.how, Path::new(directory), || {
        let opened = Opened::new(&args.opening, &files)?;
        let name = match targets.as_slice() {
            [] => opened.snapshot(b"")?.dataset.clone(),
            [target] => {
                let snapshot = opened.whole(target)?;
                format!("{}@{}", snapshot.dataset, snapshot.snapshot)
            }
            _ => return Err(Failure::Message("one TARGET is mounted".to_owned())),
        };
        let name = opened.chain.name_in_pool(&name);
        opened.session()?.unlocked_dataset(&super::open::parse(OsStr::new(&name))?)
    })
}

pub(super) fn diff(args: &DiffArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let (from, to) = match targets.as_slice() {
        [from] => (from, None),
        [from, to] => (from, Some(to)),
        _ => return Err(Failure::Message("FROM, or FROM and TO, are compared".to_owned())),
    };
    let opened = Opened::new(&args.opening, &files)?;
    let from = opened.whole(from)?;
    let to = match to {
        Some(to) if to.as_bytes().starts_with(b"@") => {
            opened.whole(&OsString::from_vec([from.dataset.as_bytes(), to.as_bytes()].concat()))?
        }
        Some(to) => opened.whole(to)?,
        None => opened.snapshot(from.dataset.as_bytes())?,
    };
    // Keys are loaded with the session.
    let session = opened.session()?;
    let dataset = |snapshot: &ChainSnapshot| {
        let name = opened.chain.name_in_pool(&format!("{}@{}", snapshot.dataset, snapshot.snapshot));
        session.unlocked_dataset(&super::open::parse(OsStr::new(&name))?)
    };
    let (old, new) = (dataset(from)?, dataset(to)?);
    let out = Out::new();
    let shown = Shown {
        kinds: args.kinds,
        scripted: args.scripted,
        raw: args.raw_names,
        times: args.times,
        terminal: term::out_is_terminal(),
    };
    let is_painted = colour::are_wanted(&out);
    let print = |text: Vec<u8>| {
        out.print_bytes(&if is_painted { colour::paint(&text, of_change) } else { text });
    };
    let mut text = Vec::new();
    let done = ::admin::diff::diff(&old, &new, &mut |change| {
        line(&change, shown, &mut text);
        if text.len() >= CHUNK {
            print(std::mem::take(&mut text));
        }
        ControlFlow::Continue(())
    });
    print(text);
    done?;
    Ok(0)
}

pub(super) fn join(args: &JoinArgs) -> Outcome {
    let (files, targets) = divide(&args.words)?;
    let file = args.file.as_deref().filter(|file| *file != STDIN);
    if file.is_none() && Stream::Out.is_terminal() {
        let why = "a stream is not written to a terminal: use -f FILE or a pipe";
        return Err(Failure::Message(why.to_owned()));
    }
    let opened = Opened::new(&args.opening, &files)?;
    let snapshot = match targets.as_slice() {
        [] => opened.snapshot(b"")?,
        [target] => opened.whole(target)?,
        _ => return Err(Failure::Message("one TARGET is joined".to_owned())),
    };
    let Some(file) = file else {
        return write_joined(&opened.chain, snapshot, &mut RawOut::new());
    };
    // The file appears when it is whole.
    let mut part = file.to_owned();
    part.push(format!(".{}", std::process::id()));
    let failed = |error: std::io::Error| {
        Failure::Message(format!("{}: {}", term::escape(file.as_bytes()), term::io_words(&error)))
    };
    let mut made = std::fs::File::create_new(&part).map_err(failed)?;
    let done = write_joined(&opened.chain, snapshot, &mut made);
    if done.is_ok() {
        std::fs::rename(&part, file).map_err(failed)?;
    } else {
        // It is of no use; the first error is told.
        let _ = std::fs::remove_file(&part);
    }
    done
}

fn write_joined(chain: &Chain, snapshot: &ChainSnapshot, out: &mut dyn Write) -> Outcome {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    chain.join(snapshot, &mut out, &mut |_| ControlFlow::Continue(()))?;
    out.flush()?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_files_or_targets() {
        let targets =
            ["@mon", "@mon:/etc", ":/etc", "tank/home@mon:/", "tank/home:/a", "tank/no-such-file@mon", "a:"];
        assert!(targets.iter().all(|word| is_target(word.as_ref())));
        let files = ["full.zfs", "-", "/b/home@mon", "./@mon", "../a:/b", "dir/a.zfs.zst"];
        assert!(!files.iter().any(|word| is_target(word.as_ref())));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("home@mon.zfs");
        std::fs::write(&file, b"").expect("written");
        assert!(!is_target(file.as_os_str()));
    }
}
