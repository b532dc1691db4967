//! Control calls (ioctl) of files: flags and projects, as `chattr` and `lsattr` use them, and DOS attributes
//! (docs/on-disk/23-zpl.md, section 3).

use super::errno::errno;
use super::open_files::{OpenFile, writes_to};
use super::service::Answer;
use crate::export::{Caller, ExportError, LiveFs};
use cenote::files::{Attrs, NewAttrs};
use format::znode::{dos_flags, linux_flags, with_linux_flags};
use rustix::io::Errno;

/// Numbers of the calls (`linux/fs.h`): direction, size, letter, number. The kernel knows some of them and
/// checks the caller. A call with another size is another call: the kernel passes it on unchecked, and it is
/// refused here. Calls of 32-bit programs arrive in this form.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
/// Control call for the word of DOS attributes.
const GET_DOS: u32 = 0x8008_8301;
const SET_DOS: u32 = 0x4008_8302;

/// Pairs of flags with the same meaning in the two families of calls.
const EXTENDED: [(u32, u32); 4] = [(0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x2000_0000, 0x200)];
/// "The file has extended attributes" (`FS_XFLAG_HASATTR`): a read-only flag, ignored when flags are set.
const HAS_ATTRIBUTES: u32 = 0x8000_0000;

/// Length of `struct fsxattr` in bytes.
const FSXATTR: usize = 28;
const PROJECT_AT: usize = 12;

fn put(got: &mut [u8], at: usize, value: u32) -> Answer<()> {
    let place = got.get_mut(at..at + 4).ok_or(Errno::INVAL)?;
    place.copy_from_slice(&value.to_ne_bytes());
    Ok(())
}

fn take(given: &[u8], at: usize) -> Answer<u32> {
    let bytes = given.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

/// A control call: its caller, and the file of a mount that it concerns.
pub(super) struct Control<'c> {
    pub(super) caller: &'c Caller,
    pub(super) node: u64,
    /// Major and minor number of the device of the mount.
    pub(super) device: Option<(u32, u32)>,
    /// Whether the kernel checks that the caller may change flags and projects of files.
    pub(super) kernel_checks_flags: bool,
}

impl Control<'_> {
    /// Whether a call changes attributes, which the kernel keeps as they were.
    pub(super) fn changes_attributes(number: u32) -> bool {
        matches!(number, SET_FLAGS | SET_XATTR | SET_DOS)
    }

    /// Answers the call `number` with the input `given`; writes the output to `got` and returns its length.
    ///
    /// # Errors
    /// `ENOTTY` for unknown calls; `EPERM` or `EROFS` for callers that may not make a change.
    pub(super) fn answer(&self, live: &LiveFs, number: u32, given: &[u8], got: &mut [u8]) -> Answer<usize> {
        let attrs = || live.stored_attrs(self.node).map_err(|e| errno(&e));
        match number {
            GET_FLAGS | GET_VERSION => {
                let attrs = attrs()?;
                let is_flags = number == GET_FLAGS;
                let value = if is_flags { linux_flags(attrs.flags) } else { attrs.generation as u32 };
                got.fill(0);
                put(got, 0, value)?;
                Ok(got.len())
            }
            SET_FLAGS => {
                let new = NewAttrs { linux_flags: Some(take(given, 0)?), ..NewAttrs::default() };
                self.set_flags(live, &new)
            }
            GET_XATTR => {
                let attrs = attrs()?;
                let flags = linux_flags(attrs.flags);
                let extended =
                    EXTENDED.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bit)| bit).sum();
                got.get_mut(..FSXATTR).ok_or(Errno::INVAL)?.fill(0);
                put(got, 0, extended)?;
                put(got, PROJECT_AT, attrs.projid as u32)?;
                Ok(FSXATTR)
            }
            SET_XATTR => {
                let (extended, project) = (take(given, 0)? & !HAS_ATTRIBUTES, take(given, PROJECT_AT)?);
                let known: u32 = EXTENDED.iter().map(|(_, bit)| bit).sum();
                if extended & !known != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                let flags =
                    EXTENDED.iter().filter(|(_, bit)| extended & bit != 0).map(|(flag, _)| flag).sum();
                let attrs = attrs()?;
                let is_moved = attrs.projid != u64::from(project);
                let new = NewAttrs {
                    linux_flags: (linux_flags(attrs.flags) != flags).then_some(flags),
                    project: is_moved.then_some(project),
                    ..NewAttrs::default()
                };
                if new == NewAttrs::default() { Ok(0) } else { self.set_flags(live, &new) }
            }
            GET_DOS => {
                let attrs = attrs()?;
                let place = got.first_chunk_mut().ok_or(Errno::INVAL)?;
                *place = dos_flags(attrs.flags).to_ne_bytes();
                Ok(place.len())
            }
            SET_DOS => {
                let flags = u64::from_ne_bytes(*given.first_chunk().ok_or(Errno::INVAL)?);
                let attrs = attrs()?;
                self.check(live, &attrs, attrs.flags ^ flags)?;
                self.set(live, &NewAttrs { dos_flags: Some(flags), ..NewAttrs::default() })
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// Sets flags or the project. The permission is checked here unless the kernel does so.
    fn set_flags(&self, live: &LiveFs, new: &NewAttrs) -> Answer<usize> {
        if !self.kernel_checks_flags {
            let attrs = live.stored_attrs(self.node).map_err(|e| errno(&e))?;
            let flags = new
                .linux_flags
                .map_or(attrs.flags, |linux| with_linux_flags(attrs.flags, linux).unwrap_or(0));
            self.check(live, &attrs, attrs.flags ^ flags)?;
        }
        self.set(live, new)
    }

    /// Checks what newer kernels check for the calls that they know: the caller's rights, and that the file
    /// is open through a mount that can be written to.
    fn check(&self, live: &LiveFs, attrs: &Attrs, changed: u64) -> Answer<()> {
        live.check_flags(self.caller, attrs, changed).map_err(|e| errno(&e))?;
        let id = live.id(self.node);
        let file = OpenFile { device: self.device, numbers: [live.node(id), id.0] };
        let is_writable = writes_to(self.caller, &file);
        if is_writable { Ok(()) } else { Err(errno(&ExportError::ReadOnly)) }
    }

    fn set(&self, live: &LiveFs, new: &NewAttrs) -> Answer<usize> {
        live.set_stored_attrs(self.node, new).map_err(|e| errno(&e))?;
        Ok(0)
    }
}
