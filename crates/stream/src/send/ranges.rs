//! A cursor over a redaction list, for a walk that goes the same way.

use super::SendError;
use dsl::Dsl;
use dsl::bookmark::{RedactedRange, RedactionEntries, RedactionList};
use format::ObjectId;
use std::ops::Range;

/// The entries of a list that are not yet behind the walk; empty without a list.
pub(super) struct Ranges {
    entries: Option<RedactionEntries>,
    current: Option<RedactedRange>,
}

impl Ranges {
    pub(super) fn open(dsl: &Dsl, list: Option<&RedactionList>) -> Result<Ranges, SendError> {
        let mut ranges = Ranges { entries: list.map(|list| list.entries(dsl)).transpose()?, current: None };
        ranges.advance()?;
        Ok(ranges)
    }

    fn advance(&mut self) -> Result<(), SendError> {
        self.current = self.entries.as_mut().and_then(Iterator::next).transpose()?;
        Ok(())
    }

    /// Whether an object of a range has listed blocks. Entries before the range are dropped.
    pub(super) fn has_object(&mut self, objects: &Range<u64>) -> Result<bool, SendError> {
        while self.current.is_some_and(|entry| entry.object.0 < objects.start) {
            self.advance()?;
        }
        Ok(self.current.is_some_and(|entry| entry.object.0 < objects.end))
    }

    /// The first part of a range of blocks of an object that is listed. Entries before the range are dropped.
    pub(super) fn first_in(
        &mut self,
        object: ObjectId,
        blocks: &Range<u64>,
    ) -> Result<Option<Range<u64>>, SendError> {
        let is_before = |entry: RedactedRange| {
            entry.object < object || (entry.object == object && entry.end() <= blocks.start)
        };
        while self.current.is_some_and(is_before) {
            self.advance()?;
        }
        let entry = self.current.filter(|entry| entry.object == object && entry.first.0 < blocks.end);
        Ok(entry.map(|entry| entry.first.0.max(blocks.start)..entry.end().min(blocks.end)))
    }
}
