//! `cenote chmod` and `cenote chown`.

use std::ffi::{OsStr, OsString};

use ::admin::{Owner, owner_names};
use ::cenote::files::NewAttrs;
use ::cenote::files::without_set_ids;
use ::cenote::files::{Attrs, FileKind};

use super::open::Source;
use super::writing::{TreeTeller, Writing, cannot};
use super::{Failure, Outcome, mode_text};
use crate::console::umask;

/// Change permissions of files in a pool
///
/// MODE is octal (0755) or symbolic (u+x,go-w). Symbolic links in a tree are left alone; one that is named is
/// followed.
#[derive(clap::Args)]
pub(super) struct ModeArgs {
    #[command(flatten)]
    source: Source,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Octal or symbolic
    #[arg(allow_hyphen_values = true, value_name = "MODE")]
    mode: String,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Change owners of files in a pool
///
/// OWNER[:GROUP] or :GROUP, by number or by their names on this machine. Programs lose their set-id bits, as
/// they do everywhere.
#[derive(clap::Args)]
pub(super) struct OwnerArgs {
    #[command(flatten)]
    source: Source,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Of symbolic links that are named, the links themselves
    #[arg(long)]
    no_dereference: bool,
    /// OWNER, OWNER:GROUP or :GROUP
    #[arg(value_name = "OWNER")]
    owner: String,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

pub(super) fn run(args: &ModeArgs) -> Outcome {
    let change = mode_text::parse(&args.mode)
        .ok_or_else(|| Failure::Message(format!("invalid mode: '{}'", args.mode)))?;
    let umask = umask();
    let new = move |attrs: &Attrs| {
        let kind = FileKind::from_mode(attrs.mode);
        let mode = change.apply(attrs.mode, kind == Some(FileKind::Directory), umask);
        let is_link = kind == Some(FileKind::Symlink);
        (!is_link && mode != attrs.mode & 0o7777)
            .then(|| NewAttrs { mode: Some(mode), ..NewAttrs::default() })
    };
    Writing::new(&args.source)?.each(&args.targets, |pools, target| {
        let how = How { what: "change permissions of", recursive: args.recursive, follow: true };
        how.apply(pools, target, &new)
    })
}

pub(super) fn chown(args: &OwnerArgs) -> Outcome {
    let (uid, gid) = owners(&args.owner).map_err(Failure::Message)?;
    let new = move |attrs: &Attrs| {
        let is_file = FileKind::from_mode(attrs.mode) == Some(FileKind::Regular);
        let mode = attrs.mode & 0o7777;
        let kept = without_set_ids(mode);
        let mode = (is_file && kept != mode).then_some(kept);
        Some(NewAttrs { uid, gid, mode, ..NewAttrs::default() })
    };
    Writing::new(&args.source)?.each(&args.targets, |pools, target| {
        let follow = !args.no_dereference;
        let how = How { what: "change ownership of", recursive: args.recursive, follow };
        how.apply(pools, target, &new)
    })
}

struct How {
    what: &'static str,
    recursive: bool,
    follow: bool,
}

impl How {
    fn apply(
        &self,
        pools: &Writing<'_>,
        target: &OsStr,
        new: &(dyn Fn(&Attrs) -> Option<NewAttrs> + Sync),
    ) -> Result<(), Failure> {
        let place = pools.writable_path(target)?;
        let (fs, path) = (&place.fs, &place.path);
        let failure = |error| cannot(format_args!("{} '{}'", self.what, place.shown), &error);
        if self.recursive {
            let mut teller = TreeTeller::new(self.what, fs, pools.stop());
            fs.change_all(path, self.follow, new, &mut teller).map_err(failure)?;
            return if teller.failures > 0 { Err(Failure::Silent) } else { Ok(()) };
        }
        let id = if self.follow { fs.resolve(path) } else { fs.resolve_link(path) };
        let id = id.map_err(failure)?;
        let attrs = fs.fs().attrs(id).map_err(|error| failure(error.into()))?;
        if let Some(new) = new(&attrs) {
            fs.fs().set_attrs(id, &new).map_err(|error| failure(error.into()))?;
        }
        Ok(())
    }
}

/// User and group ids of `OWNER[:GROUP]`.
fn owners(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let number = |kind: Owner, text: &str, what: &str| -> Result<Option<u32>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let by_name = || {
            let names = owner_names(kind);
            names.iter().filter(|(_, name)| *name == text).map(|(number, _)| *number).min()
        };
        let number = text.parse::<u32>().ok().or_else(|| by_name().and_then(|id| u32::try_from(id).ok()));
        number.map(Some).ok_or_else(|| format!("invalid {what}: '{text}'"))
    };
    if group == Some("") && !user.is_empty() {
        // `name:` means the login group of the user.
        let group = login_group(user).ok_or_else(|| format!("invalid spec: '{text}'"))?;
        return Ok((number(Owner::User, user, "user")?, Some(group)));
    }
    Ok((number(Owner::User, user, "user")?, number(Owner::Group, group.unwrap_or(""), "group")?))
}

fn login_group(user: &str) -> Option<u32> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&user))?.get(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::owners;

    #[test]
    fn owner_and_group() {
        assert_eq!(owners("7:8"), Ok((Some(7), Some(8))));
        assert_eq!(owners("7"), Ok((Some(7), None)));
        assert_eq!(owners(":8"), Ok((None, Some(8))));
        assert_eq!(owners("root:"), Ok((Some(0), Some(0))));
        assert!(owners("7:").is_err());
        assert!(owners("no such user").is_err());
    }
}
