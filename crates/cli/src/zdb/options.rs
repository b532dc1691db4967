//! The options of `zdb`.

use crate::getopt::{Getopt, Long};
use format::nicenum::nicenum;
use std::ffi::OsString;

const SHORT: &str = "AbBcCdDeEFGhiI:kK:lLmMNo:Op:PqrRsSt:TuU:vVx:XYyZ";
const LONG: &[Long] = &[
    Long::flag("ignore-assertions", 'A'),
    Long::flag("block-stats", 'b'),
    Long::flag("checksum", 'c'),
    Long::flag("config", 'C'),
    Long::flag("datasets", 'd'),
    Long::flag("embedded-block-pointer", 'E'),
    Long::flag("exported", 'e'),
    Long::flag("dedup-stats", 'D'),
    Long::flag("history", 'h'),
    Long::flag("intent-logs", 'i'),
    Long { name: "key", letter: 'K', value: true },
    Long::flag("checkpointed-state", 'k'),
    Long::flag("label", 'l'),
    Long::flag("disable-leak-tracking", 'L'),
    Long::flag("metaslabs", 'm'),
    Long::flag("metaslab-groups", 'M'),
    Long { name: "path", letter: 'p', value: true },
    Long::flag("parseable", 'P'),
    Long::flag("object-lookups", 'O'),
    Long::flag("skip-label", 'q'),
    Long::flag("copy-object", 'r'),
    Long::flag("read-block", 'R'),
    Long::flag("io-stats", 's'),
    Long::flag("simulate-dedup", 'S'),
    Long { name: "txg", letter: 't', value: true },
    Long::flag("brt-stats", 'T'),
    Long::flag("uberblock", 'u'),
    Long { name: "cachefile", letter: 'U', value: true },
    Long::flag("verbose", 'v'),
    Long::flag("verbatim", 'V'),
    Long::flag("livelist", 'y'),
    Long::flag("zstd-headers", 'Z'),
];

pub(super) const USAGE: &str = "\
Usage:\tzdb [-bcCdDehikLmMNPsSTuvZ] [-e [-p <path> ...]] [-t <txg>] [-K <key>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]]
\tzdb -E <word0>:<word1>:...:<word15>
\tzdb -l [-Pqu] <device>
\tzdb -m [-kLPv] [-e [-p <path> ...]] [-t <txg>] <poolname> [<vdev> [<metaslab> ...]]
\tzdb -O [-ePv] [-p <path> ...] [-K <key>] <dataset> <path>
\tzdb -r [-e [-p <path> ...]] [-K <key>] <dataset> <path> <destination>
\tzdb -R [-e [-p <path> ...]] <poolname> <vdev>:<offset>:[<lsize>/]<psize>[:<flags>]
\t-b --block-stats             count blocks, and compare with the space maps (-bb: by type)
\t-c --checksum                verify the checksums of all metadata blocks (-cc: of all blocks)
\t-C --config                  configuration of the pool
\t-d --datasets                datasets (-dd, -dddd, -ddddd, -dddddd: more of their objects)
\t-D --dedup-stats             dedup tables (-DD: with their histogram, -DDD: that of each,
\t                             -DDDD: shared blocks, -DDDDD: all blocks)
\t-E --embedded-block-pointer  the block in a block pointer
\t-e --exported                the pool need not be in a cache file (always so here)
\t-h --history                 history of the pool
\t-i --intent-logs             intent logs (-ii: with their records)
\t-k --checkpointed-state      the pool as it was when its checkpoint was taken
\t-K --key=KEY                 key of the encrypted dataset that is named
\t-l --label                   labels of a device
\t-L --disable-leak-tracking   do not compare with the space maps
\t-m --metaslabs               metaslabs (-mm, -mmm, -mmmm: more of them)
\t-M --metaslab-groups         free space of vdevs and pool by size (-MM: special vdevs, too)
\t-N                           like -d, but the name behind the pool is the number of an object set
\t-O --object-lookups          the file or directory at a path in a dataset
\t-p --path=PATH               a folder or device to look at; may be repeated
\t-P --parseable               exact numbers
\t-q --skip-label              do not print the label's contents
\t-r --copy-object             copies the file at a path in a dataset
\t-R --read-block              bytes by their place; flags: b pointer, c checksums, d decompress,
\t                             e other byte order, i pointers of an indirect block, r raw
\t-s --io-stats                what was read for all this
\t-S --simulate-dedup          what deduplication would save
\t-t --txg=INTEGER             newest txg to open
\t-T --brt-stats               cloned blocks (-TT: by vdev, -TTT: by references, -TTTT: each)
\t-u --uberblock               uberblocks
\t-y --livelist                check the livelists of destroyed clones, and the space maps
\t-Z --zstd-headers            with block pointers: size, version and level of zstd
";

