//! Tables: columns separated by two spaces, or by one tab with `-H`.

use crate::out::Out;

/// Layout of one column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Heading of the column.
    pub(crate) header: String,
    /// Width in characters, which grows with the values.
    pub(crate) width: usize,
    /// Whether values are aligned to the right.
    pub(crate) right: bool,
    /// Whether the width stays the same even if a value is longer, as for ratios.
    pub(crate) fixed: bool,
}

impl Column {
    /// A column that is at least as wide as its header.
    pub(crate) fn new(header: impl Into<String>, right: bool) -> Column {
        let header = header.into();
        Column { width: header.chars().count(), header, right, fixed: false }
    }

    /// Makes the column wide enough for a text.
    pub(crate) fn fit(&mut self, text: &str) {
        if !self.fixed {
            self.width = self.width.max(text.chars().count());
        }
    }
}

/// One row, without its line end. The last column is not padded if it is aligned to the left.
pub(crate) fn row<'a>(columns: &[Column], cells: impl Iterator<Item = &'a str>, scripted: bool) -> String {
    let mut line = String::new();
    for (i, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if i > 0 {
            line.push_str(if scripted { "\t" } else { "  " });
        }
        let padding = column.width.saturating_sub(cell.chars().count());
        let last = i + 1 == columns.len();
        if !scripted && column.right {
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.push_str(cell);
        if !scripted && !column.right && !last {
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }
    line
}

/// Prints a whole table: columns as wide as their longest value, with a header unless `scripted`.
pub(crate) fn whole(out: &Out, mut columns: Vec<Column>, rows: &[Vec<String>], scripted: bool) -> String {
    let rows: Vec<Vec<_>> = rows.iter().map(|r| r.iter().map(|c| out.cell(c)).collect()).collect();
    for cells in &rows {
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.fit(cell);
        }
    }
    let mut text = String::new();
    if !scripted {
        text.push_str(&row(&columns, columns.iter().map(|c| c.header.as_str()), false));
        text.push('\n');
    }
    for cells in &rows {
        text.push_str(&row(&columns, cells.iter().map(AsRef::as_ref), scripted));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_but_the_last() {
        let columns =
            vec![Column::new("NAME", false), Column::new("USED", true), Column::new("MOUNTPOINT", false)];
        let rows = vec![vec!["tank".into(), "4.19M".into(), "/tank".into()]];
        let out = Out::new();
        let text = whole(&out, columns.clone(), &rows, false);
        assert_eq!(text, "NAME   USED  MOUNTPOINT\ntank  4.19M  /tank\n");
        assert_eq!(whole(&out, columns, &rows, true), "tank\t4.19M\t/tank\n");
    }
}
