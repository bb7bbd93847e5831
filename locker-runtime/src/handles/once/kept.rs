//! The results of runs as their record keeps them: JSON text, or why there is none.

use locker_core::{
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
    panics,
    primitives::Value,
};
use serde::{Serialize, de::DeserializeOwned};

/// What precedes the number of bytes of a result that was not kept, and the most that would have been. No JSON text
/// begins so.
const NOT_KEPT: u8 = b'!';

/// Writes a result of up to `at_most` bytes. A larger one, and one that has no JSON text from which it can be read, is
/// known to have been there, and a warning says so.
pub(crate) fn encode<T: Serialize + DeserializeOwned>(result: &T, at_most: usize) -> Value {
    // Types of the application may panic. The call has run, which must be known all the same.
    let text = panics::contain(|| serde_json::to_vec(result).ok()).flatten();
    let text = match text {
        Some(text) if text.len() > at_most => {
            let bytes = text.len();
            warning!("a result of {bytes} bytes is not kept: at most {at_most}. Other callers get an error");
            format!("!{bytes} {at_most}").into_bytes()
        }
        Some(text) if panics::contain(|| serde_json::from_slice::<T>(&text).is_ok()) == Some(true) => text,
        _ => {
            let what = std::any::type_name::<T>();
            warning!(
                "a result is not kept: it cannot be read as `{what}` from JSON. Other callers get an error"
            );
            vec![NOT_KEPT]
        }
    };
    Value::new(text).unwrap_or_default()
}

/// Reads a result.
///
/// # Errors
/// `Conflict` if it was not kept, or is no `T`.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T> {
    if let Some((&NOT_KEPT, sizes)) = value.as_bytes().split_first() {
        return Err(not_kept(sizes));
    }
    serde_json::from_slice(value.as_bytes()).map_err(|error| {
        // The error of serde may contain the value.
        let what = match error.classify() {
            serde_json::error::Category::Data => "is of another type",
            _ => "is no JSON text",
        };
        conflict(format!("the call has run, and its result {what}: see column {}", error.column()))
    })
}

fn not_kept(sizes: &[u8]) -> Error {
    let sizes = std::str::from_utf8(sizes).ok().and_then(|sizes| sizes.split_once(' '));
    conflict(match sizes {
        Some((bytes, at_most)) => {
            format!("the call has run, and its result of {bytes} bytes was not kept: at most {at_most}")
        }
        None => "the call has run, and its result was not kept: it cannot be read from JSON".into(),
    })
}

fn conflict(message: String) -> Error {
    Error::new(ErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Panics;

    impl Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
            panic!("it cannot be written")
        }
    }

    impl<'de> serde::Deserialize<'de> for Panics {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
            Ok(Self)
        }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let value = encode(&("größe".to_owned(), 7_u64, None::<u8>), 64);
        assert_eq!(value.as_bytes(), "[\"größe\",7,null]".as_bytes());
        assert_eq!(decode::<(String, u64, Option<u8>)>(&value).unwrap(), ("größe".into(), 7, None));
        assert_eq!((encode(&(), 4).as_bytes(), decode::<()>(&encode(&(), 4)).unwrap()), (&b"null"[..], ()));
    }

    #[test]
    fn sizes_are_those_of_the_text() {
        let text = |bytes: usize| "x".repeat(bytes - 2);
        assert_eq!(decode::<String>(&encode(&text(65_536), 65_536)).unwrap(), text(65_536));
        let error = decode::<String>(&encode(&text(81_920), 65_536)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(
            error.message(),
            "the call has run, and its result of 81920 bytes was not kept: at most 65536"
        );
    }

    #[test]
    fn results_that_cannot_be_read_say_so_and_show_nothing() {
        let unwritten = encode(&HashMap::from([((1, 2), 3)]), 64);
        assert_eq!(encode(&f64::NAN, 64).as_bytes(), b"!");
        assert_eq!(encode(&Panics, 64).as_bytes(), b"!");
        for (value, what) in [
            (encode(&"secret".to_owned(), 64), "is of another type"),
            (Value::default(), "is no JSON text"),
            (Value::new(&b"\xff"[..]).unwrap(), "is no JSON text"),
            (Value::new(&b"7 7"[..]).unwrap(), "is no JSON text"),
            (unwritten, "was not kept: it cannot be read from JSON"),
        ] {
            let error = decode::<u64>(&value).unwrap_err();
            let said = error.to_string();
            assert!(error.kind() == ErrorKind::Conflict && said.contains(what), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
