//! The word of a dRAID vdev, as far as it is needed to say what is wrong with it: none can be made yet.

/// Why a word makes no dRAID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraidError {
    /// A part that is none of data, children, spares.
    #[error("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'")]
    Syntax {
        /// The word.
        word: String,
    },
    /// More or fewer devices than the word says.
    #[error("invalid number of dRAID children; {wanted} required but {given} provided")]
    Children {
        /// As the word says.
        wanted: u64,
        /// As there are.
        given: u64,
    },
    /// More data than devices.
    #[error(
        "requested number of dRAID data disks per group {data} is too high,\nat most {most} disks are available for data"
    )]
    Data {
        /// As the word says.
        data: u64,
        /// What is possible.
        most: u64,
    },
}

/// The parity that a word asks for.
fn parity(word: &str) -> u64 {
    word.strip_prefix("draid").and_then(|rest| rest.chars().next()?.to_digit(10)).map_or(1, u64::from)
}

/// How many devices it needs at least.
pub(super) fn least(word: &str) -> usize {
    parity(word) as usize + 1
}

/// Checks the word of a dRAID with so many devices.
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
        // Zero comes out as a huge number of disks in the arithmetic of the original.
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
