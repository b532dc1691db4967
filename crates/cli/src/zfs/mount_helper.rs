//! `mount -t fuse.cenote POOL/DATASET DIRECTORY`, or `mount -t zfs`: what `mount(8)` calls, and what it means.
//!
//! `mount(8)` runs `/sbin/mount.fuse.cenote SOURCE DIRECTORY [-sfnv] [-o OPTIONS]` if that is there (a link to this
//! binary), else `mount.fuse3`, which runs `cenote SOURCE DIRECTORY -o OPTIONS`. Both become
//! `zfs mount --on DIRECTORY -o OPTIONS SOURCE`. Where `/sbin/mount.zfs` is a link to this binary, `mount -t zfs` is
//! the same; its source may also be a device of a pool, which stands for the pool's root. In `/etc/fstab`:
//!
//! ```text
//! tank/home  /home  fuse.cenote  defaults,nofail,x-systemd.requires=cenoted.service  0  0
//! ```

use std::ffi::{OsStr, OsString};

/// Names by which `mount(8)` calls us.
const NAMES: [&str; 3] = ["mount.fuse.cenote", "mount.cenote", "mount.zfs"];
/// Options that say what is so anyway: they do not go before properties.
const USUAL: [&str; 5] = ["rw", "suid", "dev", "exec", "defaults"];

/// The arguments of `zfs` that a call by `mount(8)` stands for; `None`: it is none. `is_verb` tells whether a word
/// is a verb of `cenote`, which goes before a pool of that name.
pub(crate) fn arguments(
    called: &OsStr,
    args: &[OsString],
    is_verb: impl Fn(&str) -> bool,
) -> Option<Vec<OsString>> {
    if NAMES.iter().any(|name| called == *name) {
        // What is missing, `zfs mount` says.
        return Some(parse(args).unwrap_or_else(|| vec!["mount".into(), "--on".into()]));
    }
    let (source, at) = match args {
        [source, at, ..] => (source, at),
        _ => return None,
    };
    let is_source = source.to_str().is_some_and(|word| !word.starts_with('-') && !is_verb(word));
    let is_dir = at.as_encoded_bytes().starts_with(b"/");
    if is_source && is_dir { parse(args) } else { None }
}

/// `None`: something is missing, or too much.
fn parse(args: &[OsString]) -> Option<Vec<OsString>> {
    let mut options = Vec::new();
    let mut operands = Vec::new();
    let mut fakes = false;
    let mut rest = args.iter();
    while let Some(argument) = rest.next() {
        let Some(word) = argument.to_str() else {
            operands.push(argument);
            continue;
        };
        match word.strip_prefix("-o") {
            Some("") => options.extend(rest.next()?.to_str()?.split(',').map(str::to_owned)),
            Some(list) => options.extend(list.split(',').map(str::to_owned)),
            // Kind and name space, with a word each; of the other flags, those in one word that count are these.
            None if word == "-t" || word == "-N" => drop(rest.next()),
            None if word.starts_with('-') => {
                fakes |= word.contains('f');
                options.extend(word.contains('s').then(|| "sloppy".to_owned()));
            }
            None => operands.push(argument),
        }
    }
    let [source, at] = operands[..] else { return None };
    let remounts = options.iter().any(|word| word == "remount");
    options.retain(|word| !word.is_empty() && (remounts || !USUAL.contains(&word.as_str())));
    let mut zfs: Vec<OsString> = vec!["mount".into(), "--on".into(), at.clone()];
    if fakes {
        zfs.push("--fake".into());
    }
    if !options.is_empty() {
        zfs.extend(["-o".into(), options.join(",").into()]);
    }
    zfs.push(source.clone());
    Some(zfs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments_of(called: &str, words: &str) -> Option<String> {
        let args: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let found = arguments(OsStr::new(called), &args, |word| word == "ls")?;
        Some(found.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn both_forms_are_a_zfs_mount() {
        for (called, words, expected) in [
            ("mount.fuse.cenote", "p/a /mnt -o rw", "mount --on /mnt p/a"),
            ("mount.fuse.cenote", "p/a /mnt -n -o ro,noatime -v", "mount --on /mnt -o ro,noatime p/a"),
            ("mount.fuse.cenote", "ls /mnt -t fuse.cenote", "mount --on /mnt ls"),
            ("mount.zfs", "-o zfsutil p/a /mnt", "mount --on /mnt -o zfsutil p/a"),
            ("mount.zfs", "p/a /mnt -sfnv -o rw", "mount --on /mnt --fake -o sloppy p/a"),
            ("mount.zfs", "-o zfsutil p/a", "mount --on"),
            ("mount.zfs", "/dev/sda /mnt", "mount --on /mnt /dev/sda"),
            ("cenote", "p/a /mnt -o rw,noexec,dev,suid", "mount --on /mnt -o noexec p/a"),
            ("cenote", "p/a /mnt -orw,remount", "mount --on /mnt -o rw,remount p/a"),
        ] {
            assert_eq!(arguments_of(called, words).as_deref(), Some(expected), "{words}");
        }
        for words in ["ls /mnt", "p/a", "--version /", "p/a relative", "p/a /mnt more"] {
            assert_eq!(arguments_of("cenote", words), None, "{words}");
        }
    }
}
