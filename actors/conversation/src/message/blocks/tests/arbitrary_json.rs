//! Arbitrary JSON as a block: nothing panics, and bytes never become text.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::{as_text, base64, check_from_user, is_block, without_bytes};
use super::one_of_each_kind;

/// Fields that may hold encoded bytes. Text fields are left out: they hold what somebody wrote.
const BYTES: [&str; 8] = ["source", "data", "details", "input", "from", "to", "url", "extra"];

fn encoded(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sixes = |three: &[u8]| {
        let word = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[(word >> shift & 63) as usize]))
    };
    bytes.chunks_exact(3).flat_map(sixes).collect()
}

fn value(secret: String) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        2 => Just(json!(secret)),
        1 => Just(json!(format!("data:image/png;base64,{secret}"))),
        1 => Just(json!({"type": "base64", "data": secret, "mimeType": "image/png"})),
        1 => Just(json!({"type": "url", "url": secret})),
        1 => Just(Value::Null),
        1 => any::<i64>().prop_map(Value::from),
        1 => ".{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key = prop::sample::select(vec!["type", "data", "source", "x"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..3).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, it)| (key.to_owned(), it)).collect())
            }),
        ]
    })
}

/// A block of any kind, valid or not, with secrets in the fields that may hold bytes.
fn block(secret: String) -> impl Strategy<Value = Value> {
    let kinds =
        one_of_each_kind().into_iter().chain([json!({"type": "hologram"}), json!({}), json!(7)]);
    let kind = prop::sample::select(kinds.collect::<Vec<_>>());
    let field = (prop::sample::select(BYTES.to_vec()), value(secret));
    let lost = prop::option::of(any::<prop::sample::Index>());
    (kind, prop::collection::vec(field, 0..4), lost).prop_map(|(mut block, fields, lost)| {
        let Some(object) = block.as_object_mut() else { return block };
        if let Some(lost) = lost.filter(|_| !object.is_empty()) {
            let name = lost.get(&object.keys().cloned().collect::<Vec<_>>()).clone();
            object.shift_remove(&name);
        }
        object.extend(fields.into_iter().map(|(name, it)| (name.to_owned(), it)));
        block
    })
}

fn bytes() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<u8>(), 900..1_200).prop_map(|bytes| encoded(&bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn the_bytes_of_a_block_never_become_text(
        (secret, block) in bytes().prop_flat_map(|it| (Just(it.clone()), block(it))),
    ) {
        let _ = (check_from_user(&block), is_block(&block));
        let text = as_text(&block).unwrap_or_default();
        prop_assert!(!text.contains(&secret[..40]), "{text}");
        let stripped = without_bytes(&block).to_string();
        prop_assert!(!stripped.contains(&secret[..40]), "{stripped}");
    }

    #[test]
    fn no_json_at_all_panics(fields in prop::collection::vec(("[a-zA-Z]{1,9}", value("A".into())), 0..9)) {
        let fields: Map<String, Value> = fields.into_iter().collect();
        for kind in one_of_each_kind() {
            let mut block = fields.clone();
            block.insert("type".to_owned(), kind["type"].clone());
            let names: Vec<String> = kind.as_object().unwrap().keys().cloned().collect();
            for (name, value) in names.into_iter().skip(1).zip(fields.values()) {
                block.insert(name, value.clone());
            }
            let block = Value::Object(block);
            let _ = (check_from_user(&block), as_text(&block), is_block(&block));
        }
    }

    #[test]
    fn what_is_encoded_decodes(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
        let whole = &bytes[..bytes.len() / 3 * 3];
        prop_assert_eq!(base64::decode(&encoded(whole)).unwrap(), whole);
    }

    #[test]
    fn any_text_is_base64_or_not(text in "[A-Z+/=a-z0-9]{0,9}|[A-D=]{4,8}|.{0,99}") {
        prop_assert_eq!(base64::decode(&text).is_some(), base64::is_valid(&text));
        let _ = (base64::decoded_len(&text), base64::is_likely(&text));
    }
}
