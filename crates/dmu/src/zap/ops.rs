//! Operations of [`ZapMut`]: by name, by words, by number.

use super::entry::{ZapEntry, ZapKey};
use super::matching::Match;
use super::micro_index::MicroIndex;
use super::reader::Zap;
use super::value::ZapValue;
use super::zap_mut::{Mode, Wanted, ZapMut};
use crate::DmuError;

/// The name under which a number is stored.
fn int_name(n: u64) -> Vec<u8> {
    format!("{n:x}").into_bytes()
}

/// Operations by name. Without a [`Match`], names are compared byte for byte, also in ZAPs with
/// normalization.
impl ZapMut<'_> {
    /// The entry with exactly this name.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapEntry>, DmuError> {
        self.lookup_matching(name, Match::Exact)
    }

    /// The entry whose name matches; of several, the one with the lowest differentiator.
    pub fn lookup_matching(&self, name: &[u8], how: Match) -> Result<Option<ZapEntry>, DmuError> {
        self.find(&mut self.lock(), Wanted::Name(name, how))
    }

    /// The first integer of the entry with exactly this name.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>, DmuError> {
        Ok(self.lookup(name)?.and_then(|entry| entry.u64()))
    }

    /// Whether there is an entry with exactly this name.
    pub fn contains(&self, name: &[u8]) -> Result<bool, DmuError> {
        Ok(self.lookup(name)?.is_some())
    }

    /// Whether there is an entry whose name matches but is not exactly this one.
    pub fn has_conflict(&self, name: &[u8], how: Match) -> Result<bool, DmuError> {
        Ok(self.lookup_matching(name, how)?.is_some_and(|entry| entry.name() != name))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if there is an entry with exactly this name.
    pub fn insert<'v>(&self, name: &[u8], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.insert_matching(name, value, Match::Exact)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if there is an entry whose name matches.
    pub fn insert_matching<'v>(
        &self,
        name: &[u8],
        value: impl Into<ZapValue<'v>>,
        how: Match,
    ) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Name(name, how), &value.into(), Mode::Insert)
    }

    /// Replaces the value of an entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn update<'v>(&self, name: &[u8], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.update_matching(name, value, Match::Exact)
    }

    /// Replaces the value of the entry whose name matches, and keeps its spelling.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub(crate) fn update_matching<'v>(
        &self,
        name: &[u8],
        value: impl Into<ZapValue<'v>>,
        how: Match,
    ) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Name(name, how), &value.into(), Mode::Update)
    }

    /// Adds an entry, or replaces its value.
    pub fn upsert<'v>(&self, name: &[u8], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.upsert_matching(name, value, Match::Exact)
    }

    /// Adds an entry, or replaces the value of the one whose name matches, and keeps its spelling.
    pub(crate) fn upsert_matching<'v>(
        &self,
        name: &[u8],
        value: impl Into<ZapValue<'v>>,
        how: Match,
    ) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Name(name, how), &value.into(), Mode::Upsert)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn remove(&self, name: &[u8]) -> Result<(), DmuError> {
        self.remove_matching(name, Match::Exact).map(drop)
    }

    /// Removes an entry. Returns false if there was none.
    pub fn remove_if_present(&self, name: &[u8]) -> Result<bool, DmuError> {
        Ok(self.take(&mut self.lock(), Wanted::exact(name))?.is_some())
    }

    /// Removes the entry whose name matches, and returns it.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn remove_matching(&self, name: &[u8], how: Match) -> Result<ZapEntry, DmuError> {
        self.take(&mut self.lock(), Wanted::Name(name, how))?.ok_or_else(|| self.missing())
    }

    /// Renames an entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if `from` does not exist, [`DmuError::KeyExists`] if `to` does.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), DmuError> {
        let mut state = self.lock();
        let entry = self.find(&mut state, Wanted::exact(from))?.ok_or_else(|| self.missing())?;
        let value = ZapValue::Packed { int_size: entry.int_size, bytes: &entry.value };
        self.put(&mut state, Wanted::exact(to), &value, Mode::Insert)?;
        self.take(&mut state, Wanted::exact(from)).map(drop)
    }

    /// Adds `delta` to the value of an entry, 0 if it does not exist, and returns the sum. An entry whose
    /// value becomes 0 is removed. Sums wrap, because wrong counts in a pool must not stop it.
    ///
    /// # Errors
    /// [`DmuError`] if the value is not one integer of 8 bytes.
    pub fn increment(&self, name: &[u8], delta: i64) -> Result<u64, DmuError> {
        self.increment_locked(&mut self.lock(), name, delta)
    }

    fn increment_locked(
        &self,
        state: &mut Option<MicroIndex>,
        name: &[u8],
        delta: i64,
    ) -> Result<u64, DmuError> {
        let wanted = Wanted::exact(name);
        let old = match self.find(state, wanted)? {
            None => None,
            Some(entry) if entry.int_size == 8 && entry.value.len() == 8 => entry.u64(),
            Some(_) => return Err(self.corrupt("a count in a ZAP is not one number")),
        };
        let sum = old.unwrap_or(0).wrapping_add_signed(delta);
        if sum != 0 {
            self.put(state, wanted, &ZapValue::U64(sum), Mode::Upsert)?;
        } else if old.is_some() {
            self.take(state, wanted)?;
        }
        Ok(sum)
    }
}

