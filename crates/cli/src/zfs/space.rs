//! `zfs userspace`, `groupspace`, `projectspace`.

use super::{complain, open_message};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values::ABSENT;
use admin::edit::{self, EditError};
use admin::{self, Kind, Owner, SpaceRow};
use format::nicenum::{nicebytes, nicenum};
use std::cmp::Ordering;
use std::ffi::OsString;

const FIELDS: [(&str, &str, bool); 6] = [
    ("type", "TYPE", false),
    ("name", "NAME", false),
    ("used", "USED", true),
    ("quota", "QUOTA", true),
    ("objused", "OBJUSED", true),
    ("objquota", "OBJQUOTA", true),
];

struct Options {
    scripted: bool,
    exact: bool,
    numeric: bool,
    fields: Vec<&'static str>,
    sort: Vec<(&'static str, bool)>,
    types: Vec<Type>,
}

/// Whose space, and whether they are POSIX or Windows identities. In the order of the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    PosixGroup,
    PosixUser,
    SmbGroup,
    SmbUser,
    Project,
}

impl Type {
    /// Those that `-t` names, in the order of the usage.
    const NAMED: [(Type, &'static str); 4] = [
        (Type::PosixUser, "posixuser"),
        (Type::SmbUser, "smbuser"),
        (Type::PosixGroup, "posixgroup"),
        (Type::SmbGroup, "smbgroup"),
    ];

    fn of(row: &SpaceRow) -> Type {
        match (row.owner, row.domain.is_some()) {
            (Owner::User, false) => Type::PosixUser,
            (Owner::User, true) => Type::SmbUser,
            (Owner::Group, false) => Type::PosixGroup,
            (Owner::Group, true) => Type::SmbGroup,
            (Owner::Project, _) => Type::Project,
        }
    }

    fn owner(self) -> Owner {
        match self {
            Type::PosixUser | Type::SmbUser => Owner::User,
            Type::PosixGroup | Type::SmbGroup => Owner::Group,
            Type::Project => Owner::Project,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Type::PosixUser => "POSIX User",
            Type::SmbUser => "SMB User",
            Type::PosixGroup => "POSIX Group",
            Type::SmbGroup => "SMB Group",
            Type::Project => "Project",
        }
    }
}

pub(super) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    let (letters, types) = match subcommand {
        "userspace" => ("nHpo:s:S:t:i", vec![Type::PosixUser, Type::SmbUser]),
        "groupspace" => ("nHpo:s:S:t:i", vec![Type::PosixGroup, Type::SmbGroup]),
        _ => ("Hpo:s:S:", vec![Type::Project]),
    };
    let mut walk = Getopt::new(args, letters, &[]);
    let mut options = Options {
        scripted: false,
        exact: false,
        numeric: false,
        fields: FIELDS.iter().map(|(name, ..)| *name).collect(),
        sort: Vec::new(),
        types,
    };
    while let Some((letter, value)) = walk.next()? {
        let text = || value.clone().unwrap_or_default().to_string_lossy().into_owned();
        match letter {
            'n' => options.numeric = true,
            'H' => options.scripted = true,
            'p' => options.exact = true,
            'o' => options.fields = text().split(',').map(field).collect::<Result<_, _>>()?,
            's' | 'S' => options.sort.push((sort_field(&text())?, letter == 'S')),
            't' => options.types = text().split(',').map(types_of).collect::<Result<Vec<_>, _>>()?.concat(),
            // Windows identities have no POSIX ids to be shown as.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let name = match &operands[..] {
        [] => return Err(Stop::usage("")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let rows = rows(&options.types, name)?;
    out.print(&text(&options, rows, out));
    Ok(0)
}

fn field(name: &str) -> Result<&'static str, Stop> {
    let known = FIELDS.iter().map(|(known, ..)| *known).find(|known| *known == name);
    known.ok_or_else(|| invalid(name, 'o'))
}

fn sort_field(name: &str) -> Result<&'static str, Stop> {
    let known = FIELDS.iter().map(|(known, ..)| *known).find(|known| *known == name);
    known.ok_or_else(|| Stop::usage(format!("invalid field '{name}'")))
}

/// What a word of `-t` names.
fn types_of(name: &str) -> Result<Vec<Type>, Stop> {
    let named = Type::NAMED.iter().filter(|(_, known)| name == "all" || *known == name);
    let found: Vec<Type> = named.map(|(one, _)| *one).collect();
    if found.is_empty() { Err(invalid(name, 't')) } else { Ok(found) }
}

fn invalid(name: &str, letter: char) -> Stop {
    complain(&format!("invalid type '{name}' for -{letter} option"));
    Stop::Code(super::properties::MINUS_ONE)
}

fn rows(types: &[Type], name: &str) -> Result<Vec<SpaceRow>, Stop> {
    let pool = name.split(['/', '@', '#']).next().unwrap_or_default().to_owned();
    let by_path = name.starts_with('/');
    let names = if by_path { Vec::new() } else { vec![pool] };
    let search = crate::search::from_env();
    let (pools, problems) = admin::open_pools(&search, &names);
    let mut broken = false;
    for problem in problems.iter().filter(|p| !p.is_missing_pool()) {
        complain(&problem.to_string());
        broken = true;
    }
    let entry = match super::find(&pools, name) {
        Ok(entry) => entry,
        Err(_) if broken => return Err(Stop::Failed(None)),
        Err(e) => return Err(Stop::failed(open_message(name, &e))),
    };
    if !matches!(entry.kind(), Kind::Filesystem | Kind::Snapshot) || entry.is_volume_snapshot() {
        let why = "operation not applicable to datasets of this type";
        return Err(Stop::failed(format!("cannot open '{name}': {why}")));
    }
    let mut rows = Vec::new();
    for (owner, word) in [(Owner::User, "user"), (Owner::Group, "group"), (Owner::Project, "project")] {
        if types.iter().any(|one| one.owner() == owner) {
            let needed = ["used", "quota", "objused", "objquota"].map(|what| format!("{word}{what}"));
            let needed = needed.each_ref().map(String::as_str);
            let pool = pools.iter().find(|pool| edit::pool_of(entry.name()) == pool.name());
            let may = pool.map_or(Ok(()), |pool| edit::may(&search, pool.pool(), entry.name(), &needed));
            if let Err(error @ (EditError::Denied | EditError::DelegationOff)) = may {
                complain(&format!("cannot get used/quota for {name}: {error}"));
                return Err(Stop::Code(super::properties::MINUS_ONE));
            }
            let found = entry.space(owner);
            rows.extend(found.map_err(|e| Stop::failed(format!("cannot get used/quota for {name}: {e}")))?);
        }
    }
    rows.retain(|row| types.contains(&Type::of(row)));
    Ok(rows)
}

/// A row with its owner's name.
struct Named {
    row: SpaceRow,
    kind: Type,
    /// Nobody has given the owner a name.
    is_number: bool,
    name: String,
}

fn text(options: &Options, rows: Vec<SpaceRow>, out: &Out) -> String {
    let names = [Owner::User, Owner::Group, Owner::Project].map(|owner| (owner, admin::owner_names(owner)));
    let name_of = |row: &SpaceRow| {
        let known = names.iter().find(|(owner, _)| *owner == row.owner);
        known.and_then(|(_, names)| names.get(&row.id)).filter(|_| !options.numeric)
    };
    let mut named: Vec<Named> = Vec::new();
    for row in rows {
        let known = if row.domain.is_none() { name_of(&row) } else { None };
        let name = match (&row.domain, known) {
            (Some(domain), _) => format!("{domain}-{}", row.id),
            (None, Some(name)) => name.clone(),
            (None, None) => row.id.to_string(),
        };
        let is_number = row.domain.is_none() && known.is_none();
        named.push(Named { kind: Type::of(&row), is_number, name, row });
    }
    named.sort_by(|a, b| order(options, a, b));
    let columns = options
        .fields
        .iter()
        .filter_map(|f| FIELDS.iter().find(|(name, ..)| name == f))
        .map(|(_, header, right)| Column::new(*header, *right))
        .collect();
    let cells: Vec<Vec<String>> =
        named.iter().map(|n| options.fields.iter().map(|f| cell(options, n, f)).collect()).collect();
    table::whole(out, columns, &cells, options.scripted)
}

/// By the keys asked for; then by type and name, those without a name last and by number.
fn order(options: &Options, a: &Named, b: &Named) -> Ordering {
    for (field, reverse) in &options.sort {
        let by = match *field {
            "type" => a.kind.cmp(&b.kind),
            "name" => by_name(a, b),
            "used" => a.row.used.unwrap_or(0).cmp(&b.row.used.unwrap_or(0)),
            "quota" => a.row.quota.unwrap_or(0).cmp(&b.row.quota.unwrap_or(0)),
            "objused" => a.row.objects.unwrap_or(0).cmp(&b.row.objects.unwrap_or(0)),
            _ => a.row.object_quota.unwrap_or(0).cmp(&b.row.object_quota.unwrap_or(0)),
        };
        let by = if *reverse { by.reverse() } else { by };
        if by != Ordering::Equal {
            return by;
        }
    }
    a.kind.cmp(&b.kind).then_with(|| by_name(a, b))
}

fn by_name(a: &Named, b: &Named) -> Ordering {
    a.is_number.cmp(&b.is_number).then_with(|| match a.is_number {
        true => a.row.id.cmp(&b.row.id),
        false => a.name.cmp(&b.name),
    })
}

fn cell(options: &Options, named: &Named, field: &str) -> String {
    let row = &named.row;
    let limit = |value: Option<u64>, nice: fn(u64) -> String| match value {
        None => ABSENT.to_owned(),
        Some(n) if options.exact => n.to_string(),
        Some(0) => "none".into(),
        Some(n) => nice(n),
    };
    match field {
        "type" => named.kind.title().to_owned(),
        "name" => named.name.clone(),
        "used" => match row.used {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicebytes(n),
        },
        "quota" => limit(row.quota, nicebytes),
        "objused" => match row.objects {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicenum(n),
        },
        _ => limit(row.object_quota, nicenum),
    }
}
