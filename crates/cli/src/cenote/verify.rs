//! `cenote verify`: reads and checks every block of a pool.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Instant;

use ::cenote::verify::{
    Damage, DamagedPart, DatasetReport, DeviceReport, Encryption, Options, Progress, Report, Watcher,
    expected_bytes, verify,
};
use format::nicenum::nicebytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::open::{Session, Source, parse};
use super::{Failure, Outcome, term};
use crate::console::{self, Console, RawOut};

/// Read and check every block of a pool, and tell what is damaged by file name
///
/// Checks the pool's own objects and all file systems, volumes and snapshots, each shared block once;
/// every copy of each block, and parity. Of a whole pool that can be read, the space maps are compared with
/// where its blocks are, too. Nothing is repaired: the pool is not written to.
///
/// Of an encrypted dataset without its key, checksums are verified and MACs are not, which is told;
/// with --key both are.
///
/// Exit status: 0 everything can be read, even if some of it only thanks to another copy or to
/// parity (told; with --strict that is 1, and a missing device too); 1 something is lost, or the space maps are
/// wrong; 2 the check could not be run, or not be finished.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// One good copy of a block is enough: do not read the others, nor parity
    #[arg(long, overrides_with = "every_copy")]
    one_copy: bool,
    /// Read every copy and check parity (this is the default)
    #[arg(long)]
    every_copy: bool,
    /// Exit with 1 also when something had to be read from another copy, or a device is missing
    #[arg(long)]
    strict: bool,
    /// Do not compare the space maps with the blocks, which takes memory
    #[arg(short = 'L', long)]
    no_leaks: bool,
    /// Threads (default: twice the processors)
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
    /// A line for each dataset and snapshot
    #[arg(short, long)]
    verbose: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// A pool, or datasets of one: then these with their snapshots, and the pool's own objects
    #[arg(required = true, value_name = "POOL[/DATASET]")]
    targets: Vec<OsString>,
}

/// Exit code if the check could not be completed.
const NO_ANSWER: u8 = 2;

/// Advances the progress bar and checks that the client still waits, from threads that have no console.
struct Bar(ProgressBar, Option<Arc<Console>>);

impl Watcher for Bar {
    fn progress(&self, progress: &Progress) -> bool {
        self.0.set_position(progress.bytes);
        let bad = match progress.damaged {
            0 => String::new(),
            n => format!(", {n} DAMAGED"),
        };
        self.0.set_message(format!("{}{bad}", term::escape(progress.dataset.as_bytes())));
        self.1.as_ref().is_none_or(|console| console.cancel.is_wanted())
    }
}

