//! `zpool history`: what was done to pools.
//!
//! # What always holds
//! - [`Session::each`] keeps one record in memory, and what is read of a history at a time: histories grow up to a
//!   gibibyte. [`Session::run`] collects all records.
//! - A record that cannot be decoded hides no other.
//!
//! Format of the records: docs/on-disk/22-mos-dsl.md, section 10.

use super::ReadRefusal;
use crate::verbs::{Code, Reason, Right, Streamed, Verb, collect};
use crate::{OpenPool, Problem, Session};
use format::nvlist::{NvList, NvValue};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// Histories to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Names of the pools; none: all.
    pub pools: Vec<String>,
    /// Also what the pool itself has noted (`-i`).
    pub internal: bool,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools, by name.
    pub pools: Vec<History>,
    /// What could not be opened or looked at.
    pub problems: Vec<Problem>,
}

/// The history of one pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Name of the pool.
    pub pool: String,
    /// Its records, oldest first.
    pub records: Vec<Record>,
}

/// A part of the histories: what could not be opened, then pool by pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// Something could not be opened or looked at.
    Problem(Problem),
    /// The history of the pool with this name begins.
    Pool(String),
    /// A record of the pool that came last.
    Record(Record),
}

/// A record of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Something was done.
    Done {
        /// When, in seconds since 1970; `None`: the record does not say.
        time: Option<u64>,
        /// What.
        what: What,
        /// Who did it, and where.
        who: Who,
    },
    /// The record cannot be decoded.
    Unreadable(Reason),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A command.
    Command(String),
    /// Something that a pool of a version before 5000 noted.
    Numbered {
        /// Number of its kind.
        event: u64,
        /// Transaction group.
        txg: u64,
        /// Its text.
        text: String,
    },
    /// Something that the pool noted.
    Internal {
        /// Its name: `create`, `set`, `scan setup`…
        name: String,
        /// Transaction group.
        txg: u64,
        /// Name and number of the dataset that it is about.
        dataset: Option<(String, u64)>,
        /// Its text.
        text: String,
    },
    /// A request to the kernel.
    Operation {
        /// Its name.
        name: String,
        /// How long it took, in nanoseconds.
        elapsed: Option<i64>,
        /// What it was given.
        input: Option<NvList>,
        /// What it gave back.
        output: Option<NvList>,
        /// Its error number.
        errno: Option<i64>,
    },
    /// Something else; all that the record has.
    Unknown(NvList),
}

/// Who did something, as far as the record says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Who {
    /// Number of the user.
    pub user: Option<u64>,
    /// Name of the machine.
    pub host: Option<String>,
    /// Name of the zone.
    pub zone: Option<String>,
}

impl Record {
    /// A record as it is stored.
    fn of(list: &NvList) -> Record {
        let word = |name: &str| list.str(name).map(str::to_owned);
        let who =
            Who { user: list.u64("history who"), host: word("history hostname"), zone: word("history zone") };
        Record::Done { time: list.u64("history time"), what: What::of(list), who }
    }
}

impl What {
    fn of(list: &NvList) -> What {
        let word = |name: &str| list.str(name).unwrap_or_default().to_owned();
        let number = |name: &str| list.u64(name).unwrap_or(0);
        let text = || word("history internal str");
        if let Some(command) = list.str("history command") {
            What::Command(command.to_owned())
        } else if let Some(event) = list.u64("history internal event") {
            // The numbers are all that the format says.
            What::Numbered { event, txg: number("history txg"), text: text() }
        } else if let Some(name) = list.str("internal_name") {
            let dataset = list.str("dsname").map(|dataset| (dataset.to_owned(), number("dsid")));
            What::Internal { name: name.to_owned(), txg: number("history txg"), dataset, text: text() }
        } else if let Some(name) = list.str("ioctl") {
            What::Operation {
                name: name.to_owned(),
                elapsed: integer(list, "elapsed_ns"),
                input: list.list("in_nvl").cloned(),
                output: list.list("out_nvl").cloned(),
                errno: integer(list, "errno"),
            }
        } else {
            What::Unknown(list.clone())
        }
    }
}

