//! Why a fixture cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a fixture cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FixtureError {
    /// No folder of that name.
    #[error("no fixture {name} in {root}")]
    Unknown {
        /// Name asked for.
        name: String,
        /// Where fixtures are looked for.
        root: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// `manifest.json` cannot be understood.
    #[error("{path}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// An unpacked image is not what the manifest says.
    #[error("{path}: {what} {actual}, expected {expected}")]
    Image {
        /// The image.
        path: PathBuf,
        /// `size` or `sha256`.
        what: &'static str,
        /// As the manifest says.
        expected: String,
        /// As found.
        actual: String,
    },
}
