//! The list of cases, in the order of the table's rows.

use futures::FutureExt;

use super::{Case, failures, replies, requests, verbatim};

macro_rules! cases {
    ($($name:literal => $story:ident::$case:ident,)*) => {
        [$(Case { name: $name, run: |dialect| $story::$case(dialect).boxed() },)*]
    };
}

pub(super) static CASES: &[Case] = &cases![
    "text, in its pieces" => replies::text_comes_in_its_pieces,
    "thinking, apart from text" => replies::thinking_is_apart,
    "parallel calls, whole and in order" => replies::parallel_calls_are_whole,
    "arguments while they are written" => replies::arguments_come_in_pieces,
    "a call without arguments is `{}`" => replies::no_arguments_are_an_empty_object,
    "arguments that are not JSON are kept" => replies::broken_arguments_are_kept,
    "a number of more than 64 bits is not rounded" => replies::large_numbers_are_kept,
    "bytes split anywhere" => replies::bytes_may_be_split_anywhere,
    "usage, with what was cached" => replies::usage_counts_all_input,
    "usage, with what went into the cache" => replies::usage_counts_what_was_written,
    "stops because it has ended" => replies::it_ends,
    "stops for its calls" => replies::it_waits_for_calls,
    "cut where it may be no longer" => replies::it_is_cut,
    "a refusal with its words" => replies::it_refuses_in_words,
    "a refusal without a word fails" => failures::a_silent_refusal_fails,
    "keep-alives are skipped" => replies::keep_alives_are_skipped,
    "the same id twice: both calls" => replies::one_id_twice_is_two_calls,
    "a call in the middle of text" => replies::text_around_a_call_is_kept,
    "invalid JSON" => failures::invalid_json_fails,
    "half a UTF-8 character" => failures::half_a_character_is_replaced,
    "an error after text" => failures::an_error_in_the_stream_comes_after_its_text,
    "rate limit, with Retry-After" => failures::a_rate_limit_says_when,
    "overload" => failures::an_overload_passes,
    "a bad request is not repeated" => failures::a_bad_request_lasts,
    "too long for the model" => failures::too_long_may_be_shorter,
    "a stream that ends early" => failures::an_early_end_fails,
    "silence" => failures::silence_is_given_up,
    "a reply of over 16 MB" => failures::a_reply_without_end_is_refused,
    "the key is never told" => failures::the_key_is_never_told,
    "signed thinking goes back as it came" => verbatim::signed_thinking_goes_back,
    "sealed thinking goes back as it came" => verbatim::sealed_thinking_goes_back,
    "citations go back as they came" => verbatim::citations_go_back,
    "a renamed call is renamed in what goes back" => verbatim::a_renamed_call_goes_back_renamed,
    "the provider's own tools, journalled and sent back" => verbatim::hosted_runs_go_back,
    "a pause is gone on from" => verbatim::a_pause_is_gone_on_from,
    "results are paired with calls, by legal ids" => requests::results_meet_their_calls,
    "images" => requests::images_are_native,
    "documents" => requests::documents_are_native,
    "what it would refuse is told as text" => requests::the_rest_is_text,
    "structured output" => requests::structured_output_is_asked_for,
    "cache marks" => requests::marks_stand_at_the_ends,
    "the cache is named by the conversation" => requests::the_conversation_names_the_cache,
    "same request, same bytes" => requests::the_same_request_is_the_same_bytes,
    "a message more leaves the rest as it was" => requests::the_prefix_stays,
    "options come last" => requests::options_come_last,
];
