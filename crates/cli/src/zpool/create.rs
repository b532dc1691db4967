//! `zpool create`: its arguments, and what is said of its refusals.

use super::{Given, in_session, layout, texts};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::verbs::zpool::create::{Refusal, Request};
use format::feature::PROPERTY_PREFIX;
use std::ffi::OsString;

/// What the options ask for.
#[derive(Default)]
struct Wanted {
    force: bool,
    dry: bool,
    /// `-d`: only the features that are named.
    few: bool,
    pool: Given,
    dataset: Given,
    mountpoint: Option<String>,
    temporary: Option<String>,
}

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), ":fndR:m:o:O:t:", &[]);
    let wanted = options(&mut walk)?;
    let operands = texts(&walk.operands());
    let Some((name, vdevs)) = operands.split_first() else {
        return Err(Stop::usage("missing pool name argument"));
    };
    if vdevs.is_empty() {
        return Err(Stop::usage("missing vdev specification"));
    }
    let request = Request {
        name: name.clone(),
        vdevs: vdevs.to_vec(),
        force: wanted.force,
        named_features_only: wanted.few,
        properties: wanted.pool.pairs(),
        dataset_properties: wanted.dataset.pairs(),
        mountpoint: wanted.mountpoint,
        temporary_name: wanted.temporary,
    };
    if wanted.dry {
        let vdevs = request.plan().map_err(Stop::failed)?;
        out.print(&layout::new_pool(name, &vdevs, out));
        return Ok(0);
    }
    in_session("create", args, |session| {
        let outcome = session.run(&request);
        super::tell_warnings(session);
        let answer = outcome.map_err(refused)?;
        if let Some(path) = &request.mountpoint {
            crate::mounts::tell_elsewhere(&answer.pool, path, out);
        }
        Ok(0)
    })
}

/// What is said of a refusal, and the exit code.
fn refused(refusal: Refusal) -> Stop {
    if refusal == Refusal::FeaturesAndVersion {
        say_error_line!("{refusal}");
        return Stop::Code(2);
    }
    Stop::failed(refusal)
}

fn options(walk: &mut Getopt) -> Result<Wanted, Stop> {
    let mut wanted = Wanted::default();
    while let Some((letter, value)) = walk.next()? {
        let value = value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        match letter {
            'f' => wanted.force = true,
            'n' => wanted.dry = true,
            'd' => wanted.few = true,
            'm' => wanted.mountpoint = Some(value),
            'R' => wanted.pool.add("altroot", &value).map_err(Stop::failed)?,
            'o' => pool_option(&value, &mut wanted.pool)?,
            'O' => dataset_option(&value, &mut wanted.dataset)?,
            't' => {
                if value.contains('/') {
                    return Err(Stop::failed(format!(
                        "cannot create '{value}': invalid character '/' in temporary name\n\
                         use 'zfs create' to create a dataset"
                    )));
                }
                wanted.temporary = Some(value);
            }
            _ => {}
        }
    }
    Ok(wanted)
}

/// `-o`: a property of the pool.
fn pool_option(text: &str, given: &mut Given) -> Result<(), Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::failed("missing '=' for -o option"))?;
    let name = super::known_pool_property(name)
        .ok_or_else(|| Stop::failed(format!("property '{name}' is not a valid pool or vdev property")))?;
    let both = given.get("version").is_some() && name.starts_with(PROPERTY_PREFIX)
        || name == "version" && given.names().any(|known| known.starts_with(PROPERTY_PREFIX));
    if both {
        return Err(Stop::failed("'feature@' and 'version' properties cannot be specified together"));
    }
    given.add(&name, value).map_err(Stop::failed)
}

/// `-O`: a property of the root file system.
fn dataset_option(text: &str, given: &mut Given) -> Result<(), Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::failed("missing '=' for -O option"))?;
    let known = format::prop::dataset(name).filter(|prop| prop.applies_to(format::prop::FS));
    let is_limit = format::prop::per_owner(name).is_some_and(|(prefix, _)| prefix.ends_with("quota@"));
    let name = match known {
        Some(known) => known.name,
        None if format::prop::is_user(name) || is_limit => name,
        None => return Err(Stop::failed(format!("property '{name}' is not a valid filesystem property"))),
    };
    given.add(name, value).map_err(Stop::failed)
}
