//! A span of a wait or of a hold.

#[cfg(feature = "tracing")]
use super::tracing::{self, field::Empty};
#[cfg(feature = "tracing")]
use crate::panics::contain;
use std::fmt::Display;
#[cfg(feature = "tracing")]
use std::sync::Arc;

/// A span of level debug below the caller's span. It is nothing if no subscriber wants it, and without the
/// feature. It ends when its last clone is dropped. A clone calls no subscriber.
#[derive(Clone, Debug, Default)]
pub struct Span {
    #[cfg(feature = "tracing")]
    span: Option<Arc<tracing::Span>>,
}

#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal, $key:ident, $function:ident) => {{
        let span = contain(|| {
            tracing::debug_span!(
                target: "locker", $name, key = $key, function = $function, fence = Empty, outcome = Empty
            )
        });
        Self { span: span.filter(|span| !span.is_disabled()).map(Arc::new) }
    }};
}

#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "there are no spans"))]
impl Span {
    /// Begins the span `locker.wait`.
    #[must_use]
    pub fn of_wait(key: &str, function: Option<&'static str>) -> Self {
        #[cfg(feature = "tracing")]
        return span!("locker.wait", key, function);
        #[cfg(not(feature = "tracing"))]
        Self {}
    }

    /// Begins the span `locker.hold`.
    #[must_use]
    pub fn of_hold(key: &str, function: Option<&'static str>, fence: u64) -> Self {
        #[cfg(feature = "tracing")]
        {
            let span: Self = span!("locker.hold", key, function);
            span.note("fence", fence);
            span
        }
        #[cfg(not(feature = "tracing"))]
        Self {}
    }

    /// Returns whether a subscriber wants it.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.span.is_some();
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// Sets the field `fence` or `outcome`.
    pub fn note(&self, field: &str, value: impl Display) {
        #[cfg(feature = "tracing")]
        if let Some(span) = &self.span {
            contain(|| span.record(field, tracing::field::display(value)));
        }
    }

    /// Links it to an earlier span.
    pub fn follow(&self, earlier: &Self) {
        #[cfg(feature = "tracing")]
        if let (Some(span), Some(earlier)) = (&self.span, &earlier.span) {
            contain(|| span.follows_from(earlier.id()));
        }
    }

    /// Returns whether both are the same span.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        #[cfg(feature = "tracing")]
        return self.span.as_ref().and_then(|span| span.id())
            == other.span.as_ref().and_then(|span| span.id());
        #[cfg(not(feature = "tracing"))]
        true
    }
}

/// A subscriber may panic at the end of a span, too.
impl Drop for Span {
    fn drop(&mut self) {
        #[cfg(feature = "tracing")]
        if let Some(span) = self.span.take() {
            contain(|| drop(span));
        }
    }
}
