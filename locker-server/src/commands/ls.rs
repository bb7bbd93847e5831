//! `locker ls`.

use super::store_option::{fail, open};
use crate::{api::name, cli::Ls};
use locker_runtime::{Error, Locker};
use std::{borrow::Cow, io::Write, process::ExitCode, time::Duration};

/// Prints the locks.
pub(super) async fn ls(options: Ls) -> ExitCode {
    let listed = async { list(&open(&options.store).await?).await };
    match listed.await {
        Ok(lines) => match std::io::stdout().write_all(lines.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => fail(&error).into(),
    }
}

/// Returns one line per lock: fence, time left, number of waiters, name.
///
/// # Errors
/// As `names` of the library.
pub async fn list(locker: &Locker) -> Result<String, Error> {
    let admin = locker.admin();
    let line = |fence: &str, left: &str, waiting: &str, name: &str| {
        format!("{fence:>20}  {left:>16}  {waiting:>7}  {}\n", printable(name))
    };
    let mut lines = line("FENCE", "TIME LEFT", "WAITING", "NAME");
    for (kind, name) in admin.names().await?.into_iter().filter(|(kind, _)| kind == "lock") {
        let Some(seen) = admin.inspect(&admin.key(&kind, &name)).await? else { continue };
        let (fence, left) = seen.holders.first().map_or(("-".into(), "-".into()), |held| {
            let left = held
                .time_left
                .map(|left| Duration::from_millis(left.as_millis().try_into().unwrap_or(u64::MAX)));
            let left = left.map_or("-".into(), |left| humantime::format_duration(left).to_string());
            (held.fence.to_string(), left)
        });
        lines.push_str(&line(&fence, &left, &seen.waiting.to_string(), &name));
    }
    Ok(lines)
}

/// Returns the name on one line, unchanged if `unlock` accepts it.
fn printable(name: &str) -> Cow<'_, str> {
    if name::check(name).is_ok() { name.into() } else { name.escape_debug().to_string().into() }
}
