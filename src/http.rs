//! Limits in front of an HTTP or gRPC service: a `tower` layer.
//!
//! [`RateLimitLayer`] asks a [`PolicyLimiter`](crate::policy::PolicyLimiter) about each request, refuses with 429 (or a gRPC
//! status), tells each client its limits in the response's fields, holds leaky buckets' requests back, and gives back what did not
//! count.
//!
//! | verdict | HTTP | gRPC |
//! | --- | --- | --- |
//! | a limit refuses | 429 and `Retry-After` | 8 `RESOURCE_EXHAUSTED` with `RetryInfo` |
//! | the store is away, and a rule is `closed` | 503 and `Retry-After` | 14 `UNAVAILABLE` with `RetryInfo` |
//! | on the deny list, or a wanted field is missing | 403 | 7 `PERMISSION_DENIED` |
//! | its cost can never pass | 400 | 3 `INVALID_ARGUMENT` |
//!
//! # Which response fields
//! [`Fields`] has them. `Retry-After` is rounded up and never 0, so that who waits that long is admitted. Where nobody decided (the
//! store is away, a rule is `open`) no numbers are made up.
//!
//! # Whose address
//! The peer's, as the server tells it: [`PeerAddress`], or axum's `ConnectInfo` with feature `axum`. **Behind a proxy all clients
//! are that proxy** until [`TrustedProxies`] names it. A server that tells no address leaves it missing.

mod address;
mod admission;
mod body;
mod fields;
mod grpc;
mod layer;
mod refusal;
mod service;

pub use address::{ForwardedHeader, TrustedProxies};
pub use body::LimitBody;
pub use fields::{Fields, Reset};
pub use layer::{PeerAddress, RateLimitLayer};
#[cfg(feature = "envoy")]
pub(crate) use refusal::written;
pub use refusal::{OwnRefusal, Refusal};
pub use service::{RateLimit, ResponseFuture};
