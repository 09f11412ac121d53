//! Lays out columns of text within a width.

use super::words::shorten;

/// Which way a column's cells lean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lean {
    Left,
    Right,
}

/// One column; the last one of a table takes what width is left.
#[derive(Debug)]
pub(super) struct Column {
    /// Heading, with the padding it is to have on its left.
    pub(super) title: &'static str,
    pub(super) lean: Lean,
    /// Least width in characters.
    pub(super) least: usize,
    /// Columns with a number are dropped, lowest first, when the width does not suffice.
    pub(super) drop: Option<u8>,
    pub(super) cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells
            .max()
            .unwrap_or(0)
            .max(self.least)
            .max(self.title.chars().count())
    }

    fn pad(&self, text: &str, lean: Lean) -> String {
        let width = self.width();
        match lean {
            Lean::Left => format!("{text:<width$}"),
            Lean::Right => format!("{text:>width$}"),
        }
    }
}

/// Two spaces stand between columns.
const GAP: usize = 2;

/// The heading and a line a row, each at most `width` characters unless the first columns alone are wider.
///
/// `keep_all` shortens the last column rather than dropping any.
pub(super) fn lay_out(mut columns: Vec<Column>, width: usize, keep_all: bool) -> Vec<String> {
    let total = |columns: &[Column]| {
        columns.iter().map(Column::width).sum::<usize>() + GAP * columns.len().saturating_sub(1)
    };
    while !keep_all && total(&columns) > width {
        let droppable = columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| Some((column.drop?, at)));
        let Some((_, at)) = droppable.min() else {
            break;
        };
        columns.remove(at);
    }
    let surplus = total(&columns).saturating_sub(width);
    if let Some(last) = columns.last_mut() {
        let room = last.width().saturating_sub(surplus).max(last.title.len());
        for cell in &mut last.cells {
            *cell = shorten(cell, room);
        }
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let title = |column: &Column| column.pad(column.title, column.heading_lean());
    let heading = columns.iter().map(title).collect();
    let rows = (0..rows).map(|row| {
        let cell = |column: &Column| {
            let text = column.cells.get(row).map_or("", String::as_str);
            column.pad(text, column.lean)
        };
        columns.iter().map(cell).collect()
    });
    std::iter::once(heading)
        .chain(rows)
        .map(|cells: Vec<String>| cells.join(&" ".repeat(GAP)).trim_end().to_owned())
        .collect()
}

impl Column {
    /// A heading that brings its own padding leans left.
    fn heading_lean(&self) -> Lean {
        if self.title.starts_with(' ') {
            Lean::Left
        } else {
            self.lean
        }
    }
}
