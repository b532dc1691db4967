//! Finding, putting and removing an entry, whichever form the ZAP has.

use super::entry::{ZapEntry, cursor_position};
use super::fat_write::KeyPosition;
use super::matching::Matcher;
use super::micro_index::MicroIndex;
use super::reader::Form;
use super::value::{NewValue, ZapValue};
use super::zap_mut::{Key, Mode, NAME_LEN_MAX, Wanted, ZapMut};
use crate::DmuError;

impl ZapMut<'_> {
    /// Number of entries: counted in a micro ZAP, from the header of a fat one.
    pub fn count(&self) -> Result<u64, DmuError> {
        let mut state = self.lock();
        match self.form()? {
            Form::Micro { .. } => Ok(self.index(&mut state, &self.first()?)?.entries() as u64),
            Form::Fat(header) => Ok(header.entries),
        }
    }

    /// All entries in order. Only for ZAPs that are known to be small.
    pub fn entries(&self) -> Result<Vec<ZapEntry>, DmuError> {
        self.entries_from(0, usize::MAX)
    }

    /// At most `limit` entries from a cursor on: 0, or a [`ZapEntry::cursor`]. Empty at the end.
    pub(crate) fn entries_from(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>, DmuError> {
        let _state = self.lock();
        let form = self.form()?;
        let flags = if let Form::Fat(header) = &form { header.flags } else { 0 };
        let Some(from) = cursor_position(flags, cursor).filter(|_| limit > 0) else { return Ok(Vec::new()) };
        match form {
            Form::Micro { salt, normalization } => {
                let mut entries = self.micro_entries(salt, normalization)?;
                entries.retain(|entry| (entry.hash, entry.cd) >= from);
                entries.truncate(limit);
                Ok(entries)
            }
            Form::Fat(header) => self.fat_entries(&header, from, limit),
        }
    }

    /// The entry of a key.
    pub(super) fn find(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        match (&form, &key) {
            (Form::Micro { salt, .. }, Key::Name(matcher)) => self.find_micro(state, &first, *salt, matcher),
            (Form::Micro { .. }, Key::Words(_)) => Ok(None),
            (Form::Fat(header), key) => self.find_fat(header, key),
        }
    }

    /// Stores an entry.
    pub(super) fn put(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
        value: &ZapValue<'_>,
        mode: Mode,
    ) -> Result<(), DmuError> {
        let value = NewValue::of(value).map_err(|(what, size)| self.limit(what, size))?;
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        let mut header = match (form, &key) {
            (Form::Micro { salt, normalization }, Key::Name(matcher)) => {
                if self.put_micro(state, first, salt, matcher, &value, mode)? {
                    return Ok(());
                }
                let header = self.convert(salt, normalization)?;
                *state = None;
                header
            }
            (Form::Micro { .. }, Key::Words(_)) => return Err(self.wrong_keys()),
            (Form::Fat(header), _) => {
                drop(first);
                header
            }
        };
        self.put_fat(&mut header, &key, &value, mode)
    }

    /// Removes the entry of a key, and returns it if it existed.
    pub(super) fn take(
        &self,
        state: &mut Option<MicroIndex>,
        wanted: Wanted<'_>,
    ) -> Result<Option<ZapEntry>, DmuError> {
        let first = self.first()?;
        let form = self.form_of(&first)?;
        let key = self.key(&form, wanted)?;
        match (form, &key) {
            (Form::Micro { salt, .. }, Key::Name(matcher)) => self.take_micro(state, first, salt, matcher),
            (Form::Micro { .. }, Key::Words(_)) => Err(self.wrong_keys()),
            (Form::Fat(mut header), key) => {
                drop(first);
                let KeyPosition::Found { leaf, entry } = self.locate(&header, key)? else { return Ok(None) };
                self.take_fat(&mut header, leaf, &entry).map(Some)
            }
        }
    }

    /// Checks a key and prepares it.
    fn key<'k>(&self, form: &Form, wanted: Wanted<'k>) -> Result<Key<'k>, DmuError> {
        let (normalization, has_words) = match form {
            Form::Micro { normalization, .. } => (*normalization, false),
            Form::Fat(header) => (header.normalization, header.has_word_keys()),
        };
        match wanted {
            Wanted::Name(..) if has_words => Err(self.wrong_keys()),
            Wanted::Name(name, how) => {
                if name.is_empty() || name.len() > NAME_LEN_MAX {
                    return Err(self.limit("name length", name.len()));
                }
                if name.contains(&0) {
                    return Err(self.limit("a byte of the name", 0));
                }
                Ok(Key::Name(Matcher::new(name, how, normalization)))
            }
            Wanted::Words([]) => Err(self.limit("key length", 0)),
            Wanted::Words(words) => Ok(Key::Words(words)),
        }
    }
}
