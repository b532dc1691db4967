//! Policies: what is replicated, from where to where, when, and what is kept. A file in TOML; user properties of the
//! source may choose among the targets that it has ([`super::targets`]).
//!
//! ```toml
//! [policy.home]
//! from = "tank/home"
//! to = "ssh://backup@vault.example/vault/home"
//! recursive = true
//! every = "1h"
//! keep-source = "1x1h(keep=all) | 24x1h | 14x1d"
//! keep-target = { daily = 30, monthly = 12 }
//! ```
//!
//! # What always holds
//! - A field that is not known is refused, with its name and where it stands: a misspelt `keep-target` must not become
//!   a policy that keeps nothing.

use super::keep::{self, Keep};
use super::place::Place;
use super::schedule::{Cron, Window};
use super::targets::Target;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Most bytes of a policy file.
pub const FILE_MAX: u64 = 1 << 20;
/// The property of a target that records the guid of its source.
pub const SOURCE: &str = "org.cenote:replicate-source";
/// Longest name of a policy.
const NAME_MAX: usize = 64;

/// A policy file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PolicyFile {
    /// Policies by name.
    pub policy: BTreeMap<String, Policy>,
    /// What properties of datasets may choose, by name.
    pub target: BTreeMap<String, Target>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// Where snapshots are sent from.
    pub from: Place,
    /// Where they are received.
    pub to: Place,
    /// Datasets below are replicated too.
    #[serde(default)]
    pub recursive: bool,
    /// Names below `from` that are left out with all below them; `*` stands for any characters but `/`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Time from the begin of one run to the next, in seconds.
    #[serde(default, deserialize_with = "duration")]
    pub every: Option<u64>,
    /// Times at which it runs.
    #[serde(default)]
    pub cron: Option<Cron>,
    /// The hours of the day at which a run may begin.
    #[serde(default)]
    pub window: Option<Window>,
    /// Each run takes snapshots of the source.
    #[serde(default = "yes")]
    pub snapshot: bool,
    /// Snapshots by others that are sent too: patterns with `*`.
    #[serde(default)]
    pub also: Vec<String>,
    /// Snapshots by others that match `also` are destroyed by the keep rules too.
    #[serde(default)]
    pub prune_also: bool,
    /// What is kept at the source.
    #[serde(default)]
    pub keep_source: Keep,
    /// What is kept at the target.
    #[serde(default)]
    pub keep_target: Keep,
    /// What makes sure that an increment stays possible at the source.
    #[serde(default)]
    pub guard: Guard,
    /// Blocks are sent as they are on disk, encrypted ones included.
    #[serde(default)]
    pub raw: bool,
    /// Compressed blocks are sent as they are.
    #[serde(default = "yes")]
    pub compressed: bool,
    /// Blocks of more than 128 KiB are sent whole.
    #[serde(default = "yes")]
    pub large_blocks: bool,
    /// Properties are sent too.
    #[serde(default)]
    pub props: bool,
    /// Properties that new datasets of the target get.
    #[serde(default = "read_only")]
    pub set: BTreeMap<String, String>,
    /// Most bytes a second, of all datasets together.
    #[serde(default, deserialize_with = "size")]
    pub rate: Option<u64>,
    /// Streams are compressed with `zstd` between the machines; for ssh only.
    #[serde(default)]
    pub zstd: bool,
    /// Datasets that are sent at the same time.
    #[serde(default = "one")]
    pub parallel: u32,
    /// Goes back to the newest common snapshot if the target was changed.
    #[serde(default)]
    pub force: bool,
    /// Receives into datasets that this did not make, if they have a snapshot in common.
    #[serde(default)]
    pub adopt: bool,
    /// What becomes of datasets whose source is gone.
    #[serde(default)]
    pub destroyed: Destroyed,
    /// The contents of both sides are compared after each run.
    #[serde(default)]
    pub verify: bool,
    /// In a folder of streams: age of a full stream at which another one is made, in seconds.
    #[serde(default, deserialize_with = "duration")]
    pub full_every: Option<u64>,
    /// The command instead of `ssh`, with its options.
    #[serde(default = "ssh")]
    pub ssh: Vec<String>,
    /// The command instead of `zfs` on other machines.
    #[serde(default = "zfs")]
    pub zfs: Vec<String>,
    /// Of a policy that properties describe: the dataset of the target below which its copy is. A copy that is elsewhere
    /// there is renamed, as its source was.
    #[serde(skip)]
    pub within: Option<String>,
}

/// What is left at the source of the newest common snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// A bookmark, which needs no space and survives its snapshot.
    #[default]
    Bookmark,
    /// A hold on the snapshot.
    Hold,
}

