//! `cenote stream`: looks into send streams without receiving them.
// It reads files with streams.
#![allow(clippy::disallowed_types)]

use super::stream_keys::Keys;
use super::{Failure, Outcome, stream_files as files, stream_macs, term};
use crate::out::Out;
use crate::table::{self, Column};
use ::cenote::chain::unpacked;
use ::cenote::stream::{Substream, Survey, survey};
use clap::Subcommand;
use format::nicenum::nicebytes;
use format::stream::feature;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::Read;

/// Name of standard input.
const STDIN: &str = "-";
/// Number of snapshots that are listed: a hostile file of some KiB may contain millions.
const LISTED_MAX: usize = 100_000;
/// Look into send streams without receiving them
///
/// A FILE holds what `zfs send` wrote, as it is or compressed with zstd or gzip. `-` is standard input. No pool is
/// needed.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check that streams are whole and can be received
    ///
    /// Reads every byte, compares all checksums, and checks the rules that receivers check, except those that
    /// depend on the receiving pool. The first problem of each stream is told with its byte.
    ///
    /// With --key, locked (raw) streams are decrypted as well, and every block is compared with its MAC. The FILEs
    /// must then be those that `cenote stream ls` reads together.
    ///
    /// Exit status: 0 all streams are whole; 1 one is damaged, cut or breaks a rule, or a key is wrong.
    Verify(VerifyArgs),
    /// Tell which snapshots streams contain
    ///
    /// Exit status: 0 done; 1 a stream is damaged, cut or breaks a rule: what was read until then is told.
    Info(InfoArgs),
    /// List directories in streams
    ///
    /// As `cenote ls` does. The files of every snapshot of a full stream and of the increments on it can be read, in
    /// any order of the FILEs. The first look at them reads them once and makes an index, which stays beside the
    /// file with the newest snapshot (FILE.idx): later looks read what they need. A word is a TARGET if it has `:/`,
    /// begins with `@`, or has an `@` and names no file.
    Ls(files::LsArgs),
    /// Write files, or the raw image of volumes, in streams to standard output
    ///
    /// See `cenote cat` and `cenote stream ls`.
    Cat(files::CatArgs),
    /// Copy files, directories and volumes out of streams
    ///
    /// See `cenote cp` and `cenote stream ls`.
    Cp(files::CpArgs),
    /// Write files and directories in streams as a tar archive
    ///
    /// See `cenote tar` and `cenote stream ls`.
    Tar(files::TarArgs),
    /// Print the paths of files in streams that have all the attributes asked for
    ///
    /// See `cenote find` and `cenote stream ls`.
    Find(files::FindArgs),
    /// Tell what has changed from one snapshot in streams to another
    ///
    /// As `zfs diff` does, with paths from the root of the file system. See `cenote stream ls`.
    Diff(files::DiffArgs),
    /// Mount a snapshot in streams through FUSE, or a file system with all its snapshots
    ///
    /// See `cenote mount` and `cenote stream ls`.
    Mount(files::MountArgs),
    /// Make one full stream of a full stream and increments
    ///
    /// It has the newest snapshot, or that of TARGET, and none of the earlier ones; large and embedded blocks are
    /// sent as they are. See `cenote stream ls`.
    Join(files::JoinArgs),
}

#[derive(clap::Args)]
struct Files {
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Files with streams
    #[arg(required = true, value_name = "FILE")]
    files: Vec<OsString>,
}

#[derive(clap::Args)]
struct VerifyArgs {
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    files: Files,
}

#[derive(clap::Args)]
struct InfoArgs {
    #[command(flatten)]
    files: Files,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// No header, columns separated by tabs
    #[arg(short = 'H', long)]
    scripted: bool,
    /// Exact numbers
    #[arg(short, long)]
    parsable: bool,
}

/// Runs `cenote stream`.
pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Verify(args) => verify(args),
        Command::Info(args) => info(args),
        Command::Ls(args) => files::ls(args),
        Command::Cat(args) => files::cat(args),
        Command::Cp(args) => files::cp(args),
        Command::Tar(args) => files::tar(args),
        Command::Find(args) => files::find(args),
        Command::Diff(args) => files::diff(args),
        Command::Mount(args) => files::mount(args),
        Command::Join(args) => files::join(args),
    }
}

