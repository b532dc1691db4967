//! `zstream redup`, `decompress`, `recompress`, `drop_record`: a stream from standard input or a file, changed, to
//! standard output.

use super::{BUFFER, Failure, flags, open};
use crate::getopt::Getopt;
use ::cenote::error::chain;
use ::cenote::stream::change::{
    BlockPlace, Done, decompress_blocks, drop_blocks, recompress as recompress_stream, write_references_out,
};
use format::{CompressionId, ObjectId};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, StdoutLock};

fn input() -> Result<impl Read, Failure> {
    if io::stdin().is_terminal() {
        let line = "Error: The send stream is a binary format and can not be read from a\nterminal.";
        return Err(Failure::Usage(Some(line.to_owned())));
    }
    Ok(BufReader::with_capacity(BUFFER, io::stdin().lock()))
}

/// Standard output; a stream is not written to a terminal.
fn target() -> Result<BufWriter<StdoutLock<'static>>, Failure> {
    if io::stdout().is_terminal() {
        let line = "Error: Stream can not be written to a terminal.\nYou must redirect standard output.";
        return Err(Failure::Message(line.to_owned(), 1));
    }
    Ok(BufWriter::with_capacity(BUFFER, io::stdout().lock()))
}

/// `zstream redup [-v] FILE`.
pub(super) fn redup(args: Vec<OsString>) -> Result<u8, Failure> {
    let (given, operands) = flags(args, "v")?;
    let [path] = &operands[..] else { return Err(Failure::Usage(None)) };
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        let line = format!("redup reads a file twice, and '{}' is no regular file", path.display());
        return Err(Failure::Message(line, 1));
    }
    let (source, mut again) = (open(path)?, open(path)?);
    let done = write_references_out(BufReader::with_capacity(BUFFER, source), &mut again, target()?)?;
    if given.contains(&'v') {
        let (records, changed) = (done.records, done.changed);
        say_error_line!("converted stream with {records} total records, including {changed} dedup records.");
    }
    Ok(ended(&done))
}

/// The exit code of a command that has changed a stream; warns if the stream has no end.
fn ended(done: &Done) -> u8 {
    if !done.is_complete {
        say_error_line!(
            "zstream: warning: the stream has no end: it is that of a partly received dataset, or was cut"
        );
    }
    0
}

/// An operand `OBJECT,OFFSET[,TYPE]`.
fn place(operand: &OsString) -> Option<(BlockPlace, Option<String>)> {
    let text = operand.to_str()?;
    let mut parts = text.splitn(3, ',');
    let object = ObjectId(number(parts.next()?)?);
    let offset = number(parts.next()?)?;
    Some(((object, offset), parts.next().map(ToOwned::to_owned)))
}

/// A number as C reads it: decimal, hexadecimal after `0x`, octal after `0`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

fn places(operands: &[OsString]) -> Result<Vec<(BlockPlace, Option<String>)>, Failure> {
    let wrong = |operand: &OsString| {
        let line = format!("invalid record '{}': it must be OBJECT,OFFSET", operand.display());
        Failure::Usage(Some(line))
    };
    operands.iter().map(|operand| place(operand).ok_or_else(|| wrong(operand))).collect()
}

/// `zstream decompress [-v] [OBJECT,OFFSET[,TYPE]] …`.
pub(super) fn decompress(args: Vec<OsString>) -> Result<u8, Failure> {
    let (given, operands) = flags(args, "v")?;
    let mut wanted = HashMap::new();
    for (place, name) in places(&operands)? {
        let algorithm = match name.as_deref() {
            None | Some("lz4") => CompressionId::Lz4,
            Some("off") => CompressionId::Off,
            Some("gzip") => CompressionId::Gzip6,
            Some("lzjb") => CompressionId::Lzjb,
            Some("zle") => CompressionId::Zle,
            Some("zstd") => CompressionId::Zstd,
            Some(other) => {
                let line = format!(
                    "Invalid compression type {other}.\nSupported types are off, lz4, lzjb, gzip, zle, and zstd"
                );
                return Err(Failure::Message(line, 2));
            }
        };
        wanted.insert(place, algorithm);
    }
    let is_verbose = given.contains(&'v');
    let done =
        decompress_blocks(
            input()?,
            target()?,
            &wanted,
            |(object, offset), algorithm, result| match result {
                Err(failed) => say_error_line!("zstream: {}", chain(&failed)),
                Ok(()) if !is_verbose => {}
                Ok(()) if algorithm == CompressionId::Off => {
                    say_error_line!("Resetting compression type to off for ino {object} offset {offset}");
                }
                Ok(()) => say_error_line!("successfully decompressed ino {object} offset {offset}"),
            },
        )?;
    Ok(ended(&done))
}

