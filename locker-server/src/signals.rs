//! The signals that this process attends to.

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Those of `signals` that come from now on.
///
/// # Errors
/// When one of them cannot be caught.
pub(crate) fn caught(signals: impl IntoIterator<Item = Signal>) -> std::io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(16);
    for caught in signals {
        let (mut stream, sender) = (signal(SignalKind::from_raw(caught.as_raw()))?, sender.clone());
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(caught).await.is_ok() {} },
        );
    }
    Ok(receiver)
}

/// Whether whoever started this process has told it to ignore a signal (`nohup`: `SIGHUP`). Only Linux tells it without
/// unsafe code: elsewhere none counts as ignored.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}
