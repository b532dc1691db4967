//! One full stream in place of a chain.

use super::{Chain, ChainError, ChainSnapshot};
use format::feature::{FEATURES, Feature};
use pool::FeatureState;
use std::io::Write;
use std::ops::ControlFlow;
use stream::send::{Options, Sent, Source, send};

impl Chain {
    /// Writes a full stream of a snapshot, with all that it holds and nothing of earlier ones: what `zfs send -Le` makes
    /// of the snapshot, or `zfs send -w` if it is encrypted: streams of encrypted datasets are joined as they are, without
    /// their keys, and the result has the wrapped key of the newest increment. `on_bytes` is called with the bytes so far, and may end it.
    ///
    /// # Errors
    /// [`ChainError::Send`], [`ChainError::Pool`].
    pub fn join(
        &self,
        snapshot: &ChainSnapshot,
        out: &mut dyn Write,
        on_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Sent, ChainError> {
        let dataset = self.dataset(snapshot)?;
        let set = dataset.objset()?;
        let state = |feature: &&Feature| self.pool.spa().features().state_of(feature.name);
        let active = FEATURES.iter().filter(|feature| matches!(state(feature), FeatureState::Active(_)));
        let is_raw = dataset.dsl().is_encrypted().map_err(crate::Error::from)?;
        let source = Source {
            dataset: dataset.dsl().clone(),
            set,
            from: None,
            pool_features: active.map(|feature| feature.name).collect(),
        };
        let options = Options {
            large_blocks: true,
            embedded: true,
            compressed: is_raw,
            raw: is_raw,
            to_name: format!("{}@{}", snapshot.dataset, snapshot.snapshot),
            ..Options::default()
        };
        Ok(send(&source, &options, out, on_bytes)?)
    }
}
