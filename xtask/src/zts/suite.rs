//! All tests of the installed suite, from its run files: the runner's own catalogue has only the tests of its
//! lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Names of the run files for this system.
const RUN_FILES: [&str; 2] = ["common", "linux"];
const FOLDER: &str = "/usr/share/zfs/runfiles";
/// Folder of the groups of tests.
const GROUPS: &str = "tests/functional/";

/// Writes a catalogue of all tests of these groups except those of `known`, and a list of them. Returns their
/// paths.
///
/// # Errors
/// The run files cannot be read, or the folder cannot be written.
pub(super) fn write_rest(
    groups: &BTreeSet<String>,
    known: &[String],
    suite: &Path,
    place: &Path,
) -> Result<(PathBuf, PathBuf), String> {
    // Some tests are in both run files.
    let (mut tests, mut seen) = (Vec::new(), BTreeSet::new());
    for name in RUN_FILES {
        let path = Path::new(FOLDER).join(format!("{name}.run"));
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let is_script = |file: &str| suite.join(file).is_file();
        tests.extend(of_run_file(&text, name, is_script).into_iter().filter(|test| {
            let text = |key: &str| test[key].as_str().unwrap_or_default();
            let is_wanted = groups.contains(text("group")) && !known.iter().any(|id| id == text("id"));
            is_wanted && seen.insert(text("id").to_owned())
        }));
    }
    let ids: String =
        tests.iter().filter_map(|test| test["id"].as_str()).map(|id| format!("{id}\n")).collect();
    let catalog = json!({ "tests": tests, "missing": [] });
    let (catalog_at, list_at) = (place.join("rest.json"), place.join("rest.txt"));
    let written = fs::create_dir_all(place)
        .and_then(|()| fs::write(&catalog_at, catalog.to_string()))
        .and_then(|()| fs::write(&list_at, ids));
    written.map_err(|error| format!("{}: {error}", place.display()))?;
    Ok((catalog_at, list_at))
}

/// The tests that a run file names, in the form that the runner expects.
fn of_run_file(text: &str, name: &str, is_script: impl Fn(&str) -> bool) -> Vec<Value> {
    let sections = sections(text);
    let defaults = sections.iter().find(|(name, _)| *name == "DEFAULT").map(|(_, keys)| keys);
    let mut tests = Vec::new();
    for (section, keys) in &sections {
        let Some(list) = keys.get("tests") else { continue };
        // A suffix after a colon distinguishes sections of the same folder.
        let dir = section.split(':').next().unwrap_or(section);
        let group = dir.strip_prefix(GROUPS).unwrap_or(dir);
        let value = |key: &str| {
            let found = keys.get(key).or_else(|| defaults?.get(key));
            found.map_or("", String::as_str).trim()
        };
        for test in quoted(list) {
            let script = format!("{dir}/{test}.ksh");
            let file = if is_script(&script) { script } else { format!("{dir}/{test}") };
            tests.push(json!({
                "id": format!("{group}/{test}"), "group": group, "dir": dir, "test": test, "file": file,
                "pre": value("pre"), "post": value("post"), "user": value("user"),
                "timeout": value("timeout").parse().unwrap_or(600), "runfile": name,
                "sanity": false, "class": "mount", "tags": [], "lines": 0,
            }));
        }
    }
    tests
}

/// The sections of a run file with their keys; lines that begin with a space continue a value.
fn sections(text: &str) -> Vec<(&str, BTreeMap<&str, String>)> {
    let mut sections: Vec<(&str, BTreeMap<&str, String>)> = Vec::new();
    let mut key = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((name, BTreeMap::new()));
        } else if let Some((_, keys)) = sections.last_mut() {
            if line.starts_with([' ', '\t']) {
                keys.entry(key).or_default().push_str(line);
            } else if let Some((name, value)) = line.split_once('=') {
                key = name.trim();
                keys.insert(key, value.to_owned());
            }
        }
    }
    sections
}

/// The quoted words of a list.
fn quoted(list: &str) -> impl Iterator<Item = &str> {
    list.split('\'').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# about\n[DEFAULT]\npre = setup\nuser = root\ntimeout = 600\npost = cleanup\n\n\
        [tests/functional/a/b]\ntests = ['one', 'two',\n    'three']\ntags = ['functional', 'a']\n\n\
        [tests/functional/c:Linux]\ntests = ['four']\npre =\nuser =\ntimeout = 900\n";

    #[test]
    fn tests_are_found_with_what_their_section_says() {
        let tests = of_run_file(TEXT, "common", |file| !file.contains("two"));
        let ids: Vec<_> = tests.iter().filter_map(|test| test["id"].as_str()).collect();
        assert_eq!(ids, ["a/b/one", "a/b/two", "a/b/three", "c/four"]);
        assert_eq!((&tests[0]["user"], &tests[0]["pre"]), (&json!("root"), &json!("setup")));
        assert_eq!(tests[1]["file"], "tests/functional/a/b/two");
        assert_eq!(tests[2]["file"], "tests/functional/a/b/three.ksh");
        let last = &tests[3];
        assert_eq!((&last["user"], &last["pre"], &last["timeout"]), (&json!(""), &json!(""), &json!(900)));
        assert_eq!((&last["post"], &last["dir"]), (&json!("cleanup"), &json!("tests/functional/c")));
    }
}
