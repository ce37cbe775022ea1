//! Engines with one planted fault each, to test the suite: it has to catch every one of them.
//!
//! They share one simple store. Without a fault it passes the whole suite, so that what is caught is the fault and nothing
//! else. A fault that needs bad luck gets it: where the real ones lose a race now and then, these wait in the gap.

use std::fmt;
use std::sync::Arc;

use limiter_core::SystemClock;

use crate::subject::{Stored, Subject};

mod engine;
mod plant;
mod store;

use engine::Engine;
use store::Store;

/// What is wrong with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The state is read, decided on, and written, with others in between.
    CheckThenAct,
    /// The key is written in one step, and gets its expiry in another.
    ExpiryApart,
    /// The caller's clock decides, and not the store's.
    CallersClock,
    /// An entry of a log is named by its instant: two at one instant are one.
    InstantAsMember,
    /// Refused calls are charged.
    DenialsCharged,
    /// Every call renews the expiry, and the expiry is what ends a window.
    ExpiryRenewed,
    /// The key expires halfway.
    ExpiryTooShort,
    /// The weighted count of a sliding counter is rounded down.
    FlooredCounter,
    /// The clock is read before the lock is held.
    ClockBeforeLock,
    /// Units are given back twice.
    RefundTwice,
    /// A call without a reply is sent again.
    RetryOnTimeout,
    /// Each layer is charged as soon as it passes, whatever the next one says.
    LayersOneByOne,
    /// While the store is away, everything passes.
    FallbackWithoutCap,
    /// Instants are seconds in floating point.
    FloatSeconds,
    /// One more than the limit passes.
    OffByOne,
    /// The parts of a key are joined without a boundary.
    KeyPartsJoined,
    /// Keys are cut at a length.
    KeysCut,
    /// Keys are compared without regard to case.
    KeysFolded,
    /// A reset forgets every key that begins like the one that is meant.
    ResetByPrefix,
    /// Equal requests of a batch are decided as their sum, all or none.
    BatchAsSum,
    /// All requests of a batch see the state from before the batch.
    BatchStale,
    /// Asking takes.
    PeekTakes,
    /// When there are many keys, all are forgotten.
    ForgetsWhenFull,
    /// A clock that goes back finds a fresh key.
    BackwardIsFresh,
    /// The layers are written one after the other, and a caller that goes away leaves the rest.
    HalfOnCancel,
    /// A key that was written at a given instant is collected by the store's clock.
    GivenCollected,
    /// A write leaves the version as it was.
    VersionStands,
    /// The debt of an old limit is carried over in full.
    DebtCarriedOver,
    /// Keys never expire.
    NeverExpires,
    /// A refund is taken by a window that has rolled on.
    LateRefund,
    /// Asking stores a key.
    AskingStores,
    /// The store's clock has whole seconds.
    WholeSeconds,
    /// A write is answered, and lost now and then.
    LostWrites,
    /// A request that is denied is told to be in doubt.
    DenialsUnknown,
}

impl Fault {
    /// How many of [`ALL`](Self::ALL), the first ones, have been in print: what other people's limiters did.
    pub const REPORTED: usize = 14;

    /// All faults, each with the case that has to catch it.
    pub const ALL: [(Self, &'static str); 34] = [
        (Self::CheckThenAct, "concurrency::one_instant"),
        (Self::ExpiryApart, "lifetimes::cancelled_calls_leave_one"),
        (Self::CallersClock, "clock::clients_clocks_do_not_matter"),
        (Self::InstantAsMember, "vectors::sliding_log"),
        (Self::DenialsCharged, "operations::denials_write_nothing"),
        (Self::ExpiryRenewed, "lifetimes::calls_do_not_prolong_windows"),
        (Self::ExpiryTooShort, "lifetimes::kept_as_long_as_it_counts"),
        (Self::FlooredCounter, "vectors::sliding_counter"),
        (Self::ClockBeforeLock, "concurrency::history_token_bucket"),
        (Self::RefundTwice, "operations::refund_gives_back_once"),
        (Self::RetryOnTimeout, "failures::lost_reply_of_a_take"),
        (Self::LayersOneByOne, "layers::refused_charges_none"),
        (Self::FallbackWithoutCap, "failures::outage"),
        (Self::FloatSeconds, "vectors::token_bucket"),
        (Self::OffByOne, "operations::remaining_counts_down"),
        (Self::KeyPartsJoined, "keys::concatenations"),
        (Self::KeysCut, "keys::lengths"),
        (Self::KeysFolded, "keys::letters"),
        (Self::ResetByPrefix, "keys::prefixes"),
        (Self::BatchAsSum, "batches::equal_ones"),
        (Self::BatchStale, "batches::mixed_costs"),
        (Self::PeekTakes, "operations::peek_takes_nothing"),
        (Self::ForgetsWhenFull, "keys::spraying"),
        (Self::BackwardIsFresh, "clock::given_instants_go_back"),
        (Self::HalfOnCancel, "cancellation::at_every_await"),
        (Self::GivenCollected, "lifetimes::given_instants_are_kept"),
        (Self::VersionStands, "vectors::fixed_window"),
        (Self::DebtCarriedOver, "config::every_change"),
        (Self::NeverExpires, "lifetimes::every_key_has_one"),
        (Self::LateRefund, "operations::refund_after_the_window"),
        (Self::AskingStores, "lifetimes::nothing_without_a_charge"),
        (Self::WholeSeconds, "clock::runs_with_real_time"),
        (Self::LostWrites, "concurrency::history_layers"),
        (Self::DenialsUnknown, "operations::cost_of_nothing"),
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The simple engine with this fault, or without any, as a subject that offers the suite all that it can use.
pub fn subject(fault: Option<Fault>) -> Subject {
    let store = Arc::new(Store::new(fault));
    let name = fault.map_or_else(|| "the engine without a fault".to_owned(), |fault| fault.to_string());
    let [client, clocked, stored, lost, cut, clock] = std::array::from_fn(|_| Arc::clone(&store));
    Subject::new(name, move || {
        let engine = Engine::new(Arc::clone(&client), Arc::new(SystemClock));
        async move { Ok(engine) }
    })
    .with_clock(move |clock| {
        let engine = Engine::new(Arc::clone(&clocked), Arc::new(clock));
        async move { Ok(engine) }
    })
    .with_stored(move |scope| {
        let listed: Vec<Stored> = stored.list(&scope);
        async move { Ok(listed) }
    })
    .with_lost_replies(move || {
        lost.lose_reply();
        async { Ok(()) }
    })
    .with_outages(move |up| {
        cut.set_reachable(up);
        async { Ok(()) }
    })
    .with_store_clock(move |micros| {
        clock.step_clock(micros);
        async { Ok(()) }
    })
}
