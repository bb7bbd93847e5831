//! Requests that the HTTP library rejects before the server sees them: heads that are too long or malformed. The
//! library answers with a bare status. This module adds a reason and the headers that every answer has.

/// Returns the answer that replaces the library's own. Returns `None` if the written bytes are not a rejection by the
/// library.
pub(super) fn replacement(written: &[u8]) -> Option<&'static [u8]> {
    let is_ours = || {
        let head = std::str::from_utf8(written).unwrap_or_default();
        head.contains("cache-control:") || !head.ends_with("\r\n\r\n")
    };
    let status = written.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    let replacement: &[u8] = match status {
        b"400" => BAD_REQUEST,
        b"414" => URI_TOO_LONG,
        b"431" => HEAD_TOO_LARGE,
        _ => return None,
    };
    (!is_ours()).then_some(replacement)
}

macro_rules! rejections {
    ($($name:ident: $status:literal, $length:literal, $reason:literal;)+) => {
        $(const $name: &[u8] = concat!(
            "HTTP/1.1 ", $status, "\r\ncache-control: no-store\r\ncontent-type: text/plain; charset=utf-8\r\n",
            "x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: ", $length, "\r\n\r\n", $reason,
        ).as_bytes();
        const _: () = assert!($reason.len() == $length);)+
    };
}

rejections! {
    BAD_REQUEST: "400 Bad Request", 30, "the request is not valid HTTP\n";
    URI_TOO_LONG: "414 URI Too Long", 21, "the path is too long\n";
    HEAD_TOO_LARGE: "431 Request Header Fields Too Large", 42, "the request line and headers are too long\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_rejections_are_replaced() {
        let bare =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(replacement(bare), Some(HEAD_TOO_LARGE));
        assert_eq!(replacement(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), Some(BAD_REQUEST));
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\ncache-control: no-store\r\n\r\nwhy"[..],
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            b"HTTP/1.1 400",
            b"HTTP/1.1",
            b"",
        ] {
            assert_eq!(replacement(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
