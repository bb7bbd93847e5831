//! The choice of rows that a stream shows.

use super::{overview::Overview, row::Row};
use crate::api::{Answer, Resource, key_kind, name::quoted};
use std::{cmp::Reverse, sync::Arc};

/// The most rows that a stream shows.
const MOST_ROWS: usize = 200;

/// The orders by which a view may sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Waiting,
    Longest,
    Age,
    Name,
}

/// A filter and an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) prefix: Option<Box<str>>,
    /// As paths spell it.
    kind: Option<&'static str>,
    order: Option<Order>,
}

/// The rows of an overview that a view shows.
#[derive(Debug)]
pub(super) struct Shown {
    overview: Arc<Overview>,
    /// The places of the rows in the overview, in the order of the view.
    rows: Vec<usize>,
    /// How many rows pass the filter.
    pub(super) matching: usize,
}

impl View {
    /// Sets the kind.
    ///
    /// # Errors
    /// 400 if there is no such kind, or one was given before.
    pub(crate) fn set_kind(&mut self, kind: &str) -> Result<(), Answer> {
        let kind = key_kind(kind)?;
        let resource = Resource::ALL.into_iter().find(|resource| resource.key_kind() == kind);
        let known = locker_runtime::Named::KINDS.iter().find(|known| **known == kind).copied();
        let spelled = resource.map(Resource::segment).or(known).unwrap_or_default();
        crate::api::once("kind", &mut self.kind, spelled)
    }

    /// Sets the order.
    ///
    /// # Errors
    /// 400 if there is no such order, or one was given before.
    pub(crate) fn set_order(&mut self, order: &str) -> Result<(), Answer> {
        let order = match order {
            "waiting" => Order::Waiting,
            "longest" => Order::Longest,
            "age" => Order::Age,
            "name" => Order::Name,
            _ => {
                let reason = format!("order is {}: give waiting, longest, age or name", quoted(order));
                return Err(Answer::bad_request(reason));
            }
        };
        crate::api::once("order", &mut self.order, order)
    }

    pub(super) fn choose(&self, overview: &Arc<Overview>) -> Shown {
        let all = &overview.rows;
        let mut rows: Vec<usize> = (0..all.len()).filter(|&row| self.takes(&all[row])).collect();
        let matching = rows.len();
        let order = self.order.unwrap_or_default();
        let compare = |one: &usize, other: &usize| order.compare(&all[*one], &all[*other]);
        if matching > MOST_ROWS {
            rows.select_nth_unstable_by(MOST_ROWS, compare);
            rows.truncate(MOST_ROWS);
        }
        rows.sort_unstable_by(compare);
        // The rest of the vector would last as long as the rows.
        rows.shrink_to_fit();
        Shown { overview: overview.clone(), rows, matching }
    }

    fn takes(&self, row: &Row) -> bool {
        self.kind.is_none_or(|kind| kind == row.kind)
            && self.prefix.as_deref().is_none_or(|prefix| row.title().starts_with(prefix))
    }
}

impl Order {
    /// Compares two rows. Those that are alike are in the order of their keys.
    fn compare(self, one: &Row, other: &Row) -> std::cmp::Ordering {
        let alike = match self {
            Self::Waiting => other.waiting.cmp(&one.waiting),
            Self::Longest => earliest_first(one.waits_since, other.waits_since),
            Self::Age => earliest_first(one.granted, other.granted),
            Self::Name => one.title().cmp(other.title()),
        };
        alike.then_with(|| one.key.as_str().cmp(other.key.as_str()))
    }
}

/// `None` comes last.
fn earliest_first<T: Ord>(one: Option<T>, other: Option<T>) -> std::cmp::Ordering {
    other.map(Reverse).cmp(&one.map(Reverse))
}

impl Shown {
    pub(super) fn version(&self) -> u64 {
        self.overview.version
    }

    pub(super) fn is_of(&self, overview: &Arc<Overview>) -> bool {
        Arc::ptr_eq(&self.overview, overview)
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.rows.iter().map(|&row| &self.overview.rows[row])
    }

    pub(super) fn overview(&self) -> &Overview {
        &self.overview
    }
}
