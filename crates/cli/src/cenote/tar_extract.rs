//! `cenote tar -x`: extracts archives into pools.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use ::cenote::copy::TarReader;
use ::cenote::copy::import::{Options, import, unpack};
use ::cenote::{CancelFlag, Error};

use super::copying::Teller;
use super::tar_args::Args;
use super::writing::{WritablePath, Writing, cannot, why};
use super::{Failure, Outcome, code, term};
use crate::console::{self, Input};

/// Interval at which a thread that waits for the archive checks for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes read at a time.
const BUFFER: usize = 1 << 20;
/// Magic of a file that zstd has compressed.
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The members that the command line names.
struct Members<'m> {
    names: Vec<&'m [u8]>,
    found: Vec<std::cell::Cell<bool>>,
}

impl<'m> Members<'m> {
    fn new(names: &'m [std::ffi::OsString]) -> Members<'m> {
        let names: Vec<_> = names.iter().map(|name| trimmed(name.as_bytes())).collect();
        let found = names.iter().map(|_| std::cell::Cell::new(false)).collect();
        Members { names, found }
    }

    /// Whether a member is extracted: all if none was named, else the named ones and members below them.
    fn is_wanted(&self, member: &[u8]) -> bool {
        let member = trimmed(member);
        let mut is_wanted = self.names.is_empty();
        for (name, found) in self.names.iter().zip(&self.found) {
            let rest = member.strip_prefix(*name);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
                found.set(true);
                is_wanted = true;
            }
        }
        is_wanted
    }

    fn missing(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().zip(&self.found).filter(|(_, found)| !found.get()).map(|(name, _)| *name)
    }
}

fn trimmed(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    name.strip_suffix(b"/").unwrap_or(name)
}

pub(super) fn run(args: &Args) -> Outcome {
    let Some((target, members)) = args.targets.split_first() else { return Err(Failure::Silent) };
    let pools = Writing::new(&args.source)?;
    let input = input(args, pools.stop())?;
    let outcome = extract(args, &pools, target, &Members::new(members), input);
    pools.end(outcome)
}

fn extract(
    args: &Args,
    pools: &Writing<'_>,
    target: &OsStr,
    members: &Members<'_>,
    input: Box<dyn Read>,
) -> Outcome {
    let WritablePath { fs, path, shown } = pools.writable_path(target)?;
    let failure = |error| cannot(format_args!("extract into '{shown}'"), &error);
    let top = match fs.resolve(&path) {
        Err(Error::NoSuchPath { .. }) => {
            let path = path.strip_suffix(b"/").unwrap_or(&path);
            fs.create_dir(path, 0o777 & !console::umask()).map_err(failure)?
        }
        found => found.map_err(failure)?,
    };
    let options = Options {
        owners: !args.no_owner,
        keep_existing: args.keep_old_files,
        threads: args.threads,
        cancel: pools.stop().clone(),
        ..Options::default()
    };
    let mut teller = Teller::new(args.how.verbose);
    let mut archive = TarReader::new(input);
    let (done, summary) = import(&fs, &options, &mut teller, |importer| {
        let top = importer.top(top, b"").map_err(|error| {
            Failure::Message(format!("cannot extract into '{shown}': {}", why(&error.into())))
        })?;
        let wanted = |name: &[u8]| members.is_wanted(name);
        Ok::<_, Failure>(unpack(importer, &top, b"", &mut archive, &wanted))
    });
    teller.finish(&summary);
    let mut failed = summary.failures > 0;
    if pools.stop().is_cancelled() {
        return done.map(|_| code(failed));
    }
    if let Err(error) = done? {
        let name = args.how.file.as_deref().unwrap_or(OsStr::new("-"));
        term::complain(format_args!("{}: {}", term::escape(name.as_bytes()), term::chain(&error)));
        failed = true;
    } else {
        for missing in members.missing() {
            term::complain(format_args!("{}: Not found in archive", term::escape(missing)));
            failed = true;
        }
    }
    Ok(code(failed))
}

/// Standard input that ends when the command is cancelled: its writer may never end it.
struct Stoppable {
    input: Input,
    stop: CancelFlag,
}

impl Read for Stoppable {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.is_cancelled() {
                return Ok(0);
            }
            if self.input.is_ready(buf.len(), LOOK_EVERY)? {
                return self.input.read(buf);
            }
        }
    }
}

/// The archive, decompressed if zstd has compressed it.
#[allow(clippy::disallowed_types)] // The archive is a file of the user's, no device.
fn input(args: &Args, stop: &CancelFlag) -> Result<Box<dyn Read>, Failure> {
    let name = args.how.file.as_deref().filter(|name| *name != "-");
    let shown = name.map_or_else(|| "-".to_owned(), |name| term::escape(name.as_bytes()));
    let failure = |error: io::Error| Failure::Message(format!("{shown}: {}", term::io_words(&error)));
    let raw: Box<dyn Read> = match name {
        Some(file) => Box::new(std::fs::File::open(file).map_err(failure)?),
        None if console::input().is_terminal() => {
            let why = "an archive is not read from a terminal: use -f FILE or a pipe";
            return Err(Failure::Message(why.to_owned()));
        }
        None => Box::new(Stoppable { input: console::input(), stop: stop.clone() }),
    };
    let mut buffered = BufReader::with_capacity(BUFFER, raw);
    if buffered.fill_buf().map_err(failure)?.starts_with(&ZSTD) {
        let decoded = zstd::stream::read::Decoder::with_buffer(buffered).map_err(failure)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER, decoded)));
    }
    Ok(Box::new(buffered))
}
