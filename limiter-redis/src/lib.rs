//! The place of the redis engine, which will stand on the `redis` crate: single server, Sentinel, Cluster, TLS.
//!
//! **Not built yet**: the crate exports nothing, and no feature of `limiter` names it.
