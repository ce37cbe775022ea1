//! The place of the fred engine, which will stand on the `fred` crate, the same script and wire form.
//!
//! **Not built yet**: the crate exports nothing, and no feature of `limiter` names it.
