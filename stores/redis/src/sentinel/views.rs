//! What the sentinels say of the master.
//!
//! The highest number counts. Sentinels that have lost their state count anew, though, and would never be followed: so
//! another address counts with any number if most sentinels name it for a while, and none with a higher number names
//! another one. That is what a new process believes as well. Most sentinels lag for a moment behind the one that has
//! led a failover, but that one has the highest number.

use super::ASK_INTERVAL;
use crate::server::Server;
use locker_core::clock::Timestamp;

/// What a sentinel says of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The views of all sentinels.
#[derive(Clone, Debug)]
pub(super) struct Views(Vec<Option<Heard>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    view: View,
    /// Since when the sentinel names this address.
    since: Timestamp,
    /// Whether it has named the address again since then, in answer to a later question.
    is_repeated: bool,
}

impl Views {
    /// Nothing is heard yet of so many sentinels.
    pub(super) fn of(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// Sets the view of a sentinel, `None` if it does not answer. Returns whether that is news.
    pub(super) fn set(&mut self, number: usize, view: Option<View>, now: Timestamp) -> bool {
        let before = &mut self.0[number];
        let heard = view.map(|view| {
            let first = before.as_ref().filter(|heard| heard.view.is_at(&view.host, view.port));
            let since = first.map_or(now, |heard| heard.since);
            Heard { view, since, is_repeated: now >= since + ASK_INTERVAL }
        });
        let is_news = *before != heard;
        *before = heard;
        is_news
    }

    fn heard(&self) -> impl Iterator<Item = &Heard> {
        self.0.iter().flatten()
    }

    pub(super) fn newest(&self) -> Option<&View> {
        self.heard().map(|heard| &heard.view).max_by_key(|view| view.epoch)
    }

    /// Returns whether another server than this one is the master.
    pub(super) fn have_left(&self, server: &Server) -> bool {
        let Some(newest) = self.newest() else { return false };
        if newest.epoch > server.epoch {
            return true;
        }
        let names_it = |heard: &&Heard| heard.is_repeated && heard.view.is_at(&newest.host, newest.port);
        !newest.is_at(&server.host, server.port) && self.heard().filter(names_it).count() * 2 > self.0.len()
    }
}

impl View {
    fn is_at(&self, host: &str, port: u16) -> bool {
        (&*self.host, self.port) == (host, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url;
    use locker_core::store::opening::NetworkOptions;

    /// A view, unless the port is 0.
    fn view(epoch: u64, port: u16) -> Option<View> {
        (port > 0).then(|| View { epoch, host: "127.0.0.1".into(), port })
    }

    fn set(views: &mut Views, all: &[Option<View>], now: Timestamp) {
        for (number, view) in all.iter().enumerate() {
            views.set(number, view.clone(), now);
        }
    }

    fn views(all: &[Option<View>], now: Timestamp) -> Views {
        let mut views = Views::of(all.len());
        set(&mut views, all, now);
        views
    }

    #[test]
    fn highest_number_counts() {
        for (all, port) in [
            (vec![], None),
            (vec![None, None], None),
            (vec![None, view(0, 1)], Some(1)),
            (vec![view(1, 1), view(2, 2), view(1, 1)], Some(2)),
        ] {
            let views = views(&all, Timestamp::default());
            assert_eq!(views.newest().map(|view| view.port), port, "{views:?}");
        }
    }

    #[test]
    fn most_sentinels_move_a_process_in_time() {
        let start = Timestamp::from_micros(1);
        let server = url::server(&url::read("redis://127.0.0.1:1").unwrap()).unwrap();
        let server = Server::new(server, 7, &NetworkOptions::default()).unwrap();
        for (all, at_once, later) in [
            ([view(8, 2), None, None], true, true),
            ([view(0, 2), view(0, 2), view(0, 2)], false, true),
            ([view(0, 2), view(0, 2), None], false, true),
            ([view(0, 2), view(0, 2), view(0, 3)], false, false),
            ([view(0, 2), None, None], false, false),
            // The third one has led a failover to this server, and the others do not know it yet.
            ([view(6, 2), view(6, 2), view(7, 1)], false, false),
            ([view(0, 1), view(0, 1), view(0, 1)], false, false),
            ([None, None, None], false, false),
        ] {
            let mut views = views(&all, start);
            assert_eq!(views.have_left(&server), at_once, "{views:?}");
            set(&mut views, &all, start + ASK_INTERVAL);
            assert_eq!(views.have_left(&server), later, "{views:?}");
        }
    }

    #[test]
    fn silence_begins_the_count_anew() {
        let (start, mut views) = (Timestamp::from_micros(1), Views::of(1));
        for (view, at) in [(view(0, 2), start), (None, start), (view(0, 2), start + ASK_INTERVAL)] {
            assert!(views.set(0, view.clone(), at), "news");
            assert!(!views.set(0, view, at), "no news");
        }
        assert!(!views.heard().any(|heard| heard.is_repeated));
    }
}
