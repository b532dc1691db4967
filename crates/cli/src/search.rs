//! Where the drop-in commands look for pools, and the keys that they may use. With OpenZFS, the kernel knows
//! which pools are imported and which keys are loaded; here, environment variables name them.

use crate::console;
use admin::Search;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes that are read of a key file; the longest key is a passphrase of 512 bytes.
const KEY_MAX: u64 = 4096;

/// The settings of the environment: devices from `CENOTE_DEVICES` or `ZPOOL_IMPORT_PATH`, else all block
/// devices; keys from `CENOTE_KEYS`, one `DATASET=FILE` a line. A key that cannot be read is reported on
/// standard error; commands that need it fail later.
pub(crate) fn from_env() -> Search {
    let console = console::current();
    let mut search = Search {
        paths: devices(),
        namespace: console.as_ref().map(|console| Arc::clone(&console.namespace)),
        caller: console.as_ref().map(|console| console.caller.clone()),
        ..Search::default()
    };
    let keys = console::env("CENOTE_KEYS").unwrap_or_default().to_string_lossy().into_owned();
    for (dataset, file) in keys.lines().filter_map(|line| line.split_once('=')) {
        match read(Path::new(file)) {
            Ok(material) => search.keys.push((dataset.to_owned(), material)),
            Err(e) => {
                say_error_line!("{}", crate::out::visible(&format!("cannot read the key in '{file}': {e}")))
            }
        }
    }
    search
}

/// The places of devices that the environment names.
fn devices() -> Vec<PathBuf> {
    let split = |list: OsString, separator: u8| -> Vec<PathBuf> {
        let parts = list.as_bytes().split(|byte| *byte == separator).filter(|part| !part.is_empty());
        parts.map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))).collect()
    };
    let ours = console::env("CENOTE_DEVICES").map(|list| split(list, b'\n'));
    let theirs = || console::env("ZPOOL_IMPORT_PATH").map(|list| split(list, b':'));
    ours.or_else(theirs).unwrap_or_default()
}

#[allow(clippy::disallowed_types)] // A key is a file of the user's, no device.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut material = Vec::new();
    std::fs::File::open(file)?.take(KEY_MAX).read_to_end(&mut material)?;
    Ok(material)
}
