//! `zfs_ids_to_path`: finds the path of a file from the object numbers of its dataset and of the file.

use crate::mounts::mounting;
use crate::out::Out;
use crate::rights;
use format::ObjectId;
use std::ffi::OsString;

const USAGE: &str = "Usage: zfs_ids_to_path [-v] <pool> <objset id> <object id>";

/// Runs the command; returns its exit code.
pub(crate) fn main(args: &[OsString], out: &Out) -> u8 {
    if !rights::is_administrator() {
        say_error_line!("zfs_ids_to_path: permission denied");
        return 1;
    }
    let mut words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let before = words.len();
    words.retain(|word| word != "-v");
    let is_verbose = words.len() < before;
    let [pool, set, object] = &words[..] else {
        say_error_line!("Incorrect number of arguments: {}\n{USAGE}", words.len());
        return 1;
    };
    let (Ok(set), Ok(object)) = (set.parse::<u64>(), object.parse::<u64>()) else {
        say_error_line!("Invalid objset or object id\n{USAGE}");
        return 1;
    };
    match path(pool, set, object, is_verbose) {
        Ok(path) => {
            out.print(&format!("{}\n", out.cell(&path)));
            0
        }
        Err(why) => {
            say_error_line!("{}", crate::out::visible(&why));
            1
        }
    }
}

/// The path of the file as `dataset:/path` if `is_verbose`, else below its mount point.
fn path(pool: &str, set: u64, object: u64, is_verbose: bool) -> Result<String, String> {
    let search = crate::search::from_env();
    if let Some(writer) = search.namespace.as_ref().and_then(|namespace| namespace.get(pool)) {
        // So that objects that were just made have a path too.
        writer.sync().map_err(|error| error.to_string())?;
    }
    let (pools, _) = admin::open_pools(&search, &[pool.to_owned()]);
    let open = pools.first().ok_or_else(|| format!("cannot open '{pool}': no such pool"))?;
    let dataset = open.pool().dsl().dataset_by_object(ObjectId(set)).map_err(|error| error.to_string())?;
    let name = dataset.name().to_owned();
    let files = open.pool().dataset(&name).and_then(|found| found.filesystem());
    let files = files.map_err(|error| error.to_string())?;
    let path = files.filesystem().path_of(ObjectId(object)).map_err(|error| error.to_string())?;
    let path = path.ok_or_else(|| format!("{name}:<0x{object:x}>"))?;
    let path = String::from_utf8_lossy(&path);
    let mounted = mounting().filter(|_| !is_verbose).and_then(|mounting| mounting.mounted(&name));
    Ok(match mounted {
        Some(mounted) => format!("{}{path}", mounted.at.display().to_string().trim_end_matches('/')),
        None => format!("{name}:{path}"),
    })
}
