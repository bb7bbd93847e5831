//! Bearer tokens.

use sha2::{Digest, Sha256};
use std::{fmt, path::Path};
use subtle::{Choice, ConstantTimeEq};

const MIN_BITS: f64 = 128.0;

/// The accepted tokens. Several tokens allow one to be replaced at a time. Only their SHA-256 digests are kept.
pub(crate) struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// Reads a file with one token per line. Blank lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// The reason, which never repeats any part of the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("token file {shown}: {error}"))?;
        Self::parse(&text).map_err(|reason| format!("token file {shown}: {reason}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut digests = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            check(token).map_err(|reason| format!("line {}: {reason}", number + 1))?;
            digests.push(Sha256::digest(token).into());
        }
        if digests.is_empty() {
            return Err("the file has no token: make one with `openssl rand -hex 32`".into());
        }
        Ok(Self(digests))
    }

    /// Takes the same time for every wrong token.
    pub(super) fn accepts(&self, token: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let any = self.0.iter().fold(Choice::from(0), |any, known| any | known.ct_eq(&digest));
        any.into()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// Checks that a random token of this length and alphabet holds enough bits.
fn check(token: &str) -> Result<(), String> {
    let body = token.trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    if !body.bytes().all(fits) {
        return Err("a token may only have letters, digits and -._~+/".into());
    }
    let alphabet = if body.bytes().all(|byte| byte.is_ascii_digit()) {
        10_f64
    } else if body.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        16_f64
    } else {
        64_f64
    };
    let length = u32::try_from(body.len()).map_or(f64::INFINITY, f64::from);
    if length * alphabet.log2() < MIN_BITS {
        return Err("the token is shorter than 128 random bits (32 hexadecimal digits or 22 characters of base64): make one with `openssl rand -hex 32`".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef";
    const BASE64: &str = "Zm9vYmFyYmF6cXV4Zm9vYg==";

    #[test]
    fn only_listed_tokens_are_accepted() {
        let tokens = Tokens::parse(&format!("# old\n{HEX}\n\n  {BASE64}  \n")).unwrap();
        assert!(tokens.accepts(HEX.as_bytes()) && tokens.accepts(BASE64.as_bytes()));
        for wrong in ["", "x", &HEX[1..], &format!("{HEX}0"), "# old"] {
            assert!(!tokens.accepts(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
    }

    #[test]
    fn weak_files_are_refused_but_not_repeated() {
        for text in [
            "",
            "# nothing\n",
            "secret",
            &HEX[1..],
            "123456789012345678901234567890123456",
            "with space 0123456789abcdef0123456789",
        ] {
            let reason = Tokens::parse(text).unwrap_err();
            assert!(text.is_empty() || !reason.contains(text.trim()), "{reason}");
        }
    }
}
