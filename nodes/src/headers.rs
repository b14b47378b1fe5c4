//! Headers whose value is a name, and what headers say of the way to the node.

use axum::http::{HeaderMap, HeaderName, header};

use crate::problem::Problem;

/// The longest `Idempotency-Key` or `Abide-Principal`.
const MAX_NAME_CHARS: usize = 255;

/// A header that may be given at most once; `None` if it is absent.
pub(crate) fn single_header(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::field(name, "must be given only once"));
    }
    let text = value.to_str().unwrap_or_default();
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && (1..=MAX_NAME_CHARS).contains(&text.len()) {
        Ok(Some(text.to_owned()))
    } else {
        let rule = format!("must be 1 to {MAX_NAME_CHARS} visible characters");
        Err(Problem::field(name, rule))
    }
}

/// Where the client reaches the node, as it or its proxy says.
pub(crate) fn origin(headers: &HeaderMap) -> String {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(&header::HOST).unwrap_or_default();
    let scheme = text(&HeaderName::from_static("x-forwarded-proto"));
    let scheme = if scheme == Some("https") { "https" } else { "http" };
    format!("{scheme}://{host}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_name_is_of_visible_characters() {
        let read = |value: &str| {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            single_header(&HeaderMap::from_iter([(header::FROM, value)]), "from")
        };
        let longest = "x".repeat(MAX_NAME_CHARS);
        for name in ["a", "!~", "\"'OR(1=1);{}[]", &longest] {
            assert_eq!(read(name).ok().flatten().as_deref(), Some(name));
        }
        for wrong in ["", " ", "a b", "a\tb", "\u{e4}", &(longest + "x")] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert!(single_header(&HeaderMap::new(), "from").is_ok_and(|name| name.is_none()));
    }
}
