//! `cenote`: work on files of a pool without mounting it, checks of pools, and private mounts.
//!
//! Every verb works on `POOL/dataset[@snapshot]:/path` and opens the pool in this process: read-only, or for
//! writing if the verb changes something ([`writing`]). A file that cannot be read or written is reported on
//! standard error and makes the exit code 1, even if others succeed.

mod bytes_out;
pub(crate) use bytes_out::{can_have_holes, end_in_hole};
mod cat;
mod chmod;
mod copying;
mod cp;
mod cp_args;
mod cp_into;
mod failure;
mod find;
mod glob;
mod ln;
mod ls;
mod mkdir;
mod mode_text;
mod mount;
mod mv;
mod observe;
mod open;
pub(crate) mod replicate;
mod rm;
mod stat;
mod stream;
mod stream_files;
mod stream_keys;
mod stream_macs;
mod tar;
mod tar_args;
mod tar_extract;
pub(crate) mod term;
mod truncate;
mod verb;
mod verify;
mod writing;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use crate::console::{self, Stream};
use crate::daemon::{Programs, RunProgram};
use crate::rights;
use failure::{Failure, Outcome, code};
use term::complain;

const ABOUT: &str =
    "ZFS pools without a kernel module: list, copy in and out, change, check and mount their files";

const LONG_ABOUT: &str = "\
ZFS pools without a kernel module: list, copy in and out, change, check and mount their files.

Files are named POOL/DATASET[@SNAPSHOT]:/PATH. The pool may be given by its guid. It is opened
read-only, as of its last transaction group, and nothing is written to its devices, but by the verbs
that change files: mkdir, rm, mv, ln, chmod, chown, truncate, touch, cp with a pool as destination, and
tar -x. Those have the pool for themselves while they run, and end when all is on disk. Devices and
image files are looked for where -d says (a folder, a device or an image; repeatable), else in
CENOTE_DEVICES (one path a line) and ZPOOL_IMPORT_PATH (separated by colons), else among the
devices of this machine.

Encrypted datasets need --key DATASET=FILE, or --key DATASET=prompt; when the command runs at a
terminal, it asks for a key that was not given.

Exit status: 0 all done; 1 something could not be read, found or written; 2 wrong usage; 130 a
signal ended a verb that changes files: the pool is closed then, a second signal ends at once.
`verify` has its own, see `cenote verify --help`.";

#[derive(Parser)]
#[command(name = "cenote", version, about = ABOUT, long_about = LONG_ABOUT, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Ls(ls::Args),
    Stat(stat::Args),
    Cat(cat::Args),
    Cp(cp_args::Args),
    Tar(tar_args::Args),
    Mkdir(mkdir::Args),
    Rm(rm::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Chmod(chmod::ModeArgs),
    Chown(chmod::OwnerArgs),
    Truncate(truncate::Args),
    Touch(truncate::TouchArgs),
    Find(find::Args),
    Verify(verify::Args),
    Stream(stream::Args),
    Replicate(Box<replicate::Args>),
    Mount(mount::Args),
    Tour(crate::tour::Args),
    Daemon(crate::daemon::Args),
    Kstat(observe::KstatArgs),
    Metrics(observe::MetricsArgs),
    #[command(name = "verb")]
    Named(verb::Args),
    Completions(crate::completions::Args),
    #[command(hide = true)]
    Complete(crate::completions::CompleteArgs),
}

/// The command line, as the parser knows it.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Whether this is one of the verbs.
pub(crate) fn is_verb(word: &str) -> bool {
    word == "help" || command().get_subcommands().any(|verb| verb.get_name() == word)
}

/// The pool that `cenote mount` is to mount from; `None` if it says on which devices that is, or makes no sense.
fn pool_to_mount(args: &[OsString]) -> Option<String> {
    let words = std::iter::once(OsString::from("cenote")).chain(args.iter().cloned());
    match Cli::try_parse_from(words).ok()?.verb {
        Verb::Mount(args) => args.pool(),
        _ => None,
    }
}

/// Runs `cenote` with these arguments, the first of which is its name. `run_program`: how a daemon runs what its
/// clients ask for.
pub(crate) fn main(args: impl Iterator<Item = OsString>, run_program: RunProgram) -> u8 {
    let args = find::with_long_options(args.collect());
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors, and go to standard output.
            let code = if error.use_stderr() { 2 } else { 0 };
            print_clap(&error);
            return code;
        }
    };
    // Other users may run only the verb that writes to standard output alone and reads no files.
    if !rights::is_administrator() && !matches!(cli.verb, Verb::Metrics(_)) {
        complain("permission denied");
        return 1;
    }
    let outcome = match cli.verb {
        Verb::Ls(args) => ls::run(&args),
        Verb::Stat(args) => stat::run(&args),
        Verb::Cat(args) => cat::run(&args),
        Verb::Cp(args) => cp::run(&args),
        Verb::Tar(args) => tar::run(&args),
        Verb::Mkdir(args) => mkdir::run(&args),
        Verb::Rm(args) => rm::run(&args),
        Verb::Mv(args) => mv::run(&args),
        Verb::Ln(args) => ln::run(&args),
        Verb::Chmod(args) => chmod::run(&args),
        Verb::Chown(args) => chmod::chown(&args),
        Verb::Truncate(args) => truncate::run(&args),
        Verb::Touch(args) => truncate::touch(&args),
        Verb::Find(args) => find::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Stream(args) => stream::run(&args),
        Verb::Replicate(args) => replicate::run(&args),
        Verb::Mount(args) => mount::run(&args),
        Verb::Tour(args) => Ok(crate::tour::run(&args)),
        Verb::Kstat(args) => observe::kstat(&args),
        Verb::Metrics(args) => observe::metrics(&args),
        Verb::Named(args) => verb::run(&args),
        Verb::Daemon(args) => Ok(crate::daemon::run(&args, Programs { run: run_program, pool_to_mount })),
        Verb::Completions(args) => Ok(crate::completions::run(&args)),
        Verb::Complete(args) => Ok(crate::completions::complete(&args, command)),
    };
    match outcome {
        Ok(code) => code,
        // The exit code of a process that SIGPIPE ended.
        Err(Failure::NoReader) => 141,
        Err(Failure::Interrupted) => {
            complain("interrupted: what was done until then is on disk");
            writing::INTERRUPTED
        }
        Err(failure) => {
            let _ = failure.tell();
            1
        }
    }
}

/// Prints a message of clap, in colors if it goes to a terminal.
fn print_clap(error: &clap::Error) {
    let stream = if error.use_stderr() { Stream::Err } else { Stream::Out };
    let is_plain = console::env("NO_COLOR").is_some_and(|value| !value.is_empty());
    let text = error.render();
    let text = if stream.is_terminal() && !is_plain { text.ansi().to_string() } else { text.to_string() };
    // A failure cannot be reported anywhere.
    let _ = console::write(stream, text.as_bytes());
}
