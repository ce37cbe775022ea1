//! Policies: named rules in a file, decided together.
//!
//! A policy says who has which limits: rules with a key recipe and conditions, plans and tenants, what an endpoint costs, whom to
//! let pass and whom to refuse. A [`Query`] tells whose request it is and where it goes; a [`PolicyLimiter`] asks all the rules
//! that it meets in **one** request to the store, all or nothing; the [`Answer`] names the rule that refused.
//!
//! ```toml
//! default_plan = "starter"
//! on_failure = "local nodes=4"          # while the store is away
//!
//! [[rule]]
//! name = "daily"
//! key = "tenant"                        # no limit of its own: plans have it
//!
//! [[rule]]
//! name = "login"
//! key = ["ip"]                          # or "ip", or "ip,header:x-device"
//! limit = "5/1m sliding-log"
//! when = { method = "POST", endpoint = "/login" }
//! on_failure = "closed"
//!
//! [plans.starter]
//! daily = "10000/1d fixed-window"
//! [plans.pro]
//! daily = "100000/1d fixed-window"
//!
//! [tenants]
//! acme = "pro"
//! bigcorp = { plan = "pro", limits = { daily = "2000000/1d fixed-window" } }
//!
//! [endpoints]
//! "POST /search" = 5                    # costs 5 units; what is not named costs 1
//!
//! [allow]
//! ip = ["10.0.0.0/8"]
//! ```
//!
//! # What is counted under which key
//! The fields of a rule's key, each with a tag, under the rule's name: a user `x` is never a tenant `x`, and another rule has other
//! keys. So a rule keeps its states when its limit changes, and begins afresh when its name does. Rules that count many together
//! are asked first. With a tenant in the keys they lie together on a Redis Cluster.
//!
//! # What a client can't do
//! Bytes of any kind are a key like any other. Where the policy lists endpoints, a made-up path counts as one common endpoint. A
//! header that is sent twice is as good as missing, and what is missing is counted by its address, unless the rule says otherwise
//! ([`Missing`]). Tenants, users and headers have to be *verified* before they are told: whoever can name another's key
//! can use it up.

mod answer;
mod condition;
mod counters;
mod error;
mod explain;
mod limiter;
mod model;
mod parse;
mod query;
mod recipe;
mod rule;
mod select;

pub use answer::{Answer, Receipt, RuleAnswer, Verdict};
#[cfg(feature = "http")]
pub(crate) use condition::network;
pub use condition::{Condition, ConditionError};
pub use counters::RuleCount;
pub use error::{Fault, PolicyError};
pub use explain::Explanation;
pub use limiter::PolicyLimiter;
pub use model::{MAX_RULES, Policy, PolicyBuilder};
pub use query::{Query, Value};
pub use recipe::{Field, Recipe, RecipeError};
pub use rule::{Allowance, Count, Missing, Rule};
