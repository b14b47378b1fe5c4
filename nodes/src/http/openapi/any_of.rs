//! Describes untagged enums of which one choice has all that another has, and more: a value of the one
//! fits both schemas, so that `oneOf` would admit none.

/// Gives an untagged enum the schema `anyOf` of its choices.
macro_rules! any_of {
    ($name:ident, $($choice:ty),+) => {
        impl ::utoipa::PartialSchema for $name {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::Schema> {
                let any_of = ::utoipa::openapi::schema::AnyOfBuilder::new()
                    $(.item(::utoipa::openapi::Ref::from_schema_name(
                        <$choice as ::utoipa::ToSchema>::name(),
                    )))+
                    .build();
                ::utoipa::openapi::Schema::AnyOf(any_of).into()
            }
        }

        impl ::utoipa::ToSchema for $name {
            fn schemas(
                schemas: &mut Vec<(
                    String,
                    ::utoipa::openapi::RefOr<::utoipa::openapi::Schema>,
                )>,
            ) {
                $(
                    schemas.push((
                        <$choice as ::utoipa::ToSchema>::name().into(),
                        <$choice as ::utoipa::PartialSchema>::schema(),
                    ));
                    <$choice as ::utoipa::ToSchema>::schemas(schemas);
                )+
            }
        }
    };
}
pub(in crate::http) use any_of;
