//! The machine's package sources, read in both of their formats.
//!
//! To enable another suite of the same distribution, the description of its mirror is repeated: address,
//! keyring, architectures. So no host name is written into the project, and a machine behind a private mirror
//! keeps using it.

use std::fs;
use std::path::{Path, PathBuf};

/// One source of binary packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Addresses of the mirror, as written.
    pub(crate) uris: Vec<String>,
    /// Suites such as `bookworm` and `bookworm-updates`.
    pub(crate) suites: Vec<String>,
    /// Components such as `main` and `contrib`.
    pub(crate) components: Vec<String>,
    /// Other fields in deb822 spelling (`Signed-By`, `Architectures`, `Trusted`…), unchanged.
    pub(crate) options: Vec<(String, String)>,
}

impl Source {
    /// The text of a `.sources` file for the same mirror with other suites and components.
    pub(crate) fn rendered(&self, suites: &str, components: &str) -> String {
        let uris = self.uris.join(" ");
        let mut text = format!("Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: {components}\n");
        for (name, value) in &self.options {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }
}

/// All enabled sources of the machine, from the files below `etc` (`/etc/apt`).
pub(crate) fn sources(etc: &Path) -> Vec<Source> {
    let mut files: Vec<PathBuf> = vec![etc.join("sources.list")];
    if let Ok(folder) = fs::read_dir(etc.join("sources.list.d")) {
        files.extend(folder.filter_map(Result::ok).map(|entry| entry.path()));
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => found.extend(text.lines().filter_map(one_line)),
            Some("sources") => found.extend(stanzas(&text).iter().filter_map(|fields| deb822(fields))),
            _ => {}
        }
    }
    found
}

/// Parses a line such as `deb [signed-by=/k arch=amd64] http://mirror/debian bookworm main contrib`.
fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None; // deb-src
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    let options =
        options.split_whitespace().filter_map(|option| option.split_once('=')).filter_map(deb822_option);
    Some(Source {
        uris: vec![uri],
        suites: vec![suite],
        components: words.collect(),
        options: options.collect(),
    })
}

/// The deb822 field for an option of the one-line format.
fn deb822_option((name, value): (&str, &str)) -> Option<(String, String)> {
    let field = match name.trim_end_matches(['+', '-']).to_ascii_lowercase().as_str() {
        "signed-by" => "Signed-By",
        "arch" => "Architectures",
        "trusted" => "Trusted",
        "check-valid-until" => "Check-Valid-Until",
        _ => return None,
    };
    Some((field.to_owned(), value.replace(',', " ")))
}

/// The stanzas of a deb822 file, as fields in their order. A value may have several lines.
fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in text.lines() {
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if line.starts_with('#') {
            continue;
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = all.last_mut().and_then(|fields| fields.last_mut()) {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':')
            && let Some(fields) = all.last_mut()
        {
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    all.retain(|fields| !fields.is_empty());
    all
}

fn deb822(fields: &[(String, String)]) -> Option<Source> {
    let field = |name: &str| fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
    let words = |name: &str| -> Vec<String> {
        field(name)
            .map(|(_, value)| value.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default()
    };
    let off = field("Enabled").is_some_and(|(_, value)| matches!(value.as_str(), "no" | "false" | "0"));
    if off || !words("Types").iter().any(|kind| kind == "deb") {
        return None;
    }
    let own = ["types", "uris", "suites", "components", "enabled"];
    let options = fields.iter().filter(|(name, _)| !own.contains(&name.to_ascii_lowercase().as_str()));
    let source = Source {
        uris: words("URIs"),
        suites: words("Suites"),
        components: words("Components"),
        options: options.cloned().collect(),
    };
    (!source.uris.is_empty() && !source.suites.is_empty()).then_some(source)
}

/// The source of the distribution itself: suite `codename`, component `main`.
pub(crate) fn of_distribution<'a>(sources: &'a [Source], codename: &str) -> Option<&'a Source> {
    let is_it = |source: &&Source| {
        source.suites.iter().any(|suite| suite == codename)
            && source.components.iter().any(|part| part == "main")
    };
    sources.iter().find(is_it)
}

/// Whether some source already offers `component` of `suite`.
pub(crate) fn offers(sources: &[Source], suite: &str, component: &str) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|word| word == wanted);
    sources.iter().any(|source| has(&source.suites, suite) && has(&source.components, component))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Vec<Source> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("sources.list.d")).expect("made");
        fs::write(folder.path().join(name), text).expect("written");
        sources(folder.path())
    }

    #[test]
    fn one_line_sources_with_options() {
        let text = "# deb http://old.example/ bookworm main\n\
            deb-src http://mirror.example/debian bookworm main\n\
            deb [arch=amd64,i386 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # ours\n";
        let found = parse("sources.list", text);
        assert_eq!(found.len(), 1);
        let debian = of_distribution(&found, "bookworm").expect("found");
        assert_eq!(
            debian.rendered("bookworm-backports", "main contrib"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\nComponents: main contrib\n\
             Architectures: amd64 i386\nSigned-By: /k.gpg\n"
        );
        assert!(offers(&found, "bookworm", "contrib"));
        assert!(!offers(&found, "bookworm-backports", "contrib"));
    }

    #[test]
    fn deb822_sources_with_a_key_inside_and_one_disabled() {
        let text = "Types: deb\n# a remark\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\n\
            Components: main\n\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
            Components: main\nSigned-By:\n -----BEGIN PGP-----\n .\n abc\n\nEnabled: no\nTypes: deb\nURIs: http://x/\n\
            Suites: bookworm-backports\nComponents: contrib\n";
        let found = parse("sources.list.d/debian.sources", text);
        assert_eq!(found.len(), 2);
        let debian = of_distribution(&found, "bookworm").expect("found");
        assert_eq!(debian.suites, ["bookworm", "bookworm-updates"]);
        assert!(debian.rendered("s", "c").ends_with("Signed-By: \n -----BEGIN PGP-----\n .\n abc\n"));
        assert!(!offers(&found, "bookworm-backports", "contrib"));
    }
}
