//! The test programs: cargo builds them and reports their paths.
//!
//! Cargo unifies the features of dependencies over the packages of one command. So the tests of one crate are
//! built together with `cenote-cli`, whose dependencies have every feature; otherwise each crate that is
//! tested alone would need its own build of most of the project.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{cargo, must};

/// The package whose dependencies have all features.
const WIDEST: &str = "cenote-cli";

/// Tests of every order of threads need special locks: a second build of one crate, of which only these tests
/// are run.
const ORDERS: [(&[&str], &[&str]); 2] = [
    (&["-p", "cenote-dmu", "-p", WIDEST, "--features", "cenote-dmu/shuttle", "--test", "shuttle"], &[]),
    (&["-p", "cenote-zpl", "-p", WIDEST, "--features", "cenote-zpl/shuttle", "--lib"], &["every_order"]),
];

/// Packages other than [`WIDEST`] whose tests run its program.
const RUN_THE_COMMANDS: [&str; 2] = ["cenote-conformance", "cenote-stress"];

/// Kind of the program that makes the documentation.
pub(super) const DOCUMENTATION: &str = "documentation";

/// Names and values of environment variables.
type Environment = Vec<(&'static str, OsString)>;

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Package, such as `cenote-dmu`.
    pub(super) package: String,
    /// Name of the target: that of the library, or of the file or folder of tests.
    pub(super) target: String,
    /// `lib`, `bin`, `test`, `doc` for the examples in documentation, which cargo itself runs, or
    /// [`DOCUMENTATION`].
    pub(super) kind: String,
    /// Path of the program.
    pub(super) path: PathBuf,
    /// Arguments that precede those of the user.
    pub(super) arguments: Vec<String>,
    /// Names and values of environment variables.
    pub(super) environment: Environment,
    /// Folder of the package, in which its tests run.
    pub(super) folder: PathBuf,
    /// Size of the file in bytes.
    pub(super) size: u64,
}

impl Program {
    /// Name for messages.
    pub(super) fn label(&self) -> String {
        let Program { package, target, kind, .. } = self;
        match kind.as_str() {
            "doc" => "examples in documentation".to_owned(),
            DOCUMENTATION => DOCUMENTATION.to_owned(),
            "test" => format!("{package} {target}"),
            "bin" => format!("{package} {target} (in src, program)"),
            _ if self.arguments.is_empty() => format!("{package} (in src)"),
            _ => format!("{package} (in src) {}", self.arguments.join(" ")),
        }
    }
}

/// The programs that were built, and the builds that failed.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    /// One reason for each command of cargo that failed.
    pub(super) failed: Vec<String>,
    /// Packages for which the compiler or clippy printed warnings.
    pub(super) warned: BTreeSet<String>,
    /// Environment of cargo.
    environment: Environment,
}

impl Built {
    /// Adds all tests of the workspace.
    fn add_workspace(&mut self) {
        self.add(&["--workspace"], &[]);
        for (words, arguments) in ORDERS {
            self.add(words, arguments);
        }
        match packages() {
            Ok(packages) => {
                let named = packages.iter().filter(|package| package.documents_examples);
                // With the features that everything was built with.
                let names = named.map(|package| package.name.as_str()).chain([WIDEST]);
                let words: Vec<&str> = names.flat_map(|name| ["--package", name]).collect();
                self.add_examples_in_documentation(&words);
            }
            Err(reason) => self.failed.push(reason),
        }
    }

    /// Builds the programs that `cargo test` would run with these words, and adds them with these arguments.
    fn add(&mut self, words: &[&str], arguments: &[&str]) {
        match self.build(&[&["test", "--no-run"], words].concat()) {
            Ok(programs) => self.programs.extend(programs.into_iter().map(|program| Program {
                arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
                ..program
            })),
            Err(reason) => self.failed.push(reason),
        }
    }

    /// Builds the examples of these packages, which some tests run: `cargo test` builds examples only if no
    /// targets are named.
    fn add_examples(&mut self, packages: &[&str]) {
        if let Err(reason) = must(self.cargo(&["build", "--examples"]).args(packages)) {
            self.failed.push(reason);
        }
    }

