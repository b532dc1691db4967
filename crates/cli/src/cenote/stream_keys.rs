//! `--key` of `cenote stream`: the keys of locked streams. Datasets are called as their senders call them.

use super::Failure;
use super::open::{OfStreams, Source, split_key};
use super::term;
use ::cenote::chain::Chain;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options for locked streams.
#[derive(clap::Args)]
pub(super) struct Keys {
    /// Load the key of locked (raw) streams from FILE, or ask for it when FILE is `prompt`
    ///
    /// With DATASET=, the key is that of this dataset, as its sender called it; repeatable.
    #[arg(long = "key", value_name = "[DATASET=]FILE")]
    keys: Vec<OsString>,
}

impl Keys {
    /// Whether there is one.
    pub(super) fn are_given(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The source of the datasets in a chain.
    ///
    /// # Errors
    /// A key is for a dataset that the streams do not have, or several are for all.
    pub(super) fn source(&self, chain: &Chain) -> Result<Source, Failure> {
        let mut streams = OfStreams { key: None, prefix: chain.name_in_pool("") };
        let mut named = Vec::new();
        for key in &self.keys {
            let Some((dataset, file)) = divided(key)? else {
                if streams.key.replace(key.clone()).is_some() {
                    let why = "several keys: name the dataset of each, as --key DATASET=FILE";
                    return Err(Failure::Message(why.to_owned()));
                }
                continue;
            };
            if !chain.snapshots().iter().any(|snapshot| snapshot.dataset == dataset) {
                let dataset = term::escape(dataset.as_bytes());
                return Err(Failure::Message(format!("no dataset '{dataset}' in the streams")));
            }
            let name = chain.name_in_pool(&dataset);
            named.push(OsString::from_vec([name.as_bytes(), b"=", file.as_bytes()].concat()));
        }
        Ok(Source::of_streams(named, streams))
    }
}

/// The dataset and the file of a key; `None`: it is for all datasets.
fn divided(key: &OsStr) -> Result<Option<(String, OsString)>, Failure> {
    if key.as_bytes().contains(&b'=') { split_key(key).map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_a_dataset_or_is_for_all() {
        assert!(divided("./key".as_ref()).is_ok_and(|key| key.is_none()));
        let named = divided("tank/a=/b=c".as_ref()).ok().flatten().expect("a dataset");
        assert_eq!((named.0.as_str(), named.1.to_str()), ("tank/a", Some("/b=c")));
        assert!(divided("=/key".as_ref()).is_err() && divided("tank/a=".as_ref()).is_err());
    }
}
