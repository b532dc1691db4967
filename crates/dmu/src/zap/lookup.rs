//! Finding entries of a ZAP that stands still.

use super::entry::{NAME_MAX, ZapEntry};
use super::matching::{Match, Matcher};
use super::normalize::is_doubtful;
use super::reader::{Form, Zap};
use crate::DmuError;
use format::zap::{FatHeader, Leaf, LeafEntry, hash_name, hash_words};

impl Zap {
    /// The entry with exactly this name.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapEntry>, DmuError> {
        self.lookup_matching(name, Match::Exact)
    }

    /// The entry whose name matches; of several, the one with the lowest differentiator.
    pub fn lookup_matching(&self, name: &[u8], how: Match) -> Result<Option<ZapEntry>, DmuError> {
        let matcher = Matcher::new(name, how, self.normalization());
        match &self.form {
            Form::Micro { .. } => self.lookup_micro(&matcher),
            Form::Fat(header) => self.lookup_fat(header, &matcher),
        }
    }

    /// The first integer of the entry with exactly this name.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>, DmuError> {
        Ok(self.lookup(name)?.and_then(|entry| entry.u64()))
    }

    /// The entry whose key is these words.
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<ZapEntry>, DmuError> {
        let Form::Fat(header) = &self.form else { return Ok(None) };
        if !header.has_word_keys() {
            return Ok(None);
        }
        let hash = hash_words(header.salt, header.flags, key);
        let Some(block) = self.leaf_for(header, hash)? else { return Ok(None) };
        let leaf = self.decode_leaf(header, hash, &block)?;
        for entry in leaf.chain(leaf.bucket(hash)) {
            let entry = entry.map_err(|e| self.decode_error(e))?;
            if entry.hash == hash
                && usize::from(entry.name_len) == key.len()
                && leaf.words(&entry).map_err(|e| self.decode_error(e))? == key
            {
                return self.read_entry(header, &leaf, &entry).map(Some);
            }
        }
        Ok(None)
    }

    fn lookup_micro(&self, matcher: &Matcher<'_>) -> Result<Option<ZapEntry>, DmuError> {
        let found =
            self.micro()?.entries().filter(|entry| matcher.accepts(entry.name)).min_by_key(|entry| entry.cd);
        Ok(found.map(|entry| self.micro_entry(&entry)))
    }

    fn lookup_fat(&self, header: &FatHeader, matcher: &Matcher<'_>) -> Result<Option<ZapEntry>, DmuError> {
        if header.has_word_keys() {
            return Ok(None);
        }
        let hash = hash_name(header.salt, header.flags, &matcher.hashed);
        if let Some(block) = self.leaf_for(header, hash)? {
            let leaf = self.decode_leaf(header, hash, &block)?;
            for entry in leaf.chain(leaf.bucket(hash)) {
                let entry = entry.map_err(|e| self.decode_error(e))?;
                if entry.hash == hash && self.accepts(&leaf, &entry, matcher)? {
                    return self.read_entry(header, &leaf, &entry).map(Some);
                }
            }
        }
        // The hash of a rare name may differ from that of OpenZFS: see `normalize`.
        if !is_doubtful(matcher.name, header.normalization) {
            return Ok(None);
        }
        for entry in self.entries() {
            let entry = entry?;
            if matcher.accepts(entry.name()) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn accepts(&self, leaf: &Leaf<'_>, entry: &LeafEntry, matcher: &Matcher<'_>) -> Result<bool, DmuError> {
        let verdict = if matcher.wanted.is_some() {
            if usize::from(entry.name_len) > NAME_MAX {
                return Ok(false);
            }
            leaf.name(entry).map(|name| matcher.accepts(&name))
        } else {
            leaf.name_is(entry, matcher.name)
        };
        verdict.map_err(|e| self.decode_error(e))
    }
}
