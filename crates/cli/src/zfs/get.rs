//! `zfs get`.

use super::{Common, JSON_LONG, json_dataset, known_property, reading, tell_unopened};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use crate::zpool::get_fields;
use admin::verbs::zfs::DatasetRow;
use admin::verbs::zfs::get::{Request, Wanted};
use admin::{Property, Source};
use format::prop::{self, Prop};
use serde_json::{Map, Value as Json};
use std::ffi::OsString;

struct Options {
    common: Common,
    fields: Vec<&'static str>,
    sources: Vec<&'static str>,
}

const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

/// Columns at most.
const FIELDS_MAX: usize = 5;
/// A source is given the width of `inherited from` and a name like the dataset's own, wherever it comes from.
const INHERITED: usize = 14;

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "jd:o:s:jrt:Hp", JSON_LONG);
    let mut options = Options {
        common: Common::new(),
        fields: vec!["name", "property", "value", "source"],
        sources: SOURCES.to_vec(),
    };
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'o' => options.fields = fields(&value.unwrap_or_default().to_string_lossy())?,
            's' => options.sources = sources(&value.unwrap_or_default().to_string_lossy())?,
            _ => options.common.take(letter, value)?,
        }
    }
    options.common.check()?;
    let mut operands = crate::zpool::texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage("missing property argument"));
    }
    let properties = wanted(&operands.remove(0))?;
    let request = Request { selection: options.common.selection(&operands), properties };
    let answer = reading().run(&request).map_err(Stop::failed)?;
    let code = tell_unopened(&answer.unopened);
    let rows = &answer.datasets;
    if options.common.json {
        out.print(&json(&options, rows));
    } else if rows.is_empty() {
        if code == 0 && operands.is_empty() && !options.common.scripted {
            say_error_line!("no datasets available");
        }
    } else {
        out.print(&text(&options, rows, out));
    }
    Ok(code)
}

/// The columns that `-o` names: at most as many as there are.
fn fields(list: &str) -> Result<Vec<&'static str>, Stop> {
    let words: Vec<&str> = list.split(',').collect();
    match words.iter().position(|word| *word == "all") {
        Some(0) if words.len() > 1 => Err(Stop::usage("too many fields given to -o option")),
        Some(at) if at > 0 => Err(Stop::usage("\"all\" conflicts with specific fields given to -o option")),
        _ if words.len() > FIELDS_MAX => Err(Stop::usage("too many fields given to -o option")),
        _ => get_fields(list, true),
    }
}

fn sources(list: &str) -> Result<Vec<&'static str>, Stop> {
    let find = |name: &str| SOURCES.iter().copied().find(|known| *known == name);
    list.split(',').map(|n| find(n).ok_or_else(|| Stop::usage(format!("invalid source '{n}'")))).collect()
}

/// The properties asked for.
fn wanted(list: &str) -> Result<Wanted, Stop> {
    if list == "all" {
        return Ok(Wanted::All);
    }
    let bad = |name: &str| Stop::usage(format!("bad property list: invalid property '{name}'"));
    crate::values::check_number(list.split(',').count())?;
    let names = list.split(',').map(|name| known_property(name).ok_or_else(|| bad(name)));
    Ok(Wanted::Named(names.collect::<Result<_, _>>()?))
}

fn source_word(source: &Source) -> &'static str {
    match source {
        Source::None => "none",
        Source::Default => "default",
        Source::Local => "local",
        Source::Temporary => "temporary",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
    }
}

fn text(options: &Options, datasets: &[DatasetRow], out: &Out) -> String {
    let mut widths = Widths::default();
    let mut rows = Vec::new();
    for dataset in datasets {
        for (name, property) in &dataset.properties {
            // Widths are those of all properties as people read them, shown or not: so the tool does.
            widths.fit(name, &values::dataset(name, &property.value, false), property, out);
            if !options.sources.contains(&source_word(&property.source)) {
                continue;
            }
            let cell = |field: &&str| match *field {
                "name" => dataset.name.clone(),
                "property" => name.clone(),
                "value" => values::dataset(name, &property.value, options.common.exact),
                "source" => values::source(&property.source),
                _ => match &property.received {
                    Some(value) => values::dataset(name, value, options.common.exact),
                    None => values::ABSENT.to_owned(),
                },
            };
            rows.push(options.fields.iter().map(cell).collect::<Vec<String>>());
        }
    }
    let names = datasets.iter().filter(|row| row.name.contains('/')).map(|row| row.name.chars().count());
    widths.source = widths.source.max(names.max().map_or(0, |width| width + INHERITED));
    widths.name = datasets.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let columns: Vec<Column> = options.fields.iter().map(|f| widths.column(f)).collect();
    lines(out, &columns, &rows, options.common.scripted)
}

/// Like `table::whole`, but values do not widen their column: `-p` may exceed it.
fn lines(out: &Out, columns: &[Column], rows: &[Vec<String>], scripted: bool) -> String {
    let mut text = String::new();
    // Nothing to show: not even a header.
    if !scripted && !rows.is_empty() {
        text.push_str(&table::row(columns, columns.iter().map(|c| c.header.as_str()), false));
        text.push('\n');
    }
    for row in rows {
        let cells: Vec<_> = row.iter().map(|c| out.cell(c)).collect();
        text.push_str(&table::row(columns, cells.iter().map(AsRef::as_ref), scripted));
        text.push('\n');
    }
    text
}

#[derive(Default)]
struct Widths {
    name: usize,
    property: usize,
    value: usize,
    received: usize,
    source: usize,
}

impl Widths {
    fn fit(&mut self, name: &str, value: &str, property: &Property, out: &Out) {
        let count = |text: &str| out.cell(text).chars().count();
        self.property = self.property.max(name.len());
        let least = prop::dataset(name).map_or(name.len(), Prop::width);
        let own = if values::is_ratio(name) { 0 } else { count(value) };
        self.value = self.value.max(least).max(own);
        if let Some(received) = &property.received {
            self.received = self.received.max(count(&values::dataset(name, received, false)));
        }
        self.source = self.source.max(count(&values::source(&property.source)));
    }

    fn column(&self, field: &str) -> Column {
        let (header, width) = match field {
            "name" => ("NAME", self.name),
            "property" => ("PROPERTY", self.property),
            "value" => ("VALUE", self.value),
            "received" => ("RECEIVED", self.received),
            _ => ("SOURCE", self.source),
        };
        let mut column = Column::new(header, false);
        column.width = column.width.max(width);
        column
    }
}

fn json(options: &Options, datasets: &[DatasetRow]) -> String {
    let mut all = Map::new();
    for row in datasets {
        let mut map = json_dataset(row, options.common.int);
        let mut properties = Map::new();
        for (name, property) in &row.properties {
            if options.sources.contains(&source_word(&property.source)) {
                let text = values::dataset(name, &property.value, options.common.exact);
                properties.insert(name.clone(), values::json(&text, property, options.common.int));
            }
        }
        map.insert("properties".into(), Json::Object(properties));
        all.insert(row.name.clone(), Json::Object(map));
    }
    crate::zpool::json_answer("zfs get", "datasets", all)
}
