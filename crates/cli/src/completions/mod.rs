//! `cenote completions SHELL`: scripts with which shells complete command lines of `zpool`, `zfs`, `zdb`,
//! `zstream`, `fsstat`, `cenote` and `cenoted`.
//!
//! The scripts are small: they call `cenote complete`, which uses the usage texts, the tables of properties,
//! and the names of imported pools and datasets.
//!
//! # What always holds
//! - Completion starts no daemon and writes nothing to standard error.
//! - Subcommands and options come from the usage texts: a new one is completed as soon as its usage text
//!   names it.

mod operands;
mod shells;

use crate::out::Out;
use crate::usage::Tool;
use operands::What;

/// Prints what a shell needs to complete commands: source it, or put it where the shell looks for such files
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: shells::Shell,
}

/// Prints what could stand where the last WORD is (for the scripts of `cenote completions`)
#[derive(clap::Args)]
pub(crate) struct CompleteArgs {
    /// The words of the command line, the name of the command first, the one to be completed last
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints the script for a shell; returns the exit code.
pub(crate) fn run(args: &Args) -> u8 {
    Out::new().print(shells::script(args.shell));
    0
}

/// The command line of `cenote`, as its parser knows it.
type Cenote = fn() -> clap::Command;

/// Prints candidates, one a line; the exit code.
pub(crate) fn complete(args: &CompleteArgs, cenote: Cenote) -> u8 {
    let Some((command, words)) = args.words.split_first() else { return 0 };
    let mut text = String::new();
    for candidate in candidates(command, words, cenote) {
        // A name that would be more than one word, or more than a name, is not offered.
        if !candidate.is_empty() && !candidate.chars().any(char::is_control) {
            text.push_str(&candidate);
            text.push('\n');
        }
    }
    Out::new().print(&text);
    0
}

/// What could be the last of `words`, which stand behind the name of a command.
fn candidates(command: &str, words: &[String], cenote: Cenote) -> Vec<String> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let name = command.rsplit('/').next().unwrap_or(command);
    let all = match name {
        "zpool" => of_tool(Tool::Zpool, before, current),
        "zfs" => of_tool(Tool::Zfs, before, current),
        "zdb" if current.starts_with('-') => letters(operands::ZDB),
        "zdb" => operands::names(What::Datasets),
        "zstream" if before.is_empty() => operands::ZSTREAM.map(str::to_owned).to_vec(),
        "fsstat" if current.starts_with('-') => letters(operands::FSSTAT),
        "fsstat" => operands::names(What::Mountpoints),
        "cenote" => of_cenote(before, current, cenote),
        "cenoted" => of_cenote(&[&["daemon".to_owned()], before].concat(), current, cenote),
        _ => Vec::new(),
    };
    all.into_iter().filter(|candidate| candidate.starts_with(current)).collect()
}

fn letters(letters: &str) -> Vec<String> {
    letters.chars().map(|letter| format!("-{letter}")).collect()
}

fn of_tool(tool: Tool, before: &[String], current: &str) -> Vec<String> {
    let Some((word, before)) = before.split_first() else {
        let mut all: Vec<String> = tool.subcommands().map(str::to_owned).collect();
        all.extend(["help".to_owned(), "--version".to_owned()]);
        return all;
    };
    let Some(subcommand) = tool.subcommand(word) else { return Vec::new() };
    let usage = tool.of(subcommand);
    // Text after the lines of the subcommand itself is common to all.
    let usage = usage.split("\n\n").next().unwrap_or_default();
    if current.starts_with('-') {
        return operands::options(usage);
    }
    if let Some(last) = before.last()
        && let Some(what) = operands::value_of(tool, subcommand, last, usage)
    {
        return operands::list(what, current);
    }
    let index = operands::operands_before(before, usage);
    let what = operands::expected(tool, subcommand, index, usage);
    what.into_iter().flat_map(|what| operands::list(what, current)).collect()
}