/// Operations by words, for ZAPs made with `format::zap::FLAG_UINT64_KEY`.
impl ZapMut<'_> {
    /// The entry of a key.
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<ZapEntry>, DmuError> {
        self.find(&mut self.lock(), Wanted::Words(key))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if there is an entry with this key.
    pub fn insert_words<'v>(&self, key: &[u64], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Words(key), &value.into(), Mode::Insert)
    }

    /// Replaces the value of an entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn update_words<'v>(&self, key: &[u64], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Words(key), &value.into(), Mode::Update)
    }

    /// Adds an entry, or replaces its value.
    pub fn upsert_words<'v>(&self, key: &[u64], value: impl Into<ZapValue<'v>>) -> Result<(), DmuError> {
        self.put(&mut self.lock(), Wanted::Words(key), &value.into(), Mode::Upsert)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn remove_words(&self, key: &[u64]) -> Result<(), DmuError> {
        if self.remove_words_if_present(key)? { Ok(()) } else { Err(self.missing()) }
    }

    /// Removes an entry. Returns false if there was none.
    pub fn remove_words_if_present(&self, key: &[u64]) -> Result<bool, DmuError> {
        Ok(self.take(&mut self.lock(), Wanted::Words(key))?.is_some())
    }
}

/// Operations by number: the name is the number in hexadecimal. In a set of numbers, the value is the number
/// too.
impl ZapMut<'_> {
    /// Adds a number to a set.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if it is a member already.
    pub fn insert_int(&self, n: u64) -> Result<(), DmuError> {
        self.insert(&int_name(n), n)
    }

    /// Removes a number from a set.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if it is no member.
    pub fn remove_int(&self, n: u64) -> Result<(), DmuError> {
        self.remove(&int_name(n))
    }

    /// Whether a number is a member of the set.
    pub fn contains_int(&self, n: u64) -> Result<bool, DmuError> {
        self.contains(&int_name(n))
    }

    /// Adds an entry with a number as its key.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if there is an entry for this number.
    pub fn insert_int_key(&self, n: u64, value: u64) -> Result<(), DmuError> {
        self.insert(&int_name(n), value)
    }

    /// Replaces the value of a number's entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn update_int_key(&self, n: u64, value: u64) -> Result<(), DmuError> {
        self.update(&int_name(n), value)
    }

    /// Adds or replaces the value of a number's entry.
    pub fn upsert_int_key(&self, n: u64, value: u64) -> Result<(), DmuError> {
        self.upsert(&int_name(n), value)
    }

    /// The value of a number's entry; `None`: there is none.
    pub fn lookup_int_key(&self, n: u64) -> Result<Option<u64>, DmuError> {
        self.lookup_u64(&int_name(n))
    }

    /// Removes a number's entry.
    ///
    /// # Errors
    /// [`DmuError::NoKey`] if there is no such entry.
    pub fn remove_int_key(&self, n: u64) -> Result<(), DmuError> {
        self.remove(&int_name(n))
    }

    /// Like [`ZapMut::increment`], for a number's entry.
    pub fn increment_int_key(&self, n: u64, delta: i64) -> Result<u64, DmuError> {
        self.increment(&int_name(n), delta)
    }
}

/// Operations with the entries of another ZAP.
impl ZapMut<'_> {
    /// Adds all entries of another ZAP.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if one exists here; those before it have been added.
    pub fn join(&self, from: &Zap) -> Result<(), DmuError> {
        self.for_all(from, |state, entry| {
            let value = ZapValue::Packed { int_size: entry.int_size, bytes: &entry.value };
            self.put(state, wanted(&entry.key), &value, Mode::Insert)
        })
    }

    /// Adds the keys of another ZAP, all with this value.
    ///
    /// # Errors
    /// [`DmuError::KeyExists`] if one exists here; those before it have been added.
    pub fn join_with(&self, from: &Zap, value: u64) -> Result<(), DmuError> {
        self.for_all(from, |state, entry| {
            self.put(state, wanted(&entry.key), &ZapValue::U64(value), Mode::Insert)
        })
    }

    /// Adds the values of another ZAP's names to those here.
    pub fn join_increment(&self, from: &Zap) -> Result<(), DmuError> {
        self.for_all(from, |state, entry| {
            let delta = entry.u64().unwrap_or(0).cast_signed();
            self.increment_locked(state, entry.name(), delta).map(drop)
        })
    }

    fn for_all(
        &self,
        from: &Zap,
        mut visit: impl FnMut(&mut Option<MicroIndex>, &ZapEntry) -> Result<(), DmuError>,
    ) -> Result<(), DmuError> {
        let mut state = self.lock();
        for entry in from.entries() {
            visit(&mut state, &entry?)?;
        }
        Ok(())
    }
}

fn wanted(key: &ZapKey) -> Wanted<'_> {
    match key {
        ZapKey::Name(name) => Wanted::exact(name),
        ZapKey::Words(words) => Wanted::Words(words),
    }
}
