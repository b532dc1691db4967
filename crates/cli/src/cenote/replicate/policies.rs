//! Which policies a command is about, and where they and their states are.

use super::Sides;
use super::args::{OnceArgs, RunArgs};
use crate::console;
use admin::change::state_folder;
use admin::replicate::keep::Keep;
use admin::replicate::policy::{self, Destroyed, FILE_MAX};
use admin::replicate::{Place, Policy, PolicyFile, State, States, schedule};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Reads a policy file, which may start commands: it must belong to this user or root, and nobody else may write it.
///
/// # Errors
/// A message with the path.
#[allow(clippy::disallowed_types)] // A policy is a file of the user's, no device.
pub(crate) fn read_file(path: &Path) -> Result<PolicyFile, String> {
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| told(&error))?;
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

/// The policies of a file, and of the properties that it names.
///
/// # Errors
/// A message.
pub(super) fn all(file: Option<&Path>, sides: &Sides) -> Result<Policies, String> {
    let file = file.map_or_else(default_file, Path::to_owned);
    let PolicyFile { policy: mut policies, properties } = read_file(&file)?;
    for root in &properties {
        let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        let listed = sides.local().user_properties(root).map_err(|error| ::cenote::error::chain(&error))?;
        for (dataset, name, value) in listed {
            found.entry(dataset).or_default().push((name, value));
        }
        for (dataset, properties) in found {
            let policy = Policy::of_properties(&dataset, &properties).map_err(|error| error.to_string())?;
            policies.extend(policy);
        }
    }
    Ok(policies)
}

/// The policies that a command line names.
///
/// # Errors
/// A message.
pub(super) fn chosen(args: &RunArgs, sides: &Sides) -> Result<Policies, String> {
    if args.words.iter().any(|word| word.contains('/')) {
        return match &args.words[..] {
            [from, to] if args.policy_file.is_none() => once(from, to, &args.once).map(|one| [one].into()),
            _ => Err("a source and a target are needed: two words, and no policy file".to_owned()),
        };
    }
    if args.once.is_given() {
        return Err("these options need a source and a target; a policy has them in its file".to_owned());
    }
    let mut policies = all(args.policy_file.as_deref(), sides)?;
    if args.words.is_empty() {
        return Ok(policies);
    }
    let take = |name: &String| {
        let policy = policies.remove(name).ok_or_else(|| format!("there is no policy '{name}'"))?;
        Ok((name.clone(), policy))
    };
    args.words.iter().map(take).collect()
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
    pub(crate) fn of(&self, policy: &Policy, state: &State) -> Option<u64> {
        let Policy { every, cron, window, .. } = policy;
        schedule::next_run(*every, cron.as_ref(), window.as_ref(), state.past(), self.now, self.offset)
    }

    /// Whether a policy is due.
    pub(crate) fn is_due(&self, policy: &Policy, state: &State) -> bool {
        self.of(policy, state).is_some_and(|next| next <= self.now)
    }
}
