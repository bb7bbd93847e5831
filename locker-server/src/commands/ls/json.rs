//! `locker ls --json`.

use crate::api::explained::Explained;
use locker_runtime::{Inspection, Listed};
use std::io::Result;

/// A JSON array that is written page by page, an object per line.
#[derive(Default)]
pub(super) struct Array {
    has_begun: bool,
}

impl Array {
    pub(super) fn page(&mut self, keys: &[(&Listed, Inspection)], is_last: bool) -> Result<String> {
        let mut text = String::new();
        for (listed, seen) in keys {
            text += if self.has_begun { ",\n" } else { "[\n" };
            text += &serde_json::to_string(&Explained::of_listed(listed, seen))?;
            self.has_begun = true;
        }
        if is_last {
            text += if self.has_begun { "\n]\n" } else { "[]\n" };
        }
        Ok(text)
    }
}
