//! Name-value lists as indented text, four spaces a level: labels, configurations, history.

use format::nvlist::{NvList, NvValue};
use std::fmt::{self, Display, Write};

/// Prints `list`, each line indented by `indent` spaces.
pub(crate) struct Indented<'a> {
    pub(crate) list: &'a NvList,
    pub(crate) indent: usize,
}

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.list.iter() {
            print_value(f, self.indent, name, value)?;
        }
        Ok(())
    }
}

fn print_value(f: &mut fmt::Formatter<'_>, indent: usize, name: &str, value: &NvValue) -> fmt::Result {
    let pad = indent;
    match value {
        NvValue::List(list) => {
            writeln!(f, "{:pad$}{name}:", "")?;
            Indented { list, indent: indent + 4 }.fmt(f)
        }
        NvValue::ListArray(lists) => {
            for (i, list) in lists.iter().enumerate() {
                writeln!(f, "{:pad$}{name}[{i}]:", "")?;
                Indented { list, indent: indent + 4 }.fmt(f)?;
            }
            Ok(())
        }
        NvValue::StringArray(items) => elements(f, indent, name, items.iter().map(|s| format!("'{s}'"))),
        NvValue::Uint64Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Int64Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Uint32Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Int32Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Uint16Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Int16Array(items) => elements(f, indent, name, items.iter()),
        NvValue::Uint8Array(items) | NvValue::ByteArray(items) => elements(f, indent, name, items.iter()),
        NvValue::Int8Array(items) => elements(f, indent, name, items.iter()),
        NvValue::BooleanArray(items) => elements(f, indent, name, items.iter()),
        scalar => match scalar_text(scalar) {
            Some(text) => writeln!(f, "{:pad$}{name}: {text}", ""),
            None => writeln!(f, "{:pad$}{name}", ""),
        },
    }
}

fn elements<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    indent: usize,
    name: &str,
    items: impl Iterator<Item = T>,
) -> fmt::Result {
    for (i, item) in items.enumerate() {
        writeln!(f, "{:indent$}{name}[{i}]: {item}", "")?;
    }
    Ok(())
}

/// The text of a scalar; `None` for a pair that is true by being present.
fn scalar_text(value: &NvValue) -> Option<String> {
    let mut text = String::new();
    let written = match value {
        NvValue::Byte(x) | NvValue::Uint8(x) => write!(text, "{x}"),
        NvValue::Int8(x) => write!(text, "{x}"),
        NvValue::Int16(x) => write!(text, "{x}"),
        NvValue::Uint16(x) => write!(text, "{x}"),
        NvValue::Int32(x) => write!(text, "{x}"),
        NvValue::Uint32(x) => write!(text, "{x}"),
        NvValue::Int64(x) | NvValue::Hrtime(x) => write!(text, "{x}"),
        NvValue::Uint64(x) => write!(text, "{x}"),
        NvValue::Double(x) => write!(text, "{x}"),
        NvValue::BooleanValue(x) => write!(text, "{x}"),
        NvValue::String(x) => write!(text, "'{x}'"),
        NvValue::RawString(x) => write!(text, "'{}'", x.escape_ascii()),
        _ => return None,
    };
    written.ok().map(|()| text)
}

/// Statistics of the configuration in a label: how full its part of the label is, and of what.
pub(super) struct Stats<'a>(pub(super) &'a NvList);

/// Length of the part of a label that holds the configuration, in bytes.
const ROOM: usize = format::label::CONFIG_NVLIST_MAX;
/// Bytes of a list besides its pairs: version, flags and the end.
const LIST: usize = 16;
/// Bytes before the first list, which describe the encoding.
const HEADER: usize = 4;

/// Number of pairs of a kind, and their bytes.
type Sum = (usize, usize);

#[derive(Default)]
struct Sums {
    integers: Sum,
    strings: Sum,
    booleans: Sum,
    lists: Sum,
    /// Bytes of each child that is a leaf.
    leaves: Vec<usize>,
}

impl Sums {
    fn add(&mut self, list: &NvList) {
        self.lists.0 += 1;
        self.lists.1 += LIST;
        for (name, value) in list.iter_bytes() {
            // Two sizes, the length of the name, the type, the number of elements.
            let pair = 20 + padded(name.len());
            let put = |sum: &mut Sum, bytes: usize| *sum = (sum.0 + 1, sum.1 + bytes);
            match value {
                NvValue::Boolean => put(&mut self.booleans, pair),
                NvValue::List(list) => {
                    self.lists.1 += pair;
                    self.add(list);
                }
                NvValue::ListArray(lists) => {
                    self.lists.1 += pair;
                    for list in lists {
                        if !list.has("children") {
                            self.leaves.push(HEADER + LIST + pairs(list));
                        }
                        self.add(list);
                    }
                }
                value => match value.string_bytes() {
                    Some(text) => put(&mut self.strings, pair + 4 + padded(text.len())),
                    None => put(&mut self.integers, pair + 8 * value.count().max(1)),
                },
            }
        }
    }

    fn bytes(&self) -> usize {
        self.integers.1 + self.strings.1 + self.booleans.1 + self.lists.1
    }
}

/// Bytes of all pairs of a list.
fn pairs(list: &NvList) -> usize {
    let mut sums = Sums::default();
    sums.add(list);
    sums.bytes() - LIST
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

impl fmt::Display for Stats<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sums = Sums { lists: (0, HEADER), ..Sums::default() };
        sums.add(self.0);
        let used = sums.bytes();
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
        writeln!(f, "\n\nZFS Label NVList Config Stats:")?;
        let (free, share) = (ROOM.saturating_sub(used), percent(used, ROOM));
        writeln!(f, "  {used} bytes used, {free} bytes free (using {share:>4.1}%)\n")?;
        for (name, (count, bytes)) in [
            ("   integers:", sums.integers),
            ("    strings:", sums.strings),
            ("   booleans:", sums.booleans),
            ("    nvlists:", sums.lists),
        ] {
            writeln!(f, "{name} {count:>4} {bytes:>6} bytes ({:>5.2}%)", percent(bytes, used))?;
        }
        writeln!(f)?;
        if let Some(largest) = sums.leaves.iter().max() {
            let average = sums.leaves.iter().sum::<usize>() / sums.leaves.len();
            writeln!(f, " leaf vdevs: {:>4} {average:>6} bytes average", sums.leaves.len())?;
            writeln!(f, "{largest:>24} bytes largest")?;
        }
        writeln!(f)
    }
}
