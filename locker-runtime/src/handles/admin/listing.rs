//! Pages of keys in use, with the names of functions and the notes of holders.

use super::{Admin, KEYS_AT_A_TIME};
use crate::locker::{FunctionSource, function_subject, subjects_of};
use locker_core::{
    error::{Error, ErrorKind, Result},
    key::{Key, Named},
    primitives::inspection::Inspection,
};
use std::collections::HashMap;

/// A choice of keys. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    kinds: Vec<String>,
    name: String,
}

impl Filter {
    /// Chooses keys of this kind only, one of [`Named::KINDS`], or of several kinds if it is called again. `lock`,
    /// `semaphore` and `rate` also choose those of functions with attributes.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kinds.push(kind.into());
        self
    }

    /// Chooses names that begin with this text only: the name of a primitive, or the name of a function, if it is
    /// known.
    #[must_use]
    pub fn name_prefix(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn takes_kind(&self, named: &Named) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == named.kind())
    }

    fn takes_name(&self, listed: &Listed) -> bool {
        let name = match (&listed.named, &listed.function) {
            (Named::Kind { name, .. }, _) => name,
            (_, Some(function)) => &function.name,
            _ => "",
        };
        name.starts_with(&self.name)
    }

    fn check(&self) -> Result<()> {
        let Some(kind) = self.kinds.iter().find(|kind| !Named::KINDS.contains(&kind.as_str())) else {
            return Ok(());
        };
        let message = format!("no kind is called `{kind}`: known are {}", Named::KINDS.join(", "));
        Err(Error::new(ErrorKind::Misused, message))
    }
}

/// A page of keys in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The keys, in the order of their bytes.
    pub keys: Vec<Listed>,
    /// The text after which the next page begins, or `None` if this page is the last one.
    pub next: Option<String>,
}

/// A key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The whole key.
    pub key: Key,
    /// The kind and the name, or the function, of the key.
    pub named: Named,
    /// The function with this digest, if a process has told the store about it.
    pub function: Option<FunctionSource>,
}

impl Admin {
    /// Returns up to `limit` keys in use that `filter` chooses and that come after the text `after`, in the order of
    /// their bytes. [`Page::next`] is the `after` of the next page; it may be used at any time, and by other processes.
    ///
    /// A key that is in use from the first page to the last is on exactly one of them. A key that comes or goes between
    /// may be missing. Keys of other programs are left out, unless they have the form of a key of this library. A key
    /// that has just become idle may still be listed.
    ///
    /// On Redis each page passes over all keys of the database.
    ///
    /// # Errors
    /// `Misused` if the filter names no kind, `limit` is 0, or the store cannot list its keys; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// ```
    /// # use locker_runtime as locker;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> locker::Result<()> {
    /// use locker::{Filter, Locker};
    /// let locker = Locker::memory();
    /// let guard = locker.lock("invoice 7").acquire().await?;
    /// let invoices = Filter::default().kind("lock").name_prefix("invoice ");
    /// let page = locker.admin().page(&invoices, None, 100).await?;
    /// assert_eq!(page.keys[0].key.as_str(), guard.key());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn page(&self, filter: &Filter, after: Option<&str>, limit: usize) -> Result<Page> {
        filter.check()?;
        if limit == 0 {
            return Err(Error::new(ErrorKind::Misused, "limit is 0: give at least 1"));
        }
        let (mut page, mut next) = (Page::default(), after.map(str::to_owned));
        let at_a_time = if filter.is_empty() { limit } else { limit.max(KEYS_AT_A_TIME) };
        loop {
            let found = self.0.page(next.as_deref(), at_a_time).await?;
            for listed in self.chosen(&found.keys, filter).await? {
                if page.keys.len() == limit {
                    page.next = page.keys.last().map(|last| last.key.to_string());
                    return Ok(page);
                }
                page.keys.push(listed);
            }
            next = found.next;
            if next.is_none() || page.keys.len() == limit {
                page.next = next;
                return Ok(page);
            }
        }
    }

    /// Returns the function of the digest in a key, if a process has told the store about it.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn function(&self, key: &Key) -> Result<Option<FunctionSource>> {
        let listed = self.chosen(std::slice::from_ref(key), &Filter::default()).await?;
        Ok(listed.into_iter().next().and_then(|listed| listed.function))
    }

    async fn chosen(&self, keys: &[Key], filter: &Filter) -> Result<Vec<Listed>> {
        let of_kind = |key: &Key| {
            let named = self.named(key).filter(|named| filter.takes_kind(named))?;
            Some(Listed { key: key.clone(), named, function: None })
        };
        let mut listed: Vec<Listed> = keys.iter().filter_map(of_kind).collect();
        let functions = self.functions(&listed).await?;
        for one in &mut listed {
            if let Named::Function { digest, .. } = &one.named {
                one.function = functions.get(digest).cloned();
            }
        }
        listed.retain(|one| filter.takes_name(one));
        Ok(listed)
    }

    async fn functions(&self, listed: &[Listed]) -> Result<HashMap<String, FunctionSource>> {
        let mut digests: Vec<String> = listed
            .iter()
            .filter_map(|one| match &one.named {
                Named::Function { digest, .. } => Some(digest.clone()),
                _ => None,
            })
            .collect();
        digests.sort_unstable();
        digests.dedup();
        if digests.is_empty() {
            return Ok(HashMap::new());
        }
        let subjects: Vec<_> = digests.iter().map(|digest| function_subject(digest)).collect();
        let texts = self.0.descriptions(&subjects).await?;
        let known = |(digest, text): (String, Option<String>)| Some((digest, FunctionSource::read(&text?)?));
        Ok(digests.into_iter().zip(texts).filter_map(known).collect())
    }

    /// Adds the notes of the holders. Without the store's answer, the holders have none.
    pub(super) async fn add_notes(&self, keys: &[Key], seen: &mut [Option<Inspection>]) {
        let in_use = keys.iter().zip(&*seen).filter_map(|(key, seen)| Some((key, seen.as_ref()?)));
        let subjects: Vec<_> =
            in_use.flat_map(|(key, seen)| subjects_of(key, self.of_name(key).as_ref(), seen)).collect();
        if subjects.is_empty() {
            return;
        }
        let texts = self.0.texts(subjects).await;
        for (key, seen) in keys.iter().zip(seen) {
            for held in seen.iter_mut().flat_map(|seen| &mut seen.holders) {
                held.note = texts.note_of(key, self.of_name(key).as_ref(), held).map(str::to_owned);
            }
        }
    }

    /// Returns the kind and the name of a key. Returns `None` for the key of a function, whose text is not wanted.
    fn of_name(&self, key: &Key) -> Option<Named> {
        self.named(key).filter(|named| matches!(named, Named::Kind { .. }))
    }
}
