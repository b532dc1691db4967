//! Files in memory: attributes decoded once, and changed in place in the bonus.
//!
//! # What always holds
//! - The attributes in memory and those in the bonus are the same whenever the state lock is free.
//! - An object has at most one inode at any time; the inode of a freed object is marked and is in no table.
//!
//! # Order
//! The state lock is the innermost of this crate: it is held for the change of a bonus, and while attributes
//! are logged, never while waiting for a transaction, another inode or a device. There are two exceptions. A
//! file of the old form is read once more when it is first changed. And a file that gets a name, its first or
//! another, is locked until that is logged: meanwhile the name enters its directory, whose inode is the only
//! other one that is locked.

use crate::attrs::layout::{Capacity, LEADING, Laid, Offsets, Tables};
use crate::error::BeginError;
use crate::file::range_lock::{RangeLock, Ranges};
use crate::fs::backing::Backing;
use crate::node::kind::encode_device;
use crate::{Attrs, FileKind, Filesystem, ZplError};
use dmu::AllocTx;
use dmu::LiveObject;
use dmu::interrupt::{Guard, Lock};
use dsl::sync::lock;
use format::acl::Ace;
use format::sa::{Attr, SaHeader};
use format::znode::{FLAG_PROJID, Time};
use format::{Endian, ObjType, ObjectId};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A file in memory: attributes, locks and holds.
pub(crate) struct Inode {
    pub(crate) id: ObjectId,
    pub(crate) object: LiveObject,
    pub(crate) kind: FileKind,
    state: Mutex<State>,
    /// Of a directory: lock of its names. Held while one is looked up and then changed.
    names: Lock,
    /// Lock of related attributes: mode with ACL, extended attributes in their two places.
    settings: Lock,
    /// Locks of byte ranges of the content, and of the size.
    ranges: RangeLock,
    /// The file was read since it came into memory.
    was_read: AtomicBool,
    /// Number of holds, which keep the file even without a name.
    holds: AtomicU32,
}

/// The mutable state of a file in memory.
pub(crate) struct State {
    pub(crate) attrs: Attrs,
    form: Form,
    /// Whether the object is freed.
    pub(crate) is_gone: bool,
    /// The file has no name, and is freed when the last hold is dropped.
    pub(crate) is_orphan: bool,
    /// The file was created without a name, and can be linked.
    pub(crate) is_nameless: bool,
    /// Of a directory: the ACL that new files inherit; `None`: not read yet.
    pub(crate) default_acl: Option<Option<Arc<Vec<u8>>>>,
}

/// Stored form of the attributes.
enum Form {
    /// System attributes in little-endian order.
    Sa(Offsets),
    /// An older form or the other byte order: the first change lays the attributes out again.
    Foreign,
}

/// A change of an attribute that is not in [`Attrs`]: its new bytes; `None` removes it.
pub(crate) type Edit = (Attr, Option<Vec<u8>>);

impl Inode {
    /// Reads the attributes of a file into memory.
    pub(crate) fn load(
        reader: &Arc<Filesystem>,
        tables: &Tables,
        object: LiveObject,
    ) -> Result<Inode, ZplError> {
        let read = object.read();
        let node = reader.node_of(read.clone())?;
        let header = match read.dnode().bonus_type {
            ObjType::SA => SaHeader::decode(read.bonus()).ok().flatten(),
            _ => None,
        };
        let form = header
            .filter(|header| header.order == Endian::Little && header.size.is_multiple_of(8))
            .and_then(|header| tables.plan(header.layout))
            .and_then(|plan| plan.offsets(read.bonus()))
            // Only then can they be changed without reading the object again.
            .filter(|offsets| LEADING.iter().all(|attr| offsets.get(*attr).is_some()))
            .map_or(Form::Foreign, Form::Sa);
        Ok(Inode::of(object, node.kind(), *node.attrs(), form))
    }

