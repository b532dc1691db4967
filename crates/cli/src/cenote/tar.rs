//! `cenote tar`: writes files and trees as an archive, and extracts archives into pools
//! ([`super::tar_extract`]).

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use ::cenote::copy::{Archiver, Damaged, TarWriter, children};

use super::copying::Teller;
use super::open::Session;
use super::tar_args::{Args, How};
use super::{Failure, Outcome, code, tar_extract, term};
use crate::console::{RawOut, Stream};

pub(super) fn run(args: &Args) -> Outcome {
    if args.extract {
        return tar_extract::run(args);
    }
    archive(&Session::new(&args.source), &args.how, &args.targets)
}

/// Writes an archive of these targets.
pub(super) fn archive(session: &Session<'_>, args: &How, targets: &[OsString]) -> Outcome {
    let output = output(args)?;
    // All targets are opened before the archive is begun, so that a wrong name does not leave half an
    // archive.
    let found: Vec<_> =
        targets.iter().map(|target| session.find_file(target, false)).collect::<Result<_, _>>()?;
    let damaged = if args.partial { Damaged::ZeroFill } else { Damaged::LeaveOut };
    let mut teller = Teller::new(args.verbose);
    let tar = TarWriter::new(BufWriter::with_capacity(256 << 10, output), !args.no_sparse);
    let mut archiver = Archiver::new(tar, damaged, &mut teller);
    for file in &found {
        let pool = file.dataset.pool().clone();
        let below = move |dataset: &str| children(&pool, dataset);
        let below: Option<&dyn Fn(&str) -> _> = if args.children { Some(&below) } else { None };
        archiver.add(&file.fs, &file.node, (file.dataset.name(), &file.shown), &file.path, below)?;
    }
    let summary = archiver.finish()?;
    teller.finish(&summary);
    Ok(code(summary.failures > 0))
}

#[allow(clippy::disallowed_types)] // The archive is a file of the user's, no device.
fn output(args: &How) -> Result<Box<dyn Write>, Failure> {
    match &args.file {
        Some(file) if file != "-" => {
            let created = std::fs::File::create(file);
            let created = created.map_err(|error| {
                Failure::Message(format!("{}: {}", term::escape(file.as_bytes()), term::io_words(&error)))
            })?;
            Ok(Box::new(created))
        }
        _ if Stream::Out.is_terminal() => {
            Err(Failure::Message("an archive is not written to a terminal: use -f FILE or a pipe".to_owned()))
        }
        _ => Ok(Box::new(RawOut::new())),
    }
}
