//! Around the engine of this process.

use std::sync::Arc;

use limiter::Memory;
use limiter_conformance::{Ability, Subject, conformance_suite};

use crate::{builder, stack};

fn subject() -> Subject {
    Subject::new("stack-memory", || async { Ok(stack(Arc::new(Memory::new()))) })
        // A clock that is set forward opens keys at once, which a deny cache sees after its maximum age only.
        .with_clock(|clock| async {
            Ok(builder().deny_cache(None).build(Arc::new(Memory::builder().clock(clock).build())))
        })
        .lacks(Ability::StoredKeys, "the table does not list its keys")
}

conformance_suite!(super::subject());
