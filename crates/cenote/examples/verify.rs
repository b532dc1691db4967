//! Verifies every block of a pool, then reads every object through the layers above.
//!
//! `cargo run -p cenote --example verify -- [--key DATASET=PASSPHRASE] [--recover] [--txg N] [--missing]
//! [--fast] POOL [FOLDER-OR-IMAGE ...]`
//!
//! Prints `CLEAN` at the end (every copy is good), `WHOLE` (all data can be read, some copies are bad) or
//! `DAMAGED`. `--fast` reads one copy of each block and no objects. `--missing` opens a pool that lacks top-level
//! devices or logs.

use cenote::error::chain;
use cenote::inspect::{self, Check};
use cenote::verify::{self, Options, Report};
use cenote::{Dataset, Node, OpenOptions, Pool};
use dmu::DmuError;
use dmu::zap::Zap;
use format::objset::ObjsetType;
use std::error::Error;
use std::process::ExitCode;

/// Number of bytes of a file that are read at a time.
const PIECE: usize = 1 << 20;
/// Maximum number of problems that are printed; all are counted.
const SHOWN_MAX: usize = 40;

struct Args {
    options: OpenOptions,
    keys: Vec<(String, String)>,
    pool: String,
    fast: bool,
}

fn args() -> Result<Args, Box<dyn Error>> {
    let mut options = OpenOptions::new().destroyed(true);
    let (mut keys, mut pool, mut fast) = (Vec::new(), None, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--key" => {
                let pair = words.next().ok_or("--key DATASET=PASSPHRASE")?;
                let (dataset, pass) = pair.split_once('=').ok_or("--key DATASET=PASSPHRASE")?;
                keys.push((dataset.to_owned(), pass.to_owned()));
            }
            "--recover" => options = options.recover(true),
            "--missing" => options = options.allow_missing_devices(true).allow_missing_logs(true),
            "--txg" => options = options.max_txg(words.next().ok_or("--txg N")?.parse()?),
            "--fast" => fast = true,
            _ if pool.is_none() => pool = Some(word),
            _ => options = options.search(word),
        }
    }
    Ok(Args { options, keys, pool: pool.ok_or("which pool?")?, fast })
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = args()?;
    let pool = match Pool::open(&args.pool, &args.options) {
        Ok(pool) => pool,
        Err(error) => {
            println!("REFUSED {}", chain(&error));
            return Ok(ExitCode::from(3));
        }
    };
    println!(
        "pool '{}' guid {} version {} txg {}",
        pool.name(),
        pool.guid(),
        pool.spa().version(),
        pool.spa().txg()
    );
    for (dataset, pass) in &args.keys {
        pool.load_key(dataset, pass.as_bytes())?;
    }
    let report = verify::verify(&pool, &Options { every_copy: !args.fast, ..Options::default() }, &());
    print_report(&report);
    let mut problems = Problems::default();
    if !args.fast {
        problems.check("counting", count(&pool));
        read_all(&pool, &mut problems);
    }
    for line in problems.shown.iter() {
        println!("PROBLEM {line}");
    }
    println!("problems above the blocks: {}", problems.count);
    let whole = report.is_whole() && problems.count == 0;
    println!(
        "{}",
        if !whole {
            "DAMAGED"
        } else if report.is_clean() {
            "CLEAN"
        } else {
            "WHOLE"
        }
    );
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_report(report: &Report) {
    for set in &report.datasets {
        let failed = set.failed.as_ref().map(|why| format!(" FAILED {why}")).unwrap_or_default();
        println!(
            "{:>8} blocks {:>12} bytes {:>5} damaged {:>5} degraded  {} {:?}{failed}",
            set.blocks, set.bytes, set.damaged, set.degraded, set.name, set.encryption
        );
    }
    for device in &report.devices {
        println!(
            "DEVICE {} {} io {} checksum {} missing {}",
            device.guid, device.path, device.io, device.checksum, device.missing
        );
    }
    for damage in report.damage.iter().take(SHOWN_MAX) {
        println!("DAMAGE {} {:?} {:?} {}", damage.dataset, damage.place, damage.ranges, damage.cause);
    }
    let t = &report.totals;
    println!(
        "verified {} blocks, {} bytes, {} damaged, {} degraded",
        t.blocks, t.bytes, t.damaged, t.degraded
    );
}

/// Prints the sum over all blocks, for comparison with `zdb -b`.
fn count(pool: &Pool) -> Result<(), Box<dyn Error>> {
    let report = inspect::blocks(pool, Check::Nothing, true)?;
    let total = report.tally.total();
    println!(
        "bp count {} ganged {} logical {} physical {} allocated {}",
        total.blocks, total.gangs, total.lsize, total.psize, total.asize
    );
    for problem in report.problems.iter().take(SHOWN_MAX) {
        println!("COUNT {problem}");
    }
    match report.space {
        Some(space) if space.allocated == space.found => println!("no leaks"),
        Some(space) => println!("LEAK allocated {} found {}", space.allocated, space.found),
        None => println!("LEAK not compared"),
    }
    Ok(())
}

#[derive(Default)]
struct Problems {
    shown: Vec<String>,
    count: usize,
}

