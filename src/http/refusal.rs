//! The answer to a request that may not go on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use super::fields::{Fields, seconds};
use super::grpc;
use crate::policy::{Answer, Verdict};

/// What a refusal looks like.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Refusal {
    /// A small JSON object: `{"error":"rate-limited","rule":"login","retry_after":12}`.
    #[default]
    Json,
    /// Problem details (RFC 9457), with the types that the rate limit fields' draft registers.
    Problem,
    /// The user's own. Its status and body stay; the fields of the layer are added.
    Own(OwnRefusal),
}

/// Makes an answer of a refusal.
pub type OwnRefusal = Arc<dyn Fn(&Answer) -> Response<Bytes> + Send + Sync>;

impl Refusal {
    /// The user's own answer.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use limiter::http::Refusal;
    ///
    /// let refusal = Refusal::own(|answer| {
    ///     let rule = answer.refused_by.as_deref().unwrap_or("a list");
    ///     let mut response = Response::new(Bytes::from(format!("{rule} says no")));
    ///     *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    ///     response
    /// });
    /// # let _ = refusal;
    /// ```
    pub fn own(make: impl Fn(&Answer) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        Self::Own(Arc::new(make))
    }

    /// The whole answer.
    pub(super) fn response(
        &self,
        answer: &Answer,
        grpc: Option<&'static str>,
        fields: &Fields,
        took: Duration,
    ) -> Response<Bytes> {
        let wait = wait(answer);
        let mut response = if let Some(kind) = grpc {
            let mut response = Response::new(Bytes::new());
            grpc::write(response.headers_mut(), kind, answer.verdict, wait);
            response
        } else {
            match self {
                Self::Own(make) => make(answer),
                Self::Json => self.written(answer, "application/json", &json(answer)),
                Self::Problem => self.written(answer, "application/problem+json", &problem(answer)),
            }
        };
        let (mut parts, body) = response.into_parts();
        fields.write(&mut parts.headers, &mut parts.extensions, answer, took);
        if let Some(wait) = wait {
            fields.write_retry_after(&mut parts.headers, wait);
        }
        response = Response::from_parts(parts, body);
        response
    }

    #[expect(clippy::unused_self, reason = "a part of `response`")]
    fn written(&self, answer: &Answer, content_type: &'static str, body: &str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::copy_from_slice(body.as_bytes()));
        *response.status_mut() = status(answer.verdict);
        let headers: &mut HeaderMap = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "Json",
            Self::Problem => "Problem",
            Self::Own(_) => "Own",
        })
    }
}

/// The wait that a refusal tells: none where no wait would help.
fn wait(answer: &Answer) -> Option<Duration> {
    match answer.verdict {
        Verdict::Limited => Some(answer.retry_after.unwrap_or_default()),
        Verdict::Unavailable => Some(Duration::from_secs(1)),
        _ => None,
    }
}

const fn status(verdict: Verdict) -> StatusCode {
    match verdict {
        Verdict::Limited => StatusCode::TOO_MANY_REQUESTS,
        Verdict::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        // It can never pass: nothing that a client would repeat.
        Verdict::TooCostly => StatusCode::BAD_REQUEST,
        _ => StatusCode::FORBIDDEN,
    }
}

/// Names of rules and of fields are plain characters, so nothing in these texts has to be escaped.
fn json(answer: &Answer) -> String {
    let mut text = format!(r#"{{"error":"{}""#, answer.verdict.name());
    if let Some(rule) = &answer.refused_by {
        text.push_str(&format_args!(r#","rule":"{rule}""#).to_string());
    }
    if let Some(wait) = wait(answer) {
        text.push_str(&format_args!(r#","retry_after":{}"#, seconds(wait).max(1)).to_string());
    }
    text.push('}');
    text
}

fn problem(answer: &Answer) -> String {
    const TYPES: &str = "https://iana.org/assignments/http-problem-types";
    let status = status(answer.verdict);
    let (kind, title) = match answer.verdict {
        Verdict::Limited => (format!("{TYPES}#quota-exceeded"), "The quota is used up"),
        Verdict::Unavailable => (format!("{TYPES}#temporary-reduced-capacity"), "The rate limiter is unavailable"),
        Verdict::TooCostly => ("about:blank".to_owned(), "The cost is over the limit"),
        _ => ("about:blank".to_owned(), "Not allowed"),
    };
    let mut text = format!(r#"{{"type":"{kind}","title":"{title}","status":{}"#, status.as_u16());
    let violated: Vec<String> =
        answer.rules.iter().filter(|rule| !rule.decision.allowed).map(|rule| format!(r#""{}""#, rule.rule)).collect();
    if !violated.is_empty() {
        text.push_str(&format_args!(r#","violated-policies":[{}]"#, violated.join(",")).to_string());
    }
    text.push('}');
    text
}

/// The fields of an answer by themselves, for what is no response of ours.
#[cfg(feature = "envoy")]
pub(crate) fn written(fields: &Fields, answer: &Answer, took: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    fields.write(&mut headers, &mut http::Extensions::new(), answer, took);
    if let Some(wait) = wait(answer) {
        fields.write_retry_after(&mut headers, wait);
    }
    headers
}
