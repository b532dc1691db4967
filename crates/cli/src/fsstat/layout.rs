//! The columns of each layout of `fsstat`.

use crate::values::ABSENT;
use crate::zpool::nice;
use admin::{FileOp, FileOps};

/// The operations that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The default: some columns of each group.
    General,
    /// `-a`: operations on attributes.
    Attributes,
    /// `-f`: every operation, one a line.
    Full,
    /// `-i`: reads and writes.
    Io,
    /// `-n`: operations on names.
    Naming,
    /// `-v`: memory mappings.
    Memory,
}

/// Width of a column, its heading in two lines, and the operations that it counts; empty if they cannot be
/// known here.
type Column = (usize, [&'static str; 2], &'static [FileOp]);

const CREATIONS: &[FileOp] = &[FileOp::Create, FileOp::MakeDir, FileOp::Symlink];
const REMOVALS: &[FileOp] = &[FileOp::Remove, FileOp::RemoveDir];
const CHANGES: &[FileOp] = &[FileOp::Rename, FileOp::Link];

const GENERAL: &[Column] = &[
    (5, ["new ", "file"], CREATIONS),
    (5, ["name ", "remov"], REMOVALS),
    (5, ["name", "chng"], CHANGES),
    (5, ["attr", "get"], &[FileOp::GetAttr, FileOp::GetXattr]),
    (5, ["attr", "set"], &[FileOp::SetAttr, FileOp::SetXattr]),
    (6, ["lookup", "ops"], &[FileOp::Lookup]),
    (5, ["rddir", "ops"], &[FileOp::ReadDir]),
    (5, ["read", "ops"], &[FileOp::Read]),
    (5, ["read ", "bytes"], &[FileOp::ReadBytes]),
    (5, ["write", "ops"], &[FileOp::Write]),
    (5, ["write", "bytes"], &[FileOp::WriteBytes]),
];
const ATTRIBUTES: &[Column] = &[
    (7, ["", "getattr"], &[FileOp::GetAttr]),
    (7, ["", "setattr"], &[FileOp::SetAttr]),
    (6, ["", "getsec"], &[FileOp::GetXattr]),
    (7, ["", "setsec"], &[FileOp::SetXattr]),
];
const IO: &[Column] = &[
    (5, ["read", "ops"], &[FileOp::Read]),
    (5, ["read ", "bytes"], &[FileOp::ReadBytes]),
    (5, ["write", "ops"], &[FileOp::Write]),
    (5, ["write", "bytes"], &[FileOp::WriteBytes]),
    (5, ["rddir", "ops"], &[FileOp::ReadDir]),
    (5, ["rddir", "bytes"], &[FileOp::ReadDirBytes]),
    (6, ["rwlock", "ops"], &[]),
    (7, ["rwulock", "ops"], &[]),
];
const NAMING: &[Column] = &[
    (6, ["", "lookup"], &[FileOp::Lookup]),
    (5, ["", "creat"], &[FileOp::Create]),
    (5, ["", "remov"], &[FileOp::Remove]),
    (5, ["", "link"], &[FileOp::Link]),
    (5, ["", "renam"], &[FileOp::Rename]),
    (5, ["", "mkdir"], &[FileOp::MakeDir]),
    (5, ["", "rmdir"], &[FileOp::RemoveDir]),
    (5, ["", "rddir"], &[FileOp::ReadDir]),
    (6, ["", "symlnk"], &[FileOp::Symlink]),
    (5, ["", "rdlnk"], &[FileOp::ReadLink]),
];
const MEMORY: &[Column] = &[
    (5, ["", "map"], &[]),
    (6, ["", "addmap"], &[]),
    (6, ["", "delmap"], &[]),
    (6, ["", "getpag"], &[]),
    (6, ["", "putpag"], &[]),
    (5, ["", "pagio"], &[]),
];

/// Every operation: its name, its counter, and the counter of its bytes if it has one.
const FULL: &[(&str, FileOp, Option<FileOp>)] = &[
    ("open", FileOp::Open, None),
    ("close", FileOp::Close, None),
    ("getattr", FileOp::GetAttr, None),
    ("setattr", FileOp::SetAttr, None),
    ("lookup", FileOp::Lookup, None),
    ("create", FileOp::Create, None),
    ("remove", FileOp::Remove, None),
    ("link", FileOp::Link, None),
    ("rename", FileOp::Rename, None),
    ("mkdir", FileOp::MakeDir, None),
    ("rmdir", FileOp::RemoveDir, None),
    ("readdir", FileOp::ReadDir, Some(FileOp::ReadDirBytes)),
    ("symlink", FileOp::Symlink, None),
    ("readlink", FileOp::ReadLink, None),
    ("read", FileOp::Read, Some(FileOp::ReadBytes)),
    ("write", FileOp::Write, Some(FileOp::WriteBytes)),
    ("fsync", FileOp::Sync, None),
    ("seek", FileOp::Seek, None),
    ("space", FileOp::Space, None),
    ("copy", FileOp::Copy, None),
    ("getsecattr", FileOp::GetXattr, None),
    ("setsecattr", FileOp::SetXattr, None),
    ("statvfs", FileOp::StatFs, None),
    ("other", FileOp::Other, None),
];

impl Layout {
    /// The layout that an option letter selects.
    pub(super) fn of(letter: char) -> Option<Layout> {
        Some(match letter {
            'a' => Layout::Attributes,
            'f' => Layout::Full,
            'i' => Layout::Io,
            'n' => Layout::Naming,
            'v' => Layout::Memory,
            _ => return None,
        })
    }

    fn columns(self) -> &'static [Column] {
        match self {
            Layout::General => GENERAL,
            Layout::Attributes => ATTRIBUTES,
            Layout::Full => &[],
            Layout::Io => IO,
            Layout::Naming => NAMING,
            Layout::Memory => MEMORY,
        }
    }

    /// The headings of a page.
    pub(super) fn header(self) -> String {
        if self == Layout::Full {
            return String::new();
        }
        let row = |line: usize| {
            let cells: Vec<String> = self
                .columns()
                .iter()
                .map(|(width, headings, _)| format!("{:>width$}", headings[line]))
                .collect();
            cells.join(" ").trim_end().to_owned() + "\n"
        };
        let first = if self.columns().iter().all(|(_, headings, _)| headings[0].is_empty()) {
            String::new()
        } else {
            row(0)
        };
        first + &row(1)
    }

    /// The line with the counts of one mount or type.
    pub(super) fn line(self, ops: &FileOps, name: &str, exact: bool) -> String {
        if self == Layout::Full {
            return full(ops, name, exact);
        }
        let mut line = String::new();
        for (width, _, kinds) in self.columns() {
            let number = if kinds.is_empty() { ABSENT.to_owned() } else { nice(ops.sum(kinds), exact) };
            line.push_str(&format!("{number:>width$} "));
        }
        format!("{line}{name}\n")
    }
}

