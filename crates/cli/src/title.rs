//! The title of this process: what `ps` shows instead of its arguments.
//!
//! Linux shows the area of the arguments, whose place is in `/proc/self/stat`; it is written through `/proc/self/mem`.
//! The area is as long as the arguments were, too short for most titles: a command that will have one starts itself
//! again, in the same process, with blanks behind its name.
//!
//! # What always holds
//! - Only the area of the arguments is written, and its last byte is zero: with another one there, Linux would show the
//!   environment, which is behind it. A title that is too long is cut.
//! - The arguments were read before the first title: the standard library, too, reads them from the area.
//! - A title is a convenience: where it cannot be set so, the name of the thread tells what fits in it, and no command
//!   fails for it.
//!
//! # Order
//! [`make_room`], before there are threads -> [`set`], any number of times.
//!
//! Tests: below, and `tests/commands/sending.rs`.
// The files are those of the process itself.
#![allow(clippy::disallowed_types)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Blanks behind the name of the program: room for the longest name of a snapshot, and numbers.
const ROOM: usize = 320;
/// Places of the first and the last address of the arguments among the fields of `/proc/self/stat` behind the name.
const ADDRESSES: [usize; 2] = [45, 46];
/// Most bytes of `/proc/self/stat` that are read.
const STAT_MAX: u64 = 4096;
/// Most bytes of the name of a thread.
const NAME_MAX: usize = 15;

/// The name by which this program was called, without blanks behind it.
pub(crate) fn without_room(called: &OsStr) -> &OsStr {
    let len = called.as_bytes().trim_ascii_end().len();
    OsStr::from_bytes(called.as_bytes().get(..len).unwrap_or_default())
}

/// Starts this program again with room for titles, if it has none. Returns if that cannot be done, too: titles are cut
/// then.
pub(crate) fn make_room(called: &OsStr, args: &[OsString]) {
    if without_room(called) != called {
        // The blanks are not shown until there is a title.
        let words = std::iter::once(without_room(called)).chain(args.iter().map(OsString::as_os_str));
        set(&words.collect::<Vec<_>>().join(OsStr::new(" ")).to_string_lossy());
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut name = called.to_owned();
    name.push(" ".repeat(ROOM));
    // What it returns is the error.
    let _ = Command::new(program).arg0(name).args(args).exec();
}

/// Sets the title.
pub(crate) fn set(title: &str) {
    if write(title.as_bytes()).is_err() {
        let name = title.bytes().filter(|byte| *byte != 0).take(NAME_MAX).collect::<Vec<u8>>();
        if let Ok(name) = CString::new(name) {
            // There is nothing else to try.
            let _ = rustix::thread::set_name(&name);
        }
    }
}

fn write(title: &[u8]) -> io::Result<()> {
    let mut stat = Vec::new();
    File::open("/proc/self/stat")?.take(STAT_MAX).read_to_end(&mut stat)?;
    let area = area(&stat).ok_or(io::ErrorKind::Unsupported)?;
    let bytes = fitted(title, (area.end - area.start) as usize);
    OpenOptions::new().write(true).open("/proc/self/mem")?.write_all_at(&bytes, area.start)
}

/// The addresses of the arguments, from the text of `/proc/self/stat`. Linux hides them, as zeros, from programs that may
/// not know them.
fn area(stat: &[u8]) -> Option<Range<u64>> {
    // The name of the program is in parentheses, and may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let [start, end] = ADDRESSES.map(|place| fields.split_ascii_whitespace().nth(place)?.parse::<u64>().ok());
    let area = start?..end?;
    let has_room = area.start > 0 && area.end > area.start && area.end - area.start <= usize::MAX as u64;
    has_room.then_some(area)
}

/// The title in an area of this length: cut, or with zeros behind it; the last byte is zero in any case.
fn fitted(title: &[u8], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        title.iter().copied().filter(|byte| *byte != 0).take(len.saturating_sub(1)).collect();
    bytes.resize(len, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_fit_their_area_and_end_in_a_zero() {
        assert_eq!(fitted(b"abc", 6), b"abc\0\0\0");
        assert_eq!(fitted(b"abcdef", 4), b"abc\0");
        assert_eq!(fitted(b"a\0b", 4), b"ab\0\0");
        assert_eq!(fitted(b"abc", 0), b"");
    }

    #[test]
    fn the_area_is_found_behind_any_name() {
        let fields: Vec<String> = (0..50).map(|field| (1000 + field).to_string()).collect();
        let stat = |fields: &[String]| format!("7 (a) b) S)) {}", fields.join(" ")).into_bytes();
        assert_eq!(area(&stat(&fields)), Some(1045..1046));
        let hidden: Vec<String> = fields.iter().map(|_| "0".to_owned()).collect();
        assert_eq!(area(&stat(&hidden)), None);
        assert_eq!(area(&stat(&fields[..40])), None);
        assert_eq!(area(b""), None);
        let own = std::fs::read("/proc/self/stat").expect("read");
        assert!(area(&own).is_some());
    }

    #[test]
    fn room_is_no_part_of_the_name() {
        assert_eq!(without_room("/sbin/zfs   ".as_ref()), "/sbin/zfs");
        assert_eq!(without_room("zfs".as_ref()), "zfs");
    }
}
