//! `zpool list`.

use super::{JSON_LONG, JsonOptions, Stamp, json_answer, json_facts, nice, operands, repeat};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::values;
use crate::vdevs::{GROUPS, Names, spare_word, tops};
use admin::verbs::zpool::list::{Request, Row};
use admin::{self, Class, Source, Vdev, Vdevs};
use format::prop::{self, Prop};
use serde_json::{Map, Value as Json, json};
use std::ffi::OsString;

const DEFAULT: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

struct Options {
    scripted: bool,
    exact: bool,
    verbose: bool,
    names: Names,
    json: JsonOptions,
    columns: Vec<Wanted>,
}

/// A column: a property of the table, or a feature or user property.
struct Wanted {
    /// Its full name.
    name: String,
    /// What the table knows of it.
    known: Option<&'static Prop>,
}

impl Wanted {
    fn column(&self, exact: bool) -> Column {
        match self.known {
            Some(p) => {
                let mut column = Column::new(p.column, p.right_aligned);
                column.width = p.width();
                column.fixed = !exact && values::is_ratio(p.name);
                column
            }
            None => Column::new(self.name.to_uppercase(), false),
        }
    }
}

/// The columns of a request.
fn columns(request: &Request) -> Result<Vec<Wanted>, Stop> {
    let names = request.columns().map_err(|refusal| super::unread(&refusal))?;
    Ok(names.into_iter().map(|name| Wanted { known: prop::pool(&name), name }).collect())
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "gHjLo:pPT:v", JSON_LONG);
    let mut list = DEFAULT.to_owned();
    let mut stamp = Stamp::Off;
    let mut options = Options {
        scripted: false,
        exact: false,
        verbose: false,
        names: Names::from_env(),
        json: JsonOptions::default(),
        columns: Vec::new(),
    };
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'g' => options.names.guid = true,
            'H' => options.scripted = true,
            'L' => options.names.follow = true,
            'o' => list = value.unwrap_or_default().to_string_lossy().into_owned(),
            'p' => options.exact = true,
            'P' => options.names.path = true,
            'T' => stamp = Stamp::parse(value.as_deref())?,
            'v' => options.verbose = true,
            other => {
                options.json.take(other);
            }
        }
    }
    options.json.check()?;
    options.exact |= options.json.int;
    let properties: Vec<String> = list.split(',').map(str::to_owned).collect();
    crate::values::check_number(properties.len())?;
    let mut request = Request { pools: Vec::new(), properties, vdevs: options.verbose };
    options.columns = columns(&request)?;
    let operands = operands(walk)?;
    request.pools.clone_from(&operands.pools);
    repeat(&operands, stamp, out, |_| sample(&options, &request, out))
}

fn sample(options: &Options, request: &Request, out: &Out) -> Outcome {
    let answer = super::reading().run(request).map_err(|refusal| super::unread(&refusal))?;
    let code = super::tell_problems(&answer.problems);
    if options.json.on {
        out.print(&json(options, &answer.pools));
    } else if answer.pools.is_empty() {
        if request.pools.is_empty() && code == 0 && !options.scripted {
            out.print("no pools available\n");
        }
    } else {
        out.print(&text(options, &answer.pools, out));
    }
    Ok(code)
}

fn text(options: &Options, pools: &[Row], out: &Out) -> String {
    let mut columns: Vec<Column> = options.columns.iter().map(|w| w.column(options.exact)).collect();
    let mut rows = Vec::new();
    for pool in pools {
        let mut row = Vec::new();
        for ((name, property), column) in pool.properties.iter().zip(&mut columns) {
            let text = values::pool(name, &property.value, options.exact);
            let text = out.cell(&text).into_owned();
            column.fit(&text);
            row.push(text);
        }
        if let Some(vdevs) = &pool.vdevs {
            let width = name_width(vdevs, options.names, out);
            for (wanted, column) in options.columns.iter().zip(&mut columns) {
                if wanted.name == "name" {
                    column.width = column.width.max(width);
                }
            }
        }
        rows.push((row, &pool.vdevs));
    }
    let mut text = String::new();
    if !options.scripted {
        text.push_str(&table::row(&columns, columns.iter().map(|c| c.header.as_str()), false));
        text.push('\n');
    }
    for (row, vdevs) in &rows {
        text.push_str(&table::row(&columns, row.iter().map(String::as_str), options.scripted));
        text.push('\n');
        if let Some(vdevs) = vdevs {
            Lines { options, columns: &columns, out, text: &mut text }.all(vdevs);
        }
    }
    text
}

