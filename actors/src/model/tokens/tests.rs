//! Tests of the counts of typical texts against the two available tokenizers, which stand in for
//! those of other providers, as these are not public.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use tiktoken_rs::bpe_for_tokenizer;

use super::*;
use crate::model::test_server::settings;

const ENGLISH: &str = "When the storm had passed, the harbour master walked along the quay and \
    counted the boats that were still afloat. Eleven of the fourteen had kept their moorings; two \
    lay on their sides in the shallows, and of the last one nobody could find anything but a \
    splintered oar. The insurance agent asked the same three questions of everybody.";
const GERMAN: &str = "Als sich der Sturm gelegt hatte, ging der Hafenmeister den Kai entlang und \
    zählte die Boote, die noch schwammen. Am Nachmittag traf der Versicherungsvertreter aus der \
    Landeshauptstadt ein, der allen dieselben Fragen stellte und keine der Antworten glaubte. \
    Überprüfungsmaßnahmen, Straßenbahnhaltestelle, Geschäftsführungsbefugnis, Angehörige.";
const FRENCH: &str = "Quand la tempête fut passée, le capitaine du port longea le quai et compta \
    les bateaux qui flottaient encore. Onze des quatorze étaient restés à leur amarre ; deux \
    gisaient sur le flanc dans les hauts-fonds, et du dernier on ne retrouva qu'une rame brisée.";
const RUSSIAN: &str = "Когда буря улеглась, начальник порта прошёл вдоль причала и пересчитал \
    лодки, которые ещё держались на воде. Одиннадцать из четырнадцати остались на своих местах.";
const GREEK: &str = "Όταν κόπασε η θύελλα, ο λιμενάρχης περπάτησε κατά μήκος της προκυμαίας και \
    μέτρησε τις βάρκες που επέπλεαν ακόμη.";
const ARABIC: &str = "بعد أن هدأت العاصفة سار رئيس الميناء على طول الرصيف وأحصى القوارب التي لا \
    تزال طافية.";
const CHINESE: &str = "暴风雨过去之后，港务长沿着码头走了一遍，数了数还浮在水面上的船只。十四条船里\
    有十一条仍系在原处；两条侧翻在浅水里，最后一条除了一支断裂的船桨，谁也没有找到别的东西。";
const TRADITIONAL: &str = "暴風雨過去之後，港務長沿著碼頭走了一遍，數了數還浮在水面上的船隻。十四條\
    船裡有十一條仍繫在原處；兩條側翻在淺水裡。";
const JAPANESE: &str = "嵐が過ぎ去ると、港長は岸壁を歩きながら、まだ浮いている船を数えた。十四隻の\
    うち十一隻は係留されたままだったが、二隻は浅瀬で横倒しになっていた。";
const KOREAN: &str = "폭풍이 지나간 뒤 항만장은 부두를 따라 걸으며 아직 떠 있는 배들을 세었다. 열네 \
    척 가운데 열한 척은 그대로 묶여 있었다.";
const EMOJI: &str = "🎉🚀😀👍🏽👨‍👩‍👧‍👦🇩🇪❤️🔥✨🧑‍💻🙈🦄🌈☀️⭐🐙📦🧪🛠️🗂️";
const CODE: &str = include_str!("../tokens.rs");
const SCREAMING: &str = "SELECT NAME, AMOUNT FROM ACCOUNTS WHERE CUSTOMER_ID = 42 ORDER BY \
    CREATED_AT; -- ERROR_CODE_UNKNOWN";
const LOG: &str = "2026-11-22T12:04:09.220417Z  INFO abide::node: request method=GET \
    path=/v1/conversations/conv_8f3e1c77a90b41d2 status=200 latency_us=48213\n";

/// Bytes without any pattern, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(&mut next).take(length).collect()
}

