//! Name-value lists as indented text, four spaces a level: labels, configurations, history.

use format::nvlist::{NvList, NvValue};
use std::fmt::{self, Display, Write};

/// `list`, each line indented by `indent` spaces.
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

/// The text of a scalar; `None` for one that says all by being there.
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
