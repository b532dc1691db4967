//! `zpool get`: properties of pools, and of their vdevs.

use super::list::{Wanted, property, wanted};
use super::{JSON_LONG, JsonOptions, json_answer, json_facts, open_saying, texts};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use crate::vdevs::Names;
use admin::{self, OpenPool, Problem, Property, Source, Value, Vdev};
use format::prop;
use serde_json::{Map, Value as Json, json};
use std::ffi::OsString;

/// Columns of `get` and their headers, in the order in which `-o all` prints them.
pub(crate) const FIELDS: [(&str, &str); 5] = [
    ("name", "NAME"),
    ("property", "PROPERTY"),
    ("value", "VALUE"),
    ("received", "RECEIVED"),
    ("source", "SOURCE"),
];

struct Options {
    scripted: bool,
    exact: bool,
    fields: Vec<&'static str>,
    json: JsonOptions,
}

/// One line of the answer.
struct Line {
    name: String,
    property: String,
    value: String,
    source: String,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "jHpo:", JSON_LONG);
    let mut options = Options {
        scripted: false,
        exact: false,
        fields: vec!["name", "property", "value", "source"],
        json: JsonOptions::default(),
    };
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'H' => options.scripted = true,
            'p' => options.exact = true,
            'o' => options.fields = fields(&value.unwrap_or_default().to_string_lossy(), false)?,
            other => {
                options.json.take(other);
            }
        }
    }
    options.json.check()?;
    options.exact |= options.json.int;
    let mut operands = texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage("missing property argument"));
    }
    let list = operands.remove(0);
    // The second word may be a vdev of the first: then all of them are.
    let for_vdevs = operands.len() > 1 && vdev_properties(&list, &Vec::new).is_ok();
    if let Err(stop) = wanted(&list, &Vec::new)
        && !for_vdevs
    {
        return Err(stop);
    }
    let words = |problem: &Problem| match problem.is_missing_pool() {
        true => format!("Cannot get properties of {}: no such pool available.", problem.what),
        false => problem.to_string(),
    };
    if let [name, vdevs @ ..] = &operands[..]
        && let Some(first) = vdevs.first()
    {
        let (pools, _) = admin::open_pools(&crate::search::from_env(), std::slice::from_ref(name));
        if let [pool] = &pools[..]
            && (first == "all-vdevs" || admin::find_vdev(pool, first).map_err(Stop::failed)?.is_some())
        {
            return of_vdevs(&options, &list, pool, vdevs, out);
        }
    }
    let opened = open_saying(&operands, &words);
    if opened.pools.is_empty() && operands.is_empty() && opened.code == 0 && !options.json.on {
        out.print("no pools available\n");
    }
    of_pools(&options, &list, &opened.pools, out)?;
    Ok(opened.code)
}

/// The columns that `-o` names.
pub(crate) fn fields(list: &str, received: bool) -> Result<Vec<&'static str>, Stop> {
    if list == "all" {
        return Ok(FIELDS.iter().map(|(name, _)| *name).filter(|f| received || *f != "received").collect());
    }
    let find = |name: &str| FIELDS.iter().map(|(known, _)| *known).find(|known| *known == name);
    list.split(',')
        .map(|name| match find(name) {
            Some(field) if received || field != "received" => Ok(field),
            _ => Err(Stop::usage(format!("invalid column name '{name}'"))),
        })
        .collect()
}

fn of_pools(options: &Options, list: &str, pools: &[OpenPool], out: &Out) -> Result<(), Stop> {
    let mut lines = Vec::new();
    let mut all = Map::new();
    let mut width = 0;
    for pool in pools {
        let facts = admin::pool_facts(pool).map_err(Stop::failed)?;
        let names = admin::pool_property_names(pool).map_err(Stop::failed)?;
        let mut properties = Map::new();
        for column in wanted(list, &|| names.clone())? {
            let property = property(pool, &column)?;
            let value = values::pool(&column.name, &property.value, options.exact);
            properties.insert(column.name.clone(), values::json(&value, &property, options.json.int));
            width = width.max(least_width(&column));
            lines.push(Line {
                name: facts.name.clone(),
                source: values::source(&property.source),
                property: column.name,
                value,
            });
        }
        let mut map = json_facts(&facts, true, options.json.int);
        map.insert("properties".into(), Json::Object(properties));
        all.insert(options.json.key(&facts), Json::Object(map));
    }
    if options.json.on {
        out.print(&json_answer("zpool get", "pools", all));
    } else if !lines.is_empty() {
        out.print(&text(options, &lines, width, out));
    }
    Ok(())
}