/// The width of the widest indented vdev name.
fn name_width(vdevs: &Vdevs, names: Names, out: &Out) -> usize {
    fn of(vdev: &Vdev, depth: usize, names: Names, out: &Out) -> usize {
        let own = 2 * depth + out.cell(&names.of(vdev)).chars().count();
        vdev.children.iter().map(|c| of(c, depth + 1, names, out)).fold(own, usize::max)
    }
    let tops = vdevs.root.children.iter().chain(&vdevs.cache).chain(&vdevs.spares);
    tops.filter(|v| v.kind != "hole").map(|v| of(v, 1, names, out)).max().unwrap_or(0)
}

/// The vdev lines below a pool.
struct Lines<'a> {
    options: &'a Options,
    columns: &'a [Column],
    out: &'a Out,
    text: &'a mut String,
}

impl Lines<'_> {
    fn all(&mut self, vdevs: &Vdevs) {
        for vdev in tops(&vdevs.root, Class::Normal) {
            self.tree(vdev, 1);
        }
        for (class, heading) in GROUPS {
            self.group(heading, &tops(&vdevs.root, class).collect::<Vec<_>>());
        }
        self.group("cache", &vdevs.cache.iter().collect::<Vec<_>>());
        self.group("spare", &vdevs.spares.iter().collect::<Vec<_>>());
    }

    fn group(&mut self, heading: &str, vdevs: &[&Vdev]) {
        if vdevs.is_empty() {
            return;
        }
        // These dashes are the same with -H and with any -o: so the tool prints them.
        let width = self.columns.first().map_or(0, |c| c.width);
        let dashes = "      -      -      -        -         -      -      -      -         -";
        self.text.push_str(&format!("{heading:<width$}{dashes}\n"));
        for vdev in vdevs {
            self.tree(vdev, 1);
        }
    }

    fn tree(&mut self, vdev: &Vdev, depth: usize) {
        let name = self.out.cell(&self.options.names.of(vdev)).into_owned();
        let name =
            if self.options.scripted { format!("\t{name}") } else { format!("{}{name}", "  ".repeat(depth)) };
        let shown = self.options.columns.iter().zip(self.columns).filter(|(w, _)| w.name != "altroot");
        let (mut columns, mut cells) = (Vec::new(), Vec::new());
        for (wanted, column) in shown {
            columns.push(column.clone());
            cells.push(match wanted.name.as_str() {
                "name" => name.clone(),
                other => cell(vdev, depth, other, self.options.exact),
            });
        }
        let scripted = self.options.scripted;
        self.text.push_str(&table::row(&columns, cells.iter().map(String::as_str), scripted));
        self.text.push('\n');
        for child in &vdev.children {
            self.tree(child, depth + 1);
        }
    }
}

/// One value of a vdev line.
fn cell(vdev: &Vdev, depth: usize, column: &str, exact: bool) -> String {
    let absent = || values::ABSENT.to_owned();
    let has_space = depth == 1 && vdev.space > 0;
    let spare = vdev.class == Class::Spare && depth == 1;
    match column {
        "size" if vdev.psize > 0 => nice(vdev.psize, exact),
        "size" if vdev.space > 0 && depth == 1 => nice(vdev.space, exact),
        "allocated" if has_space => nice(vdev.alloc, exact),
        "free" if has_space => nice(vdev.space.saturating_sub(vdev.alloc), exact),
        "checkpoint" if vdev.checkpoint > 0 => nice(vdev.checkpoint, exact),
        "expandsize" if vdev.expandsize > 0 => nice(vdev.expandsize, exact),
        "fragmentation" => match vdev.fragmentation.filter(|_| depth == 1) {
            Some(percent) if exact => percent.to_string(),
            Some(percent) => format!("{percent}%"),
            None => absent(),
        },
        "capacity" if has_space => capacity(vdev.alloc, vdev.space, exact),
        "health" if spare => spare_word(vdev).to_owned(),
        "health" => vdev.health.word().to_owned(),
        _ => absent(),
    }
}

