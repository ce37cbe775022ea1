//! The place of the postgres engine, which will stand on `sqlx`: row locks, migrations, sweeper.
//!
//! **Not built yet**: the crate exports nothing, and no feature of `limiter` names it.
