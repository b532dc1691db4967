//! Keys of encrypted datasets: reads them from files, standard input and the terminal, and loads them for
//! mounts.

pub(crate) mod prompt;

use crate::cenote::term;
use crate::console::{self, Input};
use crate::out::visible;
use admin::mounting::{KeyFormat, KeyLocation, Mounting, WantedKey};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;

/// Most bytes that are read of a key; the longest key is a passphrase of 512 bytes.
const KEY_MAX: u64 = 4096;
/// Most attempts to ask for a key at a terminal.
pub(crate) const ATTEMPTS: usize = 3;

/// Reads the key in a file.
///
/// # Errors
/// The file cannot be read.
#[allow(clippy::disallowed_types)] // A key is a file of the user's, no device.
pub(crate) fn read_file(file: &OsStr) -> io::Result<Vec<u8>> {
    let mut key = Vec::new();
    std::fs::File::open(file)?.take(KEY_MAX).read_to_end(&mut key)?;
    Ok(key)
}

/// Loads keys for datasets that are to be mounted, and reports those that fail. Returns the exit code.
pub(crate) fn load(mounting: &Mounting, wanted: &[WantedKey]) -> u8 {
    let mut code = 0;
    for key in wanted {
        if let Err(why) = load_one(mounting, key) {
            console::say_error_line!("{}", visible(&format!("Key load error: {why}")));
            code = 1;
        }
    }
    code
}

fn load_one(mounting: &Mounting, wanted: &WantedKey) -> Result<(), String> {
    // The daemon reads the key with its own rights, so only for callers that may mount.
    if !mounting.may_mount() {
        return Err("Permission denied.".to_owned());
    }
    let is_asked = wanted.location == KeyLocation::Prompt && prompt::is_possible();
    let attempts = if is_asked { ATTEMPTS } else { 1 };
    let mut last = format!("no key for '{}'", wanted.root);
    for attempt in 1..=attempts {
        let Some(material) = material(wanted)? else { break };
        match mounting.load_key(&wanted.root, &material) {
            Ok(()) => return Ok(()),
            Err(error) => last = term::chain(&error),
        }
        if attempt < attempts {
            console::say_error_line!("{}", visible(&last));
        }
    }
    Err(last)
}

/// Reads the key material; `None`: the user gives no answer.
fn material(wanted: &WantedKey) -> Result<Option<Vec<u8>>, String> {
    let root = &wanted.root;
    let words = |error: io::Error| term::io_words(&error);
    match &wanted.location {
        KeyLocation::Prompt if prompt::is_possible() && wanted.format == KeyFormat::Raw => {
            Err(format!("the raw key for '{root}' cannot be typed: it is read from standard input"))
        }
        KeyLocation::Prompt if prompt::is_possible() => {
            let question = format!("Enter {} for '{}': ", noun(wanted.format), visible(root));
            prompt::secret(&question).map_err(words)
        }
        KeyLocation::Prompt => from_input(&mut console::input(), wanted.format).map(Some).map_err(words),
        KeyLocation::File(path) => {
            // Opening a pipe would wait for its writer.
            if !Path::new(path).metadata().is_ok_and(|meta| meta.is_file()) {
                return Err(format!("Failed to open key material file: {path}: no such regular file"));
            }
            let read = read_file(path.as_ref());
            read.map(Some)
                .map_err(|error| format!("Failed to open key material file: {path}: {}", words(error)))
        }
        KeyLocation::Url(url) => Err(format!(
            "the key of '{root}' is at {url}, which this version of Cenote does not fetch: \
             give it to the library, or to cenote --key"
        )),
        KeyLocation::None => Err(format!("'{root}' has no key location")),
    }
}

fn noun(format: KeyFormat) -> &'static str {
    match format {
        KeyFormat::Passphrase => "passphrase",
        KeyFormat::Hex => "hex key",
        KeyFormat::Raw => "raw key",
    }
}

/// The next key from standard input: a line, or the bytes of a raw key. The bytes after it belong to the next
/// key.
fn from_input(input: &mut Input, format: KeyFormat) -> io::Result<Vec<u8>> {
    let most = match format {
        KeyFormat::Raw => 32,
        KeyFormat::Hex | KeyFormat::Passphrase => KEY_MAX as usize,
    };
    let mut key = Vec::new();
    let mut byte = [0u8];
    while key.len() < most && input.read(&mut byte)? == 1 {
        if format != KeyFormat::Raw && byte == *b"\n" {
            break;
        }
        key.push(byte[0]);
    }
    Ok(key)
}
