//! Records of neighbouring holes, free slots and absent blocks, joined to one.

use format::ObjectId;
use format::stream::{Free, FreeObjects, Record};

/// Length of a range up to the end of its object.
pub(super) const TO_END: u64 = u64::MAX;

/// The one record that may still grow.
#[derive(Default)]
pub(super) struct Pending(Option<Kind>);

enum Kind {
    Free(Free),
    Redact(Free),
    Objects(FreeObjects),
}

impl Kind {
    fn into_record(self) -> Record {
        match self {
            Kind::Free(free) => Record::Free(free),
            Kind::Redact(free) => Record::Redact(free),
            Kind::Objects(objects) => Record::FreeObjects(objects),
        }
    }
}

/// Appends `more` to a range if it starts where that ends.
fn extend(range: &mut Free, more: &Free) -> bool {
    let is_next = range.object == more.object && range.offset.checked_add(range.length) == Some(more.offset);
    if is_next {
        range.length = range.length.saturating_add(more.length);
    }
    is_next
}

impl Pending {
    /// Ends the record.
    pub(super) fn flush(&mut self) -> Option<Record> {
        self.0.take().map(Kind::into_record)
    }

    fn replace(&mut self, kind: Kind) -> Option<Record> {
        self.0.replace(kind).map(Kind::into_record)
    }

    /// Adds a hole. Returns the record that has ended.
    pub(super) fn free(&mut self, free: Free) -> Option<Record> {
        if let Some(Kind::Free(pending)) = &mut self.0
            && extend(pending, &free)
        {
            return None;
        }
        if free.length == 0 { None } else { self.replace(Kind::Free(free)) }
    }

    /// Adds absent blocks. Returns the record that has ended.
    pub(super) fn redact(&mut self, free: Free) -> Option<Record> {
        if let Some(Kind::Redact(pending)) = &mut self.0
            && extend(pending, &free)
        {
            return None;
        }
        if free.length == 0 { None } else { self.replace(Kind::Redact(free)) }
    }

    /// Adds free slots. Returns the record that has ended.
    pub(super) fn objects(&mut self, first: ObjectId, count: u64, to_guid: u64) -> Option<Record> {
        match &mut self.0 {
            _ if count == 0 => None,
            Some(Kind::Objects(pending)) if pending.first.0.checked_add(pending.count) == Some(first.0) => {
                pending.count = pending.count.saturating_add(count);
                None
            }
            _ => self.replace(Kind::Objects(FreeObjects { first, count, to_guid })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(object: u64, offset: u64, length: u64) -> Free {
        Free { object: ObjectId(object), offset, length, to_guid: 7 }
    }

    #[test]
    fn neighbours_of_one_kind_are_joined() {
        let mut pending = Pending::default();
        assert_eq!(pending.free(free(1, 0, 512)), None);
        assert_eq!(pending.free(free(1, 512, 512)), None);
        assert_eq!(pending.free(free(1, 2048, 512)), Some(Record::Free(free(1, 0, 1024))));
        assert_eq!(pending.redact(free(1, 2560, 512)), Some(Record::Free(free(1, 2048, 512))));
        assert_eq!(pending.objects(ObjectId(4), 1, 7), Some(Record::Redact(free(1, 2560, 512))));
        assert_eq!(pending.objects(ObjectId(5), 3, 7), None);
        assert_eq!(pending.objects(ObjectId(9), 0, 7), None, "nothing");
        let objects = FreeObjects { first: ObjectId(4), count: 4, to_guid: 7 };
        assert_eq!(pending.flush(), Some(Record::FreeObjects(objects)));
        assert_eq!(pending.flush(), None);
    }
}
