//! The key that `locker unlock` and `locker explain` are about.

use super::store_option::open_with;
use crate::cli::{StoreOptions, Target};
use locker_runtime::{Admin, Error, ErrorKind, Key, KeyFormat, KeyPart, Locker};

/// Opens the store, and returns the key in it.
pub(super) async fn open(store: &StoreOptions, target: &Target) -> Result<(Locker, Key), Error> {
    let format = if target.python_keys { KeyFormat::Python } else { KeyFormat::default() };
    let locker = open_with(store, format).await?;
    let key = key(&locker.admin(), target)?;
    Ok((locker, key))
}

fn key(admin: &Admin, target: &Target) -> Result<Key, Error> {
    match target {
        Target { key: Some(text), .. } => {
            let key = Key::new(text);
            if admin.named(&key).is_some() {
                return Ok(key);
            }
            let message =
                format!("{text:?} is not a key below the prefix (--prefix): give one as locker ls prints it");
            Err(Error::new(ErrorKind::Misused, message))
        }
        Target { name: Some(name), args, .. } => {
            let parts: Vec<_> = args.iter().map(|part| part as &dyn KeyPart).collect();
            Ok(admin.key_on(name, &parts))
        }
        Target { lock, .. } => Ok(admin.key("lock", lock.as_deref().unwrap_or_default())),
    }
}

/// Logs a hint if a lock that is not held was named by what `locker ls` prints as a whole key.
pub(super) fn hint(admin: &Admin, target: &Target) {
    let Some(name) = target.lock.as_deref().filter(|name| admin.named(&Key::new(name)).is_some()) else {
        return;
    };
    tracing::error!("{name:?} has the form of a whole key, not of a name: give it as --key {name:?}");
}
