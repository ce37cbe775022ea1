//! The command `limiter`.

fn main() {}
