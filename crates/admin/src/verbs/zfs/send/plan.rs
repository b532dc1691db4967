//! What a stream consists of: its parts in order, and the list that precedes them.

use super::super::operand;
use super::from::{self, Start};
use super::refusal::{self, no_dataset};
use super::{Answer, Part, Refusal, Request, Skipped, package, tree};
use crate::edit::{self, EditError};
use crate::verbs::{Code, Reason, Warning};
use crate::{OpenPool, Session};
use cenote::Pool;
use cenote::stream::send::{self, Options, Source};
use dsl::bookmark::RedactionList;
use dsl::{Dataset, DslError};
use format::NvList;

/// A stream.
pub(super) struct Plan {
    /// The header of a package; `None`: the stream has one part.
    pub(super) header: Option<Header>,
    pub(super) parts: Vec<Planned>,
    pub(super) skipped: Vec<Skipped>,
    /// Full names of later snapshots.
    pub(super) later: Vec<String>,
}

/// What precedes the parts of a package.
pub(super) struct Header {
    /// Full name of the last snapshot of the dataset that is sent.
    pub(super) name: String,
    /// Snapshots, properties and holds; `None`: they are not listed.
    pub(super) list: Option<NvList>,
    /// Holds are listed.
    pub(super) holds: bool,
}

/// A part of a stream.
pub(super) struct Planned {
    pub(super) to: Dataset,
    pub(super) start: Option<Start>,
    pub(super) options: Options,
    /// The view that keeps its blocks.
    pub(super) pool: Pool,
}

impl Planned {
    /// What the engine sends. The object set is opened only now: there may be many parts.
    ///
    /// # Errors
    /// It cannot be read, or its key is not loaded.
    pub(super) fn source(&self) -> Result<Source, Refusal> {
        let failed = |error| refusal::unreadable(self.to.name(), error);
        Ok(Source {
            dataset: self.to.clone(),
            set: self.to.open_objset().map_err(failed)?,
            from: self.start.as_ref().map(|start| start.from.clone()),
            pool_features: active_features(&self.pool),
        })
    }

    /// The part as data.
    pub(super) fn part(&self, bytes: Option<u64>) -> Part {
        let from = self.start.as_ref().map(|start| start.shown.clone());
        Part { name: self.to.name().to_owned(), from, bytes }
    }

    fn estimate(&self) -> Result<u64, Refusal> {
        let estimate = send::estimate(&self.source()?, &self.options);
        estimate.map_err(|error| refusal::of_engine(self.to.name(), error))
    }
}

impl Plan {
    /// A stream of one part.
    pub(super) fn one(part: Planned) -> Plan {
        Plan { header: None, parts: vec![part], skipped: Vec::new(), later: Vec::new() }
    }

    /// The stream as data, with the sizes of its parts on demand.
    pub(super) fn answer(&self, session: &Session<'_>, estimate: bool) -> Result<Answer, Refusal> {
        let bytes = |part: &Planned| match estimate {
            true => {
                session.step();
                part.estimate().map(Some)
            }
            false => Ok(None),
        };
        let parts = self.parts.iter().map(|part| Ok(part.part(bytes(part)?)));
        let parts = parts.collect::<Result<_, Refusal>>()?;
        Ok(Answer { parts, skipped: self.skipped.clone(), later: self.later.clone() })
    }
}

/// Opens the pool of a dataset for reading, as of now.
pub(super) fn open(session: &mut Session<'_>, dataset: &str) -> Result<Vec<OpenPool>, Refusal> {
    let pool = edit::pool_of(dataset).to_owned();
    if !dataset.contains('@') {
        let failed = |error| refusal::not_sent(dataset, Reason::new(Code::Failed, error));
        session.sync(&pool).map_err(failed)?;
    }
    let (pools, problems) = session.pools(&[pool]);
    for problem in operand::told(problems) {
        session.warn(Warning::Problem { message: problem.to_string() });
    }
    Ok(pools)
}

/// What planning needs of its surroundings.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    pub(super) session: &'a Session<'a>,
    pub(super) pool: &'a Pool,
    /// What is sent.
    pub(super) to: Dataset,
    /// Nothing will be sent: neither permissions nor keys are needed.
    pub(super) dry: bool,
}

/// Plans a stream of a snapshot with what belongs to it, or of a file system or volume.
pub(super) fn plan(
    request: &Request,
    session: &Session<'_>,
    pool: &OpenPool,
    dry: bool,
) -> Result<Plan, Refusal> {
    let name = request.dataset.as_str();
    if !dry {
        ask(session, pool.pool(), name, request.raw)?;
    }
    let to = pool.pool().dsl().dataset(name).map_err(|error| not_opened(name, error))?;
    check_still(pool, &to)?;
    let planner = Planner { request, session, pool: pool.pool(), to, dry };
    match request.is_package() {
        true => planner.package(),
        false => Ok(Plan::one(planner.single()?)),
    }
}

/// There is no dataset `name`, or it cannot be read.
pub(super) fn not_opened(name: &str, error: DslError) -> Refusal {
    match error {
        DslError::NotFound { .. } => no_dataset(name),
        error => refusal::unreadable(name, error),
    }
}