    /// The inode of a new file.
    pub(crate) fn fresh(object: LiveObject, kind: FileKind, attrs: Attrs, offsets: Offsets) -> Inode {
        Inode::of(object, kind, attrs, Form::Sa(offsets))
    }

    fn of(object: LiveObject, kind: FileKind, attrs: Attrs, form: Form) -> Inode {
        Inode {
            id: object.id(),
            object,
            kind,
            state: Mutex::new(State {
                attrs,
                form,
                is_gone: false,
                is_orphan: false,
                is_nameless: false,
                default_acl: None,
            }),
            names: Lock::default(),
            settings: Lock::default(),
            ranges: RangeLock::default(),
            was_read: AtomicBool::new(false),
            holds: AtomicU32::new(0),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Attributes of the file at this moment.
    pub(crate) fn attrs(&self) -> Attrs {
        self.state().attrs
    }

    /// Whether the file is known to have no extended attributes, without a read.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        let state = self.state();
        let has_no_list = matches!(&state.form, Form::Sa(offsets) if offsets.get(Attr::Dxattr).is_none());
        has_no_list && state.attrs.xattr_dir.is_none() && !self.object.has_spill()
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Fails unless the file is of this kind.
    pub(crate) fn expect(&self, kind: FileKind, expected: &'static str) -> Result<(), ZplError> {
        if self.kind == kind {
            return Ok(());
        }
        Err(ZplError::WrongKind { object: self.id, kind: self.kind, expected })
    }

    /// Notes that the file is read. Returns true the first time.
    pub(crate) fn note_read(&self) -> bool {
        !self.was_read.load(Ordering::Relaxed) && !self.was_read.swap(true, Ordering::Relaxed)
    }

    /// Adds a hold, until [`Inode::let_go`].
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::AcqRel);
    }

    /// Drops a hold. Returns true if it was the last one.
    pub(crate) fn let_go(&self) -> bool {
        self.holds.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether there are holds beside that of the caller.
    pub(crate) fn is_held_by_others(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 1
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    /// Locks the names. This wait and the next two end when the caller of the request is interrupted, because
    /// a holder may wait for a txg of `backing`.
    pub(crate) fn names(&self, backing: &dyn Backing) -> Result<Guard<'_>, ZplError> {
        locked(&self.names, backing)
    }

    /// Locks the settings.
    pub(crate) fn settings(&self, backing: &dyn Backing) -> Result<Guard<'_>, ZplError> {
        locked(&self.settings, backing)
    }

    /// The byte ranges, for locking.
    pub(crate) fn ranges<'i>(&'i self, backing: &'i dyn Backing) -> Ranges<'i> {
        self.ranges.of(backing)
    }

    /// Takes the state lock for a change, and converts the attributes to the form that can be changed in
    /// place.
    pub(crate) fn ready<'i>(&'i self, store: &Store<'_>) -> Result<MutexGuard<'i, State>, ZplError> {
        let mut state = self.state();
        if state.is_gone {
            return Err(ZplError::Stale { object: self.id });
        }
        if matches!(state.form, Form::Foreign) {
            self.lay_anew(&mut state, &[], store)?;
        }
        Ok(state)
    }

    /// Changes attributes, in memory and in the bonus.
    ///
    /// # Errors
    /// Only if the attributes have to be laid out again; the file is unchanged then.
    pub(crate) fn change(&self, store: &Store<'_>, change: impl FnOnce(&mut Attrs)) -> Result<(), ZplError> {
        let mut state = self.ready(store)?;
        self.change_locked(&mut state, store, change)
    }

    /// Changes attributes under the lock that [`Inode::ready`] took.
    pub(crate) fn change_locked(
        &self,
        state: &mut State,
        store: &Store<'_>,
        change: impl FnOnce(&mut Attrs),
    ) -> Result<(), ZplError> {
        let old = state.attrs;
        change(&mut state.attrs);
        if let Some(seq) = &mut state.attrs.seq {
            *seq = seq.wrapping_add(1);
        }
        let result = self.store(state, &old, store);
        if result.is_err() {
            state.attrs = old;
        }
        result
    }

