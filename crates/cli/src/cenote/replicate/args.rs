//! The command line of `cenote replicate`.

use clap::{Args as _, Subcommand};
use std::path::PathBuf;

/// Keep copies of datasets up to date: at another pool, another machine, or in a folder of streams
///
/// Policies say what is copied, where to, how often, and what is kept; they stand in a file in TOML (see
/// cenote-replicate(8)). Without a file: `cenote replicate SOURCE TARGET`, where each is `pool/fs`,
/// `ssh://user@host:port/pool/fs` or `file:///folder`. Each run takes snapshots, sends what the target lacks, and
/// destroys what is not kept. An interrupted run is continued by the next one.
///
/// Exit status: 0 all done, 1 something was not replicated, 2 wrong usage or a policy that makes no sense.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) verb: Option<Verb>,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Subcommand)]
pub(super) enum Verb {
    /// Run policies: these, or all of the file
    Run(RunArgs),
    /// Tell how the policies stand: lag, last success, bytes, next run
    Status(StatusArgs),
    /// Read the policies and explain them
    Check(CheckArgs),
}

#[derive(clap::Args, Default)]
pub(super) struct RunArgs {
    /// Names of policies; or a source and a target, one of them with a `/`
    #[arg(value_name = "POLICY")]
    pub(super) words: Vec<String>,
    /// The policy file [default: /etc/cenote/replicate.toml, or replicate.toml below ~/.config/cenote]
    #[arg(long, value_name = "FILE")]
    pub(super) policy_file: Option<PathBuf>,
    /// Do nothing, print what would be done
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Print every step
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Compare the contents of both sides afterwards
    #[arg(long)]
    pub(super) verify: bool,
    /// Run also outside of the window of the policy
    #[arg(long)]
    pub(super) force_window: bool,
    #[command(flatten)]
    pub(super) once: OnceArgs,
}

/// The policy of a source and a target.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "With a source and a target")]
pub(super) struct OnceArgs {
    /// Name of the policy, which its snapshots have [default: made of source and target]
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Datasets below too
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// Leave out this name below the source; `*` stands for any characters; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(super) exclude: Vec<String>,
    /// Send encrypted blocks as they are
    #[arg(long)]
    pub(super) raw: bool,
    /// Send properties too
    #[arg(long)]
    pub(super) props: bool,
    /// Take no snapshots
    #[arg(long)]
    pub(super) no_snapshot: bool,
    /// Send also snapshots of others that match; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(super) also: Vec<String>,
    /// What both sides keep, as a grid: '1x1h(keep=all) | 24x1h | 30x1d'
    #[arg(long, value_name = "GRID")]
    pub(super) keep: Option<String>,
    /// What the source keeps
    #[arg(long, value_name = "GRID", conflicts_with = "keep")]
    pub(super) keep_source: Option<String>,
    /// What the target keeps
    #[arg(long, value_name = "GRID", conflicts_with = "keep")]
    pub(super) keep_target: Option<String>,
    /// Most bytes a second: 10M
    #[arg(long, value_name = "BYTES")]
    pub(super) rate: Option<String>,
    /// Compress streams on their way over ssh
    #[arg(long)]
    pub(super) zstd: bool,
    /// Datasets that are sent at the same time
    #[arg(long, default_value_t = 1)]
    pub(super) parallel: u32,
    /// Give up what was changed at the target
    #[arg(long)]
    pub(super) force: bool,
    /// Receive into a dataset that this did not make
    #[arg(long)]
    pub(super) adopt: bool,
    /// Destroy copies whose source is gone
    #[arg(long)]
    pub(super) destroy: bool,
}

#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// Names of policies; none: all
    #[arg(value_name = "POLICY")]
    pub(super) names: Vec<String>,
    /// The policy file
    #[arg(long, value_name = "FILE")]
    pub(super) policy_file: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    pub(super) json: bool,
    /// Print in the text format of OpenMetrics
    #[arg(long, conflicts_with = "json")]
    pub(super) openmetrics: bool,
}

#[derive(clap::Args)]
pub(super) struct CheckArgs {
    /// The policy file
    #[arg(long, value_name = "FILE")]
    pub(super) policy_file: Option<PathBuf>,
    /// Print sources, targets and schedules as JSON
    #[arg(short, long)]
    pub(super) json: bool,
}

impl OnceArgs {
    /// Whether one of the options is given, which a policy of a file does not take.
    pub(super) fn is_given(&self) -> bool {
        let OnceArgs { name, recursive, exclude, raw, props, no_snapshot, also, keep, .. } = self;
        let OnceArgs { keep_source, keep_target, rate, zstd, parallel, force, adopt, destroy, .. } = self;
        let flags = [recursive, raw, props, no_snapshot, zstd, force, adopt, destroy];
        let texts = [name, keep, keep_source, keep_target, rate];
        let is_some = texts.iter().any(|text| text.is_some()) || flags.iter().any(|flag| **flag);
        is_some || !exclude.is_empty() || !also.is_empty() || *parallel != 1
    }
}

/// The parser alone, for tests.
#[allow(dead_code, reason = "tests parse command lines with it")]
pub(super) fn command() -> clap::Command {
    Args::augment_args(clap::Command::new("replicate"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("replicate").chain(line.split_whitespace());
        command().try_get_matches_from(words).and_then(|matches| Args::from_arg_matches(&matches))
    }

    #[test]
    fn policies_and_places_are_words() {
        let args = parse("tank/a ssh://vault/b --recursive --rate 10M -n").expect("good");
        assert!(args.verb.is_none() && args.run.once.is_given() && args.run.dry_run);
        assert_eq!(args.run.words, ["tank/a", "ssh://vault/b"]);
        let args = parse("run home --policy-file /x").expect("good");
        let Some(Verb::Run(run)) = args.verb else { panic!("no run") };
        assert!(run.words == ["home"] && !run.once.is_given());
        assert!(parse("status -j --openmetrics").is_err());
        assert!(parse("--keep 1x1h --keep-source 1x1h").is_err());
    }
}
