//! Lists the datasets of a pool and the files in the root of each.
//!
//! `cargo run -p cenote --example list -- POOL [FOLDER-OR-IMAGE ...]`

use cenote::{Error, OpenOptions, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("which pool?")?;
    let options = args.fold(OpenOptions::new(), cenote::OpenOptions::search);
    let pool = Pool::open(&name, &options)?;
    for dataset in pool.datasets()? {
        println!("{} ({})", dataset.name(), dataset.kind()?.name());
        match dataset.filesystem() {
            Ok(fs) => {
                for entry in fs.open(b"/")?.entries()? {
                    let entry = entry?;
                    println!("    {:>8} {}", entry.id, entry.name.escape_ascii());
                }
            }
            Err(Error::NotAFilesystem { .. }) => {
                let volume = dataset.volume()?;
                println!("    {} bytes in blocks of {}", volume.size(), volume.block_size());
            }
            Err(Error::Locked { root, .. }) => println!("    encrypted with the key of {root}"),
            Err(error) => return Err(error.into()),
        }
    }

    Ok(())
}