    /// Builds the program of [`WIDEST`], which cargo builds only for tests of the same package.
    fn add_commands(&mut self, packages: &[&str]) {
        if let Err(reason) = must(self.cargo(&["build", "--bin", "cenote"]).args(packages)) {
            self.failed.push(reason);
        }
    }

    /// Adds the documentation examples of these packages, which cargo itself builds and runs.
    fn add_examples_in_documentation(&mut self, packages: &[&str]) {
        let words = ["test", "--doc", "--no-fail-fast"].iter().chain(packages);
        let arguments = words.map(|word| (*word).to_owned()).collect();
        self.add_cargo("doc", arguments, self.environment.clone());
    }

    /// Adds the making of the documentation of all packages, of which a warning is a failure.
    ///
    /// `cargo doc` would check every crate again, because it needs metadata that only `cargo check` makes. For
    /// the examples in documentation cargo takes the libraries that are built; a program in place of `rustdoc`
    /// then makes documentation instead.
    fn add_documentation(&mut self) {
        let mut environment = self.environment.clone();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(crate::root().join("target"), PathBuf::from);
        let flags = ["--out-dir".into(), target.join("doc").into_os_string(), "-Dwarnings".into()];
        environment.push(("RUSTDOC", crate::root().join(".cargo/documenter").into()));
        environment.push(("CARGO_ENCODED_RUSTDOCFLAGS", flags.join(OsStr::new("\u{1f}"))));
        let arguments = ["test", "--quiet", "--doc", "--workspace", "--no-fail-fast"].map(str::to_owned);
        self.add_cargo(DOCUMENTATION, arguments.into(), environment);
    }

    /// Adds a command of cargo as a program.
    fn add_cargo(&mut self, kind: &str, arguments: Vec<String>, environment: Environment) {
        self.programs.push(Program {
            package: String::new(),
            target: String::new(),
            kind: kind.to_owned(),
            path: PathBuf::from(cargo(&[]).get_program()),
            arguments,
            environment,
            folder: crate::root(),
            size: 0,
        });
    }

    /// Builds with these words for cargo; prints what the compiler says, and returns the test programs.
    fn build(&mut self, words: &[&str]) -> Result<Vec<Program>, String> {
        let mut command = self.cargo(words);
        command.args(["--locked", "--message-format", "json"]).stdout(Stdio::piped());
        let failure = |reason: &dyn std::fmt::Display| format!("cargo {}: {reason}", words.join(" "));
        let mut child = command.spawn().map_err(|error| failure(&error))?;
        let (mut seen, mut programs) = (BTreeSet::new(), Vec::new());
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            let line = line.map_err(|error| failure(&error))?;
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            if let Some((package, text)) = diagnostic(&message) {
                eprint!("{text}");
                self.warned.insert(package);
            }
            programs.extend(program(&message).filter(|program| seen.insert(program.path.clone())));
        }
        let status = child.wait().map_err(|error| failure(&error))?;
        if status.success() { Ok(programs) } else { Err(failure(&status)) }
    }

    /// A command of cargo in the environment of these builds.
    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = cargo(words);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// All tests of the workspace.
pub(super) fn of_workspace() -> Built {
    let mut built = Built::default();
    built.add_workspace();
    built
}

/// All tests of the workspace, built by clippy's driver, which is the compiler with more warnings; and the making
/// of the documentation.
///
/// `cargo clippy` and then a build would read, expand and type-check every crate twice.
pub(super) fn of_workspace_with_lints() -> Built {
    let linter = crate::root().join(".cargo/linter");
    let mut built =
        Built { environment: vec![("RUSTC_WORKSPACE_WRAPPER", linter.into())], ..Built::default() };
    built.add_workspace();
    // The programs that no test runs.
    if let Err(reason) = built.build(&["build", "--workspace", "--all-targets"]) {
        built.failed.push(reason);
    }
    built.add_documentation();
    built
}

