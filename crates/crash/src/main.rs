//! `cargo xtask crash`: power cuts at every write of many workloads.
#![forbid(unsafe_code)]

use cenote_crash::actors::history::Coverage;
use cenote_crash::disks::Layout;
use cenote_crash::subject::Subject;
use cenote_crash::{Cuts, Series, cut_everywhere};
use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Cuts the power at every write of seeded workloads on simulated disks, and looks whether what is found is
/// what may be found.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds to try, one after the other; 0: until the time is over.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Stop after so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Only this: single, mirror or raidz2, with "+log" if it has a log device, for a workload of files; a
    /// layout of the matrix with "all:" before it for a workload of everything; one of the former with
    /// "threads:" before it for several threads at once.
    #[arg(long)]
    layout: Option<Subject>,
    /// Steps of each workload.
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Cut at one operation in so many.
    #[arg(long, default_value_t = 1)]
    one_in: u64,
    /// Look at space and copies too after one cut in so many.
    #[arg(long, default_value_t = 16)]
    deep_one_in: u64,
    /// Only the cut at this operation.
    #[arg(long)]
    cut: Option<u64>,
    /// Parameters of the engine that differ, as NAME=VALUE,…:
    /// metaslab_force_ganging=1024,metaslab_force_ganging_pct=100 has most blocks in pieces.
    #[arg(long, default_value = "")]
    parameters: String,
    /// Threads.
    #[arg(long)]
    threads: Option<usize>,
    /// Instead of cutting the power: for so many seconds for each layout with redundancy, disks vanish and
    /// come back, and scrubs run, while files are written and read.
    #[arg(long)]
    load: Option<u64>,
}

/// Runs `--load`, one layout after the other.
fn load(seconds: u64, seed: u64, runs: u64) -> ExitCode {
    for run in 0..runs.max(1) {
        for layout in Layout::all().into_iter().filter(|layout| layout.spare_disks() > 0) {
            match cenote_crash::load::run(layout, seed + run, Duration::from_secs(seconds)) {
                Ok(told) => println!("{layout}, seed {}: {told:?}", seed + run),
                Err(why) => {
                    eprintln!("faults: {layout}, seed {}: {why}", seed + run);
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(why) = admin::set_tunables(&args.parameters) {
        eprintln!("crash: {why}");
        return ExitCode::from(2);
    }
    if let Some(seconds) = args.load {
        return load(seconds, args.seed, args.runs);
    }
    let layouts = args.layout.map_or_else(Subject::all, |layout| vec![layout]);
    let jobs = if args.runs == 0 { u64::MAX } else { args.runs * layouts.len() as u64 };
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let started = Instant::now();
    let end = args.minutes.map(|minutes| started + Duration::from_secs(60 * minutes));
    let (next, done, failed) = (AtomicU64::new(0), Mutex::new(Cuts::default()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = end.is_some_and(|end| Instant::now() >= end);
                    if job >= jobs || is_late || failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let subject = layouts[(job % layouts.len() as u64) as usize];
                    let series = Series {
                        subject,
                        seed: args.seed + job / layouts.len() as u64,
                        steps: args.steps,
                        one_in: args.one_in,
                        deep_one_in: args.deep_one_in,
                        only: args.cut,
                        lying: false,
                    };
                    match cut_everywhere(series) {
                        Ok(cuts) => vdev::sync::lock(&done).add(&cuts),
                        Err(broken) => {
                            failed.store(true, Ordering::Relaxed);
                            eprintln!("crash: {broken}");
                        }
                    }
                }
            });
        }
    });
    let Cuts { cuts, images, coverage } = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = started.elapsed().as_secs_f64();
    let rate = cuts as f64 / seconds.max(0.001) * 3600.0;
    println!("{cuts} cuts of {images} images in {seconds:.0} s, {rate:.0} cuts an hour");
    if coverage != Coverage::default() {
        println!("{coverage:?}");
    }
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
