//! Base64, as blocks carry it: the standard alphabet, padded, without white space.

/// The six bits that one character encodes.
fn bits(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// The decoded bytes; `None` if the text is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let quads = text.as_bytes().chunks(4);
    let last = quads.len().saturating_sub(1);
    for (place, quad) in quads.enumerate() {
        let padding = match quad {
            [_, _, b'=', b'='] if place == last => 2,
            [_, _, _, b'='] if place == last => 1,
            [_, _, _, _] => 0,
            _ => return None,
        };
        let mut word = 0;
        for byte in &quad[..4 - padding] {
            word = word << 6 | bits(*byte)?;
        }
        word <<= 6 * padding;
        let [_, whole @ ..] = word.to_be_bytes();
        bytes.extend_from_slice(&whole[..3 - padding]);
    }
    Some(bytes)
}

/// Whether the text is base64. Cheaper than decoding it.
pub fn is_valid(text: &str) -> bool {
    let (start, last) = text.as_bytes().split_at(text.len().saturating_sub(4));
    let last = std::str::from_utf8(last);
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    text.len().is_multiple_of(4)
        && start.iter().all(legal)
        && last.is_ok_and(|last| decode(last).is_some())
}

/// The length of the decoded bytes, for a text that is assumed to be base64.
pub fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Whether a long text is probably base64, or a `data:` URL that holds some.
///
/// All characters must be of the standard or of the URL-safe alphabet, and they must be mixed as
/// those of encoded bytes are, so that long numbers and words do not count.
pub fn is_likely(text: &str) -> bool {
    /// Keys, signatures and tokens are shorter; images and files are longer.
    const MIN_CHARS: usize = 1024;
    if text.starts_with("data:") {
        return text.split_once(',').is_some_and(|(head, _)| head.ends_with(";base64"));
    }
    let has = |of: fn(&u8) -> bool| text.as_bytes().iter().any(of);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte);
    text.len() >= MIN_CHARS
        && text.bytes().all(legal)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
}
