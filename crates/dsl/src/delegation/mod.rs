//! Delegated permissions: the entries that `zfs allow` lists, and the resulting permissions of a user
//! (docs/on-disk/22-mos-dsl.md, section 8).
//!
//! # What always holds
//! - A granted set has the nearest definition of its name, searched upwards from the directory that grants
//!   it; a set inside another set, from the directory that defines the outer one.
//! - For one dataset a set has one meaning: if grants would give it two, the lower definition counts.

pub mod change;

use crate::dir::Dir;
use crate::error::DslError;
use crate::mos;
use format::ObjectId;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Holder of delegated permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A named set of permissions, `@name`.
    Set(String),
    /// Permissions that the creator of a child gets.
    CreateTime,
    /// The user with this id.
    User(u64),
    /// Members of the group with this id.
    Group(u64),
    /// All users of the system.
    Everyone,
}

/// Datasets to which an entry applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Only the dataset with the entry.
    Local,
    /// Only datasets below the one with the entry.
    Descendent,
    /// A set or create-time entry, which grants nothing by itself.
    NotApplicable,
}

/// One entry of a directory's delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Holder of these permissions.
    pub who: Who,
    /// Datasets to which the permissions apply.
    pub scope: Scope,
    /// Permissions and, with `@` in front, sets of them; sorted.
    pub permissions: Vec<String>,
}

/// Parses the key of an entry; the flag tells whether the entry names sets. `None`: it is no such key.
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
    /// The permissions delegated at this directory itself, sorted by holder and scope.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
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
            // A holder's sets and single permissions are two entries on disk, but one in the listing.
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

/// A user without privileges: only granted permissions count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User id as the system has it.
    pub uid: u64,
    /// Numbers of all groups that the user is in.
    pub groups: Vec<u64>,
}

/// Permissions that a user has at a directory.
#[derive(Debug, Default)]
pub struct Granted {
    permissions: HashSet<String>,
    /// Sets whose definition has not been found yet.
    wanted: BTreeSet<String>,
    /// Sets whose definition was found: definitions further up are masked.
    defined: HashSet<String>,
}

impl User {
    /// The permissions of this user at a directory; with `below`, at a new child of it, which includes the
    /// create-time permissions.
    ///
    /// # Errors
    /// If the pool cannot be read.
    pub fn granted(&self, dir: &Dir, below: bool) -> Result<Granted, DslError> {
        let mut granted = Granted::default();
        for (height, at) in dir.ancestry().enumerate() {
            let is_own = height == 0 && !below;
            granted.climb(at.allowed()?, |who, scope| match who {
                Who::Set(_) => false,
                Who::CreateTime => below,
                Who::User(uid) => self.uid == *uid && scope.holds(is_own),
                Who::Group(gid) => self.groups.contains(gid) && scope.holds(is_own),
                Who::Everyone => scope.holds(is_own),
            });
        }
        Ok(granted)
    }
}

impl Scope {
    /// Whether an entry with this scope applies: `is_own` to the directory that has it, otherwise to one
    /// below.
    fn holds(self, is_own: bool) -> bool {
        match self {
            Scope::Local => is_own,
            Scope::Descendent => !is_own,
            Scope::NotApplicable => false,
        }
    }
}

impl Granted {
    /// Adds the permissions that the next directory upwards grants, and its definitions of the sets granted
    /// so far.
    fn climb(&mut self, entries: Vec<Allow>, is_meant: impl Fn(&Who, Scope) -> bool) {
        let mut sets = HashMap::new();
        for Allow { who, scope, permissions } in entries {
            if is_meant(&who, scope) {
                self.add(permissions);
            } else if let Who::Set(name) = who {
                sets.insert(name, permissions);
            }
        }
        // Sets may contain sets, also in cycles.
        while let Some(name) = self.wanted.iter().find(|name| sets.contains_key(*name)).cloned() {
            self.wanted.remove(&name);
            let members = sets.remove(&name).unwrap_or_default();
            self.defined.insert(name);
            self.add(members);
        }
    }

    fn add(&mut self, permissions: Vec<String>) {
        for permission in permissions {
            if !permission.starts_with('@') {
                self.permissions.insert(permission);
            } else if !self.defined.contains(&permission) {
                self.wanted.insert(permission);
            }
        }
    }

    /// Whether this permission is granted.
    pub fn has(&self, wanted: &str) -> bool {
        self.permissions.contains(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `@a=x,@b` defines a set, `+x,@a` grants.
    fn granted(levels: &[&[&str]]) -> Vec<String> {
        let mut granted = Granted::default();
        for level in levels {
            let mut entries = Vec::new();
            for text in *level {
                let (who, list) = match text.strip_prefix('+') {
                    Some(list) => (Who::Everyone, list),
                    None => {
                        text.split_once('=').map(|(set, list)| (Who::Set(set.into()), list)).expect("a set")
                    }
                };
                let permissions = list.split(',').map(str::to_owned).collect();
                entries.push(Allow { who, scope: Scope::NotApplicable, permissions });
            }
            granted.climb(entries, |who, _| *who == Who::Everyone);
        }
        let mut all: Vec<String> = granted.permissions.into_iter().collect();
        all.sort();
        all
    }

    #[test]
    fn sets_lead_to_sets_and_may_go_in_circles() {
        assert_eq!(granted(&[&["+@a", "@a=@b,hold", "@b=@a,snapshot", "@c=destroy"]]), ["hold", "snapshot"]);
        assert_eq!(granted(&[&["+@a", "@a=@b"], &["@b=hold"]]), ["hold"], "a member defined further up");
    }

    /// Levels from the lowest directory upwards; each result as OpenZFS 2.3.2 decides it.
    #[test]
    fn a_set_defined_below_masks_the_one_above_where_it_is_granted() {
        assert_eq!(granted(&[&["+@a", "@a=checksum"], &["@a=quota"]]), ["checksum"]);
        assert_eq!(granted(&[&["+@a", "@a=checksum"], &["+@a", "@a=quota"]]), ["checksum"]);
        assert_eq!(granted(&[&[], &["+@a", "@a=checksum"], &["+@a", "@a=quota"]]), ["checksum"]);
        assert_eq!(granted(&[&["+@a"], &["+@a", "@a=quota"]]), ["quota"], "no longer masked");
        assert_eq!(granted(&[&["@a=checksum"], &["+@a", "@a=quota"]]), ["quota"], "granted above it only");
        assert_eq!(granted(&[&["@a=checksum"], &["+@a"]]), [""; 0], "defined below the grant only");
        assert_eq!(granted(&[&["@a=checksum"], &["+@b", "@b=@a", "@a=quota"]]), ["quota"]);
    }

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
