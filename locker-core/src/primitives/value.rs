//! The result of a run, as bytes that only the callers understand.

use std::{fmt, sync::Arc};

/// The greatest number of bytes of a value, which all stores take.
pub const MAX_VALUE: usize = 512 * 1024;

/// The result of a run: at most [`MAX_VALUE`] bytes. Copies share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Value(Arc<[u8]>);

impl Value {
    /// Returns `None` if there are more than [`MAX_VALUE`] bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        Some(Self(bytes.into())).filter(|value| value.as_bytes().len() <= MAX_VALUE)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows the length alone: results may be confidential, and errors show replies.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

#[cfg(any(feature = "serde", feature = "_cas"))]
impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

#[cfg(any(feature = "serde", feature = "_cas"))]
impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> serde::de::Visitor<'de> for Bytes {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_VALUE} bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Value, E> {
                Value::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }

            /// As formats have them that know no bytes.
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut numbers: A) -> Result<Value, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = numbers.next_element()? {
                    if bytes.len() == MAX_VALUE {
                        return Err(serde::de::Error::invalid_length(MAX_VALUE + 1, &self));
                    }
                    bytes.push(byte);
                }
                self.visit_bytes(&bytes)
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}
