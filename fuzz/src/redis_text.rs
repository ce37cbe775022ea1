//! Texts around Redis: a URL, a server's error, what it says of itself.

use limiter_core::script::{Address, Elsewhere, Server, refusal};

use crate::assert_is_a_line;

/// Any text is read or refused, and none of it comes back in what is told.
///
/// # Panics
/// If not.
pub fn redis_text(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for scheme in ["", "redis-cluster://", "rediss-sentinel://"] {
        match Address::of_url(&format!("{scheme}{text}")) {
            Some(Ok(address)) => {
                assert!(!address.hosts.is_empty());
                let shown = format!("{address:?}");
                if let Some(password) = address.password.filter(|password| password.len() > 16) {
                    assert!(!shown.contains(&password), "{shown}");
                }
            }
            Some(Err(reason)) => assert_is_a_line(reason, 200),
            None => assert!(scheme.is_empty(), "a known scheme"),
        }
    }
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    if let Some(Elsewhere::Moved(Some((host, _))) | Elsewhere::Ask(Some((host, _)))) = Elsewhere::of_error(code, rest) {
        assert!(rest.contains(&host));
    }
    assert_is_a_line(refusal(code), 200);
    let server = Server::of_info(text);
    for told in [server.unfit(), server.unfit_node(), server.warning()].into_iter().flatten() {
        assert_is_a_line(told, 200);
    }
}
