//! Subject of a series: a workload on a layout.

use crate::disks::Layout;
use std::str::FromStr;

/// Workload and layout of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Files of one file system; the fastest workload.
    Files(Layout),
    /// All operations on a pool, on a layout of `cenote-interop`.
    World(&'static str),
    /// Files of one file system, while disks are removed, returned, scrubbed and resilvered.
    Scans(Layout),
    /// Files of one file system, while devices are attached, replaced and detached.
    Shapes(Layout),
    /// Files of one file system, while a vdev is removed.
    Removals(Layout),
    /// Files of two file systems, changed by several threads while txgs are written.
    Actors(Layout),
}

impl Subject {
    /// All subjects.
    pub fn all() -> Vec<Subject> {
        let worlds = cenote_interop::plan::layouts().into_iter().map(|(name, _)| Subject::World(name));
        let redundant = Layout::all().into_iter().filter(|layout| layout.spare_disks() > 0);
        Layout::all()
            .into_iter()
            .map(Subject::Files)
            .chain(worlds)
            .chain(redundant.map(Subject::Scans))
            .chain(Layout::all().into_iter().map(Subject::Shapes))
            .chain(Layout::stripes().map(Subject::Removals))
            .chain(Layout::all().into_iter().map(Subject::Actors))
            .collect()
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Files(layout) => write!(f, "{layout}"),
            Subject::World(layout) => write!(f, "all:{layout}"),
            Subject::Scans(layout) => write!(f, "scan:{layout}"),
            Subject::Shapes(layout) => write!(f, "shape:{layout}"),
            Subject::Removals(layout) => write!(f, "remove:{layout}"),
            Subject::Actors(layout) => write!(f, "threads:{layout}"),
        }
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        let found = Subject::all().into_iter().find(|subject| subject.to_string() == text);
        found.ok_or_else(|| {
            let names: Vec<String> = Subject::all().iter().map(ToString::to_string).collect();
            format!("no layout '{text}'; there are {}", names.join(", "))
        })
    }
}
