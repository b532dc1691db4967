//! Targets: where the user properties of datasets may have copies made, as the policy file allows it.
//!
//! ```toml
//! [target.vault]
//! from = "tank/home"
//! to = "ssh://backup@vault.example/vault/home"
//! keep-target = { daily = 30, monthly = 12 }
//! ```
//!
//! With it `org.cenote:replicate.target=vault` at `tank/home/joe` is a policy that copies `tank/home/joe` to
//! `vault/home/joe`; `org.cenote:replicate.every=1h` says how often.
//!
//! # What always holds
//! Who may set properties of a dataset (the permission `userprop`) is not trusted:
//! - Properties choose among the targets of the file. They name no command, host, folder or dataset, and the copy of a
//!   dataset is always below that of the target, at the same path.
//! - They choose the fields of `Chosen` and no others, and of those only what the target leaves open.
//! - What is wrong in the properties of one dataset does not concern the policies of others.
//! - A policy is named by the guid of its dataset: it takes, holds and destroys no snapshots of other policies, and goes
//!   on when the dataset is renamed.

use super::keep::{self, Keep};
use super::place::{Place, check_dataset};
use super::policy::{Policy, PolicyError, is_below, wrong_properties};
use super::schedule::{Cron, Window};
use super::side::UserProperties;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the names of properties of a policy begin with.
pub const PROPERTY: &str = "org.cenote:replicate.";
/// Shortest time from the begin of one run to the next that properties may ask for, in seconds.
const EVERY_MIN: u64 = 60;
/// Longest one: ten years.
const EVERY_MAX: u64 = 3652 * 86_400;

/// A target. In a file it has `from`, `to`, and any other field of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Target {
    /// The policy of `from` itself, if nothing else was chosen.
    policy: Policy,
    /// Fields that the file has, and that properties cannot change.
    fixed: BTreeSet<String>,
}

impl TryFrom<toml::Table> for Target {
    type Error = String;

    fn try_from(table: toml::Table) -> Result<Target, String> {
        let fixed = table.keys().cloned().collect();
        let policy = Policy::deserialize(toml::Value::Table(table))
            .map_err(|error| error.to_string().trim_end().to_owned())?;
        Ok(Target { policy, fixed })
    }
}

/// What properties may choose. A field that is missing is the target's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Chosen {
    target: String,
    recursive: Option<bool>,
    exclude: Option<Vec<String>>,
    #[serde(deserialize_with = "duration")]
    every: Option<u64>,
    cron: Option<Cron>,
    window: Option<Window>,
    snapshot: Option<bool>,
    keep_source: Option<Keep>,
    keep_target: Option<Keep>,
    verify: Option<bool>,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_allowed = |seconds: &u64| (EVERY_MIN..=EVERY_MAX).contains(seconds);
    keep::seconds(&text).filter(is_allowed).map(Some).ok_or_else(|| {
        let why = format!("'{text}' is no duration of at least {EVERY_MIN} seconds and at most ten years");
        serde::de::Error::custom(why)
    })
}

impl Target {
    /// Checks what no single field shows.
    ///
    /// # Errors
    /// [`PolicyError::Sense`].
    pub fn check(&self, name: &str) -> Result<(), PolicyError> {
        let wrong = |problem| Err(PolicyError::Sense { policy: name.to_owned(), problem });
        let Place::Here { dataset: from } = &self.policy.from else {
            return wrong("'from' of a target is a dataset of this machine");
        };
        if let Place::Here { dataset: to } = &self.policy.to
            && (is_below(to, from) || is_below(from, to))
        {
            return wrong("one side is within the other");
        }
        self.policy.check(name)
    }

    /// The dataset that may choose this target, with all below it.
    pub fn root(&self) -> &str {
        self.policy.from.dataset()
    }

