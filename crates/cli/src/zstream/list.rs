//! Name-value lists as `zstream` prints them: a tab a level, numbers in hexadecimal, the end of each list named.

use format::nvlist::{NvList, NvValue};
use std::fmt::LowerHex;
use std::io::{self, Write};

/// Prints a list.
pub(crate) fn print(out: &mut dyn Write, list: &NvList) -> io::Result<()> {
    print_at(out, list, 0)
}

fn print_at(out: &mut dyn Write, list: &NvList, level: usize) -> io::Result<()> {
    writeln!(out, "{}nvlist version: 0", Tabs(level))?;
    for (name, value) in list.iter_bytes() {
        let name = String::from_utf8_lossy(name);
        write!(out, "{}{name} = ", Tabs(level + 1))?;
        print_value(out, &name, value, level + 1)?;
    }
    Ok(())
}

/// Prints a value after its name.
fn print_value(out: &mut dyn Write, name: &str, value: &NvValue, level: usize) -> io::Result<()> {
    let tabs = Tabs(level);
    match value {
        NvValue::List(list) => {
            writeln!(out, "(embedded nvlist)")?;
            print_at(out, list, level)?;
            writeln!(out, "{tabs}(end {name})\n")
        }
        NvValue::ListArray(lists) => {
            writeln!(out, "(array of embedded nvlists)")?;
            for (i, list) in lists.iter().enumerate() {
                writeln!(out, "{tabs}(start {name}[{i}])")?;
                print_at(out, list, level)?;
                writeln!(out, "{tabs}(end {name}[{i}])\n")?;
            }
            Ok(())
        }
        NvValue::Boolean => writeln!(out, "1"),
        NvValue::BooleanValue(value) => writeln!(out, "{}", u8::from(*value)),
        NvValue::Byte(value) | NvValue::Uint8(value) => writeln!(out, "{value:#x}"),
        NvValue::Int8(value) => writeln!(out, "{value:#x}"),
        NvValue::Int16(value) => writeln!(out, "{value:#x}"),
        NvValue::Uint16(value) => writeln!(out, "{value:#x}"),
        NvValue::Int32(value) => writeln!(out, "{value:#x}"),
        NvValue::Uint32(value) => writeln!(out, "{value:#x}"),
        NvValue::Int64(value) => writeln!(out, "{value:#x}"),
        NvValue::Uint64(value) => writeln!(out, "{value:#x}"),
        NvValue::ByteArray(values) | NvValue::Uint8Array(values) => hex(out, values),
        NvValue::Int8Array(values) => hex(out, values),
        NvValue::Int16Array(values) => hex(out, values),
        NvValue::Uint16Array(values) => hex(out, values),
        NvValue::Int32Array(values) => hex(out, values),
        NvValue::Uint32Array(values) => hex(out, values),
        NvValue::Int64Array(values) => hex(out, values),
        NvValue::Uint64Array(values) => hex(out, values),
        NvValue::BooleanArray(values) => {
            let values: Vec<u8> = values.iter().copied().map(u8::from).collect();
            writeln!(out, "{}", joined(&values, ToString::to_string))
        }
        other => match other.string_bytes() {
            Some(text) => {
                out.write_all(text)?;
                out.write_all(b"\n")
            }
            None => writeln!(out, "{other:?}"),
        },
    }
}

fn hex<T: LowerHex>(out: &mut dyn Write, values: &[T]) -> io::Result<()> {
    writeln!(out, "{}", joined(values, |value| format!("{value:#x}")))
}

fn joined<T>(values: &[T], text: impl Fn(&T) -> String) -> String {
    values.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// The indentation of a level.
struct Tabs(usize);

impl std::fmt::Display for Tabs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (0..self.0).try_for_each(|_| f.write_str("\t"))
    }
}
