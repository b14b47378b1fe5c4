//! The name in `Abide-Principal`, which only a node believes that authenticates nobody.

use abide_conversation::Principal;
use axum::http::HeaderMap;

use crate::headers::single_header;
use crate::problem::Problem;

const HEADER: &str = "Abide-Principal";

/// The principal that a gateway names.
pub(super) fn claimed(headers: &HeaderMap) -> Result<Option<Principal>, Problem> {
    match single_header(headers, HEADER)?.map(Principal::new) {
        Some(name) if name == Principal::system() => {
            Err(Problem::field(HEADER, "must not be \"system\""))
        }
        name => Ok(name),
    }
}

/// Refuses a name beside a credential: nobody should think that it is believed.
pub(super) fn refuse_claimed(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(HEADER) {
        let rule = "is not accepted by a node with --auth: a gateway sends Abide-On-Behalf-Of";
        return Err(Problem::field(HEADER, rule));
    }
    Ok(())
}
