//! Events of `tracing`, target `locker`. They contain keys and function names, never arguments.
//!
//! A subscriber may panic, for example because it cannot write its log. The panic is contained.

macro_rules! event {
    ($level:ident, $hold:expr, $message:literal $(, $field:ident = $value:expr)*) => {{
        #[cfg(feature = "tracing")]
        $crate::panics::contain(|| {
            tracing::event!(target: "locker", tracing::Level::$level, key = $hold.key.as_str(),
                function = (!$hold.function.is_empty()).then_some($hold.function) $(, $field = %$value)*, $message);
        });
        #[cfg(not(feature = "tracing"))]
        { let _ = (&$hold.key, &$hold.function $(, &$value)*); }
    }};
}

macro_rules! warning {
    ($($message:tt)*) => {{
        #[cfg(feature = "tracing")]
        $crate::panics::contain(|| tracing::warn!(target: "locker", $($message)*));
    }};
}

pub(crate) use {event, warning};