/// `zstream drop_record [-v] [OBJECT,OFFSET] …`.
pub(super) fn drop_record(args: Vec<OsString>) -> Result<u8, Failure> {
    let (given, operands) = flags(args, "v")?;
    let places = places(&operands)?;
    if places.iter().any(|(_, name)| name.is_some()) {
        return Err(Failure::Usage(None));
    }
    let places: Vec<BlockPlace> = places.into_iter().map(|(place, _)| place).collect();
    let is_verbose = given.contains(&'v');
    let done = drop_blocks(input()?, target()?, &places, |(object, offset)| {
        if is_verbose {
            say_error_line!("dropped ino {object} offset {offset}");
        }
    })?;
    Ok(ended(&done))
}

/// `zstream recompress [-l level] TYPE`.
pub(super) fn recompress(args: Vec<OsString>) -> Result<u8, Failure> {
    let mut options = Getopt::new(args, "l:", &[]);
    let mut level = None;
    while let Some((_, value)) = options.next()? {
        let text = value.unwrap_or_default().to_string_lossy().into_owned();
        let number: Result<i32, _> = text.parse();
        let wrong = |_| Failure::Usage(Some(format!("failed to parse level '{text}'")));
        level = Some(number.map_err(wrong)?);
    }
    let operands = options.operands();
    let [name] = &operands[..] else { return Err(Failure::Usage(None)) };
    let name = name.to_string_lossy();
    let Some((algorithm, own_level)) = algorithm(&name, level) else {
        return Err(Failure::Message(format!("Invalid compression type {name}."), 2));
    };
    Ok(ended(&recompress_stream(input()?, target()?, algorithm, own_level)?))
}

/// The algorithm of a value of the property `compression`, with its level.
fn algorithm(name: &str, level: Option<i32>) -> Option<(CompressionId, i32)> {
    let plain = |id| Some((id, 0));
    match name {
        "off" => plain(CompressionId::Off),
        "on" | "lz4" => plain(CompressionId::Lz4),
        "lzjb" => plain(CompressionId::Lzjb),
        "zle" => plain(CompressionId::Zle),
        "gzip" => plain(gzip(level.unwrap_or(6))?),
        "zstd" => {
            Some((CompressionId::Zstd, level.unwrap_or(0))).filter(|(_, level)| (-1000..=19).contains(level))
        }
        _ => match name.split_once('-')? {
            ("gzip", number) => plain(gzip(number.parse().ok()?)?),
            ("zstd", number) if !number.starts_with("fast") => {
                let number: i32 = number.parse().ok().filter(|number| (1..=19).contains(number))?;
                Some((CompressionId::Zstd, number))
            }
            ("zstd", "fast") => Some((CompressionId::Zstd, -1)),
            ("zstd", fast) => {
                let number: i32 = fast.strip_prefix("fast-")?.parse().ok()?;
                Some((CompressionId::Zstd, -number)).filter(|_| (1..=1000).contains(&number))
            }
            _ => None,
        },
    }
}

/// Gzip with this level.
fn gzip(level: i32) -> Option<CompressionId> {
    let step = u8::try_from(level).ok().filter(|level| (1..=9).contains(level))? - 1;
    CompressionId::from_id(CompressionId::Gzip1.id() + step).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_named_by_object_and_offset() {
        let place = |text: &str| place(&text.into());
        assert_eq!(place("2,0"), Some(((ObjectId(2), 0), None)));
        assert_eq!(place("0x10,131072,off"), Some(((ObjectId(16), 131_072), Some("off".to_owned()))));
        for wrong in ["", "2", "x,0", "2,", "2,y", "-1,0"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn algorithms_are_those_of_the_property() {
        assert_eq!(algorithm("gzip-9", None), Some((CompressionId::Gzip9, 0)));
        assert_eq!(algorithm("gzip", Some(1)), Some((CompressionId::Gzip1, 0)));
        assert_eq!(algorithm("zstd", Some(19)), Some((CompressionId::Zstd, 19)));
        assert_eq!(algorithm("zstd-fast-10", None), Some((CompressionId::Zstd, -10)));
        for wrong in ["foo", "gzip-0", "gzip-10", "zstd-20", "zstd-fast-0", "inherit"] {
            assert_eq!(algorithm(wrong, None), None, "{wrong}");
        }
    }
}
