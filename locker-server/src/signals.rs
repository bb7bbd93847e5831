//! Signals to this process.

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// A stream of signals.
pub(crate) type Signals = mpsc::Receiver<Signal>;

/// Catches `signals` from now on.
///
/// # Errors
/// The error of the operating system if one of them cannot be caught.
pub(crate) fn catch(signals: impl IntoIterator<Item = Signal>) -> std::io::Result<Signals> {
    let (sender, receiver) = mpsc::channel(16);
    for caught in signals {
        let (mut stream, sender) = (signal(SignalKind::from_raw(caught.as_raw()))?, sender.clone());
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(caught).await.is_ok() {} },
        );
    }
    Ok(receiver)
}

/// Returns `true` if this process was started to ignore a signal (`nohup`: `SIGHUP`). Without unsafe code only Linux
/// can tell; elsewhere the result is `false`.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}