fn bar(total: Option<u64>, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { console::progress_target() };
    let bar = ProgressBar::with_draw_target(total, target);
    let known = "{percent:>3}% [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta} {msg}";
    let unknown = "{spinner} {bytes} {bytes_per_sec} {elapsed} {msg}";
    let style = ProgressStyle::with_template(if total.is_some() { known } else { unknown });
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(super) fn run(args: &Args) -> Outcome {
    match checked(args) {
        Err(failure) => failure.tell().map(|()| NO_ANSWER),
        done => done,
    }
}

fn checked(args: &Args) -> Outcome {
    let session = Session::past_the_cache(&args.source);
    let targets = args.targets.iter().map(|target| parse(target)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = targets.first() else { return Err(Failure::Silent) };
    if targets.iter().any(|target| target.pool() != first.pool()) {
        return Err(Failure::Message("datasets of one pool only".to_owned()));
    }
    let pool = session.pool(first.pool())?;
    let mut options = Options { every_copy: !args.one_copy, space: !args.no_leaks, ..Options::default() };
    if let Some(threads) = args.threads {
        options.threads = threads.clamp(1, 1024);
    }
    for target in targets.iter().filter(|target| target.dataset != target.pool()) {
        // A snapshot is checked together with its file system.
        options.only.push(session.dataset(target)?.dsl().dir().name().to_owned());
    }
    let total = if options.only.is_empty() { expected_bytes(&pool) } else { None };
    let bar = Bar(bar(total, args.quiet), console::current());
    let begun = Instant::now();
    let report = verify(&pool, &options, &bar);
    bar.0.finish_and_clear();
    let mut out = BufWriter::new(RawOut::new());
    tell(&mut out, args, pool.name(), &options, &report, begun.elapsed().as_secs_f64())?;
    out.flush()?;
    Ok(exit_code(&report, args.strict))
}

fn exit_code(report: &Report, strict: bool) -> u8 {
    let incomplete = report.cut_short || report.datasets.iter().any(|dataset| dataset.failed.is_some());
    if report.totals.damaged > 0 || !report.damage.is_empty() || (incomplete && !report.cut_short) {
        1
    } else if incomplete {
        NO_ANSWER
    } else if !report.is_space_right() {
        1
    } else {
        u8::from(strict && !report.is_clean())
    }
}

fn tell(
    out: &mut impl Write,
    args: &Args,
    pool: &str,
    options: &Options,
    report: &Report,
    secs: f64,
) -> io::Result<()> {
    let totals = &report.totals;
    let rate = nicebytes((totals.bytes as f64 / secs.max(0.001)) as u64);
    let copies = if options.every_copy { "every copy and all parity" } else { "one copy of each" };
    writeln!(
        out,
        "{}: {} blocks, {} on devices, {copies}, in {secs:.1} s ({rate}/s)",
        term::escape(pool.as_bytes()),
        totals.blocks,
        nicebytes(totals.bytes)
    )?;
    if args.verbose {
        for dataset in &report.datasets {
            tell_dataset(out, dataset)?;
        }
    }
    for dataset in &report.datasets {
        if let Some(why) = &dataset.failed {
            writeln!(out, "NOT CHECKED: {}: {why}", term::escape(dataset.name.as_bytes()))?;
        }
    }
    tell_encryption(out, report)?;
    if !report.damage.is_empty() {
        writeln!(out, "damaged, and no good copy left:")?;
        for damage in &report.damage {
            writeln!(out, "  {}", damage_text(damage))?;
        }
    }
    if report.damage_untold > 0 {
        writeln!(out, "  … and {} more damaged blocks", report.damage_untold)?;
    }
    if totals.degraded > 0 {
        let blocks = if totals.degraded == 1 { "block has" } else { "blocks have" };
        writeln!(
            out,
            "{} {blocks} a bad copy or column; the data could be read all the same",
            totals.degraded
        )?;
    }
    if !report.devices.is_empty() {
        writeln!(out, "devices with errors:")?;
        for device in &report.devices {
            writeln!(out, "  {}", device_text(device))?;
        }
    }
    tell_space(out, report)?;
    let verdict = match (report.is_clean(), report.is_whole()) {
        (true, _) => "no errors",
        (false, true) if !report.is_space_right() => "all data can be read; the space maps are WRONG",
        (false, true) => "all data can be read; redundancy is impaired",
        (false, false) if totals.damaged > 0 || !report.damage.is_empty() => "DATA IS LOST",
        (false, false) => "NOT EVERYTHING COULD BE CHECKED",
    };
    writeln!(out, "result: {verdict}")
}

fn tell_space(out: &mut impl Write, report: &Report) -> io::Result<()> {
    match &report.space {
        Some(Ok(space)) if !space.matches() => writeln!(out, "space maps: {space}"),
        Some(Err(why)) => writeln!(out, "space maps: {why}"),
        _ => Ok(()),
    }
}

fn tell_dataset(out: &mut impl Write, dataset: &DatasetReport) -> io::Result<()> {
    writeln!(
        out,
        "  {:<40} {:>10} blocks {:>8}  {} damaged  {} repairable",
        term::escape(dataset.name.as_bytes()),
        dataset.blocks,
        nicebytes(dataset.bytes),
        dataset.damaged,
        dataset.degraded
    )
}

/// Reports datasets that were not fully verified because their keys are missing.
fn tell_encryption(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let of = |wanted| report.datasets.iter().filter(move |dataset| dataset.encryption == wanted);
    let verified = of(Encryption::Verified).count();
    if verified > 0 {
        writeln!(
            out,
            "encrypted: {verified} datasets and snapshots with their keys: checksums and MACs verified"
        )?;
    }
    let locked: Vec<String> =
        of(Encryption::NoKey).map(|dataset| term::escape(dataset.name.as_bytes())).collect();
    if !locked.is_empty() {
        writeln!(
            out,
            "encrypted: {} without keys: checksums verified, MACs NOT verified: {}",
            locked.len(),
            locked.join(", ")
        )?;
    }
    Ok(())
}

/// What is damaged, and where.
pub(super) fn damage_text(damage: &Damage) -> String {
    const SHOWN: usize = 8;
    let dataset = term::escape(damage.dataset.as_bytes());
    let place = match &damage.place {
        DamagedPart::File(path) => format!("{dataset}:{}", term::escape(path)),
        DamagedPart::Object(number) => {
            format!("{dataset}: file with inode number {number} (its name cannot be read)")
        }
        DamagedPart::Volume => format!("{dataset}: volume data"),
        DamagedPart::Internal(number, kind) => format!("{dataset}: object {number} ({kind})"),
        DamagedPart::Objects(range) if range.end == u64::MAX => format!("{dataset}: everything in it"),
        DamagedPart::Objects(range) => format!("{dataset}: objects {} to {}", range.start, range.end - 1),
    };
    let mut ranges: Vec<String> = damage
        .ranges
        .iter()
        .take(SHOWN)
        .map(|range| format!("{}-{}", range.start, range.end.saturating_sub(1)))
        .collect();
    if damage.ranges.len() > SHOWN {
        ranges.push(format!("and {} more ranges", damage.ranges.len() - SHOWN));
    }
    let bytes = if ranges.is_empty() { String::new() } else { format!(" bytes {}", ranges.join(", ")) };
    let attributes = if damage.attributes { " attributes" } else { "" };
    format!("{place}{bytes}{attributes}: {}", damage.cause)
}

fn device_text(device: &DeviceReport) -> String {
    let path = match device.path.as_str() {
        "" => format!("guid {}", device.guid),
        path => term::escape(path.as_bytes()),
    };
    let mut facts = Vec::new();
    if device.state != "online" {
        facts.push(device.state.clone());
    }
    for (number, what) in
        [(device.io, "failed"), (device.checksum, "gave wrong data"), (device.missing, "not possible")]
    {
        if number > 0 {
            let reads = if number == 1 { "read" } else { "reads" };
            facts.push(format!("{number} {reads} {what}"));
        }
    }
    format!("{path}: {}", facts.join(", "))
}
