//! The place of the etcd engine, which will stand on `etcd-client`: compare-and-put transactions.
//!
//! **Not built yet**: the crate exports nothing, and no feature of `limiter` names it.