    /// The policy of a dataset that has chosen this target.
    fn policy_of(&self, dataset: &str, chosen: Chosen) -> Result<Policy, String> {
        let is_inside = is_below(dataset, self.root());
        let below = dataset.get(self.root().len()..).filter(|_| is_inside);
        let below = below.ok_or_else(|| format!("this target is for '{}' and what is below", self.root()))?;
        let mut policy = self.policy.clone();
        policy.from = Place::Here { dataset: dataset.to_owned() };
        policy.to = policy.to.below(below).map_err(|error| error.to_string())?;
        policy.within = Some(self.policy.to.dataset().to_owned());
        policy.recursive = chosen.recursive.unwrap_or(policy.recursive);
        policy.exclude = chosen.exclude.unwrap_or(policy.exclude);
        policy.every = chosen.every.or(policy.every);
        policy.cron = chosen.cron.or(policy.cron);
        policy.window = chosen.window.or(policy.window);
        policy.snapshot = chosen.snapshot.unwrap_or(policy.snapshot);
        policy.keep_source = chosen.keep_source.unwrap_or(policy.keep_source);
        policy.keep_target = chosen.keep_target.unwrap_or(policy.keep_target);
        policy.verify = chosen.verify.unwrap_or(policy.verify);
        Ok(policy)
    }
}

/// The policy that properties describe, with its name. `None`: no name of them begins with [`PROPERTY`].
///
/// # Errors
/// [`PolicyError::Properties`], [`PolicyError::Sense`].
pub fn of_properties(
    targets: &BTreeMap<String, Target>,
    properties: &UserProperties,
) -> Result<Option<(String, Policy)>, PolicyError> {
    let UserProperties { dataset, guid, properties } = properties;
    let wrong = |problem: String| wrong_properties(dataset, problem);
    let own = properties.iter().filter_map(|(name, value)| Some((name.strip_prefix(PROPERTY)?, value)));
    let table: toml::Table = own.map(|(field, value)| (field.to_owned(), value_of(value))).collect();
    if table.is_empty() {
        return Ok(None);
    }
    check_dataset(dataset).map_err(|error| wrong(error.to_string()))?;
    let fields: Vec<String> = table.keys().cloned().collect();
    let chosen = Chosen::deserialize(toml::Value::Table(table))
        .map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    let name = chosen.target.clone();
    let target = match targets.get(&name) {
        Some(target) => target,
        None if name.is_empty() => return Err(wrong("'target' is missing".to_owned())),
        None => return Err(wrong(format!("the policy file has no target '{name}'"))),
    };
    if let Some(field) = fields.iter().find(|field| target.fixed.contains(*field)) {
        return Err(wrong(format!("the target '{name}' decides '{field}'")));
    }
    let policy = target.policy_of(dataset, chosen).map_err(wrong)?;
    let name = format!("d-{guid:016x}");
    policy.check(&name)?;
    Ok(Some((name, policy)))
}

