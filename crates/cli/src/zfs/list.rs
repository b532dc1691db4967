//! `zfs list`.

use super::{ALL_KINDS, Common, Depth, JSON_LONG, Selection, json_entry, known_property, select};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use admin::{Entry, Kind, Property, Source, Value};
use format::prop;
use serde_json::{Map, Value as Json};
use std::cmp::Ordering;
use std::ffi::OsString;

const DEFAULT: &str = "name,used,available,referenced,mountpoint";
const SPACE: &str = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

struct Options {
    common: Common,
    columns: Vec<String>,
    sort: Vec<(String, bool)>,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "jHS:d:o:prs:t:", JSON_LONG);
    let mut options = Options { common: Common::new(), columns: Vec::new(), sort: Vec::new() };
    let mut list = DEFAULT.to_owned();
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'o' => list = value.unwrap_or_default().to_string_lossy().into_owned(),
            's' | 'S' => {
                let name = value.unwrap_or_default().to_string_lossy().into_owned();
                let known =
                    known_property(&name).ok_or_else(|| Stop::usage(format!("invalid property '{name}'")))?;
                options.sort.push((known, letter == 'S'));
            }
            _ => options.common.take(letter, value)?,
        }
    }
    options.common.check()?;
    options.columns = columns(&list)?;
    let operands = crate::zpool::texts(&walk.operands());
    let depth = options.common.depth;
    let default = if operands.is_empty() || depth != Depth::Own {
        vec![Kind::Filesystem, Kind::Volume]
    } else {
        ALL_KINDS.to_vec()
    };
    let given = options.common.kinds.is_some();
    let kinds = options.common.kinds.take().unwrap_or(default);
    let selected = select(&Selection {
        operands: &operands,
        kinds: &kinds,
        depth,
        kinds_given: given,
        listsnapshots: operands.is_empty() || depth != Depth::Own,
        bookmarks: false,
    })?;
    let rows = sorted(&options, selected.entries)?;
    if options.common.json {
        out.print(&json(&options, &rows)?);
    } else if rows.is_empty() {
        if selected.code == 0 && !options.common.scripted {
            say_error_line!("no datasets available");
        }
    } else {
        out.print(&text(&options, &rows, out)?);
    }
    Ok(selected.code)
}

/// The columns that `-o` names.
fn columns(list: &str) -> Result<Vec<String>, Stop> {
    if list.is_empty() {
        return Err(Stop::usage("bad property list: no properties specified"));
    }
    let mut columns = Vec::new();
    let has_all = list.split(',').any(|name| name == "all");
    for name in list.split(',') {
        match name {
            "all" => {
                columns.push("name".to_owned());
                columns.extend(prop::DATASET.iter().filter(|p| p.visible).map(|p| p.name.to_owned()));
            }
            // A set of columns, which the set of all leaves no room for.
            "space" if !has_all => columns.extend(SPACE.split(',').map(str::to_owned)),
            "space" => return Err(bad(name)),
            _ => columns.push(known_property(name).ok_or_else(|| bad(name))?),
        }
    }
    Ok(columns)
}

fn bad(name: &str) -> Stop {
    Stop::usage(format!("bad property list: invalid property '{name}'"))
}

/// The property, or nothing where it does not apply.
pub(super) fn property(entry: &Entry, name: &str) -> Result<Property, Stop> {
    if name == "name" {
        return Ok(Property::computed(entry.name()));
    }
    let found = entry.property(name).map_err(|e| Stop::failed(format!("{}: {e}", entry.name())))?;
    Ok(found.unwrap_or(Property { value: Value::Absent, source: Source::None, received: None }))
}

/// Sorts by the keys asked for, then in the order of a listing: snapshots with their dataset, as they were taken. Names
/// as a key are plain bytes: `a-b@s` before `a@s`.
fn sorted(options: &Options, mut entries: Vec<Entry>) -> Result<Vec<Entry>, Stop> {
    super::sort(&mut entries);
    let mut keyed = Vec::new();
    for entry in entries {
        let mut keys = Vec::new();
        for (name, _) in &options.sort {
            keys.push(property(&entry, name)?.value);
        }
        keyed.push((keys, entry));
    }
    // Stable: equal keys stay in the order of the listing, also of a reversed one.
    keyed.sort_by(|(a, _), (b, _)| {
        let by = options
            .sort
            .iter()
            .zip(a.iter().zip(b))
            .map(|((name, reverse), (x, y))| compare(name, x, y, *reverse));
        by.fold(Ordering::Equal, Ordering::then)
    });
    Ok(keyed.into_iter().map(|(_, entry)| entry).collect())
}

/// Values before missing ones, in either direction; numbers by size, everything else by its text.
fn compare(name: &str, a: &Value, b: &Value, reverse: bool) -> Ordering {
    let by = match (a, b) {
        (Value::Absent, Value::Absent) => return Ordering::Equal,
        (Value::Absent, _) => return Ordering::Greater,
        (_, Value::Absent) => return Ordering::Less,
        (Value::Number(x), Value::Number(y))
            if prop::dataset(name).is_none_or(|p| p.kind != prop::Kind::Index) =>
        {
            x.cmp(y)
        }
        _ => values::dataset(name, a, true).cmp(&values::dataset(name, b, true)),
    };
    if reverse { by.reverse() } else { by }
}

fn text(options: &Options, entries: &[Entry], out: &Out) -> Result<String, Stop> {
    let mut columns = Vec::new();
    for name in &options.columns {
        columns.push(match prop::dataset(name) {
            Some(p) => {
                let mut column = Column::new(p.column, p.right_aligned);
                column.width = p.width();
                column.fixed = !options.common.exact && values::is_ratio(p.name);
                column
            }
            // A user property is headed by its name, and so is one per owner; the latter are numbers.
            None => Column::new(name.to_uppercase(), !prop::is_user(name)),
        });
    }
    let mut rows = Vec::new();
    for entry in entries {
        let mut row = Vec::new();
        for name in &options.columns {
            row.push(values::dataset(name, &property(entry, name)?.value, options.common.exact));
        }
        rows.push(row);
    }
    Ok(table::whole(out, columns, &rows, options.common.scripted))
}

fn json(options: &Options, entries: &[Entry]) -> Result<String, Stop> {
    let mut all = Map::new();
    for entry in entries {
        let mut map = json_entry(entry, options.common.int);
        let mut properties = Map::new();
        for name in options.columns.iter().filter(|n| *n != "name") {
            let property = property(entry, name)?;
            let text = values::dataset(name, &property.value, options.common.exact);
            properties.insert(name.clone(), values::json(&text, &property, options.common.int));
        }
        map.insert("properties".into(), Json::Object(properties));
        all.insert(entry.name().to_owned(), Json::Object(map));
    }
    Ok(crate::zpool::json_answer("zfs list", "datasets", all))
}