/// The tests of crates, which are given by folder or package.
pub(super) fn of_crates(names: &[String]) -> Built {
    let mut built = Built::default();
    let packages = match packages() {
        Ok(packages) => packages,
        Err(reason) => {
            built.failed.push(reason);
            return built;
        }
    };
    for name in names {
        let Some(package) = packages.iter().find(|package| package.is_called(name)) else {
            let known: Vec<&str> = packages.iter().map(|package| package.folder.as_str()).collect();
            built.failed.push(format!("no crate {name}; there are {}", known.join(", ")));
            continue;
        };
        let both = ["--package", &package.name, "--package", WIDEST];
        let named = if package.name == WIDEST { &both[2..] } else { &both[..] };
        if package.has_examples {
            built.add_examples(named);
        }
        if RUN_THE_COMMANDS.contains(&package.name.as_str()) {
            built.add_commands(named);
        }
        let targets = package.targets.iter().map(String::as_str);
        built.add(&named.iter().copied().chain(targets).collect::<Vec<_>>(), &[]);
        let is_here = |words: &[&str]| package.name != WIDEST && words.contains(&package.name.as_str());
        for (words, arguments) in ORDERS.iter().filter(|(words, _)| is_here(words)) {
            built.add(words, arguments);
        }
        if package.documents_examples {
            built.add_examples_in_documentation(named);
        }
    }
    built
}

/// A package of the workspace, and the words that choose its targets.
#[derive(Debug)]
struct Package {
    name: String,
    /// Name of the package's folder.
    folder: String,
    /// It is a library with examples in its documentation: cargo takes a second to find that there are none.
    documents_examples: bool,
    has_examples: bool,
    /// Options `--lib`, `--test`, `it`…: every target is named, because cargo looks for each in all named
    /// packages.
    targets: Vec<String>,
}

impl Package {
    fn is_called(&self, name: &str) -> bool {
        self.folder == name || self.name == name
    }
}

fn packages() -> Result<Vec<Package>, String> {
    let output = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    Ok(packages.iter().filter_map(package).collect())
}

fn package(value: &Value) -> Option<Package> {
    let path = Path::new(value["manifest_path"].as_str()?).parent()?;
    let mut package = Package {
        name: value["name"].as_str()?.to_owned(),
        folder: path.file_name()?.to_str()?.to_owned(),
        documents_examples: false,
        has_examples: false,
        targets: Vec::new(),
    };
    for target in value["targets"].as_array()? {
        let needs_features =
            target["required-features"].as_array().is_some_and(|features| !features.is_empty());
        let (Some(kind), Some(name)) = (target["kind"][0].as_str(), target["name"].as_str()) else {
            continue;
        };
        if kind == "lib" {
            package.documents_examples = has_code_in_comments(&path.join("src"));
        }
        match kind {
            _ if needs_features || target["test"] == false => {}
            "lib" => package.targets.push("--lib".to_owned()),
            "bin" | "test" => package.targets.extend([format!("--{kind}"), name.to_owned()]),
            "example" => package.has_examples = true,
            _ => {}
        }
    }
    Some(package)
}

/// Whether a documentation comment of a Rust file in a folder has a block of code.
fn has_code_in_comments(folder: &Path) -> bool {
    has_line(folder, |line| (line.starts_with("//!") || line.starts_with("///")) && line.contains("```"))
}

/// Whether a Rust file in a folder has such a line; spaces at its ends are not part of it.
fn has_line(folder: &Path, is_such: fn(&str) -> bool) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        path.is_dir() && has_line(&path, is_such)
            || is_rust
                && std::fs::read_to_string(&path).is_ok_and(|text| text.lines().map(str::trim).any(is_such))
    })
}

