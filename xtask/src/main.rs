//! The project's tasks: `cargo xtask TASK`.
//!
//! All checks of a reviewer are tasks, so that people, `.ci/run` and release machines run the same ones.
#![forbid(unsafe_code)]
// Tasks write reports and sources, and access no devices.
#![allow(clippy::disallowed_types)]

mod apt;
mod bench;
mod bench_mount;
mod bench_read;
mod bench_write;
mod check;
mod deny;
mod judges;
mod layers;
mod outside;
mod peer;
mod suite;
mod systemd;
mod ztest;
mod zts;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask TASK

  test [CRATE…] [-- ARG…]
                 all tests, after setting up the judges that this machine lacks (as root on Debian 12), or those of
                 crates (dmu, cli…) only; ARG… go to the test programs, such as the name of a test
  check          fmt, layers, clippy, docs, deny, then test: what .ci/run runs
  deny           licences, bans and sources of all packages are those that deny.toml allows
  layers         each crate uses only crates above it in the house
  fixtures       unpack all golden pools into target/fixtures
  judges         install the other implementation's tools, or say what is missing
  bench [WHAT]   measure ourselves against the other implementation and against the disk, in one
                 run: verify [DIR POOL], write [DIR], codec [--filter NAME] [--no-raidz-test],
                 read [--peer] [--quick] [--only verify,copy,list,random] [--dir DIR] (--help tells more;
                 --peer verifies a pool of OpenZFS's and needs the peer tooling),
                 mount [--quick] [--systems S,…] [--only W,…] [--dir DIR] [--no-build] (as root; --help tells more)
  crash [ARG…]   cut the power at every write of workloads on simulated disks; --help tells more
  faults [SECONDS [ARG…]]
                 disks vanish and come back, and scrubs run, under load: so long for each layout with redundancy
  stress [ARG…]  several actors at once on a daemon of its own: writers, administrators, devices that leave and return,
                 kill -9; then models, cenote verify, zdb and sets of devices that suffice (ten minutes; --help tells more)
  siege [ARG…]   two users without rights against root's daemon, as root: every verb, frames cut, repeated and forged,
                 descriptors, links, kill -9; it ends with mounts, memory, descriptors and pool as they were (--help tells more)
  systemd [PROGRAM]
                 the units under a real systemd in namespaces of its own, as root: start by the socket, confinement,
                 reload, restart with mounts and open files, kill, watchdog (needs systemd, unshare, nsenter, /dev/fuse)
  interop [ARG…] pools of every layout with seeded work in them, judged by zdb, and by ztest with --ztest
                 SECONDS (--help says more)
  kernel-peer [--seed N] [LAYOUT…]
                 pools of every layout are imported, scrubbed, compared and changed by a kernel with real
                 OpenZFS, and opened here again (needs the peer tooling)
  kernel-peer --logs
                 logs with every kind of record are claimed and replayed there, and must give what our own replay gives
                 (needs the peer tooling)
  kernel-peer -- ARG…
                 run a script of one's own there
  peer PART [ARG…]
                 a kernel with real OpenZFS receives what we send, and we what it sends, as root: alternate, generated,
                 replicate, records (needs the peer tooling; without a part it tells more)
  ztest [--runs N] [--seconds S] [--dir DIR] [-- OPTION…]
                 OpenZFS's ztest makes pools and works on them, with its default settings; each must be read here, with
                 the block counts of zdb -bcc (10 runs of 60 s; OPTION… go to ztest)
  zts [--list core|public|FILE] [--group G] [--shard K/N] [--tests ID…] [--direct] [--debug] [--record] [ARG…]
                 run OpenZFS's own test suite on our commands, daemon and mounts (as root; needs ../shared/zts);
                 --record writes the counts into docs/conformance.md, ARG… go to the suite's runner
";

/// Runs `cargo xtask crash`.
fn crash(arguments: &[String]) -> Outcome {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "cenote-crash", "--"]);
    must(command.args(arguments))
}

/// Runs `cargo xtask faults`.
fn faults(arguments: &[String]) -> Outcome {
    let (seconds, rest) =
        arguments.split_first().map_or(("60", arguments), |(first, rest)| (first.as_str(), rest));
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "cenote-crash", "--"]);
    must(command.args(["--load", seconds]).args(rest))
}

/// Runs `cargo xtask stress`.
fn stress(arguments: &[String]) -> Outcome {
    from_outside("stress", arguments)
}

/// Runs `cargo xtask siege`.
fn siege(arguments: &[String]) -> Outcome {
    from_outside("siege", arguments)
}

/// Builds our program, and runs a program that tests it from outside.
fn from_outside(task: &str, arguments: &[String]) -> Outcome {
    must(&mut cargo(&["build", "--release", "--package", "cenote-cli", "--package", "cenote-stress"]))?;
    let programs = root().join("target/release");
    let mut command = Command::new(programs.join(format!("cenote-{task}")));
    command.arg("--program").arg(programs.join("cenote")).arg("--dir").arg(root().join("target").join(task));
    must(command.args(arguments))
}

/// Result of a task; the error is a message.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let outcome = match task.as_str() {
        "test" => suite::run(&rest),
        "check" => check::run(),
        "deny" => deny::run(),
        "layers" => layers::run(),
        "fixtures" => fixtures(),
        "judges" => judges::run(),
        "bench" => bench::run(&rest),
        "crash" => crash(&rest),
        "faults" => faults(&rest),
        "stress" => stress(&rest),
        "siege" => siege(&rest),
        "interop" => interop(&rest),
        "kernel-peer" => outside::kernel_peer(&rest),
        "peer" => peer::run(&rest),
        "systemd" => systemd::run(&rest),
        "ztest" => ztest::run(&rest),
        "zts" => zts::run(&rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            if !reason.is_empty() {
                eprintln!("xtask {task}: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

fn fixtures() -> Outcome {
    let names = testkit::Fixture::names();
    for name in &names {
        testkit::Fixture::try_open(name).map_err(|error| format!("{name}: {error}"))?;
    }
    println!("{} pools in target/fixtures", names.len());
    Ok(())
}

/// Runs `cargo xtask interop ARGUMENT…`.
fn interop(arguments: &[String]) -> Outcome {
    must(
        cargo(&["run", "--quiet", "--package", "cenote-interop", "--bin", "cenote-interop", "--"])
            .args(arguments),
    )
}

/// Root folder of the project.
fn root() -> PathBuf {
    testkit::workspace_root()
}

/// The cargo that runs this program, so that a toolchain chosen with `+` is kept.
fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command; returns a message if it fails.
fn must(command: &mut Command) -> Outcome {
    let name = command.get_program().to_string_lossy().into_owned();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} {}: {status}", words.join(" "))),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