fn integer(list: &NvList, name: &str) -> Option<i64> {
    match list.get(name)? {
        NvValue::Int64(number) => Some(*number),
        NvValue::Int32(number) => Some(i64::from(*number)),
        _ => None,
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool history";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, ReadRefusal> {
        let mut answer = Answer { pools: Vec::new(), problems: Vec::new() };
        for item in collect(self, session)? {
            match item {
                Item::Problem(problem) => answer.problems.push(problem),
                Item::Pool(pool) => answer.pools.push(History { pool, records: Vec::new() }),
                Item::Record(record) => {
                    if let Some(pool) = answer.pools.last_mut() {
                        pool.records.push(record);
                    }
                }
            }
        }
        Ok(answer)
    }
}

impl Streamed for Request {
    type Item = Item;

    fn each(
        &self,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(Item) -> ControlFlow<()>,
    ) -> Result<(), ReadRefusal> {
        session.settle(&self.pools);
        let (pools, problems) = session.pools(&self.pools);
        for problem in problems {
            if sink(Item::Problem(problem)).is_break() {
                return Ok(());
            }
        }
        for pool in &pools {
            if sink(Item::Pool(pool.name().to_owned())).is_break() || self.read(pool, sink)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Request {
    /// Gives the records of a pool to `sink`.
    fn read(
        &self,
        pool: &OpenPool,
        sink: &mut dyn FnMut(Item) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadRefusal> {
        let read = pool.pool().spa().each_history_record(&mut |record| {
            let record = match record {
                Ok(list) => Record::of(&list),
                Err(error) => Record::Unreadable(Reason::new(Code::Failed, error)),
            };
            match &record {
                Record::Done { what: What::Command(_), .. } | Record::Unreadable(_) => {
                    sink(Item::Record(record))
                }
                Record::Done { .. } if self.internal => sink(Item::Record(record)),
                Record::Done { .. } => ControlFlow::Continue(()),
            }
        });
        read.map_err(|error| ReadRefusal::Unreadable {
            pool: pool.name().to_owned(),
            reason: Reason::new(Code::Failed, cenote::Error::from(error)),
            problems: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    fn record(pairs: &[(&str, NvValue)]) -> Record {
        let mut list = NvList::new();
        pairs.iter().for_each(|(name, value)| list.push(name, value.clone()));
        carried(&Record::of(&list))
    }

    #[test]
    fn records_say_what_was_done_and_by_whom() {
        let command = record(&[
            ("history time", 7u64.into()),
            ("history command", "zpool create tank a".into()),
            ("history who", 0u64.into()),
            ("history hostname", "host".into()),
        ]);
        let who = Who { user: Some(0), host: Some("host".into()), zone: None };
        let what = What::Command("zpool create tank a".into());
        assert_eq!(command, Record::Done { time: Some(7), what, who });
        let internal = record(&[
            ("internal_name", "create".into()),
            ("history txg", 9u64.into()),
            ("dsname", "tank/a".into()),
            ("dsid", 54u64.into()),
        ]);
        let Record::Done { what: What::Internal { dataset, txg: 9, .. }, .. } = internal else {
            panic!("{internal:?}")
        };
        assert_eq!(dataset, Some(("tank/a".to_owned(), 54)));
        let mut input = NvList::new();
        input.push("type", NvValue::Int32(2));
        let operation = record(&[
            ("ioctl", "create".into()),
            ("in_nvl", NvValue::List(input)),
            ("errno", NvValue::Int64(-1)),
        ]);
        let Record::Done { time: None, what: What::Operation { input, errno, .. }, .. } = operation else {
            panic!("{operation:?}")
        };
        assert_eq!((input.map(|list| list.len()), errno), (Some(1), Some(-1)));
        let unknown = record(&[("nosuch", 1u64.into())]);
        assert!(matches!(unknown, Record::Done { what: What::Unknown(_), .. }));
    }

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { pools: vec!["tank".into()], internal: true });
        let unreadable = Record::Unreadable(Reason::new(Code::Failed, "short"));
        let history = History { pool: "tank".into(), records: vec![unreadable] };
        carried(&Answer { pools: vec![history], problems: vec![Problem::missing_pool("pond")] });
    }
}
