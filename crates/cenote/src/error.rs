//! The error type of the library, and the text form of an error with its causes.

use dmu::DmuError;
use dsl::DslError;
use pool::PoolError;
pub use pool::{chain, chain_with, errno_text};
use std::path::PathBuf;
use std::sync::Arc;
use vdev::scan::ScanError;
use zio::ZioError;
use zpl::ZplError;

/// Why a pool, a dataset or a file could not be opened, read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool could not be opened, or its own objects could not be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No device of the pool was found, and some of the searched devices are damaged or unreadable.
    #[error("no such pool available: {wanted}; damaged or unreadable: {}", list(problems))]
    Search {
        /// Name or guid of the pool.
        wanted: String,
        /// Paths that could not be searched, and the reasons.
        problems: Vec<(PathBuf, ScanError)>,
    },
    /// A dataset could not be found or read.
    #[error(transparent)]
    Dsl(#[from] DslError),
    /// An object could not be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// A file could not be read.
    #[error(transparent)]
    Zpl(#[from] ZplError),
    /// The file system has no such path.
    #[error("{dataset}:{}: no such file or directory", path.escape_ascii())]
    NoSuchPath {
        /// Full name of the file system.
        dataset: String,
        /// Path from the root of the file system.
        path: Vec<u8>,
    },
    /// A file could not be found, read or changed.
    #[error("{dataset}:{}", path.escape_ascii())]
    Path {
        /// Full name of the file system.
        dataset: String,
        /// Path from the root of the file system.
        path: Vec<u8>,
        /// The reason.
        #[source]
        source: ZplError,
    },
    /// The path goes through more symbolic links than are followed.
    #[error("{dataset}:{}: too many levels of symbolic links", path.escape_ascii())]
    TooManyLinks {
        /// Full name of the file system.
        dataset: String,
        /// Path from the root of the file system.
        path: Vec<u8>,
    },
    /// The dataset is a volume where a file system is needed.
    #[error("'{dataset}' is a volume, not a file system")]
    NotAFilesystem {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The dataset is a file system where a volume is needed.
    #[error("'{dataset}' is a file system, not a volume")]
    NotAVolume {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The dataset is encrypted, and its key is not loaded.
    #[error("'{dataset}' is encrypted, and the key of '{root}' is not loaded")]
    Locked {
        /// Full name of the dataset.
        dataset: String,
        /// Full name of the encryption root, whose key is missing.
        root: String,
    },
    /// A key was given for a dataset that is not encrypted.
    #[error("'{dataset}' is not encrypted")]
    NotEncrypted {
        /// Full name of the dataset.
        dataset: String,
    },
}

/// Why a block, an object or a whole dataset could not be read: an error that several parts of a report share.
/// `Display` gives it with its causes ([`chain`]).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// No good copy of a block.
    Block(Arc<ZioError>),
    /// An object, or blocks that lead to others.
    Object(Arc<DmuError>),
    /// A dataset or a list of datasets.
    Dataset(Arc<DslError>),
    /// The pool's own structures.
    Pool(Arc<Error>),
}

impl Cause {
    fn error(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Cause::Block(error) => error.as_ref(),
            Cause::Object(error) => error.as_ref(),
            Cause::Dataset(error) => error.as_ref(),
            Cause::Pool(error) => error.as_ref(),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self.error()))
    }
}

impl From<ZioError> for Cause {
    fn from(error: ZioError) -> Cause {
        Cause::Block(Arc::new(error))
    }
}

impl From<DmuError> for Cause {
    fn from(error: DmuError) -> Cause {
        Cause::Object(Arc::new(error))
    }
}

impl From<DslError> for Cause {
    fn from(error: DslError) -> Cause {
        Cause::Dataset(Arc::new(error))
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Cause {
        Cause::Pool(Arc::new(error))
    }
}

/// Problems that a message lists at most.
const LISTED_MAX: usize = 8;

fn list(problems: &[(PathBuf, ScanError)]) -> String {
    let lines = problems.iter().take(LISTED_MAX).map(|(path, why)| format!("{}: {why}", path.display()));
    let mut text = lines.collect::<Vec<_>>().join("; ");
    if let Some(more) = problems.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Error, chain};
    use format::ObjectId;
    use zpl::ZplError;

    #[test]
    fn causes_are_named_once() {
        let source = ZplError::Exists { dir: ObjectId(3) };
        let text = source.to_string();
        let error = Error::Path { dataset: "p/d".to_owned(), path: b"/a".to_vec(), source };
        assert_eq!(chain(&error), format!("p/d:/a: {text}"));
        let transparent = Error::Zpl(ZplError::Exists { dir: ObjectId(3) });
        assert_eq!(chain(&transparent), text);
    }
}
