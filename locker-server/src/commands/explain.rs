//! `locker explain`.

use super::{
    store_option::fail,
    target::{hint, open},
};
use crate::{
    api::explained::{self, Explained},
    cli::Explain,
};
use locker_runtime::{Error, ErrorKind};
use std::{io::Write, process::ExitCode};

/// Prints who holds a key and how many callers wait for it.
pub(super) async fn explain(options: Explain) -> ExitCode {
    match explained(&options).await {
        Ok((text, is_held)) => {
            let mut output = std::io::stdout();
            let is_written = output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_ok();
            if is_written && is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&error).into(),
    }
}

/// Returns the text to print, and whether the key is held.
async fn explained(options: &Explain) -> Result<(String, bool), Error> {
    let (locker, key) = open(&options.store, &options.target).await?;
    let admin = locker.admin();
    let explanation = admin.explain(&key).await?;
    let is_held = !explanation.holders().is_empty();
    if !is_held {
        hint(&admin, &options.target);
    }
    let text = if options.json {
        serde_json::to_string(&Explained::from(&explanation))
            .map_err(|error| Error::new(ErrorKind::Conflict, error.to_string()))?
    } else {
        explained::lines(&explanation, None)
    };
    Ok((text + "\n", is_held))
}
