//! `zfs userspace`, `groupspace`, `projectspace`.

use super::{complain, open_message};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values::ABSENT;
use cenote::admin::{self, Kind, Owner, SpaceRow};
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
    owner: Owner,
    scripted: bool,
    exact: bool,
    numeric: bool,
    /// `-i`: Windows identities as the POSIX ids that they map to.
    posix: bool,
    fields: Vec<&'static str>,
    sort: Vec<(&'static str, bool)>,
    /// POSIX and Windows identities.
    types: (bool, bool),
}

pub(super) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    let owner = match subcommand {
        "userspace" => Owner::User,
        "groupspace" => Owner::Group,
        _ => Owner::Project,
    };
    let letters = if owner == Owner::Project { "Hpo:s:S:" } else { "nHpo:s:S:t:i" };
    let mut walk = Getopt::new(args, letters, &[]);
    let mut options = Options {
        owner,
        scripted: false,
        exact: false,
        numeric: false,
        posix: false,
        fields: FIELDS.iter().map(|(name, ..)| *name).collect(),
        sort: Vec::new(),
        types: (true, true),
    };
    while let Some((letter, value)) = walk.next()? {
        let text = || value.clone().unwrap_or_default().to_string_lossy().into_owned();
        match letter {
            'n' => options.numeric = true,
            'H' => options.scripted = true,
            'p' => options.exact = true,
            'i' => options.posix = true,
            'o' => options.fields = text().split(',').map(field).collect::<Result<_, _>>()?,
            's' | 'S' => options.sort.push((sort_field(&text())?, letter == 'S')),
            't' => options.types = types(owner, &text())?,
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset name")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let rows = rows(owner, name)?;
    out.print(&text(&options, rows, out));
    Ok(0)
}

fn field(name: &str) -> Result<&'static str, Stop> {
    let known = FIELDS.iter().map(|(known, ..)| *known).find(|known| *known == name);
    known.ok_or_else(|| Stop::usage(format!("invalid column name '{name}'")))
}

fn sort_field(name: &str) -> Result<&'static str, Stop> {
    let known = FIELDS.iter().map(|(known, ..)| *known).find(|known| *known == name);
    known.ok_or_else(|| Stop::usage(format!("invalid property name '{name}'")))
}

fn types(owner: Owner, list: &str) -> Result<(bool, bool), Stop> {
    let (posix, smb) =
        if owner == Owner::Group { ("posixgroup", "smbgroup") } else { ("posixuser", "smbuser") };
    let mut types = (false, false);
    for word in list.split(',') {
        match word {
            "all" => types = (true, true),
            w if w == posix => types.0 = true,
            w if w == smb => types.1 = true,
            other => return Err(Stop::usage(format!("invalid type '{other}'"))),
        }
    }
    Ok(types)
}

fn rows(owner: Owner, name: &str) -> Result<Vec<SpaceRow>, Stop> {
    let pool = name.split(['/', '@', '#']).next().unwrap_or_default().to_owned();
    let by_path = name.starts_with('/');
    let names = if by_path { Vec::new() } else { vec![pool] };
    let (pools, problems) = admin::open_pools(&crate::search::from_env(), &names);
    let mut broken = false;
    for problem in problems.iter().filter(|p| !p.is_missing_pool()) {
        complain(&problem.to_string());
        broken = true;
    }
    let entry = match admin::find(&pools, name) {
        Ok(entry) => entry,
        Err(_) if broken => return Err(Stop::Failed(None)),
        Err(e) => return Err(Stop::failed(open_message(name, &e))),
    };
    if !matches!(entry.kind(), Kind::Filesystem | Kind::Snapshot) || entry.is_volume_snapshot() {
        let why = "operation not applicable to datasets of this type";
        return Err(Stop::failed(format!("cannot open '{name}': {why}")));
    }
    entry.space(owner).map_err(|e| Stop::failed(format!("cannot get used/quota for {name}: {e}")))
}

/// A row with its owner's name.
struct Named {
    row: SpaceRow,
    smb: bool,
    name: String,
}

fn text(options: &Options, rows: Vec<SpaceRow>, out: &Out) -> String {
    let names = admin::owner_names(options.owner);
    let mut named: Vec<Named> = Vec::new();
    for row in rows {
        let smb = row.domain.is_some();
        if if smb { !options.types.1 } else { !options.types.0 } {
            continue;
        }
        let name = match &row.domain {
            Some(domain) => format!("{domain}-{}", row.id),
            None => match names.get(&row.id) {
                Some(name) if !options.numeric => name.clone(),
                _ => row.id.to_string(),
            },
        };
        named.push(Named { row, smb, name });
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

/// By the keys asked for; then by type and number.
fn order(options: &Options, a: &Named, b: &Named) -> Ordering {
    for (field, reverse) in &options.sort {
        let by = match *field {
            "type" => a.smb.cmp(&b.smb),
            "name" if options.numeric => a.row.id.cmp(&b.row.id),
            "name" => a.name.cmp(&b.name),
            "used" => a.row.used.cmp(&b.row.used),
            "quota" => a.row.quota.cmp(&b.row.quota),
            "objused" => a.row.objects.cmp(&b.row.objects),
            _ => a.row.object_quota.cmp(&b.row.object_quota),
        };
        let by = if *reverse { by.reverse() } else { by };
        if by != Ordering::Equal {
            return by;
        }
    }
    (a.smb, &a.row.domain, a.row.id).cmp(&(b.smb, &b.row.domain, b.row.id))
}

fn cell(options: &Options, named: &Named, field: &str) -> String {
    let row = &named.row;
    let limit = |value: Option<u64>| match value {
        None => ABSENT.to_owned(),
        Some(n) if options.exact => n.to_string(),
        Some(0) => "none".into(),
        Some(n) => nicenum(n),
    };
    match field {
        "type" => match (options.owner, named.smb) {
            (Owner::User, false) => "POSIX User",
            (Owner::User, true) => "SMB User",
            (Owner::Group, false) => "POSIX Group",
            (Owner::Group, true) => "SMB Group",
            (Owner::Project, _) => "Project",
        }
        .to_owned(),
        "name" => named.name.clone(),
        "used" => match row.used {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicebytes(n),
        },
        "quota" => limit(row.quota),
        "objused" => match row.objects {
            None => ABSENT.to_owned(),
            Some(n) if options.exact => n.to_string(),
            Some(n) => nicenum(n),
        },
        _ => limit(row.object_quota),
    }
}
