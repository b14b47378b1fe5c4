//! Fetches from the public web, and from nowhere else.