    /// Changes attributes, including those that are not part of [`Attrs`].
    pub(crate) fn edit(
        &self,
        store: &Store<'_>,
        edits: &[Edit],
        change: impl FnOnce(&mut Attrs),
    ) -> Result<(), ZplError> {
        let mut state = self.ready(store)?;
        let old = state.attrs;
        change(&mut state.attrs);
        if let Some(seq) = &mut state.attrs.seq {
            *seq = seq.wrapping_add(1);
        }
        let result = match edits {
            [] => self.store(&mut state, &old, store),
            edits => self.lay_anew(&mut state, edits, store),
        };
        if result.is_err() {
            state.attrs = old;
        }
        result
    }

    /// Writes the attributes in memory to the bonus.
    fn store(&self, state: &mut State, old: &Attrs, store: &Store<'_>) -> Result<(), ZplError> {
        let Form::Sa(offsets) = &state.form else { return self.lay_anew(state, &[], store) };
        let (new_words, old_words) = (words(&state.attrs), words(old));
        let mut patches = [(0_usize, 0_u64); WORDS];
        let mut count = 0;
        for (index, (new, old)) in new_words.iter().zip(&old_words).enumerate() {
            if new == old {
                continue;
            }
            let (attr, within) = PLACES[index];
            let Some(at) = offsets.get(attr) else { return self.lay_anew(state, &[], store) };
            patches[count] = (at + within, *new);
            count += 1;
        }
        if count > 0 {
            self.object.change_bonus(store.tx, |bonus| {
                for (at, word) in &patches[..count] {
                    bonus[*at..*at + 8].copy_from_slice(&word.to_le_bytes());
                }
            });
        }
        Ok(())
    }

    /// Lays all attributes out again, with changes.
    fn lay_anew(&self, state: &mut State, edits: &[Edit], store: &Store<'_>) -> Result<(), ZplError> {
        let mut values = self.stored_values(store)?;
        let mut set = |attr: Attr, bytes: Option<Vec<u8>>| -> Result<(), ZplError> {
            let number = store.number(attr)?;
            let place = values.iter().position(|(known, _)| *known == number);
            match (place, bytes) {
                (Some(place), Some(bytes)) if attr.size() != 0 || values[place].1.len() == bytes.len() => {
                    values[place].1 = bytes;
                }
                (place, bytes) => {
                    // An attribute of variable size that changes goes to the end, as new ones do; the ACL
                    // keeps its place before the following ones.
                    let stays = matches!(attr, Attr::DaclAces);
                    match (place, bytes) {
                        (Some(place), Some(bytes)) if stays => values[place].1 = bytes,
                        (Some(place), bytes) => {
                            values.remove(place);
                            values.extend(bytes.map(|bytes| (number, bytes)));
                        }
                        (None, bytes) => values.extend(bytes.map(|bytes| (number, bytes))),
                    }
                }
            }
            Ok(())
        };
        for (index, word) in words(&state.attrs).iter().enumerate() {
            let (attr, within) = PLACES[index];
            if within != 0 {
                continue;
            }
            match attr {
                Attr::Projid if state.attrs.flags & FLAG_PROJID == 0 => {}
                Attr::Seq if state.attrs.seq.is_none() => {}
                Attr::Xattr if state.attrs.xattr_dir.is_none() => set(attr, None)?,
                _ if attr.size() == 16 => {
                    let second = words(&state.attrs)[index + 1];
                    set(attr, Some([word.to_le_bytes(), second.to_le_bytes()].concat()))?;
                }
                _ => set(attr, Some(word.to_le_bytes().to_vec()))?,
            }
        }
        for (attr, bytes) in edits {
            set(*attr, bytes.clone())?;
        }
        self.put_in_order(&mut values, store)?;
        let borrowed: Vec<(u16, &[u8])> = values.iter().map(|(n, bytes)| (*n, bytes.as_slice())).collect();
        let laid =
            store.tables.lay_out(&borrowed, Capacity::of(&self.object), Some(store.reader), store.tx)?;
        self.install(state, laid, store.tx);
        Ok(())
    }

