//! The commands: one binary that acts as `zpool`, `zfs`, `zdb`, `zstream`, `fsstat` or `cenote`, by the
//! name under which it is called. `cenote zpool …` is the same as `zpool …`, so no link is needed.
//!
//! The drop-in commands have the options, output, messages and exit codes of OpenZFS 2.3.2
//! (docs/on-disk/33-cli.md; fixtures/cli-transcripts), as far as they go; subcommands that are not
//! implemented are refused by name. This is the only crate that prints.
//!
//! # What always holds
//! - Data goes to standard output, messages to standard error.
//! - Exit codes: 0 done, 1 failed (in part or whole), 2 wrong usage.
//! - Bytes from a pool reach a terminal with their control characters made visible.
#![forbid(unsafe_code)]

#[macro_use]
mod console;

mod cenote;
mod client;
mod colour;
mod completions;
mod daemon;
mod fsstat;
mod getopt;
mod ids_to_path;
mod keys;
mod mounts;
mod out;
mod rights;
mod search;
mod stop;
mod table;
mod this_program;
mod time;
mod title;
mod tour;
mod usage;
mod usage_texts;
mod values;
mod vdevs;
mod version;
mod zdb;
mod zfs;
mod zpool;
mod zstream;

use out::Out;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use stop::{Outcome, Stop};
use this_program::this_program;
use usage::Tool;

fn main() -> ExitCode {
    heap::init(::cenote::memory_allowed());
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let called = if args.is_empty() { OsString::new() } else { args.remove(0) };
    let given = args.clone();
    let mut name = Path::new(title::without_room(&called)).file_name().unwrap_or_default().to_owned();
    if !is_tool(&name) && args.first().is_some_and(|first| is_tool(first)) {
        name = args.remove(0);
    }
    if let Err(message) = check_direct(console::env(DIRECT).as_deref()) {
        say_error_line!("{message}");
        return ExitCode::from(2);
    }
    if !is_tool(&name)
        && let Some(rewritten) = zfs::mount_helper::arguments(&name, &args, cenote::is_verb)
    {
        (name, args) = ("zfs".into(), rewritten);
    }
    let program = match name.to_str() {
        Some("zdb") => return zdb::main(args),
        Some("zstream") => return zstream::main(args),
        Some("zstreamdump") => {
            args.insert(0, "dump".into());
            return zstream::main(args);
        }
        Some("cenoted") => {
            args.insert(0, "daemon".into());
            "cenote"
        }
        Some(tool @ ("zpool" | "zfs" | "fsstat" | IDS_TO_PATH)) => tool,
        _ => "cenote",
    };
    if program == "zfs" && zfs::has_title(&args) {
        title::make_room(&called, &given);
    }
    let is_direct = console::env(DIRECT).is_some_and(|value| value == "1");
    let runs_in = if is_direct { RunsIn::Here } else { runs_in(program, &args) };
    let done = match runs_in {
        RunsIn::Here => client::Done::Here,
        RunsIn::Daemon => client::run(program, &args, true),
        RunsIn::DaemonIfAny => client::run(program, &args, false),
    };
    let code = match done {
        client::Done::Code(code) => code,
        client::Done::Here => {
            stop::end_on_panic();
            run_program(program, args)
        }
    };
    if matches!(program, "zpool" | "zfs") && console::env(ABORT).is_some() {
        std::process::abort();
    }
    ExitCode::from(code)
}

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunsIn {
    /// In this process.
    Here,
    /// In a daemon, which is started if none runs.
    Daemon,
    /// In a daemon, if one runs and has the pool that the command names.
    DaemonIfAny,
}

/// Commands that ask for nothing of a pool need no daemon; verbs on files can do without.
fn runs_in(program: &str, args: &[OsString]) -> RunsIn {
    let word = args.first().and_then(|word| word.to_str()).unwrap_or_default();
    let tool = match program {
        "zpool" => Tool::Zpool,
        "zfs" => Tool::Zfs,
        "cenote" => {
            let is_own = matches!(
                word,
                "" | "stream" | "replicate" | "tour" | "completions" | "complete" | "daemon" | "help"
            );
            return if is_own || word.starts_with('-') { RunsIn::Here } else { RunsIn::DaemonIfAny };
        }
        _ => return RunsIn::Daemon,
    };
    if tool == Tool::Zfs && word == "project" && zfs::project::names_files(&args[1..]) {
        return RunsIn::Here;
    }
    let needs_pools = tool.subcommand(word).is_some_and(|subcommand| subcommand != "version");
    if needs_pools && !asks_for_usage(&args[1..]) { RunsIn::Daemon } else { RunsIn::Here }
}

/// Runs a command with the console of this thread; returns its exit code.
fn run_program(program: &str, args: Vec<OsString>) -> u8 {
    match program {
        "zpool" => run(Tool::Zpool, args),
        "zfs" => run(Tool::Zfs, args),
        "fsstat" => fsstat::main(args, &Out::new()),
        IDS_TO_PATH => ids_to_path::main(&args, &Out::new()),
        _ => cenote::main(std::iter::once(OsString::from("cenote")).chain(args), run_program),
    }
}

