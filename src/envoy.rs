//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), answered by a policy.
//!
//! Envoy sends what its route configuration makes of a request: a domain, and descriptors, each a list of keys and values. The keys
//! of **all descriptors of one request together** tell the [`Query`], and the policy decides all its rules at once:
//!
//! | key in a descriptor | field |
//! | --- | --- |
//! | `tenant` `user` `plan` `method` | the same |
//! | `endpoint` or `path` | endpoint |
//! | `remote_address` or `masked_remote_address` | address; a mask is left off |
//! | any other, `generic_key` say | a header of that name: `header:generic_key` in a rule |
//! | (the domain) | `header:envoy-domain` |
//!
//! A header's key that comes with two different values is as good as missing; of the others the first counts. The costliest
//! `hits_addend` is the cost, and a request that says none costs what the policy says. Every descriptor gets the status of the whole, with
//! the tightest rule's numbers; the same fields as the HTTP layer's go to the client as response headers.
//!
//! What is refused for good (a deny list, a cost over the limit) is over the limit too: Envoy knows no other refusal. If the store is
//! away and a rule is `closed`, the call fails with `UNAVAILABLE`, and Envoy's `failure_mode_deny` says what that means.
//! `is_negative_hits` and a descriptor's own `limit` are refused: limits are the policy's, and a refund has to know what it refunds.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::http::{Fields, written};
use crate::policy::{Answer, PolicyLimiter, Query, RuleAnswer, Verdict};

/// The largest request in bytes that is read.
const MAX_MESSAGE: usize = 256 * 1024;
/// The most descriptors of a request that are read.
const MAX_DESCRIPTORS: usize = 64;

/// Answers Envoy by a policy.
///
/// ```
/// use std::sync::Arc;
/// use limiter::Memory;
/// use limiter::envoy::Envoy;
/// use limiter::policy::{Policy, PolicyLimiter};
///
/// let policy = Policy::parse("[[rule]]\nname = \"all\"\nkey = \"ip\"\nlimit = \"100/1m sliding-log\"\n")?;
/// let limiter = PolicyLimiter::new(Arc::new(Memory::new()), policy);
/// let router = tonic::transport::Server::builder().add_service(Envoy::new(limiter).service());
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Envoy {
    limiter: PolicyLimiter,
    fields: Fields,
}

impl Envoy {
    /// Envoy's service, answered by `limiter`.
    #[must_use]
    pub fn new(limiter: PolicyLimiter) -> Self {
        Self { limiter, fields: Fields::default() }
    }

    /// The response headers that Envoy is to add.
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// The gRPC service, for a server of `tonic`'s.
    #[must_use]
    pub fn service(self) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self).max_decoding_message_size(MAX_MESSAGE)
    }
}

/// Serves Envoy until `end`, then until all calls at hand are answered.
///
/// # Errors
/// The listener's.
pub async fn serve(
    listener: TcpListener,
    limiter: PolicyLimiter,
    end: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(Envoy::new(limiter).service()).serve_with_incoming_shutdown(incoming, end).await
}

#[tonic::async_trait]
impl RateLimitService for Envoy {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        if request.descriptors.len() > MAX_DESCRIPTORS {
            return Err(Status::invalid_argument(format!("there are more than {MAX_DESCRIPTORS} descriptors")));
        }
        if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits || descriptor.limit.is_some()) {
            return Err(Status::invalid_argument("is_negative_hits and a descriptor's limit are not supported"));
        }
        let begun = Instant::now();
        let answer = self.limiter.check(&query(&request)).await;
        if answer.verdict == Verdict::Unavailable {
            return Err(Status::unavailable("the store does not decide"));
        }
        let descriptors = request.descriptors.len();
        Ok(Response::new(respond(&answer, descriptors, &self.fields, begun.elapsed())))
    }
}

fn query(request: &RateLimitRequest) -> Query<'_> {
    let mut query = Query::new();
    if !request.domain.is_empty() {
        query = query.header("envoy-domain", &request.domain);
    }
    let mut headers: Vec<(String, &str)> = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for entry in request.descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
        let (key, value) = (entry.key.as_str(), entry.value.as_str());
        let field = match key {
            "path" => "endpoint",
            "masked_remote_address" => "remote_address",
            _ => key,
        };
        let is_field = matches!(field, "tenant" | "user" | "plan" | "method" | "endpoint" | "remote_address");
        if is_field {
            if told.contains(&field) {
                continue;
            }
            told.push(field);
        }
        query = match field {
            "tenant" => query.tenant(value),
            "user" => query.user(value),
            "plan" => query.plan(value),
            "method" => query.method(value),
            "endpoint" => query.endpoint(value),
            "remote_address" => match address(value) {
                Some(address) => query.address(address),
                None => query,
            },
            _ => {
                let name = key.to_ascii_lowercase();
                // The same in several descriptors is one header.
                if headers.iter().any(|(known, told)| *known == name && *told == value) {
                    continue;
                }
                headers.push((name.clone(), value));
                query.header(name, value)
            }
        };
    }
    let own =
        request.descriptors.iter().filter_map(|descriptor| descriptor.hits_addend.as_ref()).map(|hits| hits.value);
    let whole = Some(u64::from(request.hits_addend)).filter(|hits| *hits > 0);
    match own.max().or(whole) {
        Some(cost) => query.cost(cost),
        None => query,
    }
}

/// An address, with or without a mask, a port or brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    text.parse().or_else(|_| text.parse::<std::net::SocketAddr>().map(|address| address.ip())).ok()
}

fn respond(answer: &Answer, descriptors: usize, fields: &Fields, took: Duration) -> RateLimitResponse {
    let code = if answer.is_allowed() { Code::Ok } else { Code::OverLimit };
    let mut status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    if let Some(tightest) = answer.tightest() {
        let decision = tightest.decision;
        let reset = decision.retry_after.unwrap_or(decision.reset_after);
        status.current_limit = Some(limit(tightest));
        status.limit_remaining = u32::try_from(decision.remaining).unwrap_or(u32::MAX);
        status.duration_until_reset = Some(protobuf::Duration {
            seconds: i64::try_from(reset.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(reset.subsec_nanos()).unwrap_or_default(),
        });
    }
    let headers = written(fields, answer, took);
    let headers = headers.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?.to_owned();
        Some(HeaderValue { key: name.as_str().to_owned(), value, ..HeaderValue::default() })
    });
    RateLimitResponse {
        overall_code: code.into(),
        statuses: vec![status; descriptors],
        response_headers_to_add: headers.collect(),
        ..RateLimitResponse::default()
    }
}

/// A limit in Envoy's terms: its capacity, in the unit that its period is, if it is one.
fn limit(rule: &RuleAnswer) -> RateLimit {
    let unit = match rule.limit.period().as_secs() {
        1 => Unit::Second,
        60 => Unit::Minute,
        3_600 => Unit::Hour,
        86_400 => Unit::Day,
        604_800 => Unit::Week,
        _ => Unit::Unknown,
    };
    let whole = rule.limit.period().subsec_nanos() == 0;
    RateLimit {
        name: rule.rule.to_string(),
        requests_per_unit: u32::try_from(rule.limit.amount()).unwrap_or(u32::MAX),
        unit: if whole { unit } else { Unit::Unknown }.into(),
    }
}