    /// Moves the attributes that accounting reads to the front, with the project after the link count.
    fn put_in_order(&self, values: &mut [(u16, Vec<u8>)], store: &Store<'_>) -> Result<(), ZplError> {
        let mut ranks = Vec::new();
        for attr in LEADING.iter().copied().chain([Attr::Projid, Attr::Rdev]) {
            ranks.push(store.number(attr)?);
        }
        let rank = |number: &u16| ranks.iter().position(|known| known == number).unwrap_or(usize::MAX);
        values.sort_by_key(|(number, _)| rank(number));
        Ok(())
    }

    /// All stored attributes by number, in little-endian order.
    fn stored_values(&self, store: &Store<'_>) -> Result<Vec<(u16, Vec<u8>)>, ZplError> {
        let object = self.object.read();
        if object.dnode().bonus_type == ObjType::ZNODE {
            return self.legacy_values(store);
        }
        let objset = object.objset().number();
        let decode = |source| ZplError::Decode { objset, object: self.id, source };
        let tables = store.reader.tables().ok_or(ZplError::NotAFile { objset, object: self.id })?;
        let registry = tables.registry();
        let spill = object.spill()?;
        let mut values = Vec::new();
        for bytes in std::iter::once(object.bonus()).chain(spill.as_ref().map(dmu::Block::bytes)) {
            let Some(buffer) = tables.buffer(bytes).map_err(decode)? else { continue };
            let expected = buffer.layout().numbers().count();
            let before = values.len();
            for (number, bytes) in buffer.iter() {
                let swap = registry.get(number).map(|entry| entry.swap);
                values.push((number, to_little(bytes, swap, buffer.order()).map_err(decode)?));
            }
            if values.len() - before != expected {
                return Err(ZplError::Corrupt {
                    objset,
                    object: self.id,
                    why: "its attributes end too early",
                });
            }
        }
        Ok(values)
    }

    /// The attributes of a file of the old form.
    fn legacy_values(&self, store: &Store<'_>) -> Result<Vec<(u16, Vec<u8>)>, ZplError> {
        let node = store.reader.node_of(self.object.read())?;
        let acl = node.acl()?;
        let packed = crate::acl::change::encode_aces(&acl.aces);
        let mut values = Vec::new();
        let mut add = |attr: Attr, bytes: Vec<u8>| -> Result<(), ZplError> {
            values.push((store.number(attr)?, bytes));
            Ok(())
        };
        if matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            let (major, minor) = node.attrs().rdev;
            add(Attr::Rdev, encode_device(major, minor).to_le_bytes().to_vec())?;
        }
        add(Attr::DaclCount, (acl.aces.len() as u64).to_le_bytes().to_vec())?;
        add(Attr::DaclAces, packed)?;
        if self.kind == FileKind::Symlink {
            add(Attr::Symlink, node.readlink()?)?;
        }
        Ok(values)
    }

    /// Writes laid out attributes to the object.
    fn install(&self, state: &mut State, laid: Laid, tx: &dyn AllocTx) {
        let has_spill = self.object.read().dnode().spill.is_some();
        match laid.spill {
            Some(spill) => {
                // The bonus must leave room for the spill pointer before there is one.
                self.object.set_bonus(&laid.bonus, tx);
                self.object.set_spill(Some(spill), tx);
            }
            None => {
                if has_spill {
                    self.object.set_spill(None, tx);
                }
                self.object.set_bonus(&laid.bonus, tx);
            }
        }
        if matches!(state.form, Form::Foreign) {
            self.object.set_bonus_type(ObjType::SA, tx);
        }
        state.form = Form::Sa(laid.offsets);
    }
}

/// The context for changing attributes.
pub(crate) struct Store<'s> {
    pub(crate) tables: &'s Tables,
    pub(crate) reader: &'s Arc<Filesystem>,
    pub(crate) tx: &'s dyn AllocTx,
}

