//! `cenote cat`: writes the bytes of files and volumes to standard output.

use std::ffi::OsString;

use super::bytes_out::Output;
use super::open::{Session, Source};
use super::{Outcome, code, term};
use crate::console::RawOut;

/// Write files, or the raw image of volumes, to standard output
///
/// Symbolic links are followed. Into a file, holes stay holes.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Go on behind what cannot be read, with zeros in its place, instead of stopping there
    #[arg(long)]
    partial: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH, or a volume POOL/VOLUME[@SNAPSHOT]
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    print(&Session::new(&args.source), &args.targets, args.partial)
}

/// Writes the bytes of these targets; `is_partial`: zeros in place of what cannot be read.
pub(super) fn print(session: &Session<'_>, targets: &[OsString], is_partial: bool) -> Outcome {
    let mut out = Output::new(RawOut::new());
    let mut failed = false;
    for target in targets {
        let found = match session.find(target, true) {
            Ok(found) => found,
            Err(failure) => {
                failure.tell()?;
                failed = true;
                continue;
            }
        };
        let shown = term::escape(std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str()));
        let content = match found.content() {
            Ok(content) => content,
            Err(why) => {
                term::complain(format_args!("{shown}: {why}"));
                failed = true;
                continue;
            }
        };
        failed |= out.content(content, &shown, is_partial)?;
    }
    out.finish()?;
    Ok(code(failed))
}
