//! The permissions that can be delegated, as `zfs allow` lists them.

use format::prop::{self, Class};
use std::fmt::Write as _;

/// Name, kind and note of every permission that is not that of a property.
const PERMISSIONS: &[(&str, &str, &[&str])] = &[
    ("allow", "subcommand", &["Must also have the permission that is being", "allowed"]),
    (
        "clone",
        "subcommand",
        &["Must also have the 'create' ability and 'mount'", "ability in the origin file system"],
    ),
    ("create", "subcommand", &["Must also have the 'mount' ability"]),
    ("destroy", "subcommand", &["Must also have the 'mount' ability"]),
    (
        "diff",
        "subcommand",
        &[
            "Allows lookup of paths within a dataset;",
            "given an object number. Ordinary users need this",
            "in order to use zfs diff",
        ],
    ),
    ("hold", "subcommand", &["Allows adding a user hold to a snapshot"]),
    ("mount", "subcommand", &["Allows mount/umount of ZFS datasets"]),
    (
        "promote",
        "subcommand",
        &["Must also have the 'mount'", "and 'promote' ability in the origin file system"],
    ),
    ("receive", "subcommand", &["Must also have the 'mount' and 'create' ability"]),
    ("release", "subcommand", &["Allows releasing a user hold which", "might destroy the snapshot"]),
    ("rename", "subcommand", &["Must also have the 'mount' and 'create'", "ability in the new parent"]),
    ("rollback", "subcommand", &[""]),
    ("send", "subcommand", &[""]),
    ("share", "subcommand", &["Allows sharing file systems over NFS or SMB", "protocols"]),
    ("snapshot", "subcommand", &[""]),
    ("bookmark", "subcommand", &[""]),
    ("load-key", "subcommand", &["Allows loading or unloading an encryption key"]),
    ("change-key", "subcommand", &["Allows changing or adding an encryption key"]),
    ("groupquota", "other", &["Allows accessing any groupquota@... property"]),
    ("groupused", "other", &["Allows reading any groupused@... property"]),
    ("userprop", "other", &["Allows changing any user property"]),
    ("userquota", "other", &["Allows accessing any userquota@... property"]),
    ("userused", "other", &["Allows reading any userused@... property"]),
    ("userobjquota", "other", &["Allows accessing any userobjquota@... property"]),
    ("userobjused", "other", &["Allows reading any userobjused@... property"]),
    ("groupobjquota", "other", &["Allows accessing any ", "groupobjquota@... property"]),
    ("groupobjused", "other", &["Allows reading any groupobjused@... property"]),
    ("projectused", "other", &["Allows reading any projectused@... property"]),
    ("projectquota", "other", &["Allows accessing any projectquota@... property"]),
    ("projectobjused", "other", &["Allows accessing any ", "projectobjused@... property"]),
    ("projectobjquota", "other", &["Allows accessing any ", "projectobjquota@... property"]),
];

/// The list below the usage of `zfs allow` and `zfs unallow`.
pub(super) fn list() -> String {
    let mut text =
        format!("The following permissions are supported:\n\n{:<16} {:<14}\tNOTES\n", "NAME", "TYPE");
    for (name, kind, notes) in PERMISSIONS {
        let _ = writeln!(text, "{name:<16} {kind:<14}\t{}", notes.join("\n\t\t\t\t"));
    }
    let mut props: Vec<&str> = prop::DATASET
        .iter()
        .filter(|p| p.visible && p.class != Class::ReadOnly && !p.values.is_empty())
        .map(|p| p.name)
        .collect();
    props.sort_unstable();
    for name in props {
        let _ = writeln!(text, "{name:<16} {:<14}\t", "property");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_is_that_of_openzfs() {
        let all = include_str!("../../../../fixtures/cli-transcripts/10-quotas.txt");
        let from = all.find("The following permissions").expect("in the transcript");
        let rest = all.get(from..).expect("a boundary");
        let real = rest.get(..rest.find("\nzfs: error").expect("ends")).expect("a boundary");
        assert_eq!(super::list(), real);
    }
}
