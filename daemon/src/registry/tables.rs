//! Keeps the tables that were put together last, one for each project folder that is looked from.

use std::path::Path;
use std::sync::Arc;

use super::table::Table;

/// Most tables kept.
const MAX_TABLES: usize = 16;

/// From where it is looked: the operator, a client without a project, a client with one.
pub(super) type Place = Option<Option<Arc<Path>>>;

/// Tables, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct Tables {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    place: Place,
    /// The servers' version that the table shows.
    version: u64,
    table: Arc<Table>,
}

impl Tables {
    /// The table from this place, if it shows this version.
    pub(super) fn current(&mut self, place: &Place, version: u64) -> Option<Arc<Table>> {
        let index = self.kept.iter().position(|kept| kept.place == *place)?;
        let kept = self.kept.remove(index);
        let table = (kept.version == version).then(|| Arc::clone(&kept.table));
        self.kept.push(kept);
        table
    }

    /// A table whose entries can be taken over: that from this place, else the one used last.
    pub(super) fn before(&self, place: &Place) -> Arc<Table> {
        let own = self.kept.iter().find(|kept| kept.place == *place);
        let kept = own.or_else(|| self.kept.last());
        kept.map(|kept| Arc::clone(&kept.table)).unwrap_or_default()
    }

    /// Keeps a table.
    pub(super) fn put(&mut self, place: Place, version: u64, table: Table) -> Arc<Table> {
        self.kept.retain(|kept| kept.place != place);
        if self.kept.len() >= MAX_TABLES {
            self.kept.remove(0);
        }
        let table = Arc::new(table);
        self.kept.push(Kept {
            place,
            version,
            table: Arc::clone(&table),
        });
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_table_and_few_are_kept() {
        let place = |name: usize| Some(Some(Arc::from(Path::new(&format!("/{name}")))));
        let mut tables = Tables::default();
        let first = tables.put(None, 1, Table::default());
        assert!(tables.current(&Some(None), 1).is_none());
        assert!(Arc::ptr_eq(&tables.current(&None, 1).unwrap(), &first));
        assert!(tables.current(&None, 2).is_none());
        assert!(Arc::ptr_eq(&tables.before(&place(0)), &first));
        for name in 0..MAX_TABLES + 3 {
            tables.put(place(name), 1, Table::default());
            assert!(tables.current(&place(0), 1).is_some());
        }
        assert_eq!(tables.kept.len(), MAX_TABLES);
        assert!(tables.current(&None, 1).is_none());
    }
}
