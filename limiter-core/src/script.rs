//! The mirror: one Lua script that decides a batch inside Redis, and the conversation with it. No I/O and no driver.
//!
//! ```text
//!  Batch ──► Exchange ──► Command (EVALSHA, or EVAL) ──► the driver ──► Redis runs head.lua · a mirror of each machine · main.lua
//!                                                                          │
//!  outcomes ◄── Exchange ◄── Answer (reply | no script | failed) ◄── the driver ◄── packed reply: prior states, instant, versions
//! ```
//!
//! The script only moves the state. It answers with what it decided on, and the core derives the rest from that and holds the
//! verdict against its own: where they differ, the outcome is an error of kind
//! [`Divergence`](crate::ErrorKind::Divergence), never an answer.
//!
//! Equal requests of one batch travel as one step with a count, of which the script admits as many as fit, in order.
//! The outcomes are exactly those that they would have had one by one.
//!
//! On a cluster two more conversations lie around this one: a [`Spread`] splits the batch by slot, in rounds, and a [`Round`] brings each
//! part to the node of its slot, and to another one if that refuses.

mod address;
mod codec;
mod exchange;
mod number;
mod reply;
mod round;
mod server;
mod slot;
mod slots;
mod spread;

use std::fmt::Write as _;
use std::sync::LazyLock;

use sha1::{Digest, Sha1};

pub use self::address::{Address, Together};
pub use self::exchange::{Answer, Command, Exchange, Program};
pub use self::round::{Advice, Reached, Round, Sending};
pub use self::server::{Server, refusal};
pub use self::slot::{SLOTS, slot_of};
pub use self::slots::{Elsewhere, Node, Slots};
pub use self::spread::{Part, Spread};

/// The whole script.
///
/// Each machine's mirror is a chunk that returns its functions; here it becomes a function of its own, so that a call makes
/// only those of the machines that it has limits of.
pub const TEXT: &str = concat!(
    include_str!("script/head.lua"),
    "machines[1] = function()\n",
    include_str!("algorithm/fixed_window.lua"),
    "end\nmachines[2] = function()\n",
    include_str!("algorithm/sliding_log.lua"),
    "end\nmachines[3] = function()\n",
    include_str!("algorithm/sliding_counter.lua"),
    "end\nmachines[4] = function()\n",
    include_str!("algorithm/bucket.lua"),
    "end\n",
    include_str!("script/plain.lua"),
    include_str!("script/main.lua"),
);

/// The script's name in `EVALSHA`: its SHA-1, in hexadecimal.
#[must_use]
pub fn digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| {
        Sha1::digest(TEXT.as_bytes()).iter().fold(String::with_capacity(40), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    });
    &DIGEST
}
