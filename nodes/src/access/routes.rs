//! How routes are made: only of handlers that declare a permission.
//!
//! A handler whose first parameter is [`Allowed`] declares it:
//!
//! ```
//! use abide::access::Allowed;
//! use abide::access::permission::ReadAgents;
//! use abide::access::routes::declaring;
//!
//! async fn list(_: Allowed<ReadAgents>) -> &'static str {
//!     "all agents"
//! }
//! declaring(list);
//! ```
//!
//! One without does not compile, and a route that everybody may use says so with [`Anybody`]:
//!
//! ```compile_fail,E0277
//! use abide::access::routes::declaring;
//!
//! async fn list() -> &'static str {
//!     "all agents"
//! }
//! declaring(list);
//! ```
//!
//! [`Anybody`]: super::permission::Anybody

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::Allowed;
use super::permission::Permission;

/// A handler whose first parameter is [`Allowed`].
pub trait Declares<Parameters> {
    type Permission: Permission;
}

macro_rules! impl_declares {
    ($($parameter:ident),*) => {
        impl<F, Fut, P, $($parameter),*> Declares<(Allowed<P>, $($parameter,)*)> for F
        where
            F: Fn(Allowed<P>, $($parameter),*) -> Fut,
            P: Permission,
        {
            type Permission = P;
        }
    };
}

impl_declares!();
impl_declares!(A);
impl_declares!(A, B);
impl_declares!(A, B, C);
impl_declares!(A, B, C, D);
impl_declares!(A, B, C, D, E);
impl_declares!(A, B, C, D, E, G);

/// The handler itself, which declares a permission.
pub fn declaring<H: Declares<Parameters>, Parameters>(handler: H) -> H {
    handler
}

/// Proof that a handler declares a permission.
pub(crate) struct Declared(());

/// Proves that a handler declares a permission.
pub(crate) fn declared<H: Declares<Parameters>, Parameters>(_: &H) -> Declared {
    Declared(())
}

/// A path of the public API with its methods, each of which declares a permission.
pub(crate) struct DeclaredRoutes<S>(UtoipaMethodRouter<S>);

impl<S> DeclaredRoutes<S> {
    /// The methods of a path, with a proof for each; [`routes!`](crate::access::declared_routes)
    /// makes both.
    pub(crate) fn new<const N: usize>(_: [Declared; N], routes: UtoipaMethodRouter<S>) -> Self {
        Self(routes)
    }
}

/// The methods of a path, each by its handler.
macro_rules! declared_routes {
    ($($handler:path),+ $(,)?) => {
        $crate::access::routes::DeclaredRoutes::new(
            [$($crate::access::routes::declared(&$handler)),+],
            ::utoipa_axum::routes!($($handler),+),
        )
    };
}
pub(crate) use declared_routes;

/// The public API: its paths, with their descriptions.
pub(crate) struct DeclaredApi<S>(OpenApiRouter<S>);

impl<S: Clone + Send + Sync + 'static> DeclaredApi<S> {
    pub(crate) fn new(document: OpenApi) -> Self {
        Self(OpenApiRouter::with_openapi(document))
    }

    /// Adds a path.
    pub(crate) fn routes(self, DeclaredRoutes(routes): DeclaredRoutes<S>) -> Self {
        Self(self.0.routes(routes))
    }

    pub(crate) fn into_parts(self) -> (DeclaredRouter<S>, OpenApi) {
        let (router, document) = self.0.split_for_parts();
        (DeclaredRouter { router, operations: Vec::new() }, document)
    }
}

/// A router all of whose routes declare their permissions.
pub(crate) struct DeclaredRouter<S> {
    router: Router<S>,
    operations: Vec<(&'static str, &'static str)>,
}

/// A method, with its name.
pub(crate) type NamedMethod = (&'static str, MethodFilter);

pub(crate) const GET: NamedMethod = ("GET", MethodFilter::GET);
pub(crate) const POST: NamedMethod = ("POST", MethodFilter::POST);
pub(crate) const DELETE: NamedMethod = ("DELETE", MethodFilter::DELETE);

impl<S: Clone + Send + Sync + 'static> DeclaredRouter<S> {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    /// Adds a route.
    pub(crate) fn route<H, T, Parameters>(
        mut self,
        (name, method): NamedMethod,
        path: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, S> + Declares<Parameters>,
        T: 'static,
    {
        self.operations.push((name, path));
        let router = self.router.route(path, MethodRouter::new().on(method, handler));
        Self { router, ..self }
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.operations.extend(other.operations);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// The method and the path of each route that was added by itself.
    pub(crate) fn operations(self) -> Vec<(&'static str, &'static str)> {
        self.operations
    }

    /// The router, which answers requests that no route fits with these handlers.
    pub(crate) fn finish<H, T, HP, M, U, MP>(self, unknown_path: H, unknown_method: M) -> Router<S>
    where
        H: Handler<T, S> + Declares<HP>,
        M: Handler<U, S> + Declares<MP>,
        T: 'static,
        U: 'static,
    {
        self.router.fallback(unknown_path).method_not_allowed_fallback(unknown_method)
    }
}