impl Problems {
    fn check<T, E: Into<Box<dyn Error>>>(
        &mut self,
        what: impl std::fmt::Display,
        outcome: Result<T, E>,
    ) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.count += 1;
                if self.shown.len() < SHOWN_MAX {
                    self.shown.push(format!("{what}: {}", chain(&*error.into())));
                }
                None
            }
        }
    }
}

fn read_all(pool: &Pool, problems: &mut Problems) {
    problems.check("space", pool.spa().space());
    problems.check("history", pool.spa().history());
    problems.check("error log", pool.spa().error_log());
    problems.check("scan", pool.spa().scan());
    problems.check("properties", pool.spa().properties());
    problems.check("dedup tables", pool.spa().dedup_tables());
    problems.check("spares", pool.spa().spares());
    for dataset in problems.check("datasets", pool.datasets()).unwrap_or_default() {
        read_dataset(&dataset, problems);
    }
}

fn read_dataset(dataset: &Dataset, problems: &mut Problems) {
    let name = dataset.name();
    problems.check(name, dataset.dsl().holds());
    problems.check(name, dataset.dsl().clones());
    problems.check(name, dataset.dsl().deadlist());
    if !dataset.dsl().is_snapshot() {
        problems.check(name, dataset.dsl().bookmarks());
    }
    let objset = match dataset.objset() {
        Err(cenote::Error::Dsl(dsl::DslError::Dmu(DmuError::Empty { .. }))) => return,
        objset => objset,
    };
    let Some(objset) = problems.check(name, objset) else { return };
    if objset.is_locked() {
        return println!("{name}: locked");
    }
    let (objects, bytes) = read_objects(name, &objset, problems);
    let mut files = 0;
    match objset.kind() {
        // A file system that was never mounted has no objects.
        ObjsetType::Zfs if objects > 0 => files = read_files(dataset, problems),
        ObjsetType::Zvol => {
            problems.check(name, dataset.volume());
        }
        _ => {}
    }
    println!("{name}: {:?}, {objects} objects, {bytes} bytes, {files} files", objset.kind());
}

/// Reads the data and spill block of every object, and the entries of ZAPs.
fn read_objects(name: &str, objset: &std::sync::Arc<dmu::ObjSet>, problems: &mut Problems) -> (u64, u64) {
    let (mut objects, mut bytes) = (0, 0);
    let mut next = format::ObjectId(1);
    let mut buf = vec![0; PIECE];
    while let Some(Some(object)) =
        problems.check(format!("{name}: objects from {next}"), objset.next_object(next))
    {
        next = format::ObjectId(object.id().0 + 1);
        objects += 1;
        let at = || format!("{name} object {} ({})", object.id(), object.dnode().obj_type);
        problems.check(at(), object.spill());
        if object.dnode().obj_type.is_zap() {
            let entries = Zap::open(&object).and_then(|zap| zap.entries().collect::<Result<Vec<_>, _>>());
            problems.check(at(), entries);
            continue;
        }
        let mut from = 0;
        while let Some(Some(data)) = problems.check(at(), object.next_data(from)) {
            let Some(end) = problems.check(at(), object.next_hole(data)) else { break };
            from = end;
            for start in (data..end).step_by(PIECE) {
                let len = (end - start).min(PIECE as u64) as usize;
                problems.check(at(), object.read_at(start, &mut buf[..len]));
                bytes += len as u64;
            }
            if end == 0 || end <= data {
                break;
            }
        }
    }
    (objects, bytes)
}

/// Reads every file by name: attributes, data, symbolic links, extended attributes, ACL.
fn read_files(dataset: &Dataset, problems: &mut Problems) -> u64 {
    let name = dataset.name();
    let Some(fs) = problems.check(name, dataset.filesystem()) else { return 0 };
    problems.check(name, fs.unlinked());
    let mut todo: Vec<Node> = problems.check(format!("{name}:/"), fs.node(fs.root())).into_iter().collect();
    let mut buf = vec![0; PIECE];
    let mut files = 0;
    while let Some(node) = todo.pop() {
        files += 1;
        let at = || format!("{name} file {}", node.id());
        problems.check(at(), node.xattr_values());
        problems.check(at(), node.acl());
        problems.check(at(), fs.path_of(node.id()));
        match node.kind() {
            zpl::FileKind::Directory => {
                for entry in problems.check(at(), node.entries()).into_iter().flatten() {
                    let Some(entry) = problems.check(at(), entry) else { break };
                    todo.extend(problems.check(at(), fs.node(entry.id)));
                }
            }
            zpl::FileKind::Symlink => {
                problems.check(at(), node.readlink());
            }
            zpl::FileKind::Regular => {
                // Holes of a sparse file may have any size.
                let mut from = 0;
                while let Some(Some(data)) = problems.check(at(), node.next_data(from)) {
                    let Some(end) = problems.check(at(), node.next_hole(data)) else { break };
                    from = end.unwrap_or(data);
                    for start in (data..from).step_by(PIECE) {
                        problems.check(at(), node.read_at(start, &mut buf));
                    }
                    if from <= data {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    files
}
