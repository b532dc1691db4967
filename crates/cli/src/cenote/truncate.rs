//! `cenote truncate` and `cenote touch`.

use std::ffi::{OsStr, OsString};
use std::time::{SystemTime, UNIX_EPOCH};

use ::cenote::Error;
use ::cenote::copy::Stamp;
use ::cenote::files::NewAttrs;

use super::open::{Source, parse_bytes};
use super::writing::{Writing, cannot};
use super::{Failure, Outcome};

/// Change the size of files in a pool
///
/// What is new reads as zeros, and takes no space.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Bytes (suffixes K, M, G, T); with +, -, <, >, / or % before: larger or smaller by so much, at most, at
    /// least, rounded down or up to a multiple
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: String,
    /// Files that do not exist are not made
    #[arg(short = 'c', long)]
    no_create: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Make files in a pool, or set their times to now
#[derive(clap::Args)]
pub(super) struct TouchArgs {
    #[command(flatten)]
    source: Source,
    /// Only the time of the last access
    #[arg(short = 'a')]
    access: bool,
    /// Only the time of the last change
    #[arg(short = 'm')]
    modified: bool,
    /// Files that do not exist are not made
    #[arg(short = 'c', long)]
    no_create: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// A size, absolute or relative to the present size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewSize {
    how: char,
    bytes: u64,
}

impl NewSize {
    fn parse(text: &str) -> Option<NewSize> {
        let (how, digits) = match text.chars().next()? {
            how @ ('+' | '-' | '<' | '>' | '/' | '%') => (how, text.get(1..)?),
            _ => ('=', text),
        };
        // KB is 1000 bytes; K and KiB are 1024.
        let decimal = digits.strip_suffix('B').and_then(|digits| {
            let power = "KMGTPE".find(digits.chars().last()?)? as u32 + 1;
            let count: u64 = digits.get(..digits.len() - 1)?.parse().ok()?;
            count.checked_mul(1000u64.checked_pow(power)?)
        });
        let bytes = decimal.or_else(|| parse_bytes(digits).ok())?;
        (!(matches!(how, '/' | '%') && bytes == 0)).then_some(NewSize { how, bytes })
    }

    fn of(self, size: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.how {
            '+' => size.checked_add(bytes),
            '-' => Some(size.saturating_sub(bytes)),
            '<' => Some(size.min(bytes)),
            '>' => Some(size.max(bytes)),
            '/' => Some(size / bytes * bytes),
            '%' => size.checked_next_multiple_of(bytes),
            _ => Some(bytes),
        }
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let size = NewSize::parse(&args.size)
        .ok_or_else(|| Failure::Message(format!("Invalid number: '{}'", args.size)))?;
    Writing::new(&args.source)?.each(&args.targets, |pools, target| {
        let place = pools.writable_path(target)?;
        let failure = |error| cannot(format_args!("open '{}' for writing", place.shown), &error);
        let file = match place.fs.open_file(&place.path) {
            Err(Error::NoSuchPath { .. }) if args.no_create => return Ok(()),
            Err(Error::NoSuchPath { .. }) => place.fs.create(&place.path).map_err(failure)?,
            file => file.map_err(failure)?,
        };
        let too_large = || Failure::Message(format!("'{}': File too large", place.shown));
        let size = size.of(file.len()).ok_or_else(too_large)?;
        file.set_len(size).map_err(|error| cannot(format_args!("truncate '{}'", place.shown), &error))
    })
}

pub(super) fn touch(args: &TouchArgs) -> Outcome {
    Writing::new(&args.source)?.each(&args.targets, |pools, target| touch_one(args, pools, target))
}

fn touch_one(args: &TouchArgs, pools: &Writing<'_>, target: &OsStr) -> Result<(), Failure> {
    let place = pools.writable_path(target)?;
    let failure = |error| cannot(format_args!("touch '{}'", place.shown), &error);
    let id = match place.fs.resolve(&place.path) {
        Err(Error::NoSuchPath { .. }) if args.no_create => return Ok(()),
        Err(Error::NoSuchPath { .. }) => place.fs.create(&place.path).map_err(failure)?.id(),
        id => id.map_err(failure)?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Stamp { secs: now.as_secs() as i64, nanos: now.subsec_nanos() };
    let both = args.access == args.modified;
    let new = NewAttrs {
        atime: (both || args.access).then_some(now),
        mtime: (both || args.modified).then_some(now),
        ..NewAttrs::default()
    };
    place.fs.fs().set_attrs(id, &new).map_err(|error| failure(error.into()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::NewSize;

    #[test]
    fn sizes() {
        let size = |text: &str, of: u64| NewSize::parse(text).and_then(|size| size.of(of));
        assert_eq!(size("4K", 7), Some(4096));
        assert_eq!(size("+1", 7), Some(8));
        assert_eq!(size("-9", 7), Some(0));
        assert_eq!(size("<5", 7), Some(5));
        assert_eq!(size(">9", 7), Some(9));
        assert_eq!(size("/4", 7), Some(4));
        assert_eq!(size("%4", 7), Some(8));
        assert_eq!(size("2KB", 7), Some(2000));
        assert_eq!(size("+1MB", 7), Some(1_000_007));
        assert_eq!(size("%0", 7), None);
        assert_eq!(size("x", 7), None);
    }
}
