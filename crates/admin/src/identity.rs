//! Translates names of users and groups to ids, and back.
//!
//! Only `/etc/passwd` and `/etc/group` are read; name services are not used.

use super::Owner;
use std::collections::HashMap;

/// Names by id. Empty for projects, and if the file cannot be read.
pub fn names(owner: Owner) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    for (name, number) in lines(owner) {
        names.entry(number).or_insert(name);
    }
    names
}

/// Name and id of every line.
fn lines(owner: Owner) -> Vec<(String, u64)> {
    let path = match owner {
        Owner::User => "/etc/passwd",
        Owner::Group => "/etc/group",
        Owner::Project => return Vec::new(),
    };
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    text.lines().filter_map(line).collect()
}

/// Parses `name:…:number:…`.
fn line(line: &str) -> Option<(String, u64)> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    Some((name, fields.nth(1)?.parse().ok()?))
}

/// Parses an id as the tools do: an empty string is 0, and only the low 32 bits count.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let wide = text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned))?;
    Some(wide & u64::from(u32::MAX))
}

/// Domain and number of an owner given by number, by name, or as a Windows identity (`S-1-…-N`).
pub(super) fn parse(owner: Owner, text: &str) -> Option<(Option<String>, u64)> {
    if let Some(number) = number(text) {
        return Some((None, number));
    }
    if owner != Owner::Project
        && text.starts_with("S-1-")
        && let Some((domain, id)) = text.rsplit_once('-')
    {
        return Some((Some(domain.to_owned()), id.parse().ok()?));
    }
    lines(owner).into_iter().find(|(name, _)| name == text).map(|(_, number)| (None, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_by_number_and_windows_identity() {
        assert_eq!(parse(Owner::User, "1000"), Some((None, 1000)));
        assert_eq!(parse(Owner::User, "99999999999"), Some((None, 1_215_752_191)));
        assert_eq!(parse(Owner::User, "-1"), Some((None, u64::from(u32::MAX))));
        assert_eq!(parse(Owner::Group, ""), Some((None, 0)));
        assert_eq!(parse(Owner::User, "S-1-5-21-7-513"), Some((Some("S-1-5-21-7".into()), 513)));
        assert_eq!(parse(Owner::Project, "nobody-has-this-name"), None);
        assert_eq!(line("root:x:0:0:root:/root:/bin/sh"), Some(("root".into(), 0)));
        assert_eq!(line("garbage"), None);
    }
}
