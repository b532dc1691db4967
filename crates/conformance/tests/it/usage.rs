//! Wrong usage and usage texts: the same messages, on the same stream, with the same exit codes as OpenZFS
//! 2.3.2 printed (fixtures/cli-transcripts, parts 11 and 12).

use crate::common;

const ERRORS: &str = include_str!("../../../../fixtures/cli-transcripts/11-errors.txt");
const USAGE: &str = include_str!("../../../../fixtures/cli-transcripts/12-usage.txt");

/// A command of a transcript: its words, its output (both streams), its exit code.
struct Case {
    words: Vec<String>,
    output: String,
    code: i32,
}

fn cases(transcript: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for part in transcript.split("\n$ ").skip(1) {
        let (command, rest) = part.split_once('\n').expect("a command line");
        let at = rest.rfind("[exit ").expect("an exit code");
        let code = rest[at + 6..].split(']').next().and_then(|n| n.parse().ok()).expect("a number");
        let words = command.split_whitespace().map(str::to_owned).collect();
        cases.push(Case { words, output: rest[..at].to_owned(), code });
    }
    cases
}

/// Whether the verb is implemented.
fn is_ours(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    matches!(
        words[..],
        ["zpool" | "zfs"]
            | ["zpool" | "zfs", "-?" | "frobnicate" | "jail" | "rewrite", ..]
            | [_, _, "-?"]
            | ["zpool", "list" | "status" | "get" | "version" | "import", ..]
            | ["zfs", "list" | "get" | "holds" | "version" | "receive", ..]
            | ["zfs", "userspace" | "groupspace" | "projectspace", ..]
    )
}

/// Whether the output differs on purpose.
fn is_different_on_purpose(command: &str) -> bool {
    [
        // A missing folder is an error here, never "no pools".
        "zpool import -d /nonexistent",
        // Needs the pool of the transcript, which is imported there and has a volume.
        "zpool import tank",
        "zfs userspace tank/vol",
    ]
    .contains(&command)
}

fn check(transcript: &str, least: usize) {
    let empty = tempfile::tempdir().expect("a folder");
    let mut checked = 0;
    let mut wrong = Vec::new();
    for case in cases(transcript) {
        let command = case.words.join(" ");
        if !is_ours(&case.words) || is_different_on_purpose(&command) {
            continue;
        }
        let words: Vec<&str> = case.words.iter().map(String::as_str).collect();
        let ran = common::run(empty.path(), &words);
        checked += 1;
        if format!("{}{}", ran.err, ran.out) != case.output || ran.code != case.code {
            wrong.push(format!(
                "$ {command}\nexpected ({}):\n{}\nfound ({}):\n{}{}",
                case.code, case.output, ran.code, ran.err, ran.out
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= least, "only {checked} commands were looked at");
}

#[test]
fn errors_are_those_of_the_transcripts() {
    check(ERRORS, 23);
}

#[test]
fn usage_is_that_of_the_transcripts() {
    check(USAGE, 60);
}

#[test]
fn usage_that_was_asked_for_is_output_and_no_error() {
    let empty = tempfile::tempdir().expect("a folder");
    for tool in ["zpool", "zfs"] {
        let ran = common::run(empty.path(), &[tool, "--help"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(ran.out.starts_with(&format!("usage: {tool} command args")));
        let wrong = common::run(empty.path(), &[tool, "list", "-q"]);
        assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    }
}

#[test]
fn verbs_that_are_not_there_yet_are_refused_by_name() {
    let empty = tempfile::tempdir().expect("a folder");
    for (verb, missing) in [
        ("load-key", "Missing dataset argument or -a option\nusage:\n\tload-key [-rn] [-L <keylocation>]"),
        ("unload-key", "Missing dataset argument or -a option\nusage:\n\tunload-key [-r]"),
        ("change-key", "Missing dataset argument\nusage:\n\tchange-key [-l]"),
    ] {
        let ran = common::run(empty.path(), &["zfs", verb]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{verb}");
        assert!(ran.err.starts_with(missing), "{}", ran.err);
    }
    for words in [["zpool", "trim", "p"], ["zfs", "share", "p/a"], ["zpool", "split", "p"]] {
        let ran = common::run(empty.path(), &words);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{words:?}");
        assert!(ran.err.contains("not supported by this version of Cenote"), "{}", ran.err);
    }
}

#[test]
fn nothing_there() {
    let empty = tempfile::tempdir().expect("a folder");
    let ran = |words: &[&str]| {
        let ran = common::run(empty.path(), words);
        (ran.out, ran.err, ran.code)
    };
    let text = |out: &str, err: &str| (out.to_owned(), err.to_owned(), 0);
    assert_eq!(ran(&["zpool", "list"]), text("no pools available\n", ""));
    assert_eq!(ran(&["zpool", "list", "-H"]), text("", ""));
    assert_eq!(ran(&["zpool", "status"]), text("", "no pools available\n"));
    assert_eq!(ran(&["zfs", "list"]), text("", "no datasets available\n"));
    assert_eq!(ran(&["zpool", "import"]), text("", "no pools available to import\n"));
}

#[test]
fn a_place_that_is_not_there_is_an_error() {
    for words in [["zpool", "list"], ["zpool", "status"], ["zfs", "list"], ["zpool", "import"]] {
        let ran = common::run("/nonexistent/place".as_ref(), &words);
        assert_eq!(ran.code, 1, "{words:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("/nonexistent/place"), "{}", ran.err);
    }
}

#[test]
fn json_needs_no_pools() {
    let empty = tempfile::tempdir().expect("a folder");
    let ran = common::run(empty.path(), &["zpool", "list", "-j"]);
    let expected = r#"{"output_version":{"command":"zpool list","vers_major":0,"vers_minor":1},"pools":{}}"#;
    assert_eq!((ran.out.trim_end(), ran.code), (expected, 0));
    let ran = common::run(empty.path(), &["zfs", "version", "-j"]);
    assert!(ran.out.starts_with(r#"{"output_version":{"command":"zfs version","#), "{}", ran.out);
}
