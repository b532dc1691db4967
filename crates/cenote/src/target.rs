//! The notation for a file in a pool: `POOL/dataset[@snapshot]:/path`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A dataset, and optionally a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The dataset or snapshot, pool name first.
    pub dataset: String,
    /// The path from the root of its file system, as bytes; `None` for the dataset as a whole.
    pub path: Option<Vec<u8>>,
}

impl Target {
    /// Splits the text at the first `:/`, or at a `:` at its end: names of datasets may contain colons, but no
    /// component begins with a slash. `None` if the dataset is empty or not UTF-8.
    ///
    /// ```
    /// use cenote::Target;
    /// let target = Target::parse("tank/home@mon:/a b".as_ref()).unwrap();
    /// assert_eq!((target.dataset.as_str(), target.path.as_deref()), ("tank/home@mon", Some(&b"/a b"[..])));
    /// assert_eq!(Target::parse("tank/vol".as_ref()).unwrap().path, None);
    /// ```
    pub fn parse(text: &OsStr) -> Option<Target> {
        let bytes = text.as_bytes();
        let split = bytes
            .windows(2)
            .position(|w| w == b":/")
            .or_else(|| bytes.len().checked_sub(1).filter(|i| bytes[*i] == b':'));
        let (dataset, path) = match split {
            Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            None => (bytes, None),
        };
        let dataset = std::str::from_utf8(dataset).ok().filter(|name| !name.is_empty())?;
        let path = path.map(|path| if path.is_empty() { b"/".to_vec() } else { path });
        Some(Target { dataset: dataset.to_owned(), path })
    }

    /// The pool's name: the first component of the dataset.
    pub fn pool(&self) -> &str {
        self.dataset.split(['/', '@', '#']).next().unwrap_or(&self.dataset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, Option<Vec<u8>>) {
        let target = Target::parse(text.as_ref()).unwrap();
        (target.dataset, target.path)
    }

    #[test]
    fn colons_belong_to_names_unless_a_slash_follows() {
        assert_eq!(parse("p/a:b@s"), ("p/a:b@s".into(), None));
        assert_eq!(parse("p/a:b@s:/x:/y"), ("p/a:b@s".into(), Some(b"/x:/y".to_vec())));
        assert_eq!(parse("p/a:"), ("p/a".into(), Some(b"/".to_vec())));
        assert_eq!(Target::parse(":/x".as_ref()), None);
    }

    #[test]
    fn the_pool_is_the_first_component() {
        assert_eq!(Target::parse("p@s:/x".as_ref()).unwrap().pool(), "p");
        assert_eq!(Target::parse("p/q".as_ref()).unwrap().pool(), "p");
    }
}
