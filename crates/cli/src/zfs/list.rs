//! `zfs list`.

use super::{Common, JSON_LONG, json_dataset, known_property, reading, tell_unopened};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use admin::verbs::zfs::DatasetRow;
use admin::verbs::zfs::list::{Request, SortKey};
use format::prop;
use serde_json::{Map, Value as Json};
use std::ffi::OsString;

const DEFAULT: &str = "name,used,available,referenced,mountpoint";
const SPACE: &str = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

struct Options {
    common: Common,
    columns: Vec<String>,
    sort: Vec<SortKey>,
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
                options.sort.push(SortKey { property: known, descending: letter == 'S' });
            }
            _ => options.common.take(letter, value)?,
        }
    }
    options.common.check()?;
    options.columns = columns(&list)?;
    let operands = crate::zpool::texts(&walk.operands());
    let request = Request {
        selection: options.common.selection(&operands),
        properties: options.columns.clone(),
        sort: std::mem::take(&mut options.sort),
    };
    let answer = reading().run(&request).map_err(Stop::failed)?;
    let code = tell_unopened(&answer.unopened);
    let rows = &answer.datasets;
    if options.common.json {
        out.print(&json(&options, rows));
    } else if rows.is_empty() {
        if code == 0 && !options.common.scripted {
            say_error_line!("no datasets available");
        }
    } else {
        out.print(&text(&options, rows, out));
    }
    Ok(code)
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
    crate::values::check_number(columns.len())?;
    Ok(columns)
}

fn bad(name: &str) -> Stop {
    Stop::usage(format!("bad property list: invalid property '{name}'"))
}

fn text(options: &Options, datasets: &[DatasetRow], out: &Out) -> String {
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
    let cells = |row: &DatasetRow| -> Vec<String> {
        let values = row.properties.iter();
        values.map(|(name, property)| values::dataset(name, &property.value, options.common.exact)).collect()
    };
    let rows: Vec<Vec<String>> = datasets.iter().map(cells).collect();
    table::whole(out, columns, &rows, options.common.scripted)
}

fn json(options: &Options, datasets: &[DatasetRow]) -> String {
    let mut all = Map::new();
    for row in datasets {
        let mut map = json_dataset(row, options.common.int);
        let mut properties = Map::new();
        for (name, property) in row.properties.iter().filter(|(name, _)| name != "name") {
            let text = values::dataset(name, &property.value, options.common.exact);
            properties.insert(name.clone(), values::json(&text, property, options.common.int));
        }
        map.insert("properties".into(), Json::Object(properties));
        all.insert(row.name.clone(), Json::Object(map));
    }
    crate::zpool::json_answer("zfs list", "datasets", all)
}