fn full(ops: &FileOps, name: &str, exact: bool) -> String {
    let mut text = format!("{name}\n{:>12} {:>10} {:>10}\n", "operation", "#ops", "bytes");
    for (operation, count, bytes) in FULL {
        let mut line = format!("{operation:>12} {:>10}", nice(ops.of(*count), exact));
        if let Some(bytes) = bytes {
            line.push_str(&format!(" {:>10}", nice(ops.of(*bytes), exact)));
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> FileOps {
        let mut ops = FileOps::default();
        for (op, count) in [
            (FileOp::Create, 300),
            (FileOp::MakeDir, 10),
            (FileOp::Symlink, 3),
            (FileOp::Remove, 193),
            (FileOp::Rename, 18),
            (FileOp::GetAttr, 2089),
            (FileOp::Lookup, 53_300),
            (FileOp::Read, 4820),
            (FileOp::ReadBytes, 1_640_000),
            (FileOp::WriteBytes, 7),
        ] {
            ops.0[op as usize] = count;
        }
        ops
    }

    #[test]
    fn eleven_columns_and_the_name() {
        assert_eq!(
            Layout::General.header(),
            " new  name   name  attr  attr lookup rddir  read read  write write\n \
             file remov  chng   get   set    ops   ops   ops bytes   ops bytes\n"
        );
        assert_eq!(
            Layout::General.line(&some(), "/tank", false),
            "  313   193    18 2.04K     0  52.1K     0 4.71K 1.56M     0     7 /tank\n"
        );
        assert_eq!(
            Layout::General.line(&some(), "zfs", true),
            "  313   193    18  2089     0  53300     0  4820 1640000     0     7 zfs\n"
        );
    }

    #[test]
    fn headings_stand_over_their_columns() {
        for letter in ['a', 'i', 'n', 'v'] {
            let layout = Layout::of(letter).expect("known");
            let line = layout.line(&FileOps::default(), "", false);
            let header = layout.header();
            let last = header.lines().last().expect("a line");
            assert_eq!(last.split_whitespace().count(), line.split_whitespace().count(), "{letter}");
            assert_eq!(last.chars().count() + 1, line.trim_end_matches('\n').chars().count(), "{letter}");
        }
        assert!(Layout::Memory.line(&some(), "/x", false).starts_with("    -      -"));
    }

    #[test]
    fn all_operations_one_below_the_other() {
        let text = Layout::Full.line(&some(), "/tank", false);
        assert!(
            text.starts_with("/tank\n   operation       #ops      bytes\n        open          0\n"),
            "{text}"
        );
        assert!(text.contains("        read      4.71K      1.56M\n"), "{text}");
    }
}
