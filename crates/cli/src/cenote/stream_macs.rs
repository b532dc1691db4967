//! `cenote stream verify --key`: decrypts locked streams, and compares every block with its MAC.

use super::open::{Session, parse};
use super::stream_files::read;
use super::stream_keys::Keys;
use super::verify::damage_text;
use super::{Outcome, term};
use crate::out::Out;
use ::cenote::chain::ChainOptions;
use ::cenote::verify::{DatasetReport, Encryption, Options, verify as verify_pool};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

/// Reads all that the streams in these files hold, with these keys.
pub(super) fn verify(keys: &Keys, files: &[OsString], quiet: bool) -> Outcome {
    let chain = read(&files.iter().collect::<Vec<_>>(), &ChainOptions::default(), quiet)?;
    let source = keys.source(&chain)?;
    let (session, pool) = (Session::new(&source), chain.pool());
    session.adopt_unlocked(pool.name(), pool.clone())?;
    let datasets: BTreeSet<&str> = chain.snapshots().iter().map(|one| one.dataset.as_str()).collect();
    for dataset in datasets {
        session.unlock(&parse(OsStr::new(&chain.name_in_pool(dataset)))?)?;
    }
    let report = verify_pool(pool, &Options { every_copy: false, space: false, ..Options::default() }, &());
    report.damage.iter().for_each(|damage| term::complain(damage_text(damage)));
    for dataset in &report.datasets {
        if let Some(why) = &dataset.failed {
            term::complain(format!("{}: {why}", term::escape(dataset.name.as_bytes())));
        }
    }
    let is_decrypted = |one: &&DatasetReport| {
        one.encryption == Encryption::Verified && one.failed.is_none() && one.name.contains('@')
    };
    let count = report.datasets.iter().filter(is_decrypted).count();
    if report.is_whole() {
        let noun = if count == 1 { "snapshot" } else { "snapshots" };
        Out::new().print(&format!("decrypted: {count} {noun}, every MAC is right\n"));
    }
    Ok(u8::from(!report.is_whole()))
}
