//! The OpenAPI schema of an outcome, whose serialization is written by hand.

use std::borrow::Cow;

use serde_json::json;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::{ErrorType, Outcome};

impl PartialSchema for Outcome {
    fn schema() -> RefOr<Schema> {
        let ok = |ok: bool| {
            ObjectBuilder::new().schema_type(Type::Boolean).enum_values([json!(ok)].into())
        };
        let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        let result = ObjectBuilder::new()
            .title(Some("Succeeded"))
            .property("ok", ok(true))
            .property("result", anything)
            .required("ok")
            .required("result");
        let error = ObjectBuilder::new()
            .title(Some("Failed"))
            .property("ok", ok(false))
            .property("error", String::schema())
            .property("error_type", Ref::from_schema_name(ErrorType::name()))
            .required("ok")
            .required("error")
            .required("error_type");
        let description =
            "The outcome of a call: a result, which is any JSON, or an error with a message.";
        OneOfBuilder::new().description(Some(description)).item(result).item(error).into()
    }
}

impl ToSchema for Outcome {
    fn name() -> Cow<'static, str> {
        "Outcome".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ErrorType::name().into(), ErrorType::schema()));
    }
}