/// The package and the text of a warning or error of the compiler; `None` for other messages.
fn diagnostic(message: &Value) -> Option<(String, String)> {
    if message["reason"] != "compiler-message" {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = name_of(message["package_id"].as_str()?, folder)?;
    Some((package, message["message"]["rendered"].as_str()?.to_owned()))
}

/// The test program that a message of cargo describes; `None` for other messages.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let size = std::fs::metadata(&path).map_or(0, |stat| stat.len());
    Some(Program {
        package: name_of(message["package_id"].as_str()?, &folder)?,
        target: message["target"]["name"].as_str()?.to_owned(),
        kind: message["target"]["kind"][0].as_str()?.to_owned(),
        path,
        arguments: Vec::new(),
        environment: Vec::new(),
        folder,
        size,
    })
}

/// The package name in `path+file:///…/crates/dmu#cenote-dmu@0.1.0`, or in the form without a name, in which
/// it is that of the folder.
fn name_of(id: &str, folder: &Path) -> Option<String> {
    let after = id.rsplit_once('#').map_or("", |(_, after)| after);
    match after.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(folder.file_name()?.to_str()?.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_name_programs() {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///src/crates/dmu#cenote-dmu@0.1.0",
            "manifest_path": "/src/crates/dmu/Cargo.toml",
            "target": { "kind": ["test"], "name": "it" },
            "profile": { "test": true },
            "executable": "/src/target/debug/deps/it-0123",
        });
        let found = program(&message).expect("a program");
        assert_eq!(
            (found.label().as_str(), found.folder.to_str()),
            ("cenote-dmu it", Some("/src/crates/dmu"))
        );
        let mut library = message.clone();
        library["profile"]["test"] = false.into();
        assert_eq!(program(&library), None);
    }

    #[test]
    fn what_the_compiler_says_is_told_with_its_package() {
        let message = serde_json::json!({
            "reason": "compiler-message",
            "package_id": "path+file:///src/crates/dmu#cenote-dmu@0.1.0",
            "manifest_path": "/src/crates/dmu/Cargo.toml",
            "message": { "level": "warning", "rendered": "warning: unused variable\n" },
        });
        let expected = ("cenote-dmu".to_owned(), "warning: unused variable\n".to_owned());
        assert_eq!(diagnostic(&message), Some(expected));
        assert_eq!(diagnostic(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    #[test]
    fn the_documenter_leaves_out_what_makes_tests() {
        let folder = tempfile::tempdir().expect("a folder");
        let rustdoc = folder.path().join("rustdoc");
        std::fs::write(&rustdoc, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").expect("written");
        std::fs::set_permissions(&rustdoc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        let output = Command::new(crate::root().join(".cargo/documenter"))
            .args(["--crate-name", "a b", "--test", "src/lib.rs", "--test-run-directory", "/src", "-L", "x"])
            .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
            .output()
            .expect("it starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "<--crate-name><a b><src/lib.rs><-L><x>");
    }

    #[test]
    fn ids_without_a_name_are_those_of_folders() {
        let name = name_of("path+file:///src/xtask#0.1.0", Path::new("/src/xtask"));
        assert_eq!(name.as_deref(), Some("xtask"));
    }

    #[test]
    fn libraries_that_are_not_tested_have_no_tests() {
        for package in packages().expect("a workspace") {
            let folder = crate::root().join("crates").join(&package.folder);
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let is_left_out = manifest.contains("[lib]\ntest = false");
            assert!(
                !is_left_out || !has_line(&folder.join("src"), |line| line == "#[test]"),
                "{}",
                package.name
            );
        }
    }

    #[test]
    fn the_crates_are_known_by_their_folders() {
        let packages = packages().expect("a workspace");
        let dmu = packages.iter().find(|package| package.is_called("dmu")).expect("a crate");
        assert_eq!((dmu.name.as_str(), dmu.documents_examples), ("cenote-dmu", false));
        assert!(dmu.targets.ends_with(&["--test".to_owned(), "it".to_owned()]), "{:?}", dmu.targets);
        let interop = packages.iter().find(|package| package.is_called("interop")).expect("a crate");
        assert_eq!(interop.targets, ["--test", "it"]);
        let with_examples = packages.iter().filter(|package| package.documents_examples);
        assert!(with_examples.map(|package| package.name.as_str()).any(|name| name == "cenote"));
    }
}