fn samples() -> Vec<(&'static str, String)> {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(noise(6_000));
    let hex: String = noise(2_000).iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = noise(1_000).into_iter().map(|it| format!("{} ", u32::from(it) * 7_919));
    let rows = noise(200);
    let rows =
        rows.iter().map(|it| json!({"id": it, "name": "Anna Weiß", "open": true, "sum": 1.5}));
    let rows = json!({"ok": true, "result": rows.collect::<Vec<_>>()});
    let spaced = "\n\n\n      \t\t\n  x\n            y\n\n   \n".repeat(20) + &" ".repeat(500);
    let of = |(name, text): (&'static str, &str)| (name, text.to_owned());
    let written = [
        ("English", ENGLISH),
        ("German", GERMAN),
        ("French", FRENCH),
        ("Russian", RUSSIAN),
        ("Greek", GREEK),
        ("Arabic", ARABIC),
        ("Chinese", CHINESE),
        ("traditional Chinese", TRADITIONAL),
        ("Japanese", JAPANESE),
        ("Korean", KOREAN),
        ("emoji", EMOJI),
        ("code", CODE),
        ("capitals", SCREAMING),
        ("a log", LOG),
    ];
    let made = [
        ("base64", encoded),
        ("hex", hex),
        ("digits", digits.collect()),
        ("JSON", rows.to_string()),
        ("indented JSON", serde_json::to_string_pretty(&rows).unwrap()),
        ("white space", spaced),
    ];
    written.into_iter().map(of).chain(made).collect()
}

#[test]
fn an_estimate_is_never_more_than_a_tenth_under() {
    let encoders =
        [Tokenizer::Cl100kBase, Tokenizer::O200kBase].map(|it| bpe_for_tokenizer(it).unwrap());
    for (name, text) in samples() {
        let real = encoders.iter().map(|encoder| encoder.count_ordinary(&text)).max().unwrap();
        let estimate = TokenCounter::estimating(Provider::Anthropic).text(&text);
        assert!(estimate * 10 >= real as u64 * 9, "{name}: {estimate} for {real}");
        assert!(estimate * 2 <= real as u64 * 5, "{name}: {estimate} for {real}");
    }
}

#[tokio::test]
async fn openais_models_have_their_own_tokenizer() {
    let counted = async |provider, name: &str| {
        let settings = ModelSettings { name: name.to_owned(), ..settings(provider) };
        TokenCounter::for_model(&settings).await.text(CHINESE)
    };
    let real = |it: Tokenizer| bpe_for_tokenizer(it).unwrap().count_ordinary(CHINESE) as u64;
    for provider in [Provider::Openai, Provider::OpenaiResponses] {
        assert_eq!(counted(provider, "gpt-4o-mini").await, real(Tokenizer::O200kBase));
        assert_eq!(counted(provider, "gpt-4").await, real(Tokenizer::Cl100kBase));
        assert_eq!(counted(provider, "nobody-knows").await, real(Tokenizer::O200kBase));
    }
    assert_eq!(counted(Provider::Anthropic, "gpt-4").await, estimate::estimate(CHINESE));
}

#[tokio::test]
async fn long_texts_are_counted_in_pieces_and_very_long_ones_estimated() {
    let counter = TokenCounter::for_model(&settings(Provider::Openai)).await;
    let pieces = ENGLISH.repeat(200);
    let whole = counter.encoder.unwrap().count_ordinary(&pieces) as u64;
    assert!(counter.text(&pieces).abs_diff(whole) <= pieces.len() as u64 / PIECE_BYTES as u64 + 1);
    let endless = "ä ".repeat(MAX_EXACT_BYTES);
    assert_eq!(counter.text(&endless), estimate::estimate(&endless));
    assert!(counter.text(&" ".repeat(MAX_EXACT_BYTES)) > 0, "one endless word is no burden");
}

#[test]
fn images_count_as_images_and_not_as_their_bytes() {
    let image = |data: &str| json!({"type": "image", "source": {"type": "base64", "mimeType": "image/png", "data": data}});
    let counter = TokenCounter::estimating(Provider::Anthropic);
    let large = image(&"AAAA".repeat(100_000));
    assert_eq!(counter.content(&[large]), counter.content(&[image("AAAA")]));
    let text = json!({"type": "document", "source":
        {"type": "base64", "mimeType": "text/plain", "data": "SGVsbG8gd29ybGQ="}});
    assert_eq!(counter.content(&[text]), counter.text("Hello world"));
}
