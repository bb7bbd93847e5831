//! One pass over the names in the store.

use super::{
    Live, elsewhere,
    pace::Pace,
    row::{Row, RowMaker},
};
use crate::{
    activity,
    api::{Resource, name::TIME_SLOTS},
};
use locker_runtime::{Filter, Listed, Named, Result};
use std::{collections::HashMap, sync::Arc, time::Instant};

/// The most rows of an overview, for the sake of memory. The page says that there are more.
const MOST_ROWS: usize = 250_000;

/// How many names are looked at between two rests, or between two yields of the first pass.
const AT_A_TIME: usize = 128;

/// All names, as one pass over the store has seen them.
#[derive(Debug, Default)]
pub(super) struct Overview {
    /// Rises with each overview.
    pub(super) version: u64,
    pub(super) rows: Vec<Row>,
    /// Whether the store has names beyond these rows.
    pub(super) has_more: bool,
    pub(super) holds: u64,
    pub(super) waiting: u64,
    /// The start of the pass.
    pub(super) seen: Option<Instant>,
    /// The same in milliseconds since 1970.
    pub(super) began: u64,
    /// Whether the pass went through all names.
    pub(super) is_whole: bool,
    /// Why the store could not be read after this.
    pub(super) error: Option<String>,
}

impl Live {
    /// Makes a new overview. The first one is made without rests, and shown while it is being made. If nobody looks,
    /// the pass waits for the next looker. Returns `false` if nobody came during the rest that was due.
    pub(super) async fn pass(&self, pace: &mut Pace) -> Result<bool> {
        let (began, start) = (activity::now(), Instant::now());
        let found = self.sources.admin.page(&Filter::default(), None, MOST_ROWS).await?;
        let is_own =
            |listed: &Listed| matches!(&listed.named, Named::Kind { name, .. } if name == TIME_SLOTS);
        let keys: Vec<Listed> = found.keys.into_iter().filter(|listed| !is_own(listed)).collect();
        let last = self.overview.borrow().clone().filter(|last| last.is_whole);
        let has_more = found.next.is_some();
        let mut draft = Overview { has_more, began, seen: Some(start), ..Overview::default() };
        let mut publish_at = 1;
        let mut maker = RowMaker {
            admin: &self.sources.admin,
            spelled: Resource::ALL.map(|resource| self.sources.names.spellings(resource)),
            functions: HashMap::new(),
            waits: &self.sources.waits,
            activity: &self.sources.activity,
        };
        let mut keys = keys.into_iter();
        pace.worked(start);
        while keys.len() > 0 {
            if last.is_some() {
                self.rest(pace).await;
            }
            let start = Instant::now();
            let some: Vec<Listed> = keys.by_ref().take(AT_A_TIME).collect();
            self.add(&mut draft, &mut maker, some).await?;
            if last.is_none() && draft.rows.len() >= publish_at {
                publish_at = 2 * draft.rows.len();
                self.replace(draft.copy());
            }
            pace.worked(start);
            // The embedded store replies at once.
            tokio::task::yield_now().await;
            if keys.len() > 0 && !self.is_looked_at() && !self.is_looked_at_again(pace).await {
                return Ok(false);
            }
        }
        draft.is_whole = true;
        if let Some(last) = last {
            elsewhere::note(&self.sources.activity, last.began, &last.rows, &draft.rows);
        }
        self.replace(draft);
        Ok(true)
    }

    async fn add(&self, draft: &mut Overview, maker: &mut RowMaker<'_>, some: Vec<Listed>) -> Result<()> {
        let keys: Vec<_> = some.iter().map(|listed| listed.key.clone()).collect();
        let seen = self.sources.admin.inspect_all(&keys).await?;
        let now = Instant::now();
        for (listed, seen) in some.into_iter().zip(seen) {
            let Some(seen) = seen else { continue };
            let row = maker.row(listed, &seen, now);
            draft.holds += seen.holders.len() as u64;
            draft.waiting += seen.waiting;
            draft.rows.push(row);
        }
        Ok(())
    }

    /// Shows the last overview, if there is one, with the reason why there is no newer one.
    pub(super) fn failed(&self, error: String) {
        let mut overview = self.overview.borrow().as_ref().map(|last| last.copy()).unwrap_or_default();
        overview.error = Some(error);
        self.replace(overview);
    }

    fn replace(&self, mut overview: Overview) {
        self.overview.send_modify(|last| {
            overview.version = last.as_ref().map_or(0, |last| last.version + 1);
            *last = Some(Arc::new(overview));
        });
    }
}

impl Overview {
    fn copy(&self) -> Self {
        let Self { rows, has_more, holds, waiting, seen, began, is_whole, error, .. } = self;
        Self {
            version: 0,
            rows: rows.clone(),
            has_more: *has_more,
            holds: *holds,
            waiting: *waiting,
            seen: *seen,
            began: *began,
            is_whole: *is_whole,
            error: error.clone(),
        }
    }
}
