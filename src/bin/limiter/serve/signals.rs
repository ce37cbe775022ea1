//! The signals that a server heeds: read the policy again, and end.

use std::path::PathBuf;

use limiter::policy::PolicyLimiter;
use tokio::sync::watch;

use crate::check_policy;
use crate::exit::{Exit, Failure};
use crate::terminal::tell;

/// Heeds signals from now on, until the end is told.
#[cfg(unix)]
pub(super) fn listen(limiter: PolicyLimiter, policy: PathBuf, end: watch::Sender<bool>) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let heed = |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, format!("signals: {error}")));
    let mut reload = heed(SignalKind::hangup())?;
    let mut terminate = heed(SignalKind::terminate())?;
    let mut interrupt = heed(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = reload.recv() => read_again(&limiter, &policy),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        end.send_replace(true);
        // It stays, so that the end is told by a value and not by its absence.
        end.closed().await;
    });
    Ok(())
}

/// Where there are no such signals, control-C ends.
#[cfg(not(unix))]
pub(super) fn listen(_limiter: PolicyLimiter, _policy: PathBuf, end: watch::Sender<bool>) -> Result<(), Failure> {
    tokio::spawn(async move {
        let _unheard = tokio::signal::ctrl_c().await;
        end.send_replace(true);
        end.closed().await;
    });
    Ok(())
}

#[cfg(unix)]
fn read_again(limiter: &PolicyLimiter, policy: &std::path::Path) {
    match check_policy::read(policy) {
        Ok(read) => {
            let rules = read.rules().len();
            limiter.replace(read);
            tell(&format!("the policy was read again; rules: {rules}"));
        }
        Err(failure) => {
            failure.report();
            tell("the policy that was in force stays");
        }
    }
}
