//! Many programs at the same time in one tree: names and contents of files show whether they are right.

use super::random::Chance;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Contents of a file, which identify its owner and number.
fn content(owner: u64, number: u64, len: usize) -> Vec<u8> {
    let line = format!("file {number} of {owner};");
    line.bytes().cycle().take(len).collect()
}

fn length(number: u64) -> usize {
    (number.wrapping_mul(7919) % 70_000) as usize
}

/// One program: makes, renames, replaces, links and removes files of its own in shared folders.
fn work(root: &Path, owner: u64, steps: u64, lists: &AtomicU64) -> Vec<(PathBuf, u64)> {
    let mut chance = Chance::new(owner + 1000);
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    let folder = |chance: &mut Chance| root.join(format!("folder{}", chance.below(4)));
    for number in 0..steps {
        match chance.below(8) {
            0..=3 => {
                let path = folder(&mut chance).join(format!("{owner}.{number}"));
                std::fs::write(&path, content(owner, number, length(number))).unwrap();
                files.push((path, number));
            }
            4 if !files.is_empty() => {
                let at = chance.below(files.len() as u64) as usize;
                let to = folder(&mut chance).join(format!("{owner}.moved.{number}"));
                std::fs::rename(&files[at].0, &to).unwrap();
                files[at].0 = to;
            }
            5 if files.len() > 1 => {
                // One file replaces another, under its name.
                let from = files.swap_remove(chance.below(files.len() as u64) as usize);
                let at = chance.below(files.len() as u64) as usize;
                std::fs::rename(&from.0, &files[at].0).unwrap();
                files[at].1 = from.1;
            }
            6 if !files.is_empty() => {
                let (path, number) = files.swap_remove(chance.below(files.len() as u64) as usize);
                let second = path.with_extension("link");
                std::fs::hard_link(&path, &second).unwrap();
                std::fs::remove_file(&path).unwrap();
                assert!(
                    std::fs::read(&second).unwrap() == content(owner, number, length(number)),
                    "{owner}.{number}"
                );
                std::fs::remove_file(&second).unwrap();
            }
            _ => {
                // Each own file that existed before and after the listing is listed once.
                let dir = folder(&mut chance);
                let mut names: Vec<_> = std::fs::read_dir(&dir)
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .filter(|name| name.starts_with(&format!("{owner}.")))
                    .map(|name| dir.join(name))
                    .collect();
                let mut mine: Vec<_> = files
                    .iter()
                    .map(|file| file.0.clone())
                    .filter(|path| path.parent() == Some(&dir))
                    .collect();
                names.sort();
                mine.sort();
                assert_eq!(names, mine);
                lists.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    files
}

/// Runs programs in a tree; returns the files that must exist afterwards.
pub(crate) fn run(root: &Path, programs: u64, steps: u64) -> Vec<(PathBuf, u64, u64)> {
    (0..4).for_each(|i| std::fs::create_dir(root.join(format!("folder{i}"))).unwrap());
    let lists = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let lists = &lists;
        let runs: Vec<_> = (0..programs)
            .map(|owner| (owner, scope.spawn(move || work(root, owner, steps, lists))))
            .collect();
        runs.into_iter()
            .flat_map(|(owner, run)| {
                run.join().unwrap().into_iter().map(move |(path, number)| (path, owner, number))
            })
            .collect()
    })
}

/// Checks that these files exist, and no others.
pub(crate) fn check(root: &Path, files: &[(PathBuf, u64, u64)]) {
    for (path, owner, number) in files {
        assert!(
            std::fs::read(path).unwrap() == content(*owner, *number, length(*number)),
            "{}",
            path.display()
        );
    }
    let there: usize =
        (0..4).map(|i| std::fs::read_dir(root.join(format!("folder{i}"))).unwrap().count()).sum();
    assert_eq!(there, files.len());
}
