//! What the outside can send to limiter, each as a check that takes arbitrary bytes and panics if what holds does not.
//!
//! `scripts/fuzz` looks for bytes that make one panic; `cargo test` runs the seeds and what lies close to them.

#![forbid(unsafe_code)]

mod draw;
mod forwarded;
mod limit_text;
mod policy_file;
mod redis_reply;
mod redis_text;
mod replay;
mod state_bytes;

// The reader of traces is the command's and no part of the library: it is compiled in here as it stands there.
#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/exit.rs"]
mod exit;
#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/object.rs"]
mod object;
#[allow(dead_code, reason = "the command uses the rest of it")]
#[path = "../../src/bin/limiter/terminal.rs"]
mod terminal;

pub use forwarded::forwarded;
pub use limit_text::limit_text;
pub use policy_file::policy_file;
pub use redis_reply::redis_reply;
pub use redis_text::redis_text;
pub use replay::{replay_json, replay_log};
pub use state_bytes::state_bytes;

/// What is told to people: one line, of bounded length, that no terminal and no log takes for anything else.
fn assert_is_a_line(text: &str, most: usize) {
    assert!(!text.contains(char::is_control), "a control character in {text:?}");
    assert!(text.chars().count() <= most, "{} characters: {text}", text.chars().count());
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs a check on each of its seeds, on each cut short, and on each with one byte changed.
    fn seeds(name: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
        let mut count = 0;
        for file in std::fs::read_dir(&folder).expect("a folder of seeds") {
            let seed = std::fs::read(file.expect("a file").path()).expect("a seed");
            check(&seed);
            count += 1;
            // A place in each of some hundred stretches of a long seed.
            for at in (0..seed.len()).step_by(seed.len() / 128 + 1) {
                check(&seed[..at]);
                for change in [0x01, 0x20, 0x80, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] ^= change;
                    check(&changed);
                }
            }
        }
        assert!(count > 0, "no seeds in {}", folder.display());
    }

    macro_rules! seeds {
        ($($target:ident)*) => {
            $(#[test] fn $target() { seeds(stringify!($target), super::$target); })*

            /// `cargo fuzz` runs what the manifest names; all of it is tested here too, and nothing else.
            #[test]
            fn each_target_is_here() {
                let manifest = include_str!("../Cargo.toml");
                let bins: Vec<&str> = manifest.split("[[bin]]\nname = \"").skip(1).map(|bin| bin.split('"').next().unwrap()).collect();
                assert_eq!(bins, [$(stringify!($target)),*]);
            }
        };
    }

    seeds!(limit_text policy_file replay_json replay_log state_bytes redis_reply redis_text forwarded);
}
