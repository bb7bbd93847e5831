//! Events and spans of `tracing`, target `locker`. They contain keys and function names, never arguments.
//!
//! A subscriber may panic, for example because it cannot write its log. The panic is contained.

mod span;

pub use span::Span;
use std::io::{self, Write, stderr};

#[cfg(feature = "tracing")]
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ($level:ident, $hold:expr, $message:literal $(, $field:ident = $value:expr)*) => {{
        $crate::panics::contain(|| {
            $crate::diagnostics::tracing::event!(
                target: "locker", $crate::diagnostics::tracing::Level::$level, key = $hold.key.as_str(),
                function = $hold.function $(, $field = %$value)*, $message
            );
        });
    }};
}

#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ($level:ident, $hold:expr, $message:literal $(, $field:ident = $value:expr)*) => {{
        let _ = (&$hold.key, &$hold.function $(, &$value)*);
    }};
}

#[cfg(feature = "tracing")]
#[doc(hidden)]
#[macro_export]
macro_rules! __warning {
    ($($message:tt)*) => {{
        $crate::panics::contain(|| $crate::diagnostics::tracing::warn!(target: "locker", $($message)*));
    }};
}

#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __warning {
    ($($message:tt)*) => {{}};
}

#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;
pub use {__event as event, __warning as warning};

/// Logs a warning, or writes it to standard error if this thread has no subscriber. A subscriber that drops the event
/// does so by the application's choice.
pub fn warn_aloud(message: &str) {
    warning!("{message}");
    if !has_subscriber() {
        // In one piece, so that the output of other threads does not come in between.
        drop(say(format!("locker: {message}\n").as_bytes()));
    }
}

/// Writes to standard error without the lock of the standard library, which a thread of the parent of a forked child
/// may hold.
#[cfg(unix)]
fn say(text: &[u8]) -> io::Result<()> {
    use std::{fs::File, os::fd::AsFd};

    File::from(stderr().as_fd().try_clone_to_owned()?).write_all(text)
}

#[cfg(not(unix))]
fn say(text: &[u8]) -> io::Result<()> {
    stderr().write_all(text)
}

#[cfg(feature = "tracing")]
fn has_subscriber() -> bool {
    use tracing::{dispatcher::get_default, subscriber::NoSubscriber};

    crate::panics::contain(|| get_default(|current| !current.is::<NoSubscriber>())).unwrap_or(true)
}

#[cfg(not(feature = "tracing"))]
fn has_subscriber() -> bool {
    false
}
