//! Writing to files through memory maps, in a separate process: while the kernel waits for a file system to
//! unmap or write back pages, no thread of that process can allocate memory.
#![allow(unsafe_code)] // mmap and munmap.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A shared mapping of a file. It is written through `/proc/self/mem`: no reference into it is ever made, and
/// a file system that has gone away causes an error, not a signal.
struct Map {
    at: *mut c_void,
    len: usize,
}

impl Map {
    /// Maps the first `len` bytes of a file that is open for reading and writing. The file may be closed
    /// afterwards.
    fn of(file: &File, len: usize) -> io::Result<Map> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address range.
        let at = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Map { at, len })
    }

    /// Changes bytes in memory; the kernel writes them to the file later.
    fn write(&self, bytes: &[u8], offset: usize) -> io::Result<()> {
        assert!(offset + bytes.len() <= self.len, "what is written is in the map");
        let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
        memory.write_all_at(bytes, (self.at.addr() + offset) as u64)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `of` mapped this range with this length, and no reference into it exists.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// Environment variables of the mapping process: the path of the file, and the offset of the change.
const FILE: &str = "CENOTE_STRESS_MAP";
const OFFSET: &str = "CENOTE_STRESS_OFFSET";
/// Output lines of the mapping process: the map is written, the file is synced, or an error.
const WRITTEN: &str = "map: written";
const SYNCED: &str = "map: synced";
const FAILED: &str = "map: failed: ";

/// Acts as the mapping process if the environment asks for it; returns whether it did. Programs with writers
/// call it first in `main`, tests in a test function named `map_writer`.
pub fn map_writer() -> bool {
    let (Some(file), Ok(offset)) = (std::env::var_os(FILE), std::env::var(OFFSET)) else { return false };
    let offset = offset.parse().unwrap_or(0);
    if let Err(error) = write_through_map(Path::new(&file), offset) {
        print_line(&format!("{FAILED}{error}"));
    }
    true
}

fn print_line(line: &str) {
    // The parent reads the line or has ended; in both cases there is nothing to do.
    let _ = writeln!(io::stdout(), "\n{line}");
    let _ = io::stdout().flush();
}

fn write_through_map(file: &Path, offset: usize) -> io::Result<()> {
    let mut count = [0; 8];
    io::stdin().read_exact(&mut count)?;
    let mut bytes = vec![0; u64::from_le_bytes(count) as usize];
    io::stdin().read_exact(&mut bytes)?;
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let map = Map::of(&file, file.metadata()?.len() as usize)?;
    map.write(&bytes, offset)?;
    print_line(WRITTEN);
    // The pages stay dirty until the parent asks for them to be synced.
    let _ = io::stdin().read(&mut [0])?;
    file.sync_data()?;
    drop(map);
    print_line(SYNCED);
    Ok(())
}

/// A process that has changed a file through a mapping.
pub(crate) struct Mapper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    /// Starts a process that changes bytes of a file; the kernel may hold them in memory only.
    pub(crate) fn write(file: &Path, bytes: &[u8], offset: usize) -> io::Result<Mapper> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "map_writer", "--nocapture"]);
        command.env(FILE, file).env(OFFSET, offset.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut orders = child.stdin.take();
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        if let Some(orders) = &mut orders {
            orders.write_all(&(bytes.len() as u64).to_le_bytes())?;
            orders.write_all(bytes)?;
            orders.flush()?;
        }
        let mut mapper = Mapper { child, orders, answers: BufReader::new(answers) };
        mapper.wait_for(WRITTEN)?;
        Ok(mapper)
    }

    /// Syncs the file and ends the process.
    pub(crate) fn sync(mut self) -> io::Result<()> {
        drop(self.orders.take());
        self.wait_for(SYNCED)
    }

    fn wait_for(&mut self, what: &str) -> io::Result<()> {
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            if line.trim() == what {
                return Ok(());
            }
            if let Some(why) = line.strip_prefix(FAILED) {
                return Err(io::Error::other(why.trim().to_owned()));
            }
            line.clear();
        }
        Err(io::Error::other("the process with the map has ended"))
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The process ends when its standard input is closed.
        let _ = self.child.wait();
    }
}
