//! Bytes by their place in a vdev, `zdb -R`, and in a block pointer itself, `zdb -E`.

use super::{Options, Verdict, bp};
use admin::debug::{checksums, decompress_any, embedded_block, raw_bytes, raw_vdev};
use cenote::Pool;
use format::blkptr::BLKPTR_SIZE;
use format::{BlockPtr, CompressionId, Endian};
use std::io::{self, Write};

/// Most bytes read at once.
const SIZE_MAX: u64 = 16 << 20;
const SECTOR: u64 = 512;
/// Warning for zle: nearly all bytes are a valid zle stream.
const ZLE_CHOSEN: &str = "ZLE decompression was selected. If you suspect the results are wrong,
try avoiding ZLE by setting and exporting ZDB_NO_ZLE=\"true\"";

/// A place: `vdev[.child…]:offset:[lsize/]psize[:flags]`, with numbers in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockSpecifier {
    vdev: u32,
    path: Vec<usize>,
    offset: u64,
    lsize: u64,
    psize: u64,
    flags: String,
    /// Offset of a pointer in the block, which follows flag `b`.
    pointer: usize,
}

impl BlockSpecifier {
    fn parse(text: &str) -> Result<BlockSpecifier, String> {
        let bad = |why: &str| format!("Invalid block specifier: {text}  - {why}");
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().unwrap_or_default();
        let (vdev, offset, sizes, flags) = (part(), part(), part(), part());
        let mut numbers = vdev.split('.').map(str::parse::<u32>);
        let vdev = numbers.next().and_then(Result::ok).ok_or_else(|| bad("invalid vdev"))?;
        let path = numbers.map(|number| number.map(|n| n as usize)).collect::<Result<_, _>>();
        let path = path.map_err(|_| bad("invalid vdev"))?;
        // The notation of sizes in printed block pointers: `20000L/1400P`.
        let size = |text: &str| hexadecimal(text.strip_suffix(['L', 'P']).unwrap_or(text));
        let (lsize, psize) = sizes.split_once('/').unwrap_or((sizes, sizes));
        let (Some(lsize), Some(psize)) = (size(lsize), size(psize)) else {
            return Err(bad("invalid size(s)"));
        };
        let offset = hexadecimal(offset).ok_or_else(|| bad("invalid offset"))?;
        if psize == 0 || lsize == 0 || psize > SIZE_MAX || lsize > SIZE_MAX {
            return Err(bad("invalid size(s)"));
        }
        if psize % SECTOR != 0 || lsize % SECTOR != 0 {
            return Err(bad("size must be a multiple of sector size"));
        }
        if offset % SECTOR != 0 {
            return Err(bad("offset must be a multiple of sector size"));
        }
        let (flags, pointer) = split_flags(flags)?;
        Ok(BlockSpecifier { vdev, path, offset, lsize, psize, flags, pointer })
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

/// Splits flags and the offset that follows `b`. A letter that is no hexadecimal digit of the offset is a
/// flag.
fn split_flags(text: &str) -> Result<(String, usize), String> {
    let mut flags = String::new();
    let mut pointer = 0;
    let mut rest = text;
    while let Some(flag) = rest.chars().next() {
        rest = rest.get(flag.len_utf8()..).unwrap_or_default();
        if !"bcdegirv".contains(flag) {
            return Err(format!("***Ignoring flag: {flag}\nInvalid flag arg: '{flag}'"));
        }
        flags.push(flag);
        if flag == 'b' {
            let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
            let number = |len: usize| {
                usize::from_str_radix(rest.get(..len)?, 16).ok().filter(|n| n % BLKPTR_SIZE == 0)
            };
            if let Some((len, at)) = (1..=digits).rev().find_map(|len| Some((len, number(len)?))) {
                pointer = at;
                rest = rest.get(len..).unwrap_or_default();
            }
        }
    }
    Ok((flags, pointer))
}

/// Prints the bytes at a place.
pub(super) fn print(pool: &Pool, text: &str, _: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let place = match BlockSpecifier::parse(text) {
        Ok(place) => place,
        Err(why) => {
            writeln!(out, "{why}")?;
            return Ok(Verdict::Failed);
        }
    };
    let Some((what, _)) = raw_vdev(pool, place.vdev, &place.path) else {
        let name = text.split(':').next().unwrap_or_default();
        writeln!(out, "***Invalid vdev: {name}")?;
        return Ok(Verdict::Failed);
    };
    let kind = if what.starts_with('/') { "vdev" } else { "vdev type" };
    eprintln!("Found {kind}: {}", crate::out::visible(&what));
    let image = match raw_bytes(pool, place.vdev, &place.path, place.offset, place.psize as usize) {
        Ok(image) => image,
        Err(why) => {
            writeln!(out, "Read of block failed: {why}")?;
            return Ok(Verdict::Failed);
        }
    };
    let mut is_doubtful = false;
    let block = if place.has('d') {
        let allow_zle = std::env::var_os("ZDB_NO_ZLE").is_none();
        // A single size may be the logical or the physical one.
        let lsize = (place.lsize != place.psize).then_some(place.lsize as usize);
        match decompress_any(&image, lsize, allow_zle) {
            Some((id, block)) => {
                is_doubtful = id == CompressionId::Zle;
                block
            }
            None => {
                writeln!(out, "Decompress of {text} failed")?;
                return Ok(Verdict::Failed);
            }
        }
    } else {
        image.clone()
    };
    // Raw output goes to programs, so no warning precedes it.
    if is_doubtful && !place.has('r') {
        writeln!(out, "\n{ZLE_CHOSEN}")?;
    }
    if place.has('b') {
        pointers(block.get(place.pointer..).unwrap_or_default(), 1, out)?;
    } else if place.has('i') {
        pointers(&block, place.lsize as usize / BLKPTR_SIZE, out)?;
    } else if place.has('r') {
        out.write_all(&block)?;
        if is_doubtful {
            writeln!(out, "\n{ZLE_CHOSEN}")?;
        }
    } else {
        dump(text, &block, place.has('e'), out)?;
        if place.has('c') {
            writeln!(out)?;
            for (name, sum) in checksums(pool, &image) {
                writeln!(out, "{name:>12}\tcksum={sum}")?;
            }
        }
    }
    Ok(Verdict::Clean)
}

/// Prints the data in an embedded block pointer, which is given as words in hexadecimal, separated by colons.
pub(super) fn print_embedded(text: &str, out: &mut dyn Write) -> io::Result<Verdict> {
    let words: Option<Vec<u64>> = text.split(':').map(hexadecimal).collect();
    let Some(words) = words.and_then(|words| <[u64; BLKPTR_SIZE / 8]>::try_from(words).ok()) else {
        eprintln!("invalid input format");
        return Ok(Verdict::Failed);
    };
    match embedded_block(&BlockPtr::from_words(words)) {
        Some(block) => out.write_all(&block).map(|()| Verdict::Clean),
        None => {
            eprintln!("zdb: no embedded block, or one that cannot be decompressed");
            Ok(Verdict::Failed)
        }
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn pointers(block: &[u8], count: usize, out: &mut dyn Write) -> io::Result<()> {
    for bytes in block.chunks_exact(BLKPTR_SIZE).take(count) {
        match BlockPtr::decode(bytes, Endian::Little) {
            Ok(pointer) => writeln!(out, "{}", bp::Long(&pointer))?,
            Err(error) => writeln!(out, "no block pointer: {error}")?,
        }
    }
    Ok(())
}

/// Prints sixteen bytes a line, as two numbers and as text; with `swap`, the bytes of each number in reverse
/// order.
fn dump(title: &str, block: &[u8], swap: bool, out: &mut dyn Write) -> io::Result<()> {
    let header = if swap { "7 6 5 4 3 2 1 0   f e d c b a 9 8" } else { "0 1 2 3 4 5 6 7   8 9 a b c d e f" };
    writeln!(out, "\n{title}\n          {header}  0123456789abcdef")?;
    for (line, bytes) in block.chunks(16).enumerate() {
        write!(out, "{:06x}:", line * 16)?;
        for word in bytes.chunks(8) {
            let mut word = word.to_vec();
            if swap {
                word.reverse();
            }
            let digits: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
            write!(out, "  {digits}")?;
        }
        let shown =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        writeln!(out, "  {}", bytes.iter().map(shown).collect::<String>())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_hexadecimal_numbers_and_flags() {
        let place = BlockSpecifier::parse("1.0:1b000:20000/1400:db80").expect("a place");
        assert_eq!((place.vdev, place.path.as_slice(), place.offset), (1, &[0][..], 0x1b000));
        assert_eq!((place.lsize, place.psize, place.pointer), (0x20000, 0x1400, 0x80));
        assert!(place.has('d') && place.has('b') && !place.has('c'));
        for bad in ["x:0:200", "0:0", "0:1:200", "0:0:1", "0:0:200:z", "0:zz:200"] {
            assert!(BlockSpecifier::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_may_be_written_as_pointers_have_them() {
        for text in ["0:0:20000L/1400P:d", "0:0:20000/1400", "0:0:0x20000/0x1400"] {
            let place = BlockSpecifier::parse(text).expect(text);
            assert_eq!((place.lsize, place.psize), (0x20000, 0x1400), "{text}");
        }
        assert_eq!(BlockSpecifier::parse("0:0:1400P").expect("a place").lsize, 0x1400);
        assert!(BlockSpecifier::parse("0:0:1400X").is_err());
    }

    #[test]
    fn a_letter_behind_the_number_of_a_pointer_is_a_flag() {
        let flags = |text: &str| split_flags(text).expect("flags");
        assert_eq!(flags("b80d"), ("bd".to_owned(), 0x80));
        assert_eq!(flags("bd"), ("bd".to_owned(), 0));
        assert_eq!(flags("db100"), ("db".to_owned(), 0x100));
    }
}
