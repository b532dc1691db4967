//! The programs for backups of `cargo xtask peer programs`: how each is called, and how it tells what it did.

use super::sides::Side;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Syncoid,
    Autobackup,
    Pyznap,
}

/// A direction. The program runs on our side: it pushes one way, and pulls the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    Back,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::Out, Way::Back];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Out => "out",
            Way::Back => "back",
        }
    }

    /// The side of the source.
    pub(super) fn source(self) -> Side {
        match self {
            Way::Out => Side::Ours,
            Way::Back => Side::Theirs,
        }
    }

    /// A value for each of both ends: what is in the guest has a place before its name.
    fn ends(self, remote: &str, source: &str, copy: &str) -> (String, String) {
        match self {
            Way::Out => (source.to_owned(), format!("{remote}{copy}")),
            Way::Back => (format!("{remote}{source}"), copy.to_owned()),
        }
    }
}

impl Tool {
    pub(super) const ALL: [Tool; 3] = [Tool::Syncoid, Tool::Autobackup, Tool::Pyznap];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tool::Syncoid => "syncoid",
            Tool::Autobackup => "zfs-autobackup",
            Tool::Pyznap => "pyznap",
        }
    }

    /// Top of the source.
    pub(super) fn source(self, way: Way) -> String {
        format!("{}/{}", way.source().name(), self.name())
    }

    /// Top of the copy.
    pub(super) fn copy(self, way: Way) -> String {
        let pool = way.source().other().name();
        match self {
            // It keeps the path of the source below the target.
            Tool::Autobackup => format!("{pool}/copies/{}", self.name()),
            _ => format!("{pool}/copy-of-{}", self.name()),
        }
    }

    /// Name of a snapshot that somebody else makes. pyznap removes only what is named like its own.
    pub(super) fn snapshot(self, step: u64) -> String {
        match self {
            Tool::Pyznap => format!("pyznap_2020-01-01_00:00:{step:02}_frequent"),
            _ => format!("mine{step}"),
        }
    }

    /// Whether a clone is one in the copy too.
    pub(super) fn copies_clones(self) -> bool {
        self == Tool::Syncoid
    }

    /// Commands before the first run, on the side of the source and on the other.
    pub(super) fn prepare(self, way: Way) -> (String, String) {
        let (source, copy) = (self.source(way), self.copy(way));
        let parent = copy.rsplit_once('/').map_or("", |(parent, _)| parent);
        match self {
            Tool::Syncoid => Default::default(),
            Tool::Autobackup => (
                format!("zfs set autobackup:{}=true {source}", way.name()),
                format!("zfs create -o canmount=off {parent}"),
            ),
            Tool::Pyznap => (String::new(), format!("zfs create -o canmount=off {copy}")),
        }
    }

    /// A command that writes the program's configuration on our side.
    pub(super) fn configure(self, way: Way) -> String {
        if self != Tool::Pyznap {
            return ":".to_owned();
        }
        let (source, copy) = way.ends("ssh:22:root@peer:", &self.source(way), &self.copy(way));
        let keys = match way {
            Way::Out => "dest_keys",
            Way::Back => "key",
        };
        // Its own snapshots are due four times an hour.
        format!(
            "cat >$WORK/pyznap.conf <<END\n[{source}]\n    {keys} = $WORK/key\n    frequent = 2\n    hourly = 0\n    \
             daily = 0\n    weekly = 0\n    monthly = 0\n    yearly = 0\n    snap = no\n    clean = yes\n    \
             dest = {copy}\n    compress = none\n    resume = yes\nEND\n"
        )
    }

    /// The command line of a run, on our side.
    pub(super) fn command(self, way: Way) -> String {
        match self {
            Tool::Syncoid => {
                let (source, copy) = way.ends("root@peer:", &self.source(way), &self.copy(way));
                // zstd is on both sides.
                let compress = if way == Way::Out { "zstd-fast" } else { "none" };
                format!("syncoid -r --compress={compress} {source} {copy}")
            }
            Tool::Autobackup => {
                let copy = self.copy(way);
                let parent = copy.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
                let host = if way == Way::Out { "--ssh-target" } else { "--ssh-source" };
                format!(
                    "zfs-autobackup --verbose --debug-output {host} root@peer --strip-path=1 --clear-mountpoint \
                     --clear-refreservation --zfs-compressed --rollback --other-snapshots --keep-source=3 \
                     --keep-target=4 {} {parent}",
                    way.name()
                )
            }
            Tool::Pyznap => {
                let run = "pyznap -v --config $WORK/pyznap.conf";
                format!("{run} send && {run} snap --clean")
            }
        }
    }

    /// The first line that tells of a problem.
    pub(super) fn complaint(self, text: &str) -> Option<&str> {
        let (words, harmless): (&[&str], &[&str]) = match self {
            Tool::Syncoid => {
                (&["warn", "critical", "cannot", "invalid", "uninitialized", "usage:"], &["not available on"])
            }
            Tool::Autobackup => (&["! ", "traceback"], &[]),
            Tool::Pyznap => (&["error", "warning", "traceback"], &[]),
        };
        text.lines().find(|line| {
            let small = line.to_lowercase();
            let is_word = |word: &&str| match *word {
                "! " => small.starts_with(word),
                _ => small.contains(word),
            };
            words.iter().any(is_word) && !harmless.iter().any(|word| line.contains(word))
        })
    }

    /// Whether a run has continued a stream by its token.
    pub(super) fn has_continued(self, text: &str) -> bool {
        let word = match self {
            Tool::Syncoid => "Resuming",
            Tool::Autobackup => "zfs send -t ",
            Tool::Pyznap => "Found resume token",
        };
        text.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_lacks_is_no_complaint() {
        let lacks = "WARN: mbuffer not available on target ssh:-S x -continuing without target buffering.\n";
        assert_eq!(Tool::Syncoid.complaint(lacks), None);
        let text = format!("{lacks}CRITICAL ERROR: failed\n");
        assert_eq!(Tool::Syncoid.complaint(&text), Some("CRITICAL ERROR: failed"));
        assert_eq!(Tool::Autobackup.complaint("  [Target] a\n! [Source] b\n"), Some("! [Source] b"));
    }
}
