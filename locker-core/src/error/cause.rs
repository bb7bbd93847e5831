//! The last known cause of a failure whose outcome is unknown.

use super::Error;

/// The last error of a request that is retried in which the store said why. It is added to later errors of unknown
/// outcome, so that the caller sees why the request was refused before its reply was lost.
#[derive(Debug, Default)]
pub struct Cause(Option<Error>);

impl Cause {
    /// Remembers `error` if it says why; otherwise adds the remembered error to it.
    pub fn explain(&mut self, mut error: Error) -> Error {
        if error.is_certain() || error.0.answered {
            self.0 = Some(error.clone());
        } else if let Some(before) = &self.0 {
            error.0.message = format!("{}; before that: {}", error.0.message, before.0.message);
            error.0.source = error.0.source.or_else(|| before.0.source.clone());
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn lost_reply_keeps_the_last_known_cause() {
        let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
        let mut cause = Cause::default();
        assert_eq!(cause.explain(unavailable("silence").unknown()).to_string(), "unavailable: silence");
        for reason in ["it is loading", "it is busy"] {
            assert_eq!(cause.explain(unavailable(reason)).to_string(), format!("unavailable: {reason}"));
        }
        for _ in 0..2 {
            let error = cause.explain(unavailable("silence").unknown());
            assert_eq!(error.to_string(), "unavailable: silence; before that: it is busy");
            assert!(!error.is_certain());
        }
        let answered = cause.explain(unavailable("too few replicas").unknown().answered());
        assert_eq!(answered.to_string(), "unavailable: too few replicas");
        let error = cause.explain(unavailable("silence").unknown());
        assert_eq!(error.to_string(), "unavailable: silence; before that: too few replicas");
    }
}
