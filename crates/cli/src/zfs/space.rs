//! `zfs userspace`, `groupspace`, `projectspace`.

use super::session::tell_warnings;
use super::{complain, reading};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values::ABSENT;
use admin::verbs::Refused as _;
use admin::verbs::zfs::space::{Field, OwnerKind, Refusal, Request, Row, SortKey};
use format::nicenum::{nicebytes, nicenum};
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
    sort: Vec<SortKey>,
    kinds: Vec<OwnerKind>,
}

/// The kinds that `-t` names, in the order of the usage.
const NAMED: [(OwnerKind, &str); 4] = [
    (OwnerKind::PosixUser, "posixuser"),
    (OwnerKind::SmbUser, "smbuser"),
    (OwnerKind::PosixGroup, "posixgroup"),
    (OwnerKind::SmbGroup, "smbgroup"),
];

fn title(kind: OwnerKind) -> &'static str {
    match kind {
        OwnerKind::PosixUser => "POSIX User",
        OwnerKind::SmbUser => "SMB User",
        OwnerKind::PosixGroup => "POSIX Group",
        OwnerKind::SmbGroup => "SMB Group",
        OwnerKind::Project => "Project",
    }
}

pub(super) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    let (letters, kinds) = match subcommand {
        "userspace" => ("nHpo:s:S:t:i", vec![OwnerKind::PosixUser, OwnerKind::SmbUser]),
        "groupspace" => ("nHpo:s:S:t:i", vec![OwnerKind::PosixGroup, OwnerKind::SmbGroup]),
        _ => ("Hpo:s:S:", vec![OwnerKind::Project]),
    };
    let mut walk = Getopt::new(args, letters, &[]);
    let mut options = Options {
        scripted: false,
        exact: false,
        numeric: false,
        fields: FIELDS.iter().map(|(name, ..)| *name).collect(),
        sort: Vec::new(),
        kinds,
    };
    while let Some((letter, value)) = walk.next()? {
        let text = || value.clone().unwrap_or_default().to_string_lossy().into_owned();
        match letter {
            'n' => options.numeric = true,
            'H' => options.scripted = true,
            'p' => options.exact = true,
            'o' => options.fields = text().split(',').map(field).collect::<Result<_, _>>()?,
            's' | 'S' => {
                options.sort.push(SortKey { field: sort_field(&text())?, descending: letter == 'S' });
            }
            't' => options.kinds = text().split(',').map(kinds_of).collect::<Result<Vec<_>, _>>()?.concat(),
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
    let request = Request {
        filesystem: super::operand(name),
        kinds: std::mem::take(&mut options.kinds),
        numeric: options.numeric,
        sort: std::mem::take(&mut options.sort),
    };
    let mut session = reading();
    let outcome = session.run(&request);
    tell_warnings(&mut session);
    match outcome {
        Ok(answer) => {
            out.print(&text(&options, &answer.rows, out));
            Ok(0)
        }
        Err(refusal @ Refusal::Space { .. }) if refusal.reason().is_denied() => {
            complain(&refusal.to_string());
            Err(Stop::Code(super::properties::MINUS_ONE))
        }
        Err(refusal) => Err(Stop::failed(refusal)),
    }
}

fn field(name: &str) -> Result<&'static str, Stop> {
    let known = FIELDS.iter().map(|(known, ..)| *known).find(|known| *known == name);
    known.ok_or_else(|| invalid(name, 'o'))
}

fn sort_field(name: &str) -> Result<Field, Stop> {
    Ok(match name {
        "type" => Field::Kind,
        "name" => Field::Name,
        "used" => Field::Used,
        "quota" => Field::Quota,
        "objused" => Field::Objects,
        "objquota" => Field::ObjectQuota,
        _ => return Err(Stop::usage(format!("invalid field '{name}'"))),
    })
}

/// What a word of `-t` names.
fn kinds_of(name: &str) -> Result<Vec<OwnerKind>, Stop> {
    let named = NAMED.iter().filter(|(_, known)| name == "all" || *known == name);
    let found: Vec<OwnerKind> = named.map(|(one, _)| *one).collect();
    if found.is_empty() { Err(invalid(name, 't')) } else { Ok(found) }
}

fn invalid(name: &str, letter: char) -> Stop {
    complain(&format!("invalid type '{name}' for -{letter} option"));
    Stop::Code(super::properties::MINUS_ONE)
}

fn text(options: &Options, rows: &[Row], out: &Out) -> String {
    let columns = options
        .fields
        .iter()
        .filter_map(|f| FIELDS.iter().find(|(name, ..)| name == f))
        .map(|(_, header, right)| Column::new(*header, *right))
        .collect();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| options.fields.iter().map(|f| cell(options, row, f)).collect()).collect();
    table::whole(out, columns, &cells, options.scripted)
}

fn cell(options: &Options, row: &Row, field: &str) -> String {
    let space = &row.space;
    let limit = |value: Option<u64>, nice: fn(u64) -> String| match value {
        None => ABSENT.to_owned(),
        Some(n) if options.exact => n.to_string(),
        Some(0) => "none".into(),
        Some(n) => nice(n),
    };
    match field {
        "type" => title(row.kind).to_owned(),
        "name" => row.name.clone().unwrap_or_else(|| space.id.to_string()),
        "used" => match space.used {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicebytes(n),
        },
        "quota" => limit(space.quota, nicebytes),
        "objused" => match space.objects {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicenum(n),
        },
        _ => limit(space.object_quota, nicenum),
    }
}
