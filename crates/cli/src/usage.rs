//! Usage texts: of a whole tool, of one subcommand, and the lists of properties below some of them.

use crate::usage_texts::{ZFS, ZPOOL};
use format::prop::{self, Class, Prop};
use std::fmt::Write as _;

/// The two tools with usage texts of this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `zpool`.
    Zpool,
    /// `zfs`.
    Zfs,
}

impl Tool {
    /// Name of the command: `zpool` or `zfs`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Zpool => "zpool",
            Tool::Zfs => "zfs",
        }
    }

    fn texts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Tool::Zpool => ZPOOL,
            Tool::Zfs => ZFS,
        }
    }

    /// The canonical name of a subcommand; `None` if there is no such subcommand.
    pub(crate) fn subcommand(self, name: &str) -> Option<&'static str> {
        let name = match (self, name) {
            (Tool::Zfs, "snap") => "snapshot",
            (Tool::Zfs, "umount") => "unmount",
            (Tool::Zfs, "recv") => "receive",
            _ => name,
        };
        let mut known = self.texts().iter().map(|(known, _)| *known);
        known.find(|known| *known == name && !known.is_empty())
    }

    /// The canonical names of all subcommands.
    pub(crate) fn subcommands(self) -> impl Iterator<Item = &'static str> {
        self.texts().iter().map(|(name, _)| *name).filter(|name| !name.is_empty())
    }

    /// The summary of all subcommands.
    pub(crate) fn summary(self) -> String {
        let mut text =
            format!("usage: {} command args ...\nwhere 'command' is one of the following:\n\n", self.name());
        for (_, lines) in self.texts() {
            text.push_str(lines);
            text.push('\n');
        }
        if self == Tool::Zfs {
            text.push_str("\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n");
            text.push_str(ZFS_HINTS);
        }
        let _ =
            writeln!(text, "\nFor further help on a command or topic, run: {} help [<topic>]", self.name());
        text
    }

    /// The usage of one subcommand.
    pub(crate) fn of(self, subcommand: &str) -> String {
        let mut text = String::from("usage:\n");
        for (_, lines) in self.texts().iter().filter(|(name, _)| *name == subcommand) {
            text.push_str(lines);
            text.push('\n');
        }
        match (self, subcommand) {
            (Tool::Zfs, "list" | "get" | "set" | "inherit") => text.push_str(&dataset_properties()),
            (Tool::Zpool, "list" | "get" | "set") => text.push_str(&pool_properties()),
            (Tool::Zfs, _) => {
                text.push_str(ZFS_HINTS);
                text.push_str("\nFor further help on a command or topic, run: zfs help [<topic>]\n");
            }
            (Tool::Zpool, _) => {}
        }
        text
    }
}

const ZFS_HINTS: &str = "\nFor the property list, run: zfs set|get\n\
    \nFor the delegated permission list, run: zfs allow|unallow\n";

/// The properties in the order of the list: read-only ones first, each group by name.
fn sorted(table: &'static [Prop]) -> Vec<&'static Prop> {
    let mut shown: Vec<&Prop> = table.iter().filter(|p| p.visible && !p.values.is_empty()).collect();
    shown.sort_by_key(|p| (p.class != Class::ReadOnly, p.name));
    shown
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}

/// The list of dataset properties.
pub(crate) fn dataset_properties() -> String {
    let mut body = String::new();
    for p in sorted(&prop::DATASET) {
        // `zfs create` passes on properties that are set once, at creation, so they count as inherited.
        let inherits = matches!(p.class, Class::Inherit | Class::OneTime);
        let (edit, inherits) = (yes_no(p.editable()), yes_no(inherits));
        let _ = writeln!(body, "\t{:<20}  {edit:>4}  {inherits:>7}   {}", p.name, p.values);
    }
    for prefix in prop::PER_OWNER {
        let quota = prefix.ends_with("quota@");
        let (edit, values) = if quota { ("YES", "<size> | none") } else { ("NO", "<size>") };
        let _ = writeln!(body, "\t{:<20}  {edit:>4}  {:>7}   {values}", format!("{prefix}..."), "NO");
    }
    for name in ["written@<snap>", "written#<bookmark>"] {
        let _ = writeln!(body, "\t{name:<20}  {:>4}  {:>7}   <size>", "NO", "NO");
    }
    format!(
        "\nThe following properties are supported:\n\n\t{:<20}  {:>4}  {:>7}   VALUES\n\n{body}{DATASET_NOTES}",
        "PROPERTY", "EDIT", "INHERIT"
    )
}

const DATASET_NOTES: &str = "
Sizes are specified in bytes with standard units such as K, M, G, etc.

User-defined properties can be specified by using a name containing a colon (:).

The {user|group|project}[obj]{used|quota}@ properties must be appended with
a user|group|project specifier of one of these forms:
    POSIX name      (eg: \"matt\")
    POSIX id        (eg: \"126829\")
    SMB name@domain (eg: \"matt@sun\")
    SMB SID         (eg: \"S-1-234-567-89\")
";

/// The list of pool properties.
pub(crate) fn pool_properties() -> String {
    let mut text = format!(
        "\nthe following properties are supported:\n\n\t{:<19}  {:>4}   VALUES\n\n",
        "PROPERTY", "EDIT"
    );
    for p in sorted(&prop::POOL) {
        let _ = writeln!(text, "\t{:<19}  {:>4}   {}", p.name, yes_no(p.editable()), p.values);
    }
    let _ = writeln!(text, "\t{:<19}  {:>4}   disabled | enabled | active", "feature@...", "YES");
    text.push_str(
        "\nThe feature@ properties must be appended with a feature name.\nSee zpool-features(7).\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of the real tool for `command`, without the exit code.
    fn transcript(command: &str) -> String {
        let all = include_str!("../../../fixtures/cli-transcripts/12-usage.txt");
        let start = format!("$ {command}\n");
        let from = all.find(&start).expect("in the transcript") + start.len();
        let rest = all.get(from..).expect("a boundary");
        rest.get(..rest.find("[exit ").expect("ends")).expect("a boundary").to_owned()
    }

    #[test]
    fn summaries_are_those_of_the_transcripts() {
        assert_eq!(Tool::Zpool.summary(), transcript("zpool -?"));
        assert_eq!(Tool::Zfs.summary(), transcript("zfs -?"));
    }

    #[test]
    fn every_subcommand_prints_its_own_usage() {
        for tool in [Tool::Zpool, Tool::Zfs] {
            for (name, _) in tool.texts().iter().filter(|(name, _)| !name.is_empty()) {
                let command = format!("{} {name} -?", tool.name());
                let asked = include_str!("../../../fixtures/cli-transcripts/12-usage.txt");
                if !asked.contains(&format!("$ {command}\n")) {
                    continue;
                }
                let real = transcript(&command);
                let (_, usage) = real.split_once('\n').expect("a message first");
                assert_eq!(tool.of(name), usage, "{command}");
            }
        }
    }

    #[test]
    fn aliases_are_subcommands() {
        assert_eq!(Tool::Zfs.subcommand("recv"), Some("receive"));
        assert_eq!(Tool::Zfs.subcommand("jail"), None);
        assert_eq!(Tool::Zfs.subcommand(""), None);
        assert_eq!(Tool::Zpool.subcommand("status"), Some("status"));
    }
}