fn of_cenote(before: &[String], current: &str, cenote: Cenote) -> Vec<String> {
    let tools = ["zpool", "zfs", "zdb", "zstream", "fsstat"];
    if let Some((first, rest)) = before.split_first()
        && tools.contains(&first.as_str())
    {
        let words: Vec<String> = rest.iter().cloned().chain([current.to_owned()]).collect();
        return candidates(first, &words, cenote);
    }
    let command = cenote();
    let shown = |command: &clap::Command| !command.is_hide_set();
    let Some(first) = before.first() else {
        let verbs = command.get_subcommands().filter(|verb| shown(verb));
        let names = verbs.map(|verb| verb.get_name().to_owned());
        return names.chain(tools.map(str::to_owned)).collect();
    };
    let Some(verb) = command.get_subcommands().find(|verb| verb.get_name() == first) else {
        return Vec::new();
    };
    let below = before.get(1).and_then(|word| verb.get_subcommands().find(|verb| verb.get_name() == word));
    let verb = match below {
        Some(below) => below,
        None if verb.has_subcommands() && before.len() == 1 => {
            return verb.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        }
        None => verb,
    };
    if current.starts_with('-') {
        let options = || verb.get_arguments().filter(|arg| !arg.is_hide_set());
        let long = options().filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
        let short = options().filter_map(|arg| Some(format!("-{}", arg.get_short()?)));
        return long.chain(short).chain(["--help".to_owned()]).collect();
    }
    let values = verb.get_positionals().flat_map(clap::Arg::get_possible_values);
    let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    // Streams are files, which the shell completes.
    let is_file = first == "stream";
    if values.is_empty() && !is_file { operands::names(What::Everything) } else { values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (command, words) = words.split_first().expect("a command");
        candidates(command, words, crate::cenote::command)
    }

    #[test]
    fn subcommands_and_options_are_those_of_the_usage() {
        assert_eq!(all("zpool sta"), ["status"]);
        assert!(all("zfs ").contains(&"snapshot".to_owned()));
        let options = all("zpool status -");
        for option in ["-v", "-x", "-j", "--json-int", "--power", "-T", "-c"] {
            assert!(options.contains(&option.to_owned()), "{option}: {options:?}");
        }
        assert_eq!(all("zfs rollback -"), ["-r", "-R", "-f"]);
        assert_eq!(all("zpool nosuch -"), Vec::<String>::new());
    }

    #[test]
    fn properties_are_completed_where_they_are_expected() {
        assert_eq!(all("zfs get compressr"), ["compressratio"]);
        assert_eq!(all("zfs set compressi"), ["compression="]);
        assert_eq!(all("zfs list -o name,refq"), ["name,refquota"]);
        assert_eq!(all("zfs create -o records"), ["recordsize="]);
        assert_eq!(all("zpool get fragm"), ["fragmentation"]);
        assert_eq!(all("zfs set compression=zst").first().map(String::as_str), Some("compression=zstd"));
        assert_eq!(all("zfs list -t snap"), ["snapshot"]);
        assert!(all("zpool create -o ashi").contains(&"ashift=".to_owned()));
    }

    #[test]
    fn verbs_of_our_own_are_those_of_the_parser() {
        assert_eq!(all("cenote veri"), ["verify"]);
        assert_eq!(all("cenote completions "), ["bash", "zsh", "fish"]);
        assert_eq!(all("cenote zfs roll"), ["rollback"]);
        assert_eq!(all("cenote stream jo"), ["join"]);
        assert!(all("cenote stream ls --").contains(&"--reindex".to_owned()));
        assert_eq!(all("cenote stream ls x"), Vec::<String>::new());
        assert_eq!(all("cenoted --"), ["--detach", "--stop", "--status", "--help"]);
        assert!(all("cenote ls --").contains(&"--help".to_owned()));
    }

    #[test]
    fn scripts_call_back() {
        for shell in [shells::Shell::Bash, shells::Shell::Zsh, shells::Shell::Fish] {
            assert!(shells::script(shell).contains("cenote complete"), "{shell:?}");
        }
    }
}
