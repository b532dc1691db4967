//! Names of datasets, snapshots and bookmarks: parsing and checks (docs/on-disk/33-cli.md, section 1.3).

use crate::error::DslError;
use format::ObjectId;

/// Size of a full name in bytes with its NUL: a name has at most 255.
pub const NAME_LIMIT: usize = 256;
/// Most directory levels below the pool in new names.
pub const NESTING_MAX: usize = 50;
/// Most directory levels followed on disk: no legal name has room for more, and older pools may exceed
/// [`NESTING_MAX`].
pub(crate) const DEPTH_LIMIT: usize = NAME_LIMIT / 2;

/// The part of a name after the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail<'a> {
    /// No tail: the name of a file system or volume.
    None,
    /// A snapshot, `@NAME`.
    Snapshot(&'a str),
    /// A bookmark, `#NAME`.
    Bookmark(&'a str),
}

/// A dataset name, split into directory and tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The file system or volume, pool included.
    pub dir: &'a str,
    /// Snapshot or bookmark of it.
    pub tail: Tail<'a>,
}

impl<'a> Name<'a> {
    /// Splits a full name and checks its form: length, delimiters, components. Does not check which
    /// characters new names may have, because older pools may hold others.
    ///
    /// # Errors
    /// [`DslError::BadName`].
    pub fn parse(name: &'a str) -> Result<Name<'a>, DslError> {
        let bad = |why| Err(DslError::BadName { name: name.to_owned(), why });
        if name.len() >= NAME_LIMIT {
            return bad("name is too long");
        }
        let (dir, tail) = match name.find(['@', '#']) {
            None => (name, Tail::None),
            Some(at) => {
                let (dir, rest) = name.split_at(at);
                match rest.split_at_checked(1) {
                    Some((_, "")) | None => {
                        return bad("empty component or misplaced '@' or '#' delimiter in name");
                    }
                    Some((_, tail)) if tail.contains(['@', '#']) => {
                        return bad("multiple '@' and/or '#' delimiters in name");
                    }
                    Some((_, tail)) if tail.contains('/') => {
                        return bad("empty component or misplaced '@' or '#' delimiter in name");
                    }
                    Some(("@", tail)) => (dir, Tail::Snapshot(tail)),
                    Some((_, tail)) => (dir, Tail::Bookmark(tail)),
                }
            }
        };
        if dir.starts_with('/') {
            return bad("leading slash in name");
        }
        if dir.ends_with('/') {
            return bad("trailing slash in name");
        }
        for component in dir.split('/') {
            match component {
                "" => return bad("empty component or misplaced '@' or '#' delimiter in name"),
                "." => return bad("self reference, '.' is found in name"),
                ".." => return bad("parent reference, '..' is found in name"),
                _ if component.contains('\0') => return bad("invalid character NUL in name"),
                _ => {}
            }
        }
        Ok(Name { dir, tail })
    }
}

/// Checks the name of a new dataset, snapshot or bookmark: like [`Name::parse`], and also its characters and
/// the number of levels.
///
/// # Errors
/// [`DslError::BadName`].
pub fn check_new(name: &str) -> Result<Name<'_>, DslError> {
    let parsed = Name::parse(name)?;
    let bad = |why| Err(DslError::BadName { name: name.to_owned(), why });
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ' | '/');
    if !name.chars().all(|c| is_allowed(c) || matches!(c, '@' | '#')) {
        return bad("invalid character in name");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return bad("name must begin with a letter");
    }
    if parsed.dir.split('/').count() > NESTING_MAX {
        return bad("name is nested too deeply");
    }
    Ok(parsed)
}

/// Decodes a component as a ZAP of the MOS holds it. A component with a delimiter in it is damage.
pub(crate) fn stored(map: ObjectId, object: ObjectId, bytes: &[u8]) -> Result<&str, DslError> {
    let damaged = || DslError::StoredName { map, object, name: bytes.escape_ascii().to_string() };
    let name = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let illegal = name.is_empty()
        || name.len() >= NAME_LIMIT
        || matches!(name, "." | "..")
        || name.contains(['/', '@', '#'])
        || name.chars().any(char::is_control);
    if illegal { Err(damaged()) } else { Ok(name) }
}

/// Whether a component belongs to the implementation, not to a user: `$ORIGIN`, `%recv`.
pub(crate) fn is_hidden(component: &str) -> bool {
    component.starts_with(['$', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let parse = |name| Name::parse(name).unwrap();
        assert_eq!(parse("p/a b"), Name { dir: "p/a b", tail: Tail::None });
        assert_eq!(parse("p/a@s"), Name { dir: "p/a", tail: Tail::Snapshot("s") });
        assert_eq!(parse("p#m"), Name { dir: "p", tail: Tail::Bookmark("m") });
    }

    #[test]
    fn bad_names_say_why() {
        let why = |name| match Name::parse(name) {
            Err(DslError::BadName { why, .. }) => why,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(why("/p"), "leading slash in name");
        assert_eq!(why("p/"), "trailing slash in name");
        assert_eq!(why("p@a@b"), "multiple '@' and/or '#' delimiters in name");
        assert_eq!(why("p/../q"), "parent reference, '..' is found in name");
        let long = "x".repeat(256);
        assert_eq!(why(&long), "name is too long");
        for name in ["", "p//q", "p@", "@s", "p@s/t"] {
            assert!(why(name).starts_with("empty component"), "{name}");
        }
    }

    #[test]
    fn new_names_are_plain() {
        assert!(check_new("p/a b@s:1-2.x_y").is_ok());
        for bad in ["p/a%b", "p/é", "1p/a", "p/a@s*"] {
            assert!(check_new(bad).is_err(), "{bad}");
        }
        assert!(check_new(&["p"; 50].join("/")).is_ok());
        assert!(check_new(&["p"; 51].join("/")).is_err());
    }

    #[test]
    fn stored_names_that_could_leave_a_path_are_damage() {
        let check = |bytes: &[u8]| stored(ObjectId(1), ObjectId(2), bytes).is_ok();
        assert!(check(b"home") && check(b"$ORIGIN") && check("é".as_bytes()));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a@b", b"a\0b", b"a\nb", b"\xff"] {
            assert!(!check(bad), "{bad:?}");
        }
    }
}
