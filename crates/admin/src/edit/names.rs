//! Checks the syntax of names given by a user (docs/on-disk/33-cli.md, section 1.3).

use dsl::name::{NAME_LIMIT, NESTING_MAX};

/// The rule that a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name has 256 bytes or more.
    #[error("name is too long")]
    TooLong,
    /// A slash precedes the name of the pool.
    #[error("leading slash in name")]
    LeadingSlash,
    /// A component is empty.
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    /// The name ends with a slash.
    #[error("trailing slash in name")]
    TrailingSlash,
    /// A character that is not allowed in names.
    #[error("invalid character {0} in name")]
    Character(char),
    /// There is more than one `@` or `#`.
    #[error("multiple '@' and/or '#' delimiters in name")]
    Delimiters,
    /// A component is `.`.
    #[error("self reference, '.' is found in name")]
    SelfReference,
    /// A component is `..`.
    #[error("parent reference, '..' is found in name")]
    ParentReference,
    /// A snapshot is given where another kind is needed.
    #[error("snapshot delimiter '@' is not expected here")]
    Snapshot,
    /// A bookmark is given where another kind is needed.
    #[error("bookmark delimiter '#' is not expected here")]
    Bookmark,
    /// A snapshot is needed.
    #[error("missing '@' delimiter in snapshot name")]
    NoSnapshot,
    /// A bookmark is needed.
    #[error("missing '#' delimiter in bookmark name")]
    NoBookmark,
    /// The name of a pool is given where a dataset below it is needed.
    #[error("missing dataset name")]
    PoolOnly,
    /// There are too many components.
    #[error("maximum name nesting depth exceeded")]
    Depth,
}

/// Kind of dataset that a name must denote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A file system or volume.
    Head,
    /// A snapshot.
    Snapshot,
    /// A bookmark.
    Bookmark,
    /// Any of these kinds.
    Any,
}

/// Checks the syntax of a full name.
///
/// # Errors
/// [`NameError`]: the first rule that the name breaks.
pub fn check(name: &str, form: Form) -> Result<(), NameError> {
    match form {
        Form::Head if name.contains('@') => return Err(NameError::Snapshot),
        Form::Head | Form::Snapshot if name.contains('#') && !name.contains('@') => {
            return Err(if form == Form::Head { NameError::Bookmark } else { NameError::NoSnapshot });
        }
        Form::Snapshot if !name.contains('@') => return Err(NameError::NoSnapshot),
        Form::Bookmark if !name.contains('#') => return Err(NameError::NoBookmark),
        _ => {}
    }
    if name.len() >= NAME_LIMIT {
        return Err(NameError::TooLong);
    }
    let (dir, tail) = match name.find(['@', '#']) {
        Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..)),
        None => (name, None),
    };
    if dir.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    if dir.len() > 1 && dir.ends_with('/') && tail.is_none() {
        return Err(NameError::TrailingSlash);
    }
    dir.split('/').try_for_each(component)?;
    match tail {
        None => Ok(()),
        Some("") => Err(NameError::EmptyComponent),
        Some(tail) if tail.contains(['@', '#']) => Err(NameError::Delimiters),
        Some(tail) if tail.contains('/') => Err(NameError::TrailingSlash),
        Some(tail) => component(tail),
    }
}

fn component(text: &str) -> Result<(), NameError> {
    match text {
        "" => return Err(NameError::EmptyComponent),
        "." => return Err(NameError::SelfReference),
        ".." => return Err(NameError::ParentReference),
        _ => {}
    }
    let legal = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
    match text.chars().find(|c| !legal(c)) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

/// Checks the name of a new file system or volume.
///
/// # Errors
/// [`NameError`]: the first rule that the name breaks.
pub(crate) fn check_new(name: &str) -> Result<(), NameError> {
    check(name, Form::Head)?;
    if !name.contains('/') {
        return Err(NameError::PoolOnly);
    }
    if name.split('/').count() > NESTING_MAX {
        return Err(NameError::Depth);
    }
    Ok(())
}

/// The name of the pool that a dataset's name begins with.
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<(), NameError>) -> String {
        result.map_or_else(|e| e.to_string(), |()| "fine".into())
    }

    #[test]
    fn new_names_are_refused_as_the_tools_do() {
        let long = format!("tank/{}", "a".repeat(300));
        let deep = ["a"; 60].join("/");
        for (name, why) in [
            ("tank", "missing dataset name"),
            ("tank/fs/", "trailing slash in name"),
            ("/tank/x", "leading slash in name"),
            ("tank//x", "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank/fs@x", "snapshot delimiter '@' is not expected here"),
            ("tank/a/b@", "snapshot delimiter '@' is not expected here"),
            ("tank/a#b", "bookmark delimiter '#' is not expected here"),
            ("tank/a@b#c", "snapshot delimiter '@' is not expected here"),
            ("tank/bad%name", "invalid character % in name"),
            ("tank/with space", "fine"),
            ("tank/.", "self reference, '.' is found in name"),
            ("tank/..", "parent reference, '..' is found in name"),
            ("", "empty component or misplaced '@' or '#' delimiter in name"),
            (&long, "name is too long"),
            (&deep, "maximum name nesting depth exceeded"),
        ] {
            assert_eq!(text(check_new(name)), why, "{name}");
        }
    }

    #[test]
    fn names_of_snapshots_and_bookmarks() {
        for (name, why) in [
            ("tank/fs@a@b", "multiple '@' and/or '#' delimiters in name"),
            ("tank/fs@a/b", "trailing slash in name"),
            ("tank/fs@", "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank/fs@x%y", "invalid character % in name"),
            ("tank/fs", "missing '@' delimiter in snapshot name"),
            ("tank/fs#m", "missing '@' delimiter in snapshot name"),
            ("tank/fs@ok", "fine"),
        ] {
            assert_eq!(text(check(name, Form::Snapshot)), why, "{name}");
        }
        assert_eq!(text(check("tank/fs#m", Form::Bookmark)), "fine");
        assert_eq!(text(check("tank/fs@m", Form::Bookmark)), "missing '#' delimiter in bookmark name");
    }
}
