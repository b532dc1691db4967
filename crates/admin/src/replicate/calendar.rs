//! The Gregorian calendar: days since 1970 and dates.

/// Days of 400 years.
const ERA: i64 = 146_097;

/// Year, month (1 to 12) and day (1 to 31) of a day counted from 1970-01-01.
pub fn date(day: i64) -> (i64, u64, u64) {
    // Years are counted from March, so that the leap day is the last of its year.
    let day = day.saturating_add(719_468);
    let (era, day) = (day.div_euclid(ERA), day.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

/// A time in seconds since 1970 as `20261128T053128Z`.
pub(super) fn stamp(time: u64) -> String {
    let (year, month, day) = date((time / 86_400) as i64);
    let (hour, minute, second) = (time / 3600 % 24, time / 60 % 60, time % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Whether a text is one that [`stamp`] makes of some time.
pub(super) fn is_stamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 16
        && bytes.iter().enumerate().all(|(i, byte)| match i {
            8 => *byte == b'T',
            15 => *byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_stamps() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(20_454), (2026, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(stamp(1_795_843_888), "20261128T053128Z");
        assert!(is_stamp(&stamp(0)) && !is_stamp("20261128T05312Z") && !is_stamp("20261128-053128Z"));
    }
}
