//! Compares measurements with those of other systems; writes a table for readers and JSON for programs.

use crate::Failure;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// A goal, as a ratio to the result of the other system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// At least this ratio; for rates.
    AtLeast(f64),
    /// At most this ratio; for times.
    AtMost(f64),
}

/// One measurement.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    /// Results of the other systems.
    pub(crate) peer: Option<(String, f64)>,
    pub(crate) goal: Option<Goal>,
    /// Further results: CPU time, memory.
    pub(crate) note: String,
}

impl Line {
    /// Cenote's result as a ratio to the other one.
    fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, theirs)| self.ours / theirs.max(f64::MIN_POSITIVE))
    }

    /// True if the goal is met. `None`: there is no goal, or no result to compare with.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio()?;
        Some(match self.goal? {
            Goal::AtLeast(share) => ratio >= share,
            Goal::AtMost(share) => ratio <= share,
        })
    }

    fn text(&self) -> String {
        let Line { what, unit, ours, note, .. } = self;
        let mut text = format!("{what:<34}{ours:>10.2} {unit:<6}");
        // Writing to a string does not fail.
        if let (Some((name, theirs)), Some(ratio)) = (&self.peer, self.ratio()) {
            let _ = write!(text, "{name:>18} {theirs:>10.2}{ratio:>8.2}");
        } else {
            let _ = write!(text, "{:>37}", "");
        }
        let goal = match (self.goal, self.is_met()) {
            (Some(Goal::AtLeast(share)), Some(met)) => format!(">= {share:.2} {}", word(met)),
            (Some(Goal::AtMost(share)), Some(met)) => format!("<= {share:.2} {}", word(met)),
            _ => String::new(),
        };
        let _ = write!(text, "  {goal:<15}{note}");
        text.trim_end().to_owned()
    }

    fn json(&self) -> Value {
        let (asked, share) = match self.goal {
            Some(Goal::AtLeast(share)) => (Some("at least"), Some(share)),
            Some(Goal::AtMost(share)) => (Some("at most"), Some(share)),
            None => (None, None),
        };
        json!({
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer.as_ref().map(|(name, _)| name),
            "theirs": self.peer.as_ref().map(|(_, value)| value),
            "ratio": self.ratio(),
            "asked": asked,
            "share": share,
            "met": self.is_met(),
            "note": self.note,
        })
    }
}

fn word(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Results of a run.
pub(crate) struct Report {
    /// Name of its files, without extension.
    name: &'static str,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(name: &'static str) -> Report {
        println!(
            "{:<34}{:>10} {:<6}{:>18} {:>10}{:>8}  goal",
            name, "ours", "unit", "beside", "theirs", "ratio"
        );
        Report { name, lines: Vec::new() }
    }

    /// Prints and stores a measurement.
    pub(crate) fn add(&mut self, line: Line) {
        println!("{}", line.text());
        self.lines.push(line);
    }

    /// Writes all results to `NAME.txt` and `NAME.json` in a directory.
    pub(crate) fn keep(&self, folder: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)?;
        let mut text: String = self.lines.iter().map(|line| line.text() + "\n").collect();
        let judged: Vec<bool> = self.lines.iter().filter_map(Line::is_met).collect();
        let met = judged.iter().filter(|met| **met).count();
        let _ = writeln!(text, "goals: {met} of {} met", judged.len());
        println!("goals: {met} of {} met; kept in {}", judged.len(), folder.display());
        std::fs::write(folder.join(format!("{}.txt", self.name)), text)?;
        let all = json!({
            "machine": {
                "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
                "system": rustix::system::uname().release().to_string_lossy(),
            },
            "lines": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
        });
        std::fs::write(folder.join(format!("{}.json", self.name)), format!("{all:#}\n"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ours: f64, theirs: f64, goal: Goal) -> Line {
        let peer = Some(("other".to_owned(), theirs));
        Line { what: "it".to_owned(), unit: "s", ours, peer, goal: Some(goal), note: String::new() }
    }

    #[test]
    fn goals_are_shares_of_what_others_reach() {
        assert_eq!(line(1.0, 2.0, Goal::AtMost(0.5)).is_met(), Some(true));
        assert_eq!(line(1.1, 2.0, Goal::AtMost(0.5)).is_met(), Some(false));
        assert_eq!(line(1.7, 2.0, Goal::AtLeast(0.85)).is_met(), Some(true));
        assert_eq!(line(1.6, 2.0, Goal::AtLeast(0.85)).is_met(), Some(false));
        let alone = Line { peer: None, ..line(1.0, 1.0, Goal::AtMost(0.5)) };
        assert_eq!(alone.is_met(), None);
        assert!(line(1.1, 2.0, Goal::AtMost(0.5)).text().ends_with("<= 0.50 MISSED"));
    }
}