/// The width that a property asks of the VALUE column.
fn least_width(column: &Wanted) -> usize {
    column.known.map_or(column.name.len(), prop::Prop::width)
}

fn text(options: &Options, lines: &[Line], value_width: usize, out: &Out) -> String {
    let columns: Vec<Column> = options
        .fields
        .iter()
        .filter_map(|field| FIELDS.iter().find(|(name, _)| name == field))
        .map(|(name, header)| {
            let mut column = Column::new(*header, false);
            if *name == "value" {
                column.width = column.width.max(value_width);
            }
            column
        })
        .collect();
    let cell = |line: &Line, field: &str| match field {
        "name" => line.name.clone(),
        "property" => line.property.clone(),
        "value" => line.value.clone(),
        "source" => line.source.clone(),
        _ => values::ABSENT.to_owned(),
    };
    let rows: Vec<Vec<String>> =
        lines.iter().map(|line| options.fields.iter().map(|f| cell(line, f)).collect()).collect();
    table::whole(out, columns, &rows, options.scripted)
}

fn of_vdevs(options: &Options, list: &str, pool: &OpenPool, names: &[String], out: &Out) -> Outcome {
    let mut vdevs: Vec<Vdev> = Vec::new();
    for name in names {
        if name == "all-vdevs" {
            let tree = admin::vdevs(pool).map_err(Stop::failed)?;
            vdevs.extend(tree.root.walk().into_iter().filter(|v| v.kind != "hole").cloned());
        } else {
            let found = admin::find_vdev(pool, name).map_err(Stop::failed)?;
            vdevs.push(found.ok_or_else(|| Stop::failed(format!("no such vdev '{name}' in pool")))?);
        }
    }
    let mut lines = Vec::new();
    let mut objects = Map::new();
    let mut width = 0;
    for vdev in &vdevs {
        let name = if vdev.pool_name.is_some() { "root-0".to_owned() } else { Names::from_env().of(vdev) };
        let mut properties = Map::new();
        let all = admin::vdev_property_names(pool, vdev).map_err(Stop::failed)?;
        for property_name in vdev_properties(list, &|| all.clone())? {
            let found = admin::vdev_property(pool, vdev, &property_name).map_err(Stop::failed)?;
            let source = if prop::is_user(&property_name) { Source::Default } else { Source::None };
            let property = found.unwrap_or(Property { value: Value::Absent, source, received: None });
            let value = values::vdev(&property_name, &property.value, options.exact);
            width = width.max(prop::vdev(&property_name).map_or(property_name.len(), prop::Prop::width));
            properties.insert(property_name.clone(), values::json(&value, &property, options.json.int));
            let source = values::source(&property.source);
            lines.push(Line { name: name.clone(), property: property_name, value, source });
        }
        objects.insert(name.clone(), json!({"name": name, "properties": properties}));
    }
    if options.json.on {
        let facts = admin::pool_facts(pool).map_err(Stop::failed)?;
        let mut map = json_facts(&facts, true, options.json.int);
        map.insert("vdevs".into(), Json::Object(objects));
        let mut all = Map::new();
        all.insert(options.json.key(&facts), Json::Object(map));
        out.print(&json_answer("zpool get", "pools", all));
    } else {
        out.print(&text(options, &lines, width, out));
    }
    Ok(0)
}

/// The vdev properties that a list names; `all` stands for those of this vdev.
fn vdev_properties(list: &str, all: &dyn Fn() -> Vec<String>) -> Result<Vec<String>, Stop> {
    let mut names = Vec::new();
    for name in list.split(',') {
        if name == "all" {
            names.extend(all());
        } else if let Some(known) = prop::vdev(name) {
            names.push(known.name.to_owned());
        } else if prop::is_user(name) {
            names.push(name.to_owned());
        } else {
            return Err(Stop::usage(format!("bad property list: invalid property '{name}'")));
        }
    }
    Ok(names)
}