/// What becomes of datasets of the target whose source is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destroyed {
    /// They stay as they are.
    #[default]
    Keep,
    /// They are destroyed, with their snapshots.
    Destroy,
}

/// Why a policy is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text is no policy file.
    #[error("{0}")]
    Text(String),
    /// The name of a policy becomes a part of the names of snapshots and files.
    #[error("policy '{name}': a name has letters, digits, '-' and '.', and begins with a letter")]
    Name {
        /// The name.
        name: String,
    },
    /// Two fields that exclude each other, or a value that makes no sense.
    #[error("policy '{policy}': {problem}")]
    Sense {
        /// Name of the policy.
        policy: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The properties of a dataset are no policy.
    #[error("properties of '{dataset}': {problem}")]
    Properties {
        /// Name of the dataset.
        dataset: String,
        /// What is wrong.
        problem: String,
    },
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

fn read_only() -> BTreeMap<String, String> {
    BTreeMap::from([("readonly".to_owned(), "on".to_owned())])
}

fn ssh() -> Vec<String> {
    vec!["ssh".to_owned()]
}

fn zfs() -> Vec<String> {
    vec!["zfs".to_owned()]
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong =
        || serde::de::Error::custom(format!("'{text}' is no duration: a number with s, m, h, d or w"));
    keep::seconds(&text).map(Some).ok_or_else(wrong)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    bytes(&text).map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!("'{text}' is no rate: bytes a second, with K, M or G"))
    })
}

/// A number of bytes with a unit of 1024: `10M`. `None`: it is none, or zero.
pub fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 20),
            None => text.strip_suffix(['G', 'g']).map_or((text, 0), |digits| (digits, 30)),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

impl PolicyFile {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(text: &str) -> Result<PolicyFile, PolicyError> {
        let file: PolicyFile = toml::from_str(text)
            .map_err(|error| PolicyError::Text(error.to_string().trim_end().to_owned()))?;
        for (name, policy) in &file.policy {
            check_name(name)?;
            policy.check(name)?;
        }
        for (name, target) in &file.target {
            check_name(name)?;
            target.check(name)?;
        }
        Ok(file)
    }
}

/// Checks the name of a policy.
///
/// # Errors
/// [`PolicyError::Name`].
pub fn check_name(name: &str) -> Result<(), PolicyError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_good = name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_plain);
    if is_good { Ok(()) } else { Err(PolicyError::Name { name: name.to_owned() }) }
}

impl Policy {
    /// A policy with the defaults of a file.
    pub fn new(from: Place, to: Place) -> Policy {
        Policy {
            from,
            to,
            recursive: false,
            exclude: Vec::new(),
            every: None,
            cron: None,
            window: None,
            snapshot: true,
            also: Vec::new(),
            prune_also: false,
            keep_source: Keep::All,
            keep_target: Keep::All,
            guard: Guard::Bookmark,
            raw: false,
            compressed: true,
            large_blocks: true,
            props: false,
            set: read_only(),
            rate: None,
            zstd: false,
            parallel: 1,
            force: false,
            adopt: false,
            destroyed: Destroyed::Keep,
            verify: false,
            full_every: None,
            ssh: ssh(),
            zfs: zfs(),
            within: None,
        }
    }

    /// Checks what no single field shows.
    ///
    /// # Errors
    /// [`PolicyError::Sense`].
    pub fn check(&self, name: &str) -> Result<(), PolicyError> {
        let wrong = |problem| Err(PolicyError::Sense { policy: name.to_owned(), problem });
        if self.every.is_some() && self.cron.is_some() {
            return wrong("'every' and 'cron' exclude each other");
        }
        if self.from == self.to {
            return wrong("source and target are the same");
        }
        let is_files = |place: &Place| matches!(place, Place::Files { .. });
        if is_files(&self.from) && is_files(&self.to) {
            return wrong("one side must be a dataset");
        }
        if let (Place::Here { dataset: from }, Place::Here { dataset: to }) = (&self.from, &self.to)
            && self.recursive
            && (is_below(to, from) || is_below(from, to))
        {
            return wrong("one side is within the other");
        }
        if self.parallel == 0 || self.parallel > 64 {
            return wrong("'parallel' must be between 1 and 64");
        }
        let is_ssh = |place: &Place| matches!(place, Place::Ssh { .. });
        if self.zstd && !is_ssh(&self.from) && !is_ssh(&self.to) {
            return wrong("'zstd' is for streams that go over ssh");
        }
        if self.full_every.is_some() && !is_files(&self.to) {
            return wrong("'full-every' is for folders of streams");
        }
        if self.ssh.first().is_none_or(String::is_empty) || self.zfs.first().is_none_or(String::is_empty) {
            return wrong("'ssh' and 'zfs' must not be empty");
        }
        if self.props && self.raw && is_files(&self.from) {
            return wrong("'props' and 'raw' are in the streams already");
        }
        Ok(())
    }

