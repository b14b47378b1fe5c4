//! What a list of conversations is asked for.

use crate::command::listing::FoundBy;
use crate::http::Request;

impl FoundBy {
    /// Adds what is asked for.
    pub(crate) fn ask(&self, mut request: Request) -> Request {
        for (name, value) in [
            ("owner", &self.owner),
            ("parent", &self.parent),
            ("created_after", &self.created_after),
            ("created_before", &self.created_before),
            ("active_after", &self.active_after),
            ("active_before", &self.active_before),
            ("order", &self.order),
            ("dir", &self.dir),
        ] {
            request = request.with(name, value.as_ref());
        }
        for (key, value) in &self.metadata {
            request = request.with(&format!("metadata.{key}"), Some(value));
        }
        request.with("root_only", self.children.then_some(false))
    }
}
