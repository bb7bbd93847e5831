//! Parameters that every URL may have. The readers of the schemes do not see them.

use super::misused;
use locker_core::error::Result;

/// Takes the parameters with these names out of a URL. Returns the rest, and their values.
pub(in super::super) fn take<const N: usize>(
    url: &str,
    names: [&str; N],
) -> Result<(String, [Option<String>; N])> {
    let mut values = [const { None }; N];
    let Some((place, parameters)) = url.split_once('?').filter(|parts| !is_in_login(parts)) else {
        return Ok((url.to_owned(), values));
    };
    let mut others = Vec::new();
    for parameter in parameters.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match names.iter().position(|known| *known == name) {
            Some(at) if values[at].is_some() => {
                return Err(misused(&format!("the redis URL has {name} twice")));
            }
            Some(at) => values[at] = Some(value.to_owned()),
            None => others.push(parameter),
        }
    }
    if values.iter().all(Option::is_none) {
        return Ok((url.to_owned(), values));
    }
    let others = others.join("&");
    Ok((if others.is_empty() { place.to_owned() } else { format!("{place}?{others}") }, values))
}

/// Returns whether the question mark is one of a password, which should have been encoded.
fn is_in_login((place, parameters): &(&str, &str)) -> bool {
    let host = place.split_once("://").map_or(*place, |(_, host)| host);
    !host.contains(['@', '/']) && parameters.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_parameters_are_taken_out() {
        let some = |text: &str| Some(text.to_owned());
        for (url, rest, values) in [
            ("redis://h", "redis://h", [None, None]),
            ("redis://h?c=1&", "redis://h?c=1&", [None, None]),
            ("redis://h/1?a=2", "redis://h/1", [some("2"), None]),
            ("unix:///s?b&db=1&a=x=y", "unix:///s?db=1", [some("x=y"), some("")]),
            ("redis://u:p?a=1@h", "redis://u:p?a=1@h", [None, None]),
            (
                "redis+sentinel://s/m?sentinel_password=p@q&a=1",
                "redis+sentinel://s/m?sentinel_password=p@q",
                [some("1"), None],
            ),
        ] {
            assert_eq!(take(url, ["a", "b"]).unwrap(), (rest.to_owned(), values), "{url}");
        }
        let error = take("redis://u:secret@h?a=1&a=1", ["a", "b"]).unwrap_err();
        assert!(error.message().contains("has a twice") && !error.message().contains("secret"), "{error}");
    }
}
