//! The JSON over HTTP that services in any language ask.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use limiter::policy::{Answer, PolicyLimiter, Receipt, RuleAnswer};
use limiter::{BackendExt, Check, Instant, InstantError, Key, Limit, Op};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::metrics;
use crate::asked::Asked;
use crate::object::Object;

/// The largest request in bytes. What is told of one is short; a header may be long.
const MAX_BODY: usize = 64 * 1024;

pub(super) fn router(limiter: PolicyLimiter) -> Router {
    Router::new()
        .route("/check", post(check))
        .route("/peek", post(peek))
        .route("/refund", post(refund))
        .route("/health", get(async || Json(json!({"status": "ok"}))))
        .route("/ready", get(ready))
        .route("/metrics", get(told))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(limiter)
}

#[derive(Serialize)]
struct Answered<'a> {
    allowed: bool,
    verdict: &'static str,
    refused_by: Option<&'a str>,
    field: Option<&'a str>,
    retry_after: Option<u64>,
    delay: u64,
    degraded: bool,
    rules: Vec<Rule<'a>>,
    shadow: Vec<Rule<'a>>,
    receipt: Vec<Charged>,
}

#[derive(Serialize)]
struct Rule<'a> {
    #[serde(rename = "rule")]
    name: &'a str,
    limit: Limit,
    cost: u64,
    allowed: bool,
    remaining: u64,
    retry_after: Option<u64>,
    reset_after: u64,
    delay: u64,
}

/// What one rule was charged, and when.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Charged {
    rule: String,
    at: u64,
    cost: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund {
    request: Object<Asked>,
    receipt: Vec<Object<Charged>>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn rule(answer: &RuleAnswer) -> Rule<'_> {
    let decision = answer.decision;
    Rule {
        name: &answer.rule,
        limit: answer.limit,
        cost: answer.cost,
        allowed: decision.allowed,
        remaining: decision.remaining,
        retry_after: decision.retry_after.map(micros),
        reset_after: micros(decision.reset_after),
        delay: micros(decision.delay),
    }
}

fn answered(answer: &Answer) -> Response {
    let receipt = answer.receipt().into_iter().flat_map(Receipt::charged);
    let receipt = receipt.map(|(rule, at, cost)| Charged { rule: rule.to_owned(), at: at.micros(), cost }).collect();
    let told = Answered {
        allowed: answer.is_allowed(),
        verdict: answer.verdict.name(),
        refused_by: answer.refused_by.as_deref(),
        field: answer.field.as_deref(),
        retry_after: answer.retry_after.map(micros),
        delay: micros(answer.delay),
        degraded: answer.degraded,
        rules: answer.rules.iter().map(rule).collect(),
        shadow: answer.shadow.iter().map(rule).collect(),
        receipt,
    };
    Json(told).into_response()
}

/// A request that can't be read: the caller's fault, in words, and of what it sent a field's name at most.
fn wrong(reason: impl std::fmt::Display) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"error": reason.to_string()}))).into_response()
}

/// Read from the bytes: a caller need not say what it sends.
fn read<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map(|Object(read)| read).map_err(|error| Box::new(wrong(error)))
}

async fn check(State(limiter): State<PolicyLimiter>, body: Bytes) -> Response {
    match read::<Asked>(&body) {
        Ok(asked) => answered(&limiter.check(&asked.query()).await),
        Err(response) => *response,
    }
}

async fn peek(State(limiter): State<PolicyLimiter>, body: Bytes) -> Response {
    match read::<Asked>(&body) {
        Ok(asked) => answered(&limiter.peek(&asked.query()).await),
        Err(response) => *response,
    }
}

async fn refund(State(limiter): State<PolicyLimiter>, body: Bytes) -> Response {
    let refund: Refund = match read(&body) {
        Ok(refund) => refund,
        Err(response) => return *response,
    };
    let charged: Result<Vec<_>, InstantError> = refund
        .receipt
        .iter()
        .map(|Object(charged)| Ok((charged.rule.as_str(), Instant::from_micros(charged.at)?, charged.cost)))
        .collect();
    let charged = match charged {
        Ok(charged) => charged,
        Err(error) => return wrong(format_args!("receipt: {error}")),
    };
    match limiter.refund_query(&refund.request.0.query(), &charged).await {
        Ok(rules) => Json(json!({"refunded": rules})).into_response(),
        // Not to be repeated unless it is certain that nothing was given back.
        Err(error) => {
            let told = json!({"error": error.kind().name(), "repeat": error.kind().is_certain()});
            (StatusCode::SERVICE_UNAVAILABLE, Json(told)).into_response()
        }
    }
}

/// Whether the store decides: it is asked for a key that nobody takes from.
async fn ready(State(limiter): State<PolicyLimiter>) -> Response {
    let Ok(limit) = Limit::fixed_window(1, Duration::from_secs(1)).build() else { return wrong("no limit to ask for") };
    let check = Check::new(Key::new("", "ready", [[]; 0]), limit, 1);
    match limiter.backend().ask_one(Op::Peek, check).await {
        Ok(_) => Json(json!({"status": "ready"})).into_response(),
        Err(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "the store does not decide"}))).into_response()
        }
    }
}

async fn told(State(limiter): State<PolicyLimiter>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&limiter)).into_response()
}