    /// Whether this path below `from` is left out.
    pub fn excludes(&self, below: &str) -> bool {
        let words: Vec<&str> = below.split('/').collect();
        (1..=words.len()).any(|n| {
            let part = words[..n].join("/");
            self.exclude.iter().any(|pattern| matches(pattern, &part))
        })
    }
}

pub(super) fn wrong_properties(dataset: &str, problem: String) -> PolicyError {
    PolicyError::Properties { dataset: dataset.to_owned(), problem }
}

/// A name for a policy that has none: the same for the same text.
pub fn name_of(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(text.as_bytes());
    let digits: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("p-{digits}")
}

/// Whether a dataset is another one or below it.
pub(super) fn is_below(name: &str, above: &str) -> bool {
    name == above || name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a name matches a pattern, in which `*` stands for any characters but `/`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = &parts[..] else { return pattern == name };
    let Some(rest) = name.strip_prefix(first) else { return false };
    let mut rest = rest;
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        if rest[..at].contains('/') {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    rest.strip_suffix(last).is_some_and(|star| !star.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicate::keep::Counts;

    const WHOLE: &str = r#"
[policy.home]
from = "tank/home"
to = "ssh://backup@vault:2222/vault/home"
recursive = true
exclude = ["cache", "tmp-*"]
every = "1h"
window = "22:00-06:00"
also = ["autosnap_*"]
keep-source = "1x1h(keep=all) | 24x1h"
keep-target = { daily = 30, monthly = 12 }
rate = "10M"
zstd = true
parallel = 2

[policy.other]
from = "tank/x"
to = { command = ["jexec", "7"], dataset = "vault/x" }
cron = "30 2 * * 1-5"
"#;

    #[test]
    fn a_file_is_read() {
        let file = PolicyFile::parse(WHOLE).expect("good");
        let home = &file.policy["home"];
        assert_eq!((home.every, home.rate, home.parallel), (Some(3600), Some(10 << 20), 2));
        let counts = Counts { daily: 30, monthly: 12, ..Counts::default() };
        assert_eq!(home.keep_target, Keep::Counts(counts));
        assert!(
            home.snapshot && home.compressed && !home.force && !home.adopt && home.set["readonly"] == "on"
        );
        assert!(home.excludes("cache/deep") && home.excludes("tmp-1") && !home.excludes("a/cache"));
        assert!(file.policy["other"].to.is_command());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let bad = |text: &str| PolicyFile::parse(text).expect_err(text).to_string();
        let base = "[policy.a]\nfrom = \"t/a\"\nto = \"v/a\"\n";
        let said = bad(&format!("{base}keep-tarqet = \"all\"\n"));
        assert!(said.contains("line 4") && said.contains("keep-tarqet"), "{said}");
        let said = bad(&format!("{base}keep-target = {{ dayly = 3 }}\n"));
        assert!(said.contains("line 4") && said.contains("dayly"), "{said}");
        let said = bad("[policy.a]\nfrom = \"-r\"\nto = \"v\"\n");
        assert!(said.contains("line 2") && said.contains("'-r' is not the name of a dataset"), "{said}");
        for more in [
            "every = \"1h\"\ncron = \"* * * * *\"",
            "every = \"0h\"",
            "every = \"1y\"",
            "rate = \"fast\"",
            "parallel = 0",
            "zstd = true",
            "full-every = \"1d\"",
            "cron = \"* * * *\"",
            "window = \"25:00-01:00\"",
            "ssh = []",
        ] {
            bad(&format!("{base}{more}\n"));
        }
        bad("[policy.a_b]\nfrom = \"t/a\"\nto = \"v/a\"\n");
        bad("[policy.a]\nfrom = \"t/a\"\nto = \"t/a/b\"\nrecursive = true\n");
        bad("[policy.a]\nto = \"v/a\"\n");
    }

    #[test]
    fn patterns() {
        for (pattern, name, is_match) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "abc", true),
            ("*", "a/b", false),
            ("a*c", "abbc", true),
            ("a*c", "ac", true),
            ("a*c", "a/c", false),
            ("a*b*c", "a1b2c", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
        assert_eq!((bytes("10M"), bytes("1"), bytes("0"), bytes("x")), (Some(10 << 20), Some(1), None, None));
    }
}
