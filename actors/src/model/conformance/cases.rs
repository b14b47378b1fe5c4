//! The list of cases, in the order of the table's rows.

use futures::FutureExt;

use super::{Case, failing, reading, replaying, writing};

macro_rules! cases {
    ($($name:literal => $story:ident::$case:ident,)*) => {
        [$(Case { name: $name, run: |dialect| $story::$case(dialect).boxed() },)*]
    };
}

pub(super) static CASES: &[Case] = &cases![
    "text, in its pieces" => reading::text_comes_in_its_pieces,
    "thinking, apart from text" => reading::thinking_is_apart,
    "parallel calls, whole and in order" => reading::parallel_calls_are_whole,
    "a call without arguments is `{}`" => reading::no_arguments_are_an_empty_object,
    "arguments that are not JSON are kept" => reading::broken_arguments_are_kept,
    "a number of more than 64 bits is not rounded" => reading::large_numbers_are_kept,
    "bytes split anywhere" => reading::bytes_may_be_split_anywhere,
    "usage, with what was cached" => reading::usage_counts_all_input,
    "usage, with what went into the cache" => reading::usage_counts_what_was_written,
    "stops because it has ended" => reading::it_ends,
    "stops for its calls" => reading::it_waits_for_calls,
    "cut where it may be no longer" => reading::it_is_cut,
    "a refusal with its words" => reading::it_refuses_in_words,
    "a refusal without a word fails" => failing::a_silent_refusal_fails,
    "keep-alives are skipped" => reading::keep_alives_are_skipped,
    "the same id twice: both calls" => reading::one_id_twice_is_two_calls,
    "a call in the middle of text" => reading::text_around_a_call_is_kept,
    "invalid JSON" => failing::invalid_json_fails,
    "half a UTF-8 character" => failing::half_a_character_is_replaced,
    "an error after text" => failing::an_error_in_the_stream_comes_after_its_text,
    "rate limit, with Retry-After" => failing::a_rate_limit_says_when,
    "overload" => failing::an_overload_passes,
    "a bad request is not repeated" => failing::a_bad_request_lasts,
    "too long for the model" => failing::too_long_may_be_shorter,
    "a stream that ends early" => failing::an_early_end_fails,
    "silence" => failing::silence_is_given_up,
    "a reply of over 16 MB" => failing::a_reply_without_end_is_refused,
    "the key is never told" => failing::the_key_is_never_told,
    "signed thinking goes back as it came" => replaying::signed_thinking_goes_back,
    "sealed thinking goes back as it came" => replaying::sealed_thinking_goes_back,
    "citations go back as they came" => replaying::citations_go_back,
    "a renamed call is renamed in what goes back" => replaying::a_renamed_call_goes_back_renamed,
    "the provider's own tools, journalled and sent back" => replaying::hosted_runs_go_back,
    "a pause is gone on from" => replaying::a_pause_is_gone_on_from,
    "results are paired with calls, by legal ids" => writing::results_meet_their_calls,
    "images" => writing::images_are_native,
    "documents" => writing::documents_are_native,
    "what it would refuse is told as text" => writing::the_rest_is_text,
    "structured output" => writing::structured_output_is_asked_for,
    "cache marks" => writing::marks_stand_at_the_ends,
    "the cache is named by the conversation" => writing::the_conversation_names_the_cache,
    "same request, same bytes" => writing::the_same_request_is_the_same_bytes,
    "a message more leaves the rest as it was" => writing::the_prefix_stays,
    "options come last" => writing::options_come_last,
];
