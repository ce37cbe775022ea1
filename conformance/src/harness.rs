//! The suite as tests of `cargo test`, one for each case.

use std::io::Write;

use limiter_core::Backend;

use crate::case::cases;
use crate::report::Verdict;
use crate::subject::{BoxError, Subject};
use crate::suite::{Options, run_case};
use crate::worker;

/// One named test for each case of the suite, in a module `conformance`.
///
/// The first argument is an expression that makes the [`Subject`]; it is evaluated in each test, so that tests run side by
/// side. The second is a function that makes a client of the store at a URL, for an engine whose
/// clients are to be processes of their own; see [`Subject::with_processes`].
///
/// A case that does not apply passes, and says so on the standard error output, past the harness's capture. The test
/// `enough` fails unless each case that applies to every engine is really run.
///
/// ```
/// use limiter_conformance::{Subject, conformance_suite};
/// use limiter_core::Memory;
///
/// conformance_suite!(Subject::new("memory", || async { Ok(Memory::new()) }));
/// ```
#[macro_export]
macro_rules! conformance_suite {
    ($subject:expr $(,)?) => {
        $crate::conformance_suite!($subject, $crate::harness::no_worker);
    };
    ($subject:expr, $connect:expr $(,)?) => {
        #[cfg(test)]
        mod conformance {
            #[allow(unused_imports)]
            use super::*;

            fn subject() -> $crate::Subject {
                $crate::harness::with_worker($subject, module_path!())
            }

            #[test]
            fn worker() -> Result<(), $crate::Failure> {
                $crate::worker::serve($connect).map(drop)
            }

            #[test]
            fn enough() {
                $crate::harness::enough(&subject());
            }

            $crate::__conformance_cases!(tests);
        }
    };
}

/// The names of all cases, by group. A test of this crate holds them against the suite's own list.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    (tests) => { $crate::__conformance_cases!(@list tests); };
    (names) => { $crate::__conformance_cases!(@list names) };
    (@tests $($group:ident [$($case:ident)*])*) => {
        $(mod $group {
            $(#[test]
            fn $case() {
                $crate::harness::check(&super::subject(), stringify!($group), stringify!($case));
            })*
        })*
    };
    (@names $($group:ident [$($case:ident)*])*) => {
        [$($(concat!(stringify!($group), "::", stringify!($case)),)*)*]
    };
    (@list $what:ident) => {
        $crate::__conformance_cases! { @$what
            vectors [fixed_window sliding_log sliding_counter token_bucket leaky_bucket layers]
            timelines [algorithm atomicity clock told at_once]
            layers [
                refused_charges_none each_level_exhausted_in_turn tenant_does_not_eat_the_users_budget
                all_algorithms_together many_layers own_clock scopes_in_one_step scopes_never_admit_too_much
            ]
            batches [empty equal_ones mixed_costs mixed_operations layers_in_a_batch big own_clock]
            operations [
                peek_takes_nothing cost_of_nothing denials_write_nothing impossible_cost_leaves_no_trace
                remaining_counts_down refund_gives_back_once refund_never_above_full refund_after_the_window
                refund_of_layers reset_forgets random_walk
            ]
            keys [awkward_bytes lengths prefixes concatenations letters rules_and_scopes spraying]
            clock [
                given_instants_go_back denied_until_exactly_then first_and_last_instants runs_with_real_time
                waits_are_real near_this_machines_clock clients_clock_decides clients_clock_steps_back
                clients_clocks_do_not_matter store_clock_steps
            ]
            lifetimes [
                kept_as_long_as_it_counts collected_or_not calls_do_not_prolong_windows given_instants_are_kept
                every_key_has_one denials_do_not_renew cancelled_calls_leave_one nothing_without_a_charge
            ]
            config [raised_and_lowered refused_calls_do_not_count every_change under_load]
            cancellation [at_every_await at_random_times of_one_of_many]
            failures [lost_reply_of_a_take lost_reply_of_a_refund outage]
            concurrency [
                one_instant one_instant_mixed_costs last_unit cold_start window_edge layers_in_opposite_orders
                history_fixed_window history_sliding_log history_sliding_counter history_token_bucket
                history_leaky_bucket history_layers history_refunds history_batches several_processes steady_demand_at_given_instants
                steady_demand
            ]
        }
    };
}

/// The environment variable with another seed than the usual one.
const SEED: &str = "LIMITER_CONFORMANCE_SEED";

fn options() -> Options {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    seed.map_or_else(Options::default, |seed| Options::default().seed(seed))
}

/// Writes past the harness's capture of the output.
fn say(text: &str) {
    // If there is nobody to read it, nobody misses it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs one case.
///
/// # Panics
/// If it fails, or there is no such case.
#[expect(clippy::panic, reason = "that is how a test fails")]
pub fn check(subject: &Subject, group: &str, name: &str) {
    let Some(case) = cases().into_iter().find(|case| case.group().name() == group && case.name() == name) else {
        panic!("there is no case {group}::{name}");
    };
    let options = options();
    match run_case(subject, &case, &options).verdict {
        Verdict::Passed => {}
        Verdict::NotApplicable { reason } => say(&format!("{}: {case:?} is not applicable: {reason}", subject.name())),
        Verdict::Failed { why } => panic!("{}, seed {}: {}:\n{why}", subject.name(), options.seed, case.about()),
    }
}

/// Makes sure that the engine can be reached at all, so that nothing passes by not running, and tells how much applies.
///
/// # Panics
/// If no client can be had.
#[expect(clippy::panic, reason = "that is how a test fails")]
pub fn enough(subject: &Subject) {
    let applicable = crate::suite::applicable(subject);
    match applicable {
        Ok((applicable, all)) => {
            let needed = cases().iter().filter(|case| case.needs().is_empty()).count();
            say(&format!("{}: {applicable} of {all} cases apply, {} do not", subject.name(), all - applicable));
            assert!(applicable >= needed, "{applicable} cases apply, and at least {needed} have to");
        }
        Err(failure) => panic!("{}: no client: {failure}", subject.name()),
    }
}

/// Tells the subject's worker processes which test they are for.
pub fn with_worker(subject: Subject, module: &str) -> Subject {
    let path = module.split_once("::").map_or(module, |(_, path)| path);
    subject.worker_args([format!("{path}::worker"), "--exact".to_owned(), "--nocapture".to_owned()])
}

/// The connection of a suite that has no workers.
///
/// # Errors
/// Always.
#[expect(clippy::unused_async, reason = "it stands where a connection is made")]
pub async fn no_worker(_url: String) -> Result<std::sync::Arc<dyn Backend>, BoxError> {
    Err(format!("{} is set, and this suite has no workers", worker::VARIABLE).into())
}

#[cfg(test)]
mod tests {
    use crate::case::{Case, cases};

    #[test]
    fn the_macro_names_every_case() {
        let named: Vec<String> = __conformance_cases!(names).iter().map(ToString::to_string).collect();
        let known: Vec<String> = cases().iter().map(Case::path).collect();
        assert_eq!(named, known);
    }
}