/// Options that say what is wanted.
const ASKING: &str = "bcCdDEGhilmMOrRsSTuy";
/// What is printed if none of them is given.
const DEFAULT: &str = "bcCdDhimMsTu";

/// How often each option was given, and the values.
#[derive(Default)]
pub(crate) struct Options {
    pub(super) counts: std::collections::BTreeMap<char, usize>,
    pub(super) paths: Vec<OsString>,
    pub(super) txg: Option<u64>,
    pub(super) key: Option<OsString>,
}

impl Options {
    pub(super) fn count(&self, letter: char) -> usize {
        self.counts.get(&letter).copied().unwrap_or(0)
    }

    pub(super) fn has(&self, letter: char) -> bool {
        self.count(letter) > 0
    }

    /// How much is wanted of what this letter stands for: `-v` is one more of each.
    pub(super) fn detail(&self, letter: char) -> usize {
        self.count(letter) + self.count('v')
    }

    /// The most that is wanted of any of these.
    pub(super) fn detail_of(&self, letters: &[char]) -> usize {
        letters.iter().map(|letter| self.detail(*letter)).max().unwrap_or(0)
    }

    /// Without a word of what is wanted: nearly everything, each with one more of its letter.
    fn complete(&mut self) {
        if !self.is_default() {
            return;
        }
        let count = 1 + self.count('v').max(1);
        self.counts.extend(DEFAULT.chars().map(|letter| (letter, count)));
        self.counts.remove(&'v');
    }

    /// Nothing was asked for in particular.
    pub(super) fn is_default(&self) -> bool {
        !ASKING.chars().any(|c| self.has(c))
    }

    /// A number as people read it, or with `-P` as it is.
    pub(super) fn number(&self, n: u64) -> String {
        if self.has('P') { n.to_string() } else { nicenum(n) }
    }
}

/// As much of an object as there is to say without its blocks.
const FULL: usize = 4;

/// Options and operands, or what is wrong with them.
pub(super) fn parse(args: Vec<OsString>) -> Result<(Options, Vec<String>), String> {
    let mut options = Options::default();
    let mut walk = Getopt::new(args, SHORT, LONG);
    while let Some((letter, value)) = walk.next().map_err(|bad| format!("zdb: {bad}\n"))? {
        *options.counts.entry(letter).or_default() += 1;
        match (letter, value) {
            ('p', Some(path)) => options.paths.push(path),
            ('K', Some(key)) => options.key = Some(key),
            ('t', Some(txg)) => {
                let parsed = txg.to_str().and_then(|t| t.parse().ok());
                options.txg = Some(parsed.ok_or("zdb: incorrect txg specified\n")?);
            }
            // Its object is printed in full.
            ('O', _) => drop(options.counts.insert('d', FULL)),
            ('A' | 'e' | 'F' | 'G' | 'I' | 'o' | 'U' | 'V' | 'X' | 'Y' | 'x', _) => {}
            ('b' | 'c' | 'C' | 'd' | 'h' | 'i' | 'k' | 'l' | 'L' | 'm' | 'M' | 'P', _) => {}
            // The same, of a number.
            ('N', _) => *options.counts.entry('d').or_default() += 1,
            ('D' | 'E' | 'q' | 'r' | 'R' | 's' | 'S' | 'T' | 'u' | 'v' | 'y' | 'Z', _) => {}
            (other, _) => {
                return Err(format!("zdb: option -{other} is not supported by this version of Cenote\n"));
            }
        }
    }
    options.complete();
    let operands = walk.operands().into_iter();
    let operands =
        operands.map(|o| o.into_string().map_err(|o| format!("zdb: {} is not text\n", o.display())));
    Ok((options, operands.collect::<Result<_, _>>()?))
}
