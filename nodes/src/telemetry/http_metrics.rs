//! The metrics of a public request, and its span in the trace of its sender.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use abide_actors::clock::Clock;
use abide_actors::trace::{self, Span, SpanContext, SpanKind};
use abide_conversation::Timestamp;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use metrics::{Counter, Histogram};
use tokio::time::Instant;
use uuid::Uuid;

/// An extension of a response: the span of the turn that its request began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnExtension(pub(crate) SpanContext);

/// The metrics of public requests, by their route. A node asks its recorder for each of them once: a
/// recorder copies and hashes all labels whenever it is asked.
#[derive(Default)]
pub(crate) struct RequestMetrics(RwLock<HashMap<String, RouteMetrics>>);

/// The metrics of a route, by method and status. Those of one method share their histogram.
type RouteMetrics = HashMap<(&'static str, StatusCode), (Counter, Histogram)>;

impl RequestMetrics {
    fn record(&self, route: &str, method: &'static str, status: StatusCode, seconds: f64) {
        let record = |routes: &HashMap<String, RouteMetrics>| {
            let (count, times) = routes.get(route)?.get(&(method, status))?;
            count.increment(1);
            times.record(seconds);
            Some(())
        };
        let recorded = record(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if recorded.is_some() {
            return;
        }
        let mut routes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of_route = routes.entry(route.to_owned()).or_default();
        of_route.entry((method, status)).or_insert_with(|| {
            let (route, code) = (route.to_owned(), status.as_str().to_owned());
            let count = metrics::counter!("abide_requests_total",
                "method" => method, "route" => route.clone(), "status" => code);
            let times = metrics::histogram!("abide_request_seconds",
                "method" => method, "route" => route);
            (count, times)
        });
        record(&routes);
    }
}

/// Measures a request by its route: labels must not hold what clients chose, such as ids.
pub(crate) async fn measure<F: Future<Output = Response>>(
    request_metrics: &RequestMetrics,
    clock: &dyn Clock,
    request: Request,
    handle: impl FnOnce(Request) -> F,
) -> Response {
    let started = Instant::now();
    let began = clock.now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = method_label(request.method());
    let sender = sender(request.headers());
    let response = handle(request).await;
    let status = response.status();
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    request_metrics.record(route, method, status, started.elapsed().as_secs_f64());
    if let Some(sender) = sender {
        let turn = response.extensions().get::<TurnExtension>().map(|turn| turn.0);
        let status = u32::from(status.as_u16());
        end_span(sender, (method, route, status), turn, (began, clock.now()));
    }
    response
}

/// Ends the span of a request. A turn may outlive its request by far: it has its own trace, and the
/// span of the request links to it.
fn end_span(
    sender: SpanContext,
    (method, route, status): (&'static str, &str, u32),
    turn: Option<SpanContext>,
    (began, ended): (Timestamp, Timestamp),
) {
    trace::end(Span {
        context: SpanContext { trace: sender.trace, span: Uuid::new_v4().as_u64_pair().0 },
        parent: Some(sender.span),
        name: format!("{method} {route}"),
        kind: SpanKind::Server,
        started_at: began,
        ended_at: ended,
        attributes: vec![
            ("http.request.method", method.into()),
            ("http.route", route.into()),
            ("http.response.status_code", status.into()),
        ],
        links: turn.into_iter().collect(),
        error: (status >= 500).then_some("server"),
    });
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// The span that sent the request, from W3C's `traceparent`, if that is sampled.
fn sender(headers: &HeaderMap) -> Option<SpanContext> {
    let given = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = given.split('-');
    let version = parts.next()?;
    let trace = parts.next()?;
    let span = parts.next()?;
    let flags = parts.next()?;
    let number = |text: &str, digits: usize| {
        let legal = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        legal.then(|| u128::from_str_radix(text, 16).ok())?
    };
    let is_known = number(version, 2)? < 0xff;
    let (trace, span) = (number(trace, 32)?, number(span, 16)?);
    let sampled = number(flags, 2)? & 1 == 1;
    let legal = is_known && trace != 0 && span != 0 && sampled;
    legal.then(|| Some(SpanContext { trace, span: u64::try_from(span).ok()? })).flatten()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn read(given: &'static str) -> Option<SpanContext> {
        sender(&HeaderMap::from_iter([(
            axum::http::HeaderName::from_static("traceparent"),
            HeaderValue::from_static(given),
        )]))
    }

    #[test]
    fn each_request_counts_for_its_method_route_and_status() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let kept = RequestMetrics::default();
        metrics::with_local_recorder(&recorder, || {
            for status in [StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::OK] {
                kept.record("/v1/me", "GET", status, 0.1);
            }
            kept.record("/v1/me", "POST", StatusCode::OK, 0.1);
            kept.record("other", "GET", StatusCode::OK, 0.1);
        });
        let text = recorder.handle().render();
        for line in [
            "abide_requests_total{method=\"GET\",route=\"/v1/me\",status=\"200\"} 2",
            "abide_requests_total{method=\"GET\",route=\"/v1/me\",status=\"404\"} 1",
            "abide_requests_total{method=\"POST\",route=\"/v1/me\",status=\"200\"} 1",
            "abide_requests_total{method=\"GET\",route=\"other\",status=\"200\"} 1",
            "abide_request_seconds_count{method=\"GET\",route=\"/v1/me\"} 3",
            "abide_request_seconds_count{method=\"POST\",route=\"/v1/me\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn only_a_legal_and_sampled_traceparent_is_taken() {
        let expected = SpanContext {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad6b7169203331,
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good), Some(expected));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
