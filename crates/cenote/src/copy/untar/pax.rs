//! Extended headers of pax archives: records of the form `LENGTH KEY=VALUE`.

use std::collections::BTreeMap;

use format::acl::{PosixEntry, PosixWho};

use super::super::meta::{Meta, Stamp};
use super::TarError;

/// Maximum number of ranges in a map made of records.
const MAP_MAX: usize = 1 << 20;
/// Maximum number of records for one member or for all members, and of bytes in them.
const RECORDS_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;
const XATTR: &str = "SCHILY.xattr.";

/// Records, the last one of each key.
#[derive(Debug, Default, Clone)]
pub(super) struct Pax {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Size of all records in bytes: there can be any number of headers before a member.
    bytes: usize,
    /// Map of the sparse format 0.0, which has many records with the same keys.
    map: Vec<(u64, u64)>,
    offset: Option<u64>,
}

impl Pax {
    /// Adds the records of one extended header.
    pub(super) fn read(&mut self, mut bytes: &[u8], at: u64) -> Result<(), TarError> {
        let bad = || TarError::Header { at, why: "a damaged extended header" };
        while !bytes.is_empty() {
            let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or_else(bad)?;
            let (digits, _) = bytes.split_at_checked(space).ok_or_else(bad)?;
            let len: usize =
                std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or_else(bad)?;
            let record = bytes.get(space + 1..len).ok_or_else(bad)?;
            let record = record.strip_suffix(b"\n").ok_or_else(bad)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.add(key, value).ok_or_else(bad)?;
            bytes = bytes.get(len..).ok_or_else(bad)?;
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"GNU.sparse.offset" => self.offset = Some(parse(value)?),
            b"GNU.sparse.numbytes" => {
                if self.map.len() >= MAP_MAX {
                    return None;
                }
                self.map.push((self.offset.take()?, parse(value)?));
            }
            // An empty value revokes the record of a global header.
            _ => {
                self.bytes += key.len() + value.len();
                if let Some(old) = self.records.insert(key.to_vec(), value.to_vec()) {
                    self.bytes -= key.len() + old.len();
                }
                if self.bytes > BYTES_MAX || self.records.len() > RECORDS_MAX {
                    return None;
                }
            }
        }
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// These records, overridden by those of a member's own header.
    pub(super) fn with(&self, own: &Pax) -> Pax {
        if self.records.is_empty() {
            return own.clone();
        }
        let mut all = self.clone();
        all.records.extend(own.records.iter().map(|(key, value)| (key.clone(), value.clone())));
        all.map.clone_from(&own.map);
        all
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.records.get(key.as_bytes()).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    pub(super) fn name(&self, key: &str) -> Option<Vec<u8>> {
        self.get(key).map(<[u8]>::to_vec)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(parse)
    }

    /// The map of sparse format 0.0 or 0.1.
    pub(super) fn sparse_map(&self) -> Option<Vec<(u64, u64)>> {
        let Some(text) = self.text("GNU.sparse.map") else { return Some(self.map.clone()) };
        let mut numbers = text.split(',').map(|number| number.parse::<u64>().ok());
        let mut map = Vec::new();
        while let Some(offset) = numbers.next() {
            if map.len() >= MAP_MAX {
                return None;
            }
            map.push((offset?, numbers.next()??));
        }
        Some(map)
    }

    /// Overrides the attributes of the header.
    pub(super) fn apply(&self, meta: &mut Meta) {
        let id = |key| self.number(key).map(|id| u32::try_from(id).unwrap_or(zpl::NOBODY));
        meta.uid = id("uid").unwrap_or(meta.uid);
        meta.gid = id("gid").unwrap_or(meta.gid);
        if let Some(time) = self.text("mtime").and_then(parse_time) {
            (meta.mtime, meta.atime, meta.ctime) = (time, time, time);
        }
        meta.atime = self.text("atime").and_then(parse_time).unwrap_or(meta.atime);
        meta.ctime = self.text("ctime").and_then(parse_time).unwrap_or(meta.ctime);
        for (key, value) in &self.records {
            if let Some(name) = key.strip_prefix(XATTR.as_bytes()).filter(|name| !name.is_empty()) {
                meta.xattrs.push((attribute_name(name), value.clone()));
            }
        }
        for (key, name) in POSIX_ACLS {
            let has = meta.xattrs.iter().any(|(other, _)| other == name.as_bytes());
            let acl = self.text(key).filter(|_| !has).and_then(parse_acl);
            meta.xattrs.extend(acl.map(|acl| (name.as_bytes().to_vec(), zpl::encode_posix(&acl))));
        }
    }

    /// Records that were not understood and have an effect.
    pub(super) fn ignored(&self) -> Vec<String> {
        let acls = POSIX_ACLS.iter().filter(|(key, name)| {
            // The extended attribute has the same ACL with numeric ids.
            let attribute = format!("{XATTR}{name}");
            self.get(&attribute).is_none()
                && self.text(key).is_some_and(|text| !text.trim().is_empty() && parse_acl(text).is_none())
        });
        acls.map(|(key, _)| (*key).to_owned()).collect()
    }
}

const POSIX_ACLS: [(&str, &str); 2] =
    [("SCHILY.acl.access", "system.posix_acl_access"), ("SCHILY.acl.default", "system.posix_acl_default")];

/// Decodes `%3D` and `%25`, as which GNU tar writes `=` and `%` in keys.
fn attribute_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    while let Some((first, rest)) = key.split_first() {
        let (byte, rest) = match rest.split_at_checked(2) {
            Some((b"3D", rest)) if *first == b'%' => (b'=', rest),
            Some((b"25", rest)) if *first == b'%' => (b'%', rest),
            _ => (*first, rest),
        };
        name.push(byte);
        key = rest;
    }
    name
}

fn parse(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Parses decimal seconds, possibly negative, with a fraction.
pub(super) fn parse_time(text: &str) -> Option<Stamp> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let secs: i64 = whole.parse().ok().filter(|secs| *secs >= 0)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(match (sign, nanos) {
        (-1, 0) => Stamp { secs: -secs, nanos: 0 },
        (-1, nanos) => Stamp { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
        _ => Stamp { secs, nanos },
    })
}

/// Parses `user::rwx,user:joe:r-x:1000,…`; a name is used only if its id follows.
pub(super) fn parse_acl(text: &str) -> Option<Vec<PosixEntry>> {
    let mut acl = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        let mut parts = entry.split(':');
        let (tag, who, perm) = (parts.next()?, parts.next()?, parts.next()?);
        let id = || parts.next().unwrap_or(who).parse::<u32>().ok();
        let who = match (tag, who.is_empty()) {
            ("user" | "u", true) => PosixWho::UserObj,
            ("group" | "g", true) => PosixWho::GroupObj,
            ("user" | "u", false) => PosixWho::User({ id }()?),
            ("group" | "g", false) => PosixWho::Group({ id }()?),
            ("mask" | "m", true) => PosixWho::Mask,
            ("other" | "o", true) => PosixWho::Other,
            _ => return None,
        };
        let mut bits = 0;
        for c in perm.split('#').next().unwrap_or(perm).trim().chars() {
            bits |= match c {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            };
        }
        acl.push(PosixEntry { who, perm: bits });
    }
    // The order of Linux.
    let rank = |entry: &PosixEntry| match entry.who {
        PosixWho::UserObj => (0, 0),
        PosixWho::User(id) => (1, id),
        PosixWho::GroupObj => (2, 0),
        PosixWho::Group(id) => (3, id),
        PosixWho::Mask => (4, 0),
        PosixWho::Other => (5, 0),
    };
    acl.sort_by_key(rank);
    (!acl.is_empty()).then_some(acl)
}
