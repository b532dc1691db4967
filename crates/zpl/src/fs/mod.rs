//! Open file systems: the master node, and the tables for reading files (docs/on-disk/23-zpl.md, sections 1
//! and 2).

pub(crate) mod backing;
pub(crate) mod head;
pub(crate) mod make;
pub(crate) mod options;
pub(crate) mod replay;
pub(crate) mod stat;
pub(crate) mod writable;

use crate::ZplError;
use crate::attrs::tables::SaTables;
use crate::fuid::Domains;
use dmu::zap::{Match, Zap};
use dmu::{DmuError, ObjSet};
use format::ObjectId;
use format::names::master_node;
use format::objset::ObjsetType;
use format::zap::{NORM_CANONICAL, NORM_COMPATIBLE, NORM_COMPOSE, NORM_UPPER};
use std::sync::{Arc, OnceLock};

/// The newest version of file systems.
const VERSION_MAX: u64 = 5;
/// Whether upper and lower case make different names (property `casesensitivity`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaseSensitivity {
    /// Case is significant.
    #[default]
    Sensitive,
    /// Case is ignored.
    Insensitive,
    /// Case is significant, unless the caller asks to ignore it.
    Mixed,
}

/// A file system that is open for reading.
pub struct Filesystem {
    objset: Arc<ObjSet>,
    pub(crate) master: Zap,
    version: u64,
    root: ObjectId,
    unlinked: Option<ObjectId>,
    normalization: u64,
    utf8only: bool,
    case: CaseSensitivity,
    sa: Option<SaTables>,
    domains: OnceLock<Domains>,
}

impl Filesystem {
    /// Opens the file system in an object set.
    ///
    /// # Errors
    /// [`ZplError::WrongDataset`] if the object set holds no file system; also if its key is missing, or its
    /// master node or attribute tables cannot be read.
    pub fn open(objset: Arc<ObjSet>) -> Result<Arc<Filesystem>, ZplError> {
        let number = objset.number();
        if objset.kind() != ObjsetType::Zfs {
            return Err(ZplError::WrongDataset { objset: number, expected: "file system" });
        }
        let corrupt = |why| ZplError::Corrupt { objset: number, object: master_node::OBJECT, why };
        let master = Zap::open(&objset.object(master_node::OBJECT)?)?;
        let value = |name: &str| master.lookup_u64(name.as_bytes());
        let object = |name: &str| Ok::<_, DmuError>(value(name)?.filter(|id| *id != 0).map(ObjectId));
        let version =
            value(master_node::VERSION)?.ok_or_else(|| corrupt("the master node has no version"))?;
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(ZplError::Version { objset: number, version });
        }
        let sa = match object(master_node::SA_ATTRS)? {
            Some(id) => Some(SaTables::open(&objset, id)?),
            None => None,
        };
        let case = match value(master_node::CASESENSITIVITY)?.unwrap_or(0) {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            _ => return Err(corrupt("the case sensitivity is not known")),
        };
        let forms = NORM_CANONICAL | NORM_COMPATIBLE | NORM_COMPOSE;
        Ok(Arc::new(Filesystem {
            version,
            root: object(master_node::ROOT)?
                .ok_or_else(|| corrupt("the master node has no root directory"))?,
            unlinked: object(master_node::DELETE_QUEUE)?,
            normalization: value(master_node::NORMALIZATION)?.unwrap_or(0) & (forms | NORM_UPPER),
            utf8only: value(master_node::UTF8ONLY)?.unwrap_or(0) != 0,
            case,
            sa,
            master,
            objset,
            domains: OnceLock::new(),
        }))
    }

    /// The object set of the file system.
    pub fn objset(&self) -> &Arc<ObjSet> {
        &self.objset
    }

    /// Object number of the root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// Version of the file system, 1 to 5.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Case sensitivity of names.
    pub fn case_sensitivity(&self) -> CaseSensitivity {
        self.case
    }

    /// Normalization of names: `format::zap::NORM_…`.
    pub fn normalization(&self) -> u64 {
        self.normalization
    }

    /// Comparison of names in directories. `ignore_case`: ignore case if the case sensitivity is mixed.
    pub(crate) fn name_match(&self, ignore_case: bool) -> Match {
        match self.case {
            CaseSensitivity::Insensitive => Match::Normalized,
            CaseSensitivity::Mixed if ignore_case => Match::Normalized,
            CaseSensitivity::Sensitive if self.normalization == 0 => Match::Exact,
            CaseSensitivity::Sensitive | CaseSensitivity::Mixed => Match::NormalizedMatchCase,
        }
    }

    /// Whether names must be UTF-8.
    pub(crate) fn is_utf8only(&self) -> bool {
        self.utf8only
    }

    /// A number of the master node, such as `VERSION` or `defaultuserquota`.
    pub(crate) fn master_value(&self, name: &str) -> Result<Option<u64>, ZplError> {
        Ok(self.master.lookup_u64(name.as_bytes())?)
    }

    /// The domain (a Windows security identifier without its last part) of a FUID; `None` for POSIX ids and
    /// for domains that the table lacks.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn domain(&self, fuid: u64) -> Result<Option<&str>, ZplError> {
        if fuid >> 32 == 0 {
            return Ok(None);
        }
        if self.domains.get().is_none() {
            let table = self.master_value(master_node::FUID)?.filter(|id| *id != 0).map(ObjectId);
            let domains = match table {
                Some(table) => Domains::read(&self.objset, table)?,
                None => Domains::default(),
            };
            let _ = self.domains.set(domains);
        }
        Ok(self.domains.get().and_then(|domains| domains.of(fuid)))
    }

    /// The attribute tables; `None` before version 5.
    pub(crate) fn tables(&self) -> Option<&SaTables> {
        self.sa.as_ref()
    }

    /// Files without a name that wait to be freed: unlinked while open, or too large to free at once.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn unlinked(&self) -> Result<Vec<ObjectId>, ZplError> {
        let Some(id) = self.unlinked else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for entry in Zap::open(&self.objset.object(id)?)?.entries() {
            files.extend(entry?.u64().map(ObjectId));
        }
        Ok(files)
    }
}