/// A value of a property: TOML if it is a boolean, a number, a list or a table, else text.
fn value_of(text: &str) -> toml::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("v = {text}")).ok();
    match parsed.and_then(|mut table| (table.len() == 1).then(|| table.remove("v")).flatten()) {
        Some(value) if !value.is_datetime() => value,
        _ => toml::Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{PolicyFile, check_name};
    use super::*;

    const FILE: &str = r#"
[target.vault]
from = "tank/home"
to = "ssh://backup@vault/v/home"
keep-target = "1x1h(keep=all) | 24x1h"

[target.near]
from = "tank"
to = { command = ["jexec", "7"], dataset = "near" }
every = "1s"

[target.disk]
from = "tank"
to = "file:///mnt/disk"
"#;

    fn of(dataset: &str, list: &[(&str, &str)]) -> Result<Option<(String, Policy)>, PolicyError> {
        let targets = PolicyFile::parse(FILE).expect("good").target;
        let properties = list.iter().map(|(n, v)| (format!("{PROPERTY}{n}"), (*v).to_owned())).collect();
        of_properties(&targets, &UserProperties { dataset: dataset.to_owned(), guid: 0xab, properties })
    }

    #[test]
    fn properties_choose_a_target() {
        assert_eq!(of("tank/home", &[]), Ok(None));
        let list = [
            ("target", "vault"),
            ("recursive", "true"),
            ("every", "15m"),
            ("exclude", "[\"x*\"]"),
            ("keep-source", "{ last = 3 }"),
        ];
        let (name, policy) = of("tank/home/joe", &list).expect("good").expect("one");
        assert_eq!(name, "d-00000000000000ab");
        check_name(&name).expect("a name");
        assert!(policy.recursive && policy.every == Some(900) && policy.exclude == ["x*"]);
        assert_eq!(policy.from.to_string(), "tank/home/joe");
        assert_eq!(policy.to.to_string(), "ssh://backup@vault/v/home/joe");
        assert_eq!(policy.within.as_deref(), Some("v/home"));
        let to = |dataset: &str, target: &str| {
            of(dataset, &[("target", target)]).expect("good").map(|(_, policy)| policy.to)
        };
        assert_eq!(to("tank/home", "vault"), Some("ssh://backup@vault/v/home".parse().expect("a place")));
        assert_eq!(to("tank/a b", "disk"), Some("file:///mnt/disk/a b".parse().expect("a place")));
        assert_eq!(to("tank/x/y", "near").expect("one").dataset(), "near/x/y");
    }

    #[test]
    fn properties_name_no_commands_hosts_or_datasets() {
        for (dataset, bad, why) in [
            ("tank/home", &[("to", "v/home")][..], "unknown field `to`"),
            ("tank/home", &[("target", "vault"), ("to", "ssh://evil/v")], "unknown field `to`"),
            ("tank/home", &[("target", "vault"), ("from", "tank/other")], "unknown field `from`"),
            ("tank/home", &[("target", "vault"), ("ssh", "[\"sh\"]")], "unknown field `ssh`"),
            ("tank/home", &[("target", "vault"), ("zfs", "[\"sh\"]")], "unknown field `zfs`"),
            (
                "tank/home",
                &[("target", "vault"), ("set", "{ mountpoint = \"/etc\" }")],
                "unknown field `set`",
            ),
            ("tank/home", &[("target", "vault"), ("force", "true")], "unknown field `force`"),
            ("tank/home", &[("target", "vault"), ("adopt", "true")], "unknown field `adopt`"),
            ("tank/home", &[("target", "vault"), ("destroyed", "destroy")], "unknown field `destroyed`"),
            ("tank/home", &[("target", "vault"), ("also", "[\"*\"]")], "unknown field `also`"),
            ("tank/home", &[("target", "vault"), ("evrey", "1h")], "unknown field `evrey`"),
            ("tank/home", &[("target", "vault"), ("every", "1s")], "at least 60 seconds"),
            ("tank/home", &[("target", "vault"), ("keep-target", "{ last = 1 }")], "decides 'keep-target'"),
            ("tank/home", &[("target", "near"), ("every", "1h")], "decides 'every'"),
            ("tank/home", &[("target", "vault"), ("every", "18446744073709551615s")], "at most ten years"),
            ("tank/home", &[("target", "vault"), ("window", "18446744073709551615:00-1:00")], "no window"),
            ("tank/home", &[("target", "vault"), ("exclude", "[\"a\"]\n[[x]]\n")], "a sequence"),
            ("tank/home", &[("target", "vault"), ("exclude", &"[".repeat(8000))], "a sequence"),
            ("tank/home", &[("target", "near"), ("cron", "* * * * *")], "exclude each other"),
            ("tank/home", &[("target", "none")], "no target 'none'"),
            ("tank/home", &[("every", "1h")], "'target' is missing"),
            ("tank/homes", &[("target", "vault")], "is for 'tank/home'"),
            ("tank", &[("target", "vault")], "is for 'tank/home'"),
            ("tank/home/..", &[("target", "vault")], "is not the name of a dataset"),
        ] {
            let said = of(dataset, bad).expect_err(why).to_string();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
    }

    #[test]
    fn targets_are_checked() {
        for (text, why) in [
            ("from = \"tank\"\nto = \"tank/b\"", "within the other"),
            ("from = \"tank/b/c\"\nto = \"tank/b\"", "within the other"),
            ("from = \"ssh://h/tank\"\nto = \"v\"", "a dataset of this machine"),
            ("from = \"tank\"", "`to`"),
            ("from = \"tank\"\nto = \"v\"\nevrey = \"1h\"", "evrey"),
            ("from = \"tank\"\nto = \"v\"\nzstd = true", "over ssh"),
        ] {
            let said = PolicyFile::parse(&format!("[target.t]\n{text}\n")).expect_err(why).to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(PolicyFile::parse("[target.-x]\nfrom = \"a\"\nto = \"b\"\n").is_err());
    }
}
