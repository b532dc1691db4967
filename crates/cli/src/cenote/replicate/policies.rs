//! Which policies a command is about, and where they and their states are.

use super::Sides;
use super::args::{OnceArgs, RunArgs};
use crate::console;
use admin::change::state_folder;
use admin::replicate::keep::Keep;
use admin::replicate::policy::{self, Destroyed, FILE_MAX};
use admin::replicate::schedule::{Cron, Window};
use admin::replicate::{Place, Policy, PolicyFile, State, States, schedule, targets};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of the reason why properties are no policy.
const REASON_MAX: usize = 400;

/// Policies by name.
pub(super) type Policies = BTreeMap<String, Policy>;

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The states of policies.
pub(crate) fn states() -> States {
    States::new(state_folder().join("replicate"))
}

/// The policy file: `CENOTE_REPLICATE`, else that of the system for root, else that of the user.
pub(crate) fn default_file() -> PathBuf {
    let named = |name: &str| console::env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = named("CENOTE_REPLICATE") {
        return file;
    }
    if rustix::process::geteuid().is_root() {
        return "/etc/cenote/replicate.toml".into();
    }
    named("HOME").unwrap_or_else(|| "/".into()).join(".config/cenote/replicate.toml")
}

/// Why a policy file was not read.
pub(crate) enum NotRead {
    /// There is none.
    Missing(PathBuf),
    /// It cannot be read, is not trusted, or makes no sense: a message with the path.
    Wrong(String),
}

impl std::fmt::Display for NotRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotRead::Missing(path) => {
                write!(f, "{}: {}", path.display(), std::io::Error::from(rustix::io::Errno::NOENT))
            }
            NotRead::Wrong(message) => f.write_str(message),
        }
    }
}

/// Reads a policy file, which may start commands: it must belong to this user or root, and nobody else may write it.
///
/// # Errors
/// [`NotRead`].
#[allow(clippy::disallowed_types)] // A policy is a file of the user's, no device.
pub(crate) fn read_file(path: &Path) -> Result<PolicyFile, NotRead> {
    let told = |why: &dyn std::fmt::Display| NotRead::Wrong(format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => NotRead::Missing(path.to_owned()),
        _ => told(&error),
    })?;
    let found = file.metadata().map_err(|error| told(&error))?;
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(told(&format_args!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        return Err(told(&"others may write it"));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text).map_err(|error| told(&error))?;
    PolicyFile::parse(&text).map_err(|error| told(&error))
}

/// The policies that are known.
#[derive(Default)]
pub(super) struct Known {
    /// Those of the file, and those of properties.
    pub(super) policies: Policies,
    /// Datasets whose properties are no policy, or cannot be read, with the reason. They are no concern of the others:
    /// users may have the permission to set properties.
    pub(super) refused: BTreeMap<String, String>,
}

/// The policies of a file, and of the properties of datasets that it allows.
///
/// # Errors
/// [`NotRead`].
pub(super) fn all(file: Option<&Path>, sides: &Sides) -> Result<Known, NotRead> {
    let file = file.map_or_else(default_file, Path::to_owned);
    let PolicyFile { policy: policies, target } = read_file(&file)?;
    let mut known = Known { policies, refused: BTreeMap::new() };
    let roots = target.values().map(targets::Target::root).collect::<std::collections::BTreeSet<_>>();
    for root in roots {
        let listed = match sides.local().user_properties(root) {
            Ok(listed) => listed,
            Err(error) => {
                known.refused.insert(root.to_owned(), ::cenote::error::chain(&error));
                continue;
            }
        };
        for own in listed {
            match targets::of_properties(&target, &own) {
                Ok(None) => {}
                Ok(Some((name, policy))) => drop(known.policies.entry(name).or_insert(policy)),
                // The value of a property may be long, and have line breaks.
                Err(error) => {
                    let why: String = error.to_string().chars().take(REASON_MAX).collect();
                    known.refused.insert(own.dataset, why.replace('\n', " "));
                }
            }
        }
    }
    Ok(known)
}

/// What a schedule needs of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scheduled {
    /// The source.
    pub(crate) from: String,
    /// The target.
    pub(crate) to: String,
    /// Seconds from the begin of one run to the next.
    every: Option<u64>,
    cron: Option<Cron>,
    window: Option<Window>,
    /// Properties of the source describe it.
    pub(crate) by_properties: bool,
}

