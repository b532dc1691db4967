//! Delegated permissions, as `zfs allow` lists them
//! (docs/on-disk/22-mos-dsl.md, section 8).

use crate::dir::Dir;
use crate::{DslError, mos};
use format::ObjectId;

/// Whom an entry is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A named set of permissions, `@name`.
    Set(String),
    /// Whoever creates a child gets these.
    CreateTime,
    /// A user id.
    User(u64),
    /// A group id.
    Group(u64),
    /// Everyone.
    Everyone,
}

/// Where an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Here only.
    Local,
    /// Below only.
    Descendent,
    /// It is a set or create-time entry: nowhere by itself.
    NotApplicable,
}

/// One entry of a directory's delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Whom it is about.
    pub who: Who,
    /// Where it holds.
    pub scope: Scope,
    /// Permissions and, with `@` in front, sets of them; sorted.
    pub permissions: Vec<String>,
}

/// Takes an entry's key apart; the flag tells that the entry names sets. `None`: it is no such key.
pub fn parse_key(key: &[u8]) -> Option<(Who, Scope, bool)> {
    let text = std::str::from_utf8(key).ok()?;
    let (kinds, id) = text.split_once('$')?;
    let &[kind, scope] = kinds.as_bytes() else { return None };
    let number = || id.parse().ok();
    let who = match kind.to_ascii_lowercase() {
        b'u' => Who::User(number()?),
        b'g' => Who::Group(number()?),
        b'e' => Who::Everyone,
        b'c' => Who::CreateTime,
        b's' => Who::Set(id.to_owned()),
        _ => return None,
    };
    let scope = match scope {
        b'l' => Scope::Local,
        b'd' => Scope::Descendent,
        b'-' => Scope::NotApplicable,
        _ => return None,
    };
    Some((who, scope, kind.is_ascii_uppercase()))
}

impl Dir {
    /// The permissions delegated at this directory itself, sorted by whom and where.
    pub fn allowed(&self) -> Result<Vec<Allow>, DslError> {
        let Some(map) = self.phys().delegation else { return Ok(Vec::new()) };
        let mos = self.dsl().mos();
        let mut all: Vec<Allow> = Vec::new();
        for entry in mos::zap(mos, map)?.entries() {
            let entry = entry?;
            let list = ObjectId(mos::number(map, &entry)?);
            let (who, scope, _) = parse_key(entry.name()).ok_or_else(|| mos::stored_value(map, &entry))?;
            let mut permissions = Vec::new();
            for permission in mos::zap(mos, list)?.entries() {
                permissions.push(String::from_utf8_lossy(permission?.name()).into_owned());
            }
            // Sets and single permissions of one holder are two entries on disk, one for people.
            match all.iter_mut().find(|a| a.who == who && a.scope == scope) {
                Some(allow) => allow.permissions.append(&mut permissions),
                None => all.push(Allow { who, scope, permissions }),
            }
        }
        for allow in &mut all {
            allow.permissions.sort();
        }
        all.sort_by(|a, b| (&a.who, a.scope).cmp(&(&b.who, b.scope)));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_entries() {
        assert_eq!(parse_key(b"ul$1000"), Some((Who::User(1000), Scope::Local, false)));
        assert_eq!(parse_key(b"Ud$7"), Some((Who::User(7), Scope::Descendent, true)));
        assert_eq!(parse_key(b"ed$"), Some((Who::Everyone, Scope::Descendent, false)));
        assert_eq!(parse_key(b"c-$"), Some((Who::CreateTime, Scope::NotApplicable, false)));
        assert_eq!(parse_key(b"s-$@backup"), Some((Who::Set("@backup".into()), Scope::NotApplicable, false)));
        for bad in [&b"ul"[..], b"ul$x", b"xl$1", b"u$1", b"\xff$"] {
            assert_eq!(parse_key(bad), None);
        }
    }
}
