//! Uberblocks, as `zdb -u` prints them.

use super::bp::Long;
use crate::time::ctime;
use format::uberblock::{MMP_MAGIC, Uberblock};
use std::io::{self, Write};

/// Prints the fields of an uberblock, one a line.
pub(crate) fn print(out: &mut dyn Write, ub: &Uberblock) -> io::Result<()> {
    writeln!(out, "\tmagic = 0000000000bab10c")?;
    writeln!(out, "\tversion = {}", ub.version)?;
    writeln!(out, "\ttxg = {}", ub.txg)?;
    writeln!(out, "\tguid_sum = {}", ub.guid_sum)?;
    let zone = if std::env::var_os("TZ").is_none_or(|tz| tz == "UTC") { "UTC" } else { "local" };
    writeln!(out, "\ttimestamp = {} {zone} = {}", ub.timestamp, ctime(ub.timestamp))?;
    writeln!(out, "\tbp = {}", Long(&ub.root))?;
    writeln!(out, "\tmmp_magic = {:016x}", if ub.mmp.is_some() { MMP_MAGIC } else { 0 })?;
    if let Some(mmp) = &ub.mmp {
        writeln!(out, "\tmmp_delay = {}", mmp.delay_ns)?;
        if let Some(sequence) = mmp.sequence() {
            writeln!(out, "\tmmp_seq = {sequence}")?;
        }
        if let Some(interval) = mmp.interval_ms() {
            writeln!(out, "\tmmp_write_interval = {interval}")?;
        }
        if let Some(intervals) = mmp.fail_intervals() {
            writeln!(out, "\tmmp_fail_intervals = {intervals}")?;
        }
        writeln!(out, "\tmmp_valid = {:x}", mmp.config & 7)?;
    }
    writeln!(out, "\tcheckpoint_txg = {}", ub.checkpoint_txg)?;
    writeln!(out, "\traidz_reflow state={} off={}", ub.reflow.state, ub.reflow.offset)
}