impl Scheduled {
    /// That of a policy.
    pub(crate) fn of(policy: &Policy) -> Scheduled {
        Scheduled {
            from: policy.from.to_string(),
            to: policy.to.to_string(),
            every: policy.every,
            cron: policy.cron.clone(),
            window: policy.window,
            by_properties: policy.within.is_some(),
        }
    }
}

/// What `cenote replicate check --json` prints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// Policies by name.
    pub(crate) policies: BTreeMap<String, Scheduled>,
    /// Datasets whose properties are no policy, with the reason.
    pub(crate) refused: BTreeMap<String, String>,
}

/// The policies that a command line names.
///
/// # Errors
/// A message.
pub(super) fn chosen(args: &RunArgs, sides: &Sides) -> Result<Known, String> {
    if args.words.iter().any(|word| word.contains('/')) {
        return match &args.words[..] {
            [from, to] if args.policy_file.is_none() => {
                let policies = once(from, to, &args.once).map(|one| [one].into())?;
                Ok(Known { policies, ..Known::default() })
            }
            _ => Err("a source and a target are needed: two words, and no policy file".to_owned()),
        };
    }
    if args.once.is_given() {
        return Err("these options need a source and a target; a policy has them in its file".to_owned());
    }
    let mut known = all(args.policy_file.as_deref(), sides).map_err(|error| error.to_string())?;
    if args.words.is_empty() {
        return Ok(known);
    }
    let take = |name: &String| {
        let policy = known.policies.remove(name).ok_or_else(|| format!("there is no policy '{name}'"))?;
        Ok((name.clone(), policy))
    };
    let policies = args.words.iter().map(take).collect::<Result<_, String>>()?;
    Ok(Known { policies, ..Known::default() })
}

/// The policy of a source and a target.
fn once(from: &str, to: &str, args: &OnceArgs) -> Result<(String, Policy), String> {
    // `tank/` is a pool, which could be the name of a policy otherwise.
    let place = |text: &str| -> Result<Place, String> {
        let is_address = text.contains("://");
        let text = if is_address { text } else { text.strip_suffix('/').unwrap_or(text) };
        text.parse().map_err(|error: admin::replicate::place::PlaceError| error.to_string())
    };
    let keep = |text: &Option<String>| -> Result<Keep, String> {
        let text = args.keep.as_ref().or(text.as_ref());
        text.map_or(Ok(Keep::All), |text| text.parse().map_err(|error| format!("{error}")))
    };
    let rate = |text: &String| policy::bytes(text).ok_or_else(|| format!("'{text}' is no rate"));
    let policy = Policy {
        recursive: args.recursive,
        exclude: args.exclude.clone(),
        raw: args.raw,
        props: args.props,
        snapshot: !args.no_snapshot,
        also: args.also.clone(),
        keep_source: keep(&args.keep_source)?,
        keep_target: keep(&args.keep_target)?,
        rate: args.rate.as_ref().map(rate).transpose()?,
        zstd: args.zstd,
        parallel: args.parallel,
        force: args.force,
        adopt: args.adopt,
        destroyed: if args.destroy { Destroyed::Destroy } else { Destroyed::Keep },
        ..Policy::new(place(from)?, place(to)?)
    };
    let name =
        args.name.clone().unwrap_or_else(|| policy::name_of(&format!("{} {}", policy.from, policy.to)));
    policy::check_name(&name).map_err(|error| error.to_string())?;
    policy.check(&name).map_err(|error| error.to_string())?;
    Ok((name, policy))
}

/// When policies run next.
pub(crate) struct NextRuns {
    now: u64,
    offset: i64,
}

impl NextRuns {
    /// As of now, in the local time of this moment.
    pub(crate) fn now() -> NextRuns {
        let now = now();
        NextRuns { now, offset: crate::time::utc_offset(now) }
    }

    /// Time of the next run in seconds since 1970; `None`: it runs when it is told to.
    pub(crate) fn of(&self, policy: &Scheduled, state: &State) -> Option<u64> {
        let Scheduled { every, cron, window, .. } = policy;
        schedule::next_run(*every, cron.as_ref(), window.as_ref(), state.past(), self.now, self.offset)
    }

    /// Whether a policy is due.
    pub(crate) fn is_due(&self, policy: &Scheduled, state: &State) -> bool {
        self.of(policy, state).is_some_and(|next| next <= self.now)
    }
}
