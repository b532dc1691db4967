//! `zpool get`: properties of pools, and of their vdevs.

use super::{JSON_LONG, JsonOptions, json_answer, json_facts, tell_problems_as, texts, unread, unread_as};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use crate::vdevs::Names;
use admin::verbs::zpool::get::{Answer, PoolRow, Request, VdevRow};
use admin::{PoolFacts, Problem};
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
    let properties: Vec<String> = operands.remove(0).split(',').map(str::to_owned).collect();
    crate::values::check_number(properties.len())?;
    let request = Request { properties, operands };
    request.check().map_err(|refusal| unread(&refusal))?;
    let words = |problem: &Problem| match problem.is_missing_pool() {
        true => format!("Cannot get properties of {}: no such pool available.", problem.what),
        false => problem.to_string(),
    };
    let answer = super::reading().run(&request).map_err(|refusal| unread_as(&refusal, &words))?;
    match answer {
        Answer::Vdevs { pool, vdevs } => {
            of_vdevs(&options, &pool, &vdevs, out);
            Ok(0)
        }
        Answer::Pools { pools, problems } => {
            let code = tell_problems_as(&problems, &words);
            if pools.is_empty() && request.operands.is_empty() && code == 0 && !options.json.on {
                out.print("no pools available\n");
            }
            of_pools(&options, &pools, out);
            Ok(code)
        }
    }
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

fn of_pools(options: &Options, pools: &[PoolRow], out: &Out) {
    let mut lines = Vec::new();
    let mut all = Map::new();
    let mut width = 0;
    for pool in pools {
        let mut properties = Map::new();
        for (name, property) in &pool.properties {
            let value = values::pool(name, &property.value, options.exact);
            properties.insert(name.clone(), values::json(&value, property, options.json.int));
            width = width.max(least_width(name, prop::pool(name)));
            lines.push(Line {
                name: pool.facts.name.clone(),
                source: values::source(&property.source),
                property: name.clone(),
                value,
            });
        }
        let mut map = json_facts(&pool.facts, true, options.json.int);
        map.insert("properties".into(), Json::Object(properties));
        all.insert(options.json.key(&pool.facts), Json::Object(map));
    }
    if options.json.on {
        out.print(&json_answer("zpool get", "pools", all));
    } else if !lines.is_empty() {
        out.print(&text(options, &lines, width, out));
    }
}

/// The width that a property asks of the VALUE column.
fn least_width(name: &str, known: Option<&prop::Prop>) -> usize {
    known.map_or(name.len(), prop::Prop::width)
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

fn of_vdevs(options: &Options, pool: &PoolFacts, vdevs: &[VdevRow], out: &Out) {
    let mut lines = Vec::new();
    let mut objects = Map::new();
    let mut width = 0;
    for VdevRow { vdev, properties: found } in vdevs {
        let name = if vdev.pool_name.is_some() { "root-0".to_owned() } else { Names::from_env().of(vdev) };
        let mut properties = Map::new();
        for (property_name, property) in found {
            let value = values::vdev(property_name, &property.value, options.exact);
            width = width.max(least_width(property_name, prop::vdev(property_name)));
            properties.insert(property_name.clone(), values::json(&value, property, options.json.int));
            let source = values::source(&property.source);
            lines.push(Line { name: name.clone(), property: property_name.clone(), value, source });
        }
        objects.insert(name.clone(), json!({"name": name, "properties": properties}));
    }
    if options.json.on {
        let mut map = json_facts(pool, true, options.json.int);
        map.insert("vdevs".into(), Json::Object(objects));
        let mut all = Map::new();
        all.insert(options.json.key(pool), Json::Object(map));
        out.print(&json_answer("zpool get", "pools", all));
    } else {
        out.print(&text(options, &lines, width, out));
    }
}
