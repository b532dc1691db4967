//! Directories of the target that are being filled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::ObjectId;
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT};
use zpl::{FileKind, ZplError};
use zpl::{NewAttrs, NewFile};

use super::{Meta, Problem, Shared};
use crate::copy::host::Lost;
use crate::files::last::{Finish, Last};

/// A directory of the target that is being filled.
pub(super) struct Dir {
    pub(super) shared: Arc<Shared>,
    pub(super) id: ObjectId,
    pub(super) display_path: Vec<u8>,
    above: Option<DirRef>,
    /// Attributes that it gets when it is complete; `None`: it keeps its attributes.
    end: Option<Meta>,
    /// New files in it inherit an ACL, which must be removed.
    pub(super) has_default_acl: bool,
}

/// A directory of the target that is being filled. It gets its attributes when the last clone of this handle is
/// dropped.
#[derive(Clone, Debug)]
pub struct Folder(pub(super) DirRef);

/// A reference to a directory that is being filled.
pub(super) type DirRef = Last<Dir>;

impl Finish for Dir {
    fn finish(&self) {
        self.give_attributes();
    }

    fn into_above(self) -> Option<DirRef> {
        self.above
    }
}

impl std::fmt::Debug for DirRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirRef({})", self.display_path.escape_ascii())
    }
}

impl Dir {
    /// A reference to an existing directory.
    pub(super) fn existing(
        shared: &Arc<Shared>,
        id: ObjectId,
        display_path: &[u8],
        above: Option<(&DirRef, Meta)>,
    ) -> Result<DirRef, ZplError> {
        let (above, end) = above.map_or((None, None), |(above, meta)| (Some(above.clone()), Some(meta)));
        let attrs = shared.fs.attrs(id)?;
        let kind = FileKind::from_mode(attrs.mode).unwrap_or(FileKind::Regular);
        if kind != FileKind::Directory {
            return Err(ZplError::WrongKind { object: id, kind, expected: "directory" });
        }
        let has_default_acl =
            shared.fs.options().posix_acls && shared.fs.node(id)?.xattr(POSIX_DEFAULT.as_ref())?.is_some();
        let shared = Arc::clone(shared);
        let dir = Dir { shared, id, display_path: display_path.to_vec(), above, end, has_default_acl };
        Ok(DirRef::new(dir))
    }

    /// Creates a directory in another, or opens the existing one.
    pub(super) fn make(
        above: &DirRef,
        name: &[u8],
        display_path: &[u8],
        meta: Meta,
    ) -> Result<DirRef, Problem> {
        let shared = &above.shared;
        let new = above.new_file(&meta, &[]);
        let id = match shared.fs.create(above.id, name, &new) {
            Ok(made) => {
                above.drop_inherited(made.id)?;
                made.id
            }
            Err(ZplError::Exists { .. }) => {
                let id = shared.fs.lookup(above.id, name)?.ok_or(ZplError::NotFound { dir: above.id })?;
                return Dir::existing(shared, id, display_path, Some((above, meta))).map_err(|error| {
                    match error {
                        ZplError::WrongKind { kind, .. } => Problem::InTheWay { kind },
                        other => other.into(),
                    }
                });
            }
            Err(error) => return Err(error.into()),
        };
        let (shared, above) = (Arc::clone(shared), Some(above.clone()));
        let dir = Dir {
            shared,
            id,
            display_path: display_path.to_vec(),
            above,
            end: Some(meta),
            has_default_acl: false,
        };
        Ok(DirRef::new(dir))
    }

    /// The initial attributes of a new file in this directory.
    pub(super) fn new_file<'f>(&self, meta: &Meta, target: &'f [u8]) -> NewFile<'f> {
        let (uid, gid) = self.ids(meta);
        NewFile { kind: meta.kind, mode: meta.perm, umask: 0, uid, gid, rdev: meta.rdev, target }
    }

    fn ids(&self, meta: &Meta) -> (u32, u32) {
        if self.shared.options.owners { (meta.uid, meta.gid) } else { self.shared.owner }
    }

    /// Removes the ACL that a new file inherited, because the copy gets the ACL of its source.
    pub(super) fn drop_inherited(&self, id: ObjectId) -> Result<(), ZplError> {
        if self.has_default_acl {
            for name in [POSIX_ACCESS, POSIX_DEFAULT] {
                match self.shared.fs.remove_xattr(id, name.as_ref()) {
                    Ok(()) | Err(ZplError::NoXattr { .. } | ZplError::Unsupported { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sets all attributes of a file in this directory.
    pub(super) fn attributes(&self, id: ObjectId, display_path: &[u8], meta: &Meta) -> Result<(), ZplError> {
        let fs = &self.shared.fs;
        let now = fs.attrs(id)?;
        let ids = self.ids(meta);
        // A setgid directory has set its own group; an ACL, other permissions.
        let (uid, gid) = (Some(ids.0), Some(ids.1));
        let changed_mode = now.mode & 0o7777 != meta.perm && meta.kind != FileKind::Symlink;
        fs.set_attrs(
            id,
            &NewAttrs {
                mode: changed_mode.then_some(meta.perm),
                uid: uid.filter(|uid| u64::from(*uid) != now.uid),
                gid: gid.filter(|gid| u64::from(*gid) != now.gid),
                atime: Some(meta.atime),
                mtime: Some(meta.mtime),
                ..NewAttrs::default()
            },
        )?;
        for (name, value) in &meta.xattrs {
            if let Err(error) = fs.set_xattr(id, name, value, Default::default()) {
                match error {
                    ZplError::Begin(_) | ZplError::Dmu(_) => return Err(error),
                    other => {
                        self.shared.problem(display_path, Lost::Xattr(name.clone(), xattr_words(&other)))
                    }
                }
            }
        }
        if !meta.aces.is_empty() {
            self.shared.problem(display_path, Lost::Acl);
        }
        Ok(())
    }

    fn give_attributes(&self) {
        let Some(meta) = &self.end else { return };
        if let Err(error) = self.attributes(self.id, &self.display_path, meta) {
            self.shared.problem(&self.display_path, error);
        }
        self.shared.dirs.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same message for all files with this error.
fn xattr_words(error: &ZplError) -> String {
    match error {
        ZplError::Unsupported { .. } => "the dataset does not support it (xattr, acltype)".to_owned(),
        other => other.to_string(),
    }
}