/// The survey of a file, as far as it could be read, and why it could not be read further.
fn survey_file(file: &OsStr, is_quiet: bool, each: &mut dyn FnMut(Substream)) -> (Survey, Option<Failure>) {
    let target = if is_quiet { ProgressDrawTarget::hidden() } else { crate::console::progress_target() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{bytes} read, {bytes_per_sec} {wide_msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(term::escape(file.as_encoded_bytes()));
    let mut found = Survey::default();
    let result = open(file).and_then(|source| {
        survey(source, &mut found, each, |bytes| bar.set_position(bytes)).map_err(Failure::from)
    });
    bar.finish_and_clear();
    (found, result.err())
}

/// Opens a file, and decompresses it if it is compressed.
fn open(file: &OsStr) -> Result<Box<dyn Read + Send>, Failure> {
    let source: Box<dyn Read + Send> =
        if file == STDIN { Box::new(crate::console::input()) } else { Box::new(std::fs::File::open(file)?) };
    Ok(unpacked(source)?.1)
}

fn verify(args: &VerifyArgs) -> Outcome {
    let has_problems = verify_files(&args.files)?;
    if !has_problems && args.keys.are_given() {
        return stream_macs::verify(&args.keys, &args.files.files, args.files.quiet);
    }
    Ok(u8::from(has_problems))
}

/// Whether a file is not whole.
fn verify_files(args: &Files) -> Result<bool, Failure> {
    let out = Out::new();
    let mut has_problems = false;
    for file in &args.files {
        let (found, failure) = survey_file(file, args.quiet, &mut |_| {});
        let name = term::escape(file.as_encoded_bytes());
        if let Some(failure) = failure {
            has_problems = true;
            tell(&name, failure)?;
            continue;
        }
        let (streams, size) = (
            counted(found.streams + u64::from(found.unfinished.is_some()), "snapshot"),
            nicebytes(found.bytes),
        );
        if found.is_complete {
            out.print(&format!("{name}: whole: {streams}, {size}\n"));
        } else {
            has_problems = true;
            let cut = match &found.unfinished {
                Some(last) => format!("it ends within {}", term::escape(last.begin.name())),
                None if found.package.is_some() => "the end of the package is missing".to_owned(),
                None => "it is empty".to_owned(),
            };
            term::complain(format!("{name}: not whole: {streams}, {size}; {cut}"));
        }
    }
    Ok(has_problems)
}

fn tell(name: &str, failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::Message(text) => {
            term::complain(format!("{name}: {text}"));
            Ok(())
        }
        other => other.tell(),
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("{count} {noun}") } else { format!("{count} {noun}s") }
}

fn info(args: &InfoArgs) -> Outcome {
    let out = Out::new();
    let (mut rows, mut listed, mut has_problems) = (Vec::new(), Vec::new(), false);
    for file in &args.files.files {
        let name = term::escape(file.as_encoded_bytes());
        let mut streams = Vec::new();
        let mut list = |stream: Substream| {
            if rows.len() >= LISTED_MAX {
                return;
            }
            rows.push(row(&name, &stream, args.parsable));
            if args.json {
                streams.push(json_of(&stream));
            }
        };
        let (mut found, failure) = survey_file(file, args.files.quiet, &mut list);
        if let Some(unfinished) = found.unfinished.take() {
            list(unfinished);
        }
        listed.push(as_json(&name, &found, failure.is_some(), &streams));
        if let Some(failure) = failure {
            has_problems = true;
            tell(&name, failure)?;
        }
        if rows.len() >= LISTED_MAX {
            has_problems = true;
            term::complain(format!("{name}: only the first {LISTED_MAX} snapshots are listed"));
        }
    }
    if args.json {
        out.print(&format!("{:#}\n", Value::from(listed)));
    } else {
        let columns = [
            ("FILE", false),
            ("SNAPSHOT", false),
            ("FROM", false),
            ("KIND", false),
            ("SIZE", true),
            ("RECORDS", true),
            ("CREATED", false),
            ("STATE", false),
        ];
        let columns = columns.map(|(header, right)| Column::new(header, right)).into();
        out.print(&table::whole(&out, columns, &rows, args.scripted));
    }
    Ok(u8::from(has_problems))
}

/// Kind of the object set.
fn kind(stream: &Substream) -> &'static str {
    if stream.begin.objset_type == 3 { "volume" } else { "filesystem" }
}

fn row(file: &str, stream: &Substream, is_parsable: bool) -> Vec<String> {
    let begin = &stream.begin;
    let from = if begin.from_guid == 0 { "-".to_owned() } else { begin.from_guid.to_string() };
    let (size, created) = if is_parsable {
        (stream.bytes.to_string(), begin.creation_time.to_string())
    } else {
        (nicebytes(stream.bytes), crate::time::creation(begin.creation_time))
    };
    let state = if stream.is_complete { "whole" } else { "cut" };
    vec![
        file.to_owned(),
        term::escape(begin.name()),
        from,
        kind(stream).to_owned(),
        size,
        stream.record_count().to_string(),
        created,
        state.to_owned(),
    ]
}

fn json_of(stream: &Substream) -> Value {
    let begin = &stream.begin;
    let features = feature::NAMES.iter().filter(|(bit, _)| begin.features() & bit != 0);
    let records = stream.records.iter().map(|(kind, (records, bytes))| {
        (format!("{kind:?}").to_lowercase(), json!({ "records": records, "bytes": bytes }))
    });
    json!({
        "snapshot": String::from_utf8_lossy(begin.name()),
        "guid": begin.to_guid.to_string(),
        "from_guid": (begin.from_guid != 0).then(|| begin.from_guid.to_string()),
        "kind": kind(stream),
        "created": begin.creation_time,
        "features": features.map(|(_, name)| *name).collect::<Vec<_>>(),
        "bytes": stream.bytes,
        "records": records.collect::<serde_json::Map<_, _>>(),
        "is_complete": stream.is_complete,
    })
}

fn as_json(file: &str, found: &Survey, has_problem: bool, streams: &[Value]) -> Value {
    json!({
        "file": file,
        "is_package": found.package.is_some(),
        "bytes": found.bytes,
        "is_complete": found.is_complete && !has_problem,
        "streams": streams,
    })
}
