//! The memory engine passes the whole suite.

use limiter_conformance::{Ability, Subject, conformance_suite};
use limiter_core::Memory;

conformance_suite!(
    Subject::new("memory", || async { Ok(Memory::new()) })
        .with_clock(|clock| async move { Ok(Memory::builder().clock(clock).build()) })
        .lacks(Ability::StoredKeys, "the table has no expiry of its own to list: `max_keys` bounds it")
        .lacks(Ability::LostReplies, "there is no network between the caller and the table")
        .lacks(Ability::Outages, "there is no network between the caller and the table")
);