impl Store<'_> {
    /// The number of an attribute.
    fn number(&self, attr: Attr) -> Result<u16, ZplError> {
        self.tables.number(attr, Some(self.reader), self.tx)
    }
}

/// Takes a lock whose holder may wait for a txg.
///
/// # Errors
/// [`dmu::TxError::Interrupted`] if the caller of the request was interrupted.
pub(crate) fn locked<'l>(lock: &'l Lock, backing: &dyn Backing) -> Result<Guard<'l>, ZplError> {
    Ok(lock.lock(|| backing.is_suspended()).map_err(BeginError::from)?)
}

/// Number of words in [`words`].
const WORDS: usize = 19;

/// For each word of [`words`], its attribute and its place in that.
const PLACES: [(Attr, usize); WORDS] = [
    (Attr::Mode, 0),
    (Attr::Size, 0),
    (Attr::Gen, 0),
    (Attr::Uid, 0),
    (Attr::Gid, 0),
    (Attr::Parent, 0),
    (Attr::Flags, 0),
    (Attr::Atime, 0),
    (Attr::Atime, 8),
    (Attr::Mtime, 0),
    (Attr::Mtime, 8),
    (Attr::Ctime, 0),
    (Attr::Ctime, 8),
    (Attr::Crtime, 0),
    (Attr::Crtime, 8),
    (Attr::Links, 0),
    (Attr::Projid, 0),
    (Attr::Xattr, 0),
    (Attr::Seq, 0),
];

fn words(attrs: &Attrs) -> [u64; WORDS] {
    let [atime, mtime, ctime, crtime] = [attrs.atime, attrs.mtime, attrs.ctime, attrs.crtime].map(time_words);
    [
        attrs.mode.into(),
        attrs.size,
        attrs.generation,
        attrs.uid,
        attrs.gid,
        attrs.parent.0,
        attrs.flags,
        atime[0],
        atime[1],
        mtime[0],
        mtime[1],
        ctime[0],
        ctime[1],
        crtime[0],
        crtime[1],
        attrs.links,
        attrs.projid,
        attrs.xattr_dir.map_or(0, |id| id.0),
        attrs.seq.unwrap_or(0),
    ]
}

/// Writes the attributes into a bonus that has places for them.
pub(crate) fn fill_in(bonus: &mut [u8], offsets: &Offsets, attrs: &Attrs) {
    for ((attr, within), word) in PLACES.iter().zip(words(attrs)) {
        if let Some(at) = offsets.get(*attr) {
            bonus[at + within..at + within + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// A time in stored form.
pub(crate) fn time_words(time: Time) -> [u64; 2] {
    [time.secs as u64, time.nanos.into()]
}

/// Converts an attribute's bytes to little-endian order.
fn to_little(
    bytes: &[u8],
    swap: Option<format::sa::SaSwap>,
    order: Endian,
) -> Result<Vec<u8>, format::DecodeError> {
    use format::sa::SaSwap;
    let width = match (order, swap) {
        (Endian::Little, _) | (_, Some(SaSwap::Bytes | SaSwap::Unknown(_)) | None) => {
            return Ok(bytes.to_vec());
        }
        (_, Some(SaSwap::U64)) => 8,
        (_, Some(SaSwap::U32)) => 4,
        (_, Some(SaSwap::U16)) => 2,
        (_, Some(SaSwap::Acl)) => return little_aces(bytes, order),
    };
    let mut out = bytes.to_vec();
    out.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    Ok(out)
}

fn little_aces(bytes: &[u8], order: Endian) -> Result<Vec<u8>, format::DecodeError> {
    let mut aces: Vec<Ace> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let one = format::acl::decode_aces(rest, 1, format::acl::AclVersion::Fuid, order)?;
        let Some(ace) = one.first() else { break };
        at += crate::acl::change::ace_size(ace);
        aces.push(*ace);
    }
    Ok(crate::acl::change::encode_aces(&aces))
}
