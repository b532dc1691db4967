//! Parses the word of a dRAID vdev, in order to report its errors. Cenote cannot create dRAID vdevs yet.

/// Why a word does not describe a dRAID vdev.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraidError {
    /// A part that is not a number of data disks, children or spares.
    #[error("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'")]
    Syntax {
        /// The word as given.
        word: String,
    },
    /// The number of devices differs from the word's.
    #[error("invalid number of dRAID children; {wanted} required but {given} provided")]
    Children {
        /// Number of devices that the word gives.
        wanted: u64,
        /// Number of devices that are listed.
        given: u64,
    },
    /// More data disks per group than devices.
    #[error(
        "requested number of dRAID data disks per group {data} is too high,\nat most {most} disks are available for data"
    )]
    Data {
        /// Data disks per group that the word gives.
        data: u64,
        /// Maximum number of data disks per group.
        most: u64,
    },
}

/// The parity that a word gives.
fn parity(word: &str) -> u64 {
    word.strip_prefix("draid").and_then(|rest| rest.chars().next()?.to_digit(10)).map_or(1, u64::from)
}

/// Minimum number of devices.
pub(super) fn least(word: &str) -> usize {
    parity(word) as usize + 1
}

/// Checks the word of a dRAID vdev with `given` devices.
pub(super) fn check(word: &str, given: usize) -> Result<(), DraidError> {
    let syntax = || DraidError::Syntax { word: word.to_owned() };
    let given = given as u64;
    let parity = parity(word);
    let (mut data, mut spares) = (None, 0);
    for part in word.split(':').skip(1) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = part.split_at(digits);
        let number: u64 = number.parse().map_err(|_| syntax())?;
        match unit {
            "d" | "D" => data = Some(number),
            "s" | "S" => spares = number,
            "c" | "C" if number == given => {}
            "c" | "C" => return Err(DraidError::Children { wanted: number, given }),
            _ => return Err(syntax()),
        }
    }
    let most = given.saturating_sub(spares).saturating_sub(parity);
    match data {
        // OpenZFS's arithmetic turns 0 into a huge number of disks.
        Some(data) if data == 0 || data > most => Err(DraidError::Data { data, most }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_real_tool_says() {
        let text = |word: &str, given| check(word, given).expect_err("wrong").to_string();
        assert_eq!(text("draid1:9d:5c:1s", 2), "invalid number of dRAID children; 5 required but 2 provided");
        assert_eq!(
            text("draid:9d", 3),
            "requested number of dRAID data disks per group 9 is too high,\n\
             at most 2 disks are available for data"
        );
        assert_eq!(
            text("draid:0d", 3),
            "requested number of dRAID data disks per group 0 is too high,\n\
             at most 2 disks are available for data"
        );
        assert_eq!(text("draid:1x", 3), "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid:1x'");
        assert_eq!(check("draid1:2d:5c:1s", 5), Ok(()));
    }
}
