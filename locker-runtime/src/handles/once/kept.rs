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
    let is_read = |text: &[u8]| panics::contain(|| serde_json::from_slice::<T>(text).is_ok()) == Some(true);
    kept_text(text.filter(|text| text.len() > at_most || is_read(text)).as_deref(), at_most)
}

/// Returns what is kept of a result with this JSON text, of up to `at_most` bytes. `None`: it has none that can be
/// read.
pub(crate) fn kept_text(text: Option<&[u8]>, at_most: usize) -> Value {
    let kept = match text {
        Some(text) if text.len() <= at_most => Value::new(text),
        Some(text) => {
            let sizes = format!("{} {at_most}", text.len());
            warning!("a result is not kept, of bytes and at most {sizes}: other callers get an error");
            Value::new(format!("!{sizes}").into_bytes())
        }
        None => {
            warning!("a result is not kept, because it cannot be read from JSON: other callers get an error");
            Value::new([NOT_KEPT])
        }
    };
    kept.unwrap_or_default()
}

/// Reads a result.
///
/// # Errors
/// `Conflict` if it was not kept, or is no `T`.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_slice(text(value)?).map_err(|error| {
        // The error of serde may contain the value.
        let what = match error.classify() {
            serde_json::error::Category::Data => "is of another type",
            _ => "is no JSON text",
        };
        conflict(format!("the call has run, and its result {what}: see column {}", error.column()))
    })
}

/// Returns the JSON text of a result.
///
/// # Errors
/// `Conflict` if it was not kept.
pub(crate) fn text(value: &Value) -> Result<&[u8]> {
    match value.as_bytes().split_first() {
        Some((&NOT_KEPT, sizes)) => Err(not_kept(sizes)),
        _ => Ok(value.as_bytes()),
    }
}

/// Returns the error of a result that another language cannot read.
pub(crate) fn unread() -> Error {
    conflict("the call has run, and its result is no JSON text that can be read".into())
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
    fn texts_of_another_language_are_kept_as_results_are() {
        let result = "größe".to_owned();
        let written = serde_json::to_vec(&result).unwrap();
        for at_most in [2, 64] {
            assert_eq!(kept_text(Some(&written), at_most), encode(&result, at_most));
        }
        assert_eq!(text(&kept_text(Some(&written), 64)).unwrap(), written);
        assert_eq!(kept_text(None, 64), encode(&HashMap::from([((1, 2), 3)]), 64));
        let why = |text, at_most| decode::<String>(&kept_text(text, at_most)).unwrap_err().to_string();
        assert_eq!(text(&kept_text(None, 64)).unwrap_err().to_string(), why(None, 64));
        assert_eq!(text(&kept_text(Some(&written), 2)).unwrap_err().to_string(), why(Some(&written), 2));
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
