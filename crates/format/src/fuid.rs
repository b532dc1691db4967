//! FUID domains of a file system's users and groups: a packed list in an object of its own
//! (docs/on-disk/23-zpl.md, section 4).

use crate::{DecodeError, NvList};

/// Maximum size of a table in bytes; real ones have a few rows.
pub const TABLE_MAX: u64 = 1 << 20;

/// A domain: a Windows security identifier without its last part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The value of the upper 32 bits of a FUID in this domain.
    pub index: u64,
    /// Name of the domain, such as `S-1-5-21-…`.
    pub name: String,
}

/// Decodes the rows of a packed table. Rows without index or name are ignored.
///
/// # Errors
/// The error of the name-value list.
pub fn decode_table(packed: &[u8]) -> Result<Vec<Domain>, DecodeError> {
    let list = NvList::decode(packed)?;
    let rows = list.lists("fuid_nvlist").unwrap_or(&[]);
    let row =
        |row: &NvList| Some(Domain { index: row.u64("fuid_idx")?, name: row.str("fuid_domain")?.to_owned() });
    Ok(rows.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NvValue;

    #[test]
    fn rows_without_a_name_are_left_out() {
        let mut whole = NvList::new();
        whole.push("fuid_idx", NvValue::Uint64(1));
        whole.push("fuid_offset", NvValue::Uint64(0));
        whole.push("fuid_domain", NvValue::String("S-1-5-21".into()));
        let mut nameless = NvList::new();
        nameless.push("fuid_idx", NvValue::Uint64(2));
        let mut table = NvList::new();
        table.push("fuid_nvlist", NvValue::ListArray(vec![nameless, whole]));
        let expected = [Domain { index: 1, name: "S-1-5-21".into() }];
        assert_eq!(decode_table(&table.encode_xdr()).as_deref(), Ok(&expected[..]));
        assert_eq!(decode_table(&NvList::new().encode_xdr()), Ok(Vec::new()));
        assert!(decode_table(&[]).is_err());
    }
}
