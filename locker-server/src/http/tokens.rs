//! Bearer tokens.

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{fmt, path::Path};
use subtle::{Choice, ConstantTimeEq};

const MIN_BITS: f64 = 128.0;

/// The word after a token that may only read.
const READ: &str = "read";

/// What the client of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Full,
    Read,
}

/// The accepted tokens. Several tokens allow one to be replaced at a time. Only their SHA-256 digests are kept.
pub(crate) struct Tokens(Vec<([u8; 32], Role)>);

impl Tokens {
    /// Reads a file with one token per line. A space and `read` after a token mean that it may only read. Blank lines
    /// and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// The reason, which never repeats any part of the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("token file {shown}: {error}"))?;
        Self::parse(&text).map_err(|reason| format!("token file {shown}: {reason}"))
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut digests = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, role) = entry(line).map_err(|reason| format!("line {}: {reason}", number + 1))?;
            digests.push((Sha256::digest(token).into(), role));
        }
        if digests.is_empty() {
            return Err("the file has no token: make one with `openssl rand -hex 32`".into());
        }
        Ok(Self(digests))
    }

    /// Returns the role of a token, or `None` if it is not listed. Takes the same time for every token.
    pub(super) fn role(&self, token: &[u8]) -> Option<Role> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let of_role = |role| {
            let known = self.0.iter().filter(|(_, known)| *known == role);
            bool::from(known.fold(Choice::from(0), |any, (known, _)| any | known.ct_eq(&digest)))
        };
        match (of_role(Role::Read), of_role(Role::Full)) {
            (true, _) => Some(Role::Read),
            (false, true) => Some(Role::Full),
            (false, false) => None,
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// Splits a line into the token and its role.
fn entry(line: &str) -> Result<(&str, Role), String> {
    let (token, role) = match line.split_once(char::is_whitespace) {
        None => (line, Role::Full),
        Some((token, word)) if word.trim_start() == READ => (token, Role::Read),
        Some(_) => return Err("only the word `read` may follow a token".into()),
    };
    check(token).map(|()| (token, role))
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
        for token in [HEX, BASE64] {
            assert_eq!(tokens.role(token.as_bytes()), Some(Role::Full));
        }
        for wrong in ["", "x", &HEX[1..], &format!("{HEX}0"), "# old"] {
            assert_eq!(tokens.role(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
    }

    /// A token that is listed with both roles may only read.
    #[test]
    fn word_read_after_a_token_limits_it() {
        let tokens = Tokens::parse(&format!("{HEX}\n{BASE64}  read\n")).unwrap();
        assert_eq!(tokens.role(HEX.as_bytes()), Some(Role::Full));
        assert_eq!(tokens.role(BASE64.as_bytes()), Some(Role::Read));
        let both = Tokens::parse(&format!("{HEX} read\n{HEX}\n")).unwrap();
        assert_eq!(both.role(HEX.as_bytes()), Some(Role::Read));
        for wrong in ["write", "read read", "READ"] {
            let reason = Tokens::parse(&format!("{HEX} {wrong}")).unwrap_err();
            assert!(reason.starts_with("line 1") && !reason.contains(HEX), "{reason}");
        }
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
