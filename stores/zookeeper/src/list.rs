//! The list of all values.

use super::{
    errors::Failure,
    keys::{BUCKETS, Keys, key_of},
    link::Link,
    ops::{ANY, Op},
    stored::value,
};
use futures_util::future::{join_all, try_join_all};
use locker_cas::Values;

/// How many values are read at once.
const AT_ONCE: usize = 64;

/// Returns the names in all buckets, after a majority has agreed that the server knows the latest ones.
async fn names(link: &Link, keys: &Keys) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let agreed = link.multi(vec![Op::Check(keys.values().into(), ANY)]);
    let of = |number: u32| {
        let bucket = keys.bucket(number);
        let asked = link.children(&bucket);
        async move { Ok::<_, Failure>((bucket, asked.await?)) }
    };
    let asked = try_join_all((0..BUCKETS).map(of));
    agreed.await?;
    asked.await
}

/// Returns the paths of all values.
pub(super) async fn paths(link: &Link, keys: &Keys) -> Result<Vec<String>, Failure> {
    let all = names(link, keys).await?;
    let of =
        |(bucket, names): (String, Vec<String>)| names.into_iter().map(move |it| format!("{bucket}/{it}"));
    Ok(all.into_iter().flat_map(of).collect())
}

/// Returns up to `limit` values whose keys start with `prefix` and come after the text `after`, in the order of their
/// keys.
pub(super) async fn page(
    link: &Link,
    keys: &Keys,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Values, Failure> {
    let mut found = Vec::new();
    for (bucket, names) in names(link, keys).await? {
        let is_wanted = |key: &String| key.starts_with(prefix) && after.is_none_or(|after| &**key > after);
        for name in names {
            if let Some(key) = key_of(&name).filter(is_wanted) {
                found.push((key, format!("{bucket}/{name}")));
            }
        }
    }
    found.sort_unstable();
    let (mut page, mut found) = (Vec::new(), found.into_iter());
    while page.len() < limit {
        let next: Vec<_> = found.by_ref().take(AT_ONCE.min(limit - page.len())).collect();
        if next.is_empty() {
            break;
        }
        let got = join_all(next.iter().map(|(_, path)| link.get(path))).await;
        for ((key, _), got) in next.into_iter().zip(got) {
            // It may have been removed since.
            page.extend(got?.map(|(stored, _)| (key, value(stored))));
        }
    }
    Ok(page)
}