/// Name of the command [`ids_to_path`].
const IDS_TO_PATH: &str = "zfs_ids_to_path";
/// Variable: if set, `zpool` and `zfs` end by aborting, so that their memory can be inspected.
const ABORT: &str = "ZFS_ABORT";
/// Variable: if 1, verbs run in this process, without a daemon.
const DIRECT: &str = "CENOTE_DIRECT";

fn check_direct(value: Option<&OsStr>) -> Result<(), String> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "0" | "1") => Ok(()),
        Some(other) => Err(format!("{DIRECT} is '{}': it must be 0 or 1", out::visible(other))),
    }
}

/// Whether a name makes this binary another command than `cenote`.
fn is_tool(name: &OsStr) -> bool {
    let tools = ["zpool", "zfs", "zdb", "zstream", "zstreamdump", "fsstat", "cenoted", IDS_TO_PATH];
    tools.iter().any(|tool| name == *tool)
}

/// Runs one of the tools; its exit code.
fn run(tool: Tool, mut args: Vec<OsString>) -> u8 {
    let out = Out::new();
    if args.is_empty() {
        say_error!("missing command\n{}", tool.summary());
        return 2;
    }
    let word = args.remove(0).to_string_lossy().into_owned();
    let word = match word.as_str() {
        "-?" | "--help" | "help" => {
            out.print(&tool.summary());
            return 0;
        }
        "-V" | "--version" => "version",
        other => other,
    };
    let Some(subcommand) = tool.subcommand(word) else {
        say_error!("unrecognized command '{}'\n{}", out::visible(word), tool.summary());
        return 2;
    };
    let outcome = match tool {
        _ if asks_for_usage(&args) => Err(Stop::usage(no_such_option(subcommand))),
        Tool::Zpool => zpool::run(subcommand, args, &out),
        Tool::Zfs => zfs::run(subcommand, args, &out),
    };
    finish(tool, subcommand, outcome)
}

/// Prints why a command ended, if it failed; returns its exit code.
fn finish(tool: Tool, subcommand: &str, outcome: Outcome) -> u8 {
    match outcome {
        Ok(code) => code,
        Err(Stop::Usage(message)) => {
            if !message.is_empty() {
                say_error_line!("{}", out::visible(&message));
            }
            say_error!("{}", tool.of(subcommand));
            2
        }
        Err(Stop::Code(code)) => code,
        Err(Stop::Failed(message)) => {
            if let Some(message) = message {
                // A message may have several lines; the control characters of each are made visible.
                message.lines().for_each(|line| say_error_line!("{}", out::message_line(line)));
            }
            1
        }
    }
}

/// Whether a command line asks for the usage with `-?`, which is an option of no subcommand.
fn asks_for_usage(args: &[OsString]) -> bool {
    args.first().is_some_and(|first| first == "-?" || first == "--help")
}

/// The message of the tools for `-?`; a few subcommands check their operands first.
fn no_such_option(subcommand: &str) -> &'static str {
    match subcommand {
        "redact" => "too few arguments",
        "zone" | "unzone" => "missing argument(s)",
        _ => "invalid option '?'",
    }
}

/// The message for a subcommand of OpenZFS that is not implemented. Without operands it says how the subcommand is used:
/// programs look there for what the command knows.
fn unsupported(tool: Tool, subcommand: &str, args: &[OsString]) -> Stop {
    if args.is_empty() {
        match subcommand {
            "load-key" | "unload-key" => return Stop::usage("Missing dataset argument or -a option"),
            "change-key" => return Stop::usage("Missing dataset argument"),
            _ => (),
        }
    }
    Stop::failed(format!("{} {subcommand}: not supported by this version of Cenote", tool.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_a_pool_goes_to_the_daemon() {
        let runs_in = |program, line: &str| {
            runs_in(program, &line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!((runs_in("zpool", "list"), runs_in("zfs", "get all")), (RunsIn::Daemon, RunsIn::Daemon));
        assert_eq!((runs_in("zpool", "version"), runs_in("zpool", "list -?")), (RunsIn::Here, RunsIn::Here));
        assert_eq!(
            (runs_in("zfs", ""), runs_in("zfs", "nosuch"), runs_in("zfs", "help")),
            (RunsIn::Here, RunsIn::Here, RunsIn::Here)
        );
        assert_eq!(
            (runs_in("cenote", "ls tank:/"), runs_in("cenote", "mount a b")),
            (RunsIn::DaemonIfAny, RunsIn::DaemonIfAny)
        );
        assert_eq!((runs_in("cenote", "--help"), runs_in("fsstat", "/x")), (RunsIn::Here, RunsIn::Daemon));
    }

    #[test]
    fn where_verbs_run_is_said_by_0_or_1() {
        let check = |value: &str| check_direct(Some(OsStr::new(value)));
        assert_eq!((check_direct(None), check(""), check("0"), check("1")), (Ok(()), Ok(()), Ok(()), Ok(())));
        assert_eq!(check("yes"), Err("CENOTE_DIRECT is 'yes': it must be 0 or 1".to_owned()));
    }
}
