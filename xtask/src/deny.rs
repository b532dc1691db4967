//! `cargo xtask deny`: checks the licences, names and sources of all packages in the build.
//!
//! The rules are in `deny.toml`, the file of cargo-deny. Licences, bans and sources are checked here, from
//! the output of `cargo metadata` for all platforms, because building cargo-deny takes longer than building
//! this project. Advisories need the database of cargo-deny, so they are checked only if it is installed.
//!
//! # What always holds
//! - A rule that cannot be read, an expression that cannot be parsed and a package without a licence are
//!   refused.

use std::process::Command;

use serde_json::Value;

use crate::{Outcome, cargo, must, root};

/// The rules of `deny.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    licenses: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
}

/// `cargo xtask deny`.
pub(crate) fn run() -> Outcome {
    let text =
        std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let rules = Rules::read(&text)?;
    let output = cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let wrong: Vec<String> = packages.iter().flat_map(|package| rules.judge(package)).collect();
    if !wrong.is_empty() {
        return Err(format!("not allowed:\n  {}", wrong.join("\n  ")));
    }
    advisories()
}

/// Checks packages for advisories, if cargo-deny is installed and its database can be downloaded.
fn advisories() -> Outcome {
    let deny = |words: &[&str]| {
        let mut command = Command::new("cargo-deny");
        command.args(words).current_dir(root());
        command
    };
    if !deny(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT CHECKED: advisories, for cargo-deny is not installed");
        return Ok(());
    }
    if must(&mut deny(&["--log-level", "off", "fetch", "db"])).is_err() {
        eprintln!("NOT CHECKED: advisories, for their database cannot be fetched from here");
        return Ok(());
    }
    must(&mut deny(&["check", "advisories"]))
}

impl Rules {
    fn read(text: &str) -> Result<Rules, String> {
        let list = |section: &str, key: &str| {
            let found = strings(text, section, key).filter(|found| !found.is_empty());
            found.ok_or_else(|| format!("deny.toml: no {key} in [{section}]"))
        };
        if strings(text, "sources", "allow-git").is_none_or(|found| !found.is_empty()) {
            return Err("deny.toml: packages from git are not judged here".to_owned());
        }
        Ok(Rules {
            licenses: list("licenses", "allow")?,
            banned: list("bans", "deny")?,
            registries: list("sources", "allow-registry")?,
        })
    }

    /// The violations of a package.
    fn judge(&self, package: &Value) -> Vec<String> {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        let mut wrong = Vec::new();
        if self.banned.iter().any(|banned| banned == text("name")) {
            wrong.push(format!("{name}: deny.toml bans it"));
        }
        // Packages of the workspace have no source.
        if let Some(source) = package["source"].as_str() {
            let registry = source.strip_prefix("registry+").unwrap_or_default();
            if !self.registries.iter().any(|allowed| allowed == registry) {
                wrong.push(format!("{name}: from {source}"));
            }
        }
        match allows(text("license"), &self.licenses) {
            Some(true) => {}
            Some(false) => wrong.push(format!("{name}: under {}", text("license"))),
            None => wrong.push(format!("{name}: without a licence that can be read: {:?}", text("license"))),
        }
        wrong
    }
}

/// The strings of an array in a section; for tables in the array, their field `crate`. `None`: there is no
/// such array.
fn strings(text: &str, section: &str, key: &str) -> Option<Vec<String>> {
    let lines = text.lines().skip_while(|line| line.trim() != format!("[{section}]")).skip(1);
    let mut lines = lines
        .take_while(|line| !line.starts_with('['))
        .skip_while(|line| line.split_once('=').is_none_or(|(name, _)| name.trim() != key));
    let (_, first) = lines.next()?.split_once('=')?;
    let mut found = Vec::new();
    for line in std::iter::once(first.trim().strip_prefix('[')?).chain(lines) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let entry = line.strip_prefix('{').map_or(line, |table| {
            table.split(',').find(|field| field.trim().starts_with("crate ")).unwrap_or_default()
        });
        found.extend(entry.split('"').skip(1).step_by(2).map(str::to_owned));
        if line.ends_with(']') {
            return Some(found);
        }
    }
    None
}

/// Whether a licence expression (SPDX: `AND`, `OR`, `WITH`, parentheses; `/` as `OR`) can be satisfied with
/// these licences. `None`: the expression is malformed.
fn allows(expression: &str, licenses: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let allowed = any(&mut words, licenses)?;
    words.is_empty().then_some(allowed)
}

/// Parses alternatives. `words` is a stack of the remaining words.
fn any(words: &mut Vec<&str>, licenses: &[String]) -> Option<bool> {
    let mut allowed = all(words, licenses)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        allowed |= all(words, licenses)?;
    }
    Some(allowed)
}

/// Parses parts that must be satisfied together.
fn all(words: &mut Vec<&str>, licenses: &[String]) -> Option<bool> {
    let mut allowed = one(words, licenses)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        allowed &= one(words, licenses)?;
    }
    Some(allowed)
}

/// Parses a licence, with its exception if it has one, or an expression in parentheses.
fn one(words: &mut Vec<&str>, licenses: &[String]) -> Option<bool> {
    match words.pop()? {
        "(" => {
            let allowed = any(words, licenses)?;
            (words.pop()? == ")").then_some(allowed)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        license => {
            let exception = words.pop_if(|word| *word == "WITH").is_some();
            let full =
                if exception { format!("{license} WITH {}", words.pop()?) } else { license.to_owned() };
            Some(licenses.contains(&full))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules() -> Rules {
        let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        Rules::read(&text).expect("rules")
    }

    #[test]
    fn the_rules_are_those_of_the_file() {
        let rules = rules();
        assert!(rules.licenses.contains(&"Apache-2.0 WITH LLVM-exception".to_owned()), "{rules:?}");
        assert_eq!(rules.banned, ["openssl-sys", "native-tls", "libzfs_core", "libzfs_core-sys"]);
        assert_eq!(rules.registries, ["https://github.com/rust-lang/crates.io-index"]);
        assert!(Rules::read("[licenses]\nallow = []\n").is_err());
    }

    #[test]
    fn expressions_of_licences() {
        let licenses = rules().licenses;
        for (expression, allowed) in [
            ("MIT", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("GPL-3.0-only AND MIT", Some(false)),
            ("MIT OR GPL-3.0-only AND LGPL-2.1-only", Some(true)),
            ("(MIT OR GPL-3.0-only) AND LGPL-2.1-only", Some(false)),
            ("ISC AND (Apache-2.0 OR ISC) AND OpenSSL", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT MIT", None),
        ] {
            assert_eq!(allows(expression, &licenses), allowed, "{expression}");
        }
    }

    #[test]
    fn packages_are_judged_by_name_source_and_licence() {
        let rules = rules();
        let judge = |name: &str, source: Option<&str>, license: Option<&str>| {
            rules
                .judge(&json!({ "name": name, "version": "1.0.0", "source": source, "license": license }))
                .len()
        };
        let crates_io = Some("registry+https://github.com/rust-lang/crates.io-index");
        assert_eq!(judge("a", crates_io, Some("MIT")), 0);
        assert_eq!(judge("a", None, Some("MIT OR Apache-2.0")), 0);
        assert_eq!(judge("openssl-sys", crates_io, Some("MIT")), 1);
        assert_eq!(judge("a", Some("git+https://example.org/a"), Some("MIT")), 1);
        assert_eq!(judge("a", Some("registry+https://example.org/index"), None), 2);
    }
}