/// Refuses a file system that is mounted: only a snapshot does not change meanwhile.
pub(super) fn check_still(pool: &OpenPool, to: &Dataset) -> Result<(), Refusal> {
    let name = to.name();
    let is_mounted = pool.mounted.as_ref().is_some_and(|mounted| mounted.contains_key(name));
    if to.is_snapshot() || !is_mounted {
        return Ok(());
    }
    let why = "target is busy; if a filesystem, it must not be mounted";
    Err(refusal::not_sent(name, Reason::new(Code::Busy, why)))
}

/// Asks for the caller's permission to send a dataset. `send:raw` suffices for blocks as they are on disk.
pub(super) fn ask(session: &Session<'_>, pool: &Pool, name: &str, raw: bool) -> Result<(), Refusal> {
    let may = |permission| edit::may(session.search(), pool, name, &[permission]);
    let outcome = match may("send") {
        Err(EditError::Denied) if raw => may("send:raw"),
        outcome => outcome,
    };
    outcome.map_err(|error| match error {
        EditError::NoDataset { .. } => no_dataset(name),
        error => refusal::not_sent(name, error),
    })
}

impl Planner<'_> {
    /// One part.
    fn single(&self) -> Result<Planned, Refusal> {
        let start = match &self.request.from {
            None => None,
            Some(text) => Some(from::find(self.pool, &self.to, &self.source_name(text))?),
        };
        let mut part = self.part(self.to.clone(), start);
        if let Some(mark) = &self.request.redact {
            part.options.redact = Some(self.redaction(mark)?);
        }
        self.check_key(&part.to)?;
        Ok(part)
    }

    /// The list of a redaction bookmark of the snapshot.
    fn redaction(&self, mark: &str) -> Result<RedactionList, Refusal> {
        let name = self.to.name();
        let full = match mark.contains('#') {
            true => from::full_name(self.to.dir().name(), mark),
            false => format!("{}#{mark}", self.to.dir().name()),
        };
        let found = self.pool.dsl().bookmark(&full).map_err(|error| match error {
            DslError::NotFound { .. } => {
                refusal::open(&full, Reason::new(Code::NoDataset, "no such pool or dataset"))
            }
            error => refusal::unreadable(name, error),
        })?;
        let refused = |why| refusal::not_sent(name, Reason::new(Code::Refused, why));
        let list = found.redaction().map_err(|error| refusal::unreadable(name, error))?;
        let list = list.ok_or_else(|| refused("not a redaction bookmark"))?;
        match found.phys().guid == self.to.phys().guid {
            true => Ok(list),
            false => Err(refused("the redaction bookmark is one of another snapshot")),
        }
    }

    /// Full name of the start that the request gives.
    pub(super) fn source_name(&self, text: &str) -> String {
        from::full_name(self.to.dir().name(), text)
    }

    /// A package.
    fn package(&self) -> Result<Plan, Refusal> {
        let tree::Tree { members, skipped, later } = tree::find(self)?;
        let list = match self.request.has_list() {
            true => Some(package::list(self, &members)?),
            false => None,
        };
        let mut parts = Vec::new();
        if !self.request.is_several() {
            parts.push(self.single()?);
        }
        for member in tree::order(&members).into_iter().filter(|_| self.request.is_several()) {
            for (to, start) in member.parts()? {
                parts.push(self.part(to, start));
            }
            self.check_key(&member.to)?;
        }
        let header = Header { name: self.to.name().to_owned(), list, holds: self.request.holds };
        Ok(Plan { header: Some(header), parts, skipped, later })
    }

    fn part(&self, to: Dataset, start: Option<Start>) -> Planned {
        let request = self.request;
        let to_name = sent_name(&to);
        let options = Options {
            // Blocks as they are on disk are whole, compressed and embedded.
            large_blocks: request.large_blocks || request.raw,
            embedded: request.embedded || request.raw,
            compressed: request.compressed || request.raw,
            raw: request.raw,
            to_name,
            ..Options::default()
        };
        Planned { to, start, options, pool: self.pool.clone() }
    }

    /// Contents that are sent decrypted can be read.
    fn check_key(&self, to: &Dataset) -> Result<(), Refusal> {
        if self.dry { Ok(()) } else { check_key(to, self.request.raw) }
    }
}

/// End of the name that a stream has for the contents of a file system or volume itself.
pub(super) const HEAD: &str = "@--head--";

/// The name that a stream has for what it sends.
pub(super) fn sent_name(to: &Dataset) -> String {
    match to.is_snapshot() {
        true => to.name().to_owned(),
        false => format!("{}{HEAD}", to.name()),
    }
}

/// Refuses a dataset whose key is not loaded, unless its blocks are sent as they are.
pub(super) fn check_key(to: &Dataset, raw: bool) -> Result<(), Refusal> {
    let failed = |error| refusal::unreadable(to.name(), error);
    if raw || !to.is_encrypted().map_err(failed)? {
        return Ok(());
    }
    match to.open_objset().map_err(failed)?.is_locked() {
        true => Err(refusal::not_sent(to.name(), Reason::new(Code::Refused, "dataset key must be loaded"))),
        false => Ok(()),
    }
}

/// Names of the active features of a pool.
fn active_features(pool: &Pool) -> Vec<&'static str> {
    let all = pool.spa().features().iter();
    all.filter(|(_, state)| matches!(state, cenote::FeatureState::Active(_)))
        .map(|(feature, _)| feature.name)
        .collect()
}
