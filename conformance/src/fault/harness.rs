//! The rows as tests of `cargo test`, one for each.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use crate::fault::{Site, Terms, Verdict, rows, run_row};

/// One named test for each row, in a module `faults`.
///
/// The first argument is an expression that makes the [`Site`]; the second a function that makes a client of the store at
/// a URL, for the rows whose clients are processes of their own. A row that does not apply passes, and says so with its reason on the
/// standard error output, past the harness's capture; each row that ran prints its line of figures there.
///
/// ```
/// use limiter_conformance::fault::Site;
/// use limiter_conformance::fault_rows;
///
/// fault_rows!(Site::memory());
/// ```
#[macro_export]
macro_rules! fault_rows {
    ($site:expr $(,)?) => {
        $crate::fault_rows!($site, $crate::harness::no_worker);
    };
    ($site:expr, $connect:expr $(,)?) => {
        #[cfg(test)]
        mod faults {
            #[allow(unused_imports)]
            use super::*;

            fn site_under_test() -> $crate::fault::Site {
                $crate::fault::harness::with_worker($site, module_path!())
            }

            #[test]
            fn worker() -> Result<(), $crate::Failure> {
                $crate::worker::serve($connect).map(drop)
            }

            $crate::__fault_rows!(tests);
        }
    };
}

/// The names of all rows. A test of this crate holds them against the list of rows.
#[doc(hidden)]
#[macro_export]
macro_rules! __fault_rows {
    (tests) => { $crate::__fault_rows!(@list tests); };
    (names) => { $crate::__fault_rows!(@list names) };
    (@tests $($row:ident)*) => {
        $(#[test]
        fn $row() {
            $crate::fault::harness::check(&site_under_test(), stringify!($row));
        })*
    };
    (@names $($row:ident)*) => { [$(stringify!($row)),*] };
    (@list $what:ident) => {
        $crate::__fault_rows! { @$what
            f01 f02 f03 f04 f05 f06 f07 f08 f09 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 f25 f26 f27 f28
            f29 f30
        }
    };
}

/// The environment variable with another seed than the usual one.
const SEED: &str = "LIMITER_CONFORMANCE_SEED";

/// One row at a time: each has clients enough for a whole machine.
static TURN: Mutex<()> = Mutex::new(());

/// Runs one row.
///
/// # Panics
/// If a figure is beyond its bound, or there is no such row.
#[expect(clippy::panic, reason = "that is how a test fails")]
pub fn check(site: &Site, id: &str) {
    let Some(row) = rows().into_iter().find(|row| row.id().eq_ignore_ascii_case(id)) else {
        panic!("there is no row {id}");
    };
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let terms = seed.map_or_else(Terms::default, |seed| Terms { seed, ..Terms::default() });
    let report = {
        // Poisoned by a row that failed: the lock guards no data.
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        run_row(site, &row, terms)
    };
    // If there is nobody to read it, nobody misses it.
    let _ = writeln!(std::io::stderr(), "{report}");
    if let Verdict::Broken { why } = &report.verdict {
        panic!("{}, seed {}: {}: {why}", report.site, terms.seed, report.about);
    }
}

/// Tells the site's worker processes which test they are for.
pub fn with_worker(site: Site, module: &str) -> Site {
    let path = module.split_once("::").map_or(module, |(_, path)| path);
    site.worker_args([format!("{path}::worker"), "--exact".to_owned(), "--nocapture".to_owned()])
}

#[cfg(test)]
mod tests {
    use crate::fault::rows;

    #[test]
    fn the_macro_names_every_row() {
        let named: Vec<String> = __fault_rows!(names).iter().map(|name| name.to_uppercase()).collect();
        let known: Vec<&str> = rows().iter().map(super::super::Row::id).collect();
        assert_eq!(named, known);
    }
}
