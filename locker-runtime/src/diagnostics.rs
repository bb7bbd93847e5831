//! What is told through `tracing`: keys and function names, never arguments. Who listens may panic (a log that cannot be
//! written): that changes nothing but the log.

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
