//! The pages of reply links: plain HTML without a script.

use std::fmt::Write;

use abide_conversation::state::PendingCall;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

/// Arguments are cut to this on the page.
const MAX_ARGS_CHARS: usize = 8_000;
const MAX_TEXT_CHARS: usize = 4_000;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a;background:#fff}pre{background:#f4f4f4;padding:1rem;overflow:auto;\
white-space:pre-wrap;word-break:break-word}button{font:inherit;padding:.5rem 1.25rem;margin-right:\
.75rem;border:1px solid #555;border-radius:.3rem;background:#fff;cursor:pointer}\
textarea{font:inherit;width:100%;box-sizing:border-box}.approve{background:#0b6b2e;color:#fff}\
.deny{background:#9b1c1c;color:#fff}small{color:#555}";

/// A call that somebody is asked about.
pub(super) struct Question<'a> {
    /// Where the form is sent, relative to the page: a proxy may serve it below another path.
    pub(super) action: &'a str,
    pub(super) agent: &'a str,
    pub(super) subject: &'a str,
    pub(super) pending: &'a PendingCall,
    /// The one answer that the page offers.
    pub(super) only: Option<bool>,
}

/// What a page says that asks nothing.
pub(super) enum Notice<'a> {
    Invalid,
    Over,
    NoDecision,
    NotYours,
    Failed,
    Decided { approved: bool, tool: &'a str },
    Recorded { votes: u32, needed: u32 },
}

/// The page that asks.
pub(super) fn question(question: &Question<'_>) -> Response {
    let Question { action, agent, subject, pending, only } = question;
    let args = serde_json::to_string_pretty(&pending.args).unwrap_or_default();
    let mut body = String::new();
    let _ = write!(
        body,
        "<h1>Approve {tool}?</h1><p>{message}</p><p>The agent <b>{agent}</b> wants to call \
         <b>{tool}</b> with</p><pre>{args}</pre>\
         <form method=\"post\" action=\"{action}\">\
         <p><label>Reason (optional)<textarea name=\"reason\" rows=\"3\" maxlength=\"2000\">\
         </textarea></label></p><p>",
        tool = escaped(&pending.tool, MAX_TEXT_CHARS),
        message = escaped(&pending.message, MAX_TEXT_CHARS),
        agent = escaped(agent, MAX_TEXT_CHARS),
        args = escaped(&args, MAX_ARGS_CHARS),
        action = escaped(action, MAX_TEXT_CHARS),
    );
    for (approved, value, label) in [(true, "approve", "Approve"), (false, "deny", "Deny")] {
        if only.is_none_or(|only| only == approved) {
            let _ = write!(
                body,
                "<button class=\"{value}\" name=\"decision\" value=\"{value}\">{label}</button>"
            );
        }
    }
    let _ = write!(
        body,
        "</p></form><p><small>You answer as {subject}, until {expires_at}.</small></p>",
        subject = escaped(subject, MAX_TEXT_CHARS),
        expires_at = pending.expires_at,
    );
    page(StatusCode::OK, "Approval", &body)
}

/// A page that asks nothing.
pub(super) fn notice(status: StatusCode, notice: Notice<'_>) -> Response {
    let (title, text) = match notice {
        Notice::Invalid => ("Not valid", "This link is not valid.".to_owned()),
        Notice::Over => {
            ("Over", "This question is answered already, or its time is over.".to_owned())
        }
        Notice::NoDecision => ("Nothing chosen", "Choose Approve or Deny.".to_owned()),
        Notice::NotYours => {
            ("Not counted", "This answer does not count: it is for somebody else.".to_owned())
        }
        Notice::Failed => ("Failed", "That failed. Try the link again in a while.".to_owned()),
        Notice::Decided { approved, tool } => {
            let what = if approved { "approved" } else { "denied" };
            ("Done", format!("You {what} the call of {}.", escaped(tool, MAX_TEXT_CHARS)))
        }
        Notice::Recorded { votes, needed } => {
            ("Recorded", format!("Your vote is recorded: {votes} of {needed}."))
        }
    };
    page(status, title, &format!("<h1>{title}</h1><p>{text}</p>"))
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"robots\" content=\"noindex\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>"
    );
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        BASE64_STANDARD.encode(Sha256::digest(STYLE))
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_str(&policy).expect("a digest is of visible characters"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (status, headers, html).into_response()
}

/// A text as HTML shows it: cut, and without characters that mean something, or that reorder it.
fn escaped(text: &str, max_chars: usize) -> String {
    let mut safe = String::with_capacity(text.len());
    for (index, c) in text.chars().enumerate() {
        if index == max_chars {
            safe.push('…');
            break;
        }
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(safe, "[U+{:04X}]", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_wrote_is_text_on_the_page() {
        assert_eq!(escaped("<b a=\"'\">&", 100), "&lt;b a=&quot;&#39;&quot;&gt;&amp;");
        assert_eq!(escaped("a\u{202e}b", 100), "a[U+202E]b");
        assert_eq!(escaped("aaaa", 2), "aa…");
    }
}