/// Used part in percent: with decimals below ten and a hundred, `0.04%`, `23.9%`.
fn capacity(alloc: u64, space: u64, exact: bool) -> String {
    let part = |scale: u128| u128::from(alloc) * scale / u128::from(space.max(1));
    if exact {
        return part(100).to_string();
    }
    match part(10_000) {
        p @ 0..1000 => format!("{}.{:02}%", p / 100, p % 100),
        p @ 1000..10_000 => format!("{}.{}%", p / 100, p % 100 / 10),
        p => format!("{}%", p / 100),
    }
}

fn json(options: &Options, pools: &[Row]) -> String {
    let mut all = Map::new();
    for pool in pools {
        let mut map = json_facts(&pool.facts, true, options.json.int);
        let mut properties = Map::new();
        for (name, property) in pool.properties.iter().filter(|(name, _)| name != "name") {
            let text = values::pool(name, &property.value, options.exact);
            properties.insert(name.clone(), values::json(&text, property, options.json.int));
        }
        map.insert("properties".into(), Json::Object(properties));
        if let Some(vdevs) = &pool.vdevs {
            json_vdevs(options, vdevs, &mut map);
        }
        all.insert(options.json.key(&pool.facts), Json::Object(map));
    }
    json_answer("zpool list", "pools", all)
}

fn json_vdevs(options: &Options, vdevs: &Vdevs, map: &mut Map<String, Json>) {
    let mut group = |key: &str, members: &[&Vdev]| {
        let objects: Map<String, Json> = members.iter().map(|v| json_vdev(options, v, 1)).collect();
        if !objects.is_empty() {
            map.insert(key.into(), Json::Object(objects));
        }
    };
    group("vdevs", &tops(&vdevs.root, Class::Normal).collect::<Vec<_>>());
    for (class, heading) in GROUPS {
        group(heading, &tops(&vdevs.root, class).collect::<Vec<_>>());
    }
    group("l2cache", &vdevs.cache.iter().collect::<Vec<_>>());
    group("spares", &vdevs.spares.iter().collect::<Vec<_>>());
}

fn json_vdev(options: &Options, vdev: &Vdev, depth: usize) -> (String, Json) {
    let name = options.names.of(vdev);
    let mut map = super::status_json::identity(vdev, &name, options.json.int);
    let mut properties = Map::new();
    for wanted in options.columns.iter().filter(|w| !matches!(w.name.as_str(), "name" | "altroot")) {
        let text = cell(vdev, depth, &wanted.name, options.exact);
        let value = json!({
            "value": values::scalar(&text, options.json.int),
            "source": values::source_json(&Source::None),
        });
        properties.insert(wanted.name.clone(), value);
    }
    map.insert("properties".into(), Json::Object(properties));
    let children: Map<String, Json> =
        vdev.children.iter().map(|c| json_vdev(options, c, depth + 1)).collect();
    if !children.is_empty() {
        map.insert("vdevs".into(), Json::Object(children));
    }
    (name, Json::Object(map))
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, JsonOptions, Names, Options, Request, capacity, columns, json_vdevs};
    use crate::zpool::samples::{LISTING, printed, tank};
    use serde_json::Map;

    #[test]
    fn json_of_vdevs_as_in_the_transcripts() {
        for (command, int) in
            [("zpool list -j -v", false), ("zpool list -vj --json-int --json-pool-key-guid", true)]
        {
            let json = JsonOptions { on: true, int, ..JsonOptions::default() };
            let properties = DEFAULT.split(',').map(str::to_owned).collect();
            let columns = columns(&Request { properties, ..Request::default() }).expect("known properties");
            let names = Names::default();
            let options = Options { scripted: false, exact: int, verbose: true, names, json, columns };
            let mut map = Map::new();
            let mut vdevs = tank().vdevs;
            vdevs.root.children.iter_mut().for_each(|v| v.fragmentation = Some(4));
            json_vdevs(&options, &vdevs, &mut map);
            let text = serde_json::to_string(&map).expect("plain values");
            let real = printed(LISTING, command, 0);
            assert!(real.contains(text.trim_start_matches('{').trim_end_matches('}')), "{command}\n{text}");
        }
    }

    #[test]
    fn used_part_as_in_the_transcripts() {
        assert_eq!(capacity(101_376, 251_658_240, false), "0.04%");
        assert_eq!(capacity(4_397_056, 251_658_240, false), "1.74%");
        assert_eq!(capacity(60_293_120, 251_658_240, false), "23.9%");
        assert_eq!(capacity(1, 1, false), "100%");
        assert_eq!(capacity(4_397_056, 251_658_240, true), "1");
    }
}
