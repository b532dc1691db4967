//! The manual pages are complete: a macro in the place of text would end a list, or a page, too early.
// The tests need no documentation.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<PathBuf> = entries.collect();
    pages.sort();
    pages
}

/// Output of a tool for all pages, with these arguments before each page.
fn said(tool: &Path, arguments: &[&str]) -> String {
    let of = |page: &PathBuf| {
        let output = Command::new(tool).args(arguments).arg(page).output().expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    pages().iter().map(of).collect()
}

#[test]
fn mandoc_warns_of_nothing_in_manual_pages() {
    let Some(mandoc) = testkit::need_tool("mandoc") else { return };
    assert_eq!(said(&mandoc, &["-T", "lint", "-W", "warning"]), "");
}

/// Most `man` programs use groff; it treats some lines differently from `mandoc`.
#[test]
fn groff_warns_of_nothing_in_manual_pages() {
    let Some(groff) = testkit::need_tool("groff") else { return };
    // -z: prints only warnings.
    assert_eq!(said(&groff, &["-mandoc", "-Tutf8", "-ww", "-z"]), "");
}
