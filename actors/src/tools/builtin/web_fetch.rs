//! `web_fetch`: fetches a page.
