//! `zfs get`.

use super::list::property;
use super::{ALL_KINDS, Common, JSON_LONG, Selection, json_entry, known_property, select};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use crate::zpool::get_fields;
use admin::{Entry, Property, Source};
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
    let list = Wanted::parse(&operands.remove(0))?;
    let given = options.common.kinds.is_some();
    let kinds = options.common.kinds.take().unwrap_or(ALL_KINDS.to_vec());
    let mut selected = select(&Selection {
        operands: &operands,
        kinds: &kinds,
        depth: options.common.depth,
        kinds_given: given,
        listsnapshots: false,
        bookmarks: true,
    })?;
    super::sort(&mut selected.entries);
    if options.common.json {
        out.print(&json(&options, &list, &selected.entries)?);
    } else if selected.entries.is_empty() {
        if selected.code == 0 && operands.is_empty() && !options.common.scripted {
            say_error_line!("no datasets available");
        }
    } else {
        out.print(&text(&options, &list, &selected.entries, out)?);
    }
    Ok(selected.code)
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
struct Wanted {
    /// `all`.
    all: bool,
    /// Their names, if not.
    names: Vec<String>,
}

impl Wanted {
    fn parse(list: &str) -> Result<Wanted, Stop> {
        if list == "all" {
            return Ok(Wanted { all: true, names: Vec::new() });
        }
        let bad = |name: &str| Stop::usage(format!("bad property list: invalid property '{name}'"));
        let names = list.split(',').map(|n| known_property(n).ok_or_else(|| bad(n)));
        Ok(Wanted { all: false, names: names.collect::<Result<_, _>>()? })
    }

    /// Name and value of each for one dataset; with `all` only those that it has.
    fn of(&self, entry: &Entry) -> Result<Vec<(String, Property)>, Stop> {
        let mut found = Vec::new();
        if !self.all {
            for name in &self.names {
                found.push((name.clone(), property(entry, name)?));
            }
            return Ok(found);
        }
        let failed = |e| Stop::failed(format!("{}: {e}", entry.name()));
        for p in prop::DATASET.iter().filter(|p| p.visible && p.name != "name") {
            if let Some(property) = entry.property(p.name).map_err(failed)? {
                found.push((p.name.to_owned(), property));
            }
        }
        found.extend(entry.user_properties().map_err(failed)?);
        Ok(found)
    }
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

fn text(options: &Options, list: &Wanted, entries: &[Entry], out: &Out) -> Result<String, Stop> {
    let mut widths = Widths::default();
    let mut rows = Vec::new();
    for entry in entries {
        for (name, property) in list.of(entry)? {
            // Widths are those of all properties as people read them, shown or not: so the tool does.
            widths.fit(&name, &values::dataset(&name, &property.value, false), &property, out);
            if !options.sources.contains(&source_word(&property.source)) {
                continue;
            }
            let cell = |field: &&str| match *field {
                "name" => entry.name().to_owned(),
                "property" => name.clone(),
                "value" => values::dataset(&name, &property.value, options.common.exact),
                "source" => values::source(&property.source),
                _ => match &property.received {
                    Some(value) => values::dataset(&name, value, options.common.exact),
                    None => values::ABSENT.to_owned(),
                },
            };
            rows.push(options.fields.iter().map(cell).collect::<Vec<String>>());
        }
    }
    let names = entries.iter().filter(|e| e.name().contains('/')).map(|e| e.name().chars().count());
    widths.source = widths.source.max(names.max().map_or(0, |width| width + INHERITED));
    widths.name = entries.iter().map(|e| e.name().chars().count()).max().unwrap_or(0);
    let columns: Vec<Column> = options.fields.iter().map(|f| widths.column(f)).collect();
    Ok(lines(out, &columns, &rows, options.common.scripted))
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

fn json(options: &Options, list: &Wanted, entries: &[Entry]) -> Result<String, Stop> {
    let mut all = Map::new();
    for entry in entries {
        let mut map = json_entry(entry, options.common.int);
        let mut properties = Map::new();
        for (name, property) in list.of(entry)? {
            if options.sources.contains(&source_word(&property.source)) {
                let text = values::dataset(&name, &property.value, options.common.exact);
                properties.insert(name, values::json(&text, &property, options.common.int));
            }
        }
        map.insert("properties".into(), Json::Object(properties));
        all.insert(entry.name().to_owned(), Json::Object(map));
    }
    Ok(crate::zpool::json_answer("zfs get", "datasets", all))
}
