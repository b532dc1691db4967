//! Where the drop-in commands look for pools, and the keys that they may use. With OpenZFS the kernel knows
//! which pools are imported and which keys are loaded; here the environment tells.

use cenote::admin::Search;
use std::io::Read;
use std::path::Path;

/// Most bytes read from a key file; the longest key is a passphrase of 512.
const KEY_MAX: u64 = 4096;

/// `CENOTE_DEVICES` or `ZPOOL_IMPORT_PATH`, else all block devices; and `CENOTE_KEYS`: one `DATASET=FILE` a
/// line. A key that cannot be read is told on standard error, and what needs it will fail.
pub(crate) fn from_env() -> Search {
    let mut search = Search::from_env();
    let keys = std::env::var("CENOTE_KEYS").unwrap_or_default();
    for (dataset, file) in keys.lines().filter_map(|line| line.split_once('=')) {
        match read(Path::new(file)) {
            Ok(material) => search.keys.push((dataset.to_owned(), material)),
            Err(e) => eprintln!("{}", crate::out::visible(&format!("cannot read the key in '{file}': {e}"))),
        }
    }
    search
}

#[allow(clippy::disallowed_types)] // A key is a file of the user's, no device.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut material = Vec::new();
    std::fs::File::open(file)?.take(KEY_MAX).read_to_end(&mut material)?;
    Ok(material)
}
