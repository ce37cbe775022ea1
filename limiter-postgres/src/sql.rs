//! The SQL that the crate installs: two tables, and the functions that decide inside the server.
//!
//! ```text
//!  one.sql    equal takes of one check of one key: in variables                                ┐
//!  take.sql   takes of one check each, of keys that differ: set-based, all keys at once        │ mirrors of the
//!  step.sql   any batch: loaded at once, step after step in variables, written at once         │ core's machines
//!  log.sql    the sliding log's parts, which step.sql calls                                    ┘
//!  sweep.sql  removes expired rows, some pages at a time
//!  schema.sql the tables
//! ```
//!
//! A function's name ends in a digest of all their text, so that crates of different versions share a database during a rolling
//! upgrade, each with its own functions on the same tables.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use limiter_core::{Error, ErrorKind};
use sha2::{Digest, Sha256};

use crate::ENGINE;

const SCHEMA: &str = include_str!("sql/schema.sql");
const FUNCTIONS: [&str; 5] = [
    include_str!("sql/log.sql"),
    include_str!("sql/take.sql"),
    include_str!("sql/one.sql"),
    include_str!("sql/step.sql"),
    include_str!("sql/sweep.sql"),
];
/// The longest name of a schema or table; a name of Postgres has 63 bytes, and a function's has a table's and 16 more.
const LONGEST: usize = 40;

/// All names of one table, and what is said with them.
#[derive(Debug)]
pub(crate) struct Sql {
    /// `SELECT one($1, $2)`, and likewise.
    pub(crate) one: Arc<str>,
    pub(crate) take: Arc<str>,
    pub(crate) step: Arc<str>,
    pub(crate) sweep: Arc<str>,
    /// Whether all that is needed is installed: one row, one truth value.
    pub(crate) installed: Arc<str>,
    /// Installs it.
    pub(crate) schema: Arc<str>,
}

impl Sql {
    /// # Errors
    /// Of kind [`ErrorKind::Refused`] if a name is not plain.
    pub(crate) fn new(schema: &str, table: &str, unlogged: bool) -> Result<Self, Error> {
        Self::of(&FUNCTIONS.concat(), schema, table, unlogged)
    }

    /// The same with other functions' texts, which get other names.
    pub(crate) fn of(functions: &str, schema: &str, table: &str, unlogged: bool) -> Result<Self, Error> {
        for name in [schema, table] {
            if !is_plain(name) {
                return Err(Error::new(
                    ENGINE,
                    ErrorKind::Refused,
                    "a schema's or table's name is not of a-z, 0-9 and _, 1 to 40 of them, the first no digit",
                ));
            }
        }
        let digest = digest(functions);
        let function = |name: &str| format!("\"{schema}\".\"{table}_{name}_{digest}\"");
        let named = |text: &str| {
            let mut text = text.to_owned();
            for name in ["one", "take", "step", "sweep", "sunk", "opens", "put", "refund", "save"] {
                text = text.replace(&format!("{{{name}}}"), &function(name));
            }
            text.replace("{table}", &format!("\"{schema}\".\"{table}\""))
                .replace("{log}", &format!("\"{schema}\".\"{table}_log\""))
                .replace("{schema}", &format!("\"{schema}\""))
        };
        let schema_text = SCHEMA
            .replace("{functions}", functions)
            .replace("{unlogged}", if unlogged { "UNLOGGED " } else { "" })
            .replace("{lock}", &lock(schema, table).to_string());
        let installed = format!(
            "SELECT to_regprocedure('{}(text[],bigint[])') IS NOT NULL \
             AND to_regprocedure('{}(text[],bigint[])') IS NOT NULL \
             AND to_regprocedure('{}(text[],bigint[])') IS NOT NULL AND to_regclass('{}') IS NOT NULL",
            function("one"),
            function("take"),
            function("step"),
            named("{log}")
        );
        Ok(Self {
            one: named("SELECT {one}($1, $2)").into(),
            take: named("SELECT {take}($1, $2)").into(),
            step: named("SELECT {step}($1, $2)").into(),
            sweep: named("SELECT {sweep}($1, $2)").into(),
            installed: installed.into(),
            schema: named(&schema_text).into(),
        })
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=LONGEST).contains(&name.len())
        && name.bytes().all(plain)
        && !name.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
}

/// Eight hexadecimal digits of the text.
fn digest(text: &str) -> String {
    static OWN: LazyLock<String> = LazyLock::new(|| hex(&FUNCTIONS.concat()));
    if text == FUNCTIONS.concat() { OWN.clone() } else { hex(text) }
}

fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(4).fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The advisory lock under which the table is made, so that of many nodes that start at once one does it.
fn lock(schema: &str, table: &str) -> i64 {
    let digest = Sha256::digest(format!("limiter {schema}.{table}").as_bytes());
    digest.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_follow_the_text() {
        let sql = Sql::new("app", "limits", true).unwrap();
        for text in [&sql.one, &sql.take, &sql.step, &sql.sweep, &sql.installed, &sql.schema] {
            let open = text.match_indices('{').filter(|(at, _)| text.get(at + 1..at + 2).is_none_or(|c| c != "}"));
            assert_eq!(open.count(), 0, "{text}");
        }
        assert!(sql.schema.contains("CREATE UNLOGGED TABLE IF NOT EXISTS \"app\".\"limits\" ("));
        let other = Sql::of(&(FUNCTIONS.concat() + "--"), "app", "limits", true).unwrap();
        assert_ne!(sql.take, other.take, "another text has another name");
    }

    #[test]
    fn names_that_would_need_quoting_are_refused() {
        let long = "a".repeat(41);
        for name in ["", "a b", "a\"b", "A", "1a", "ä", "a;drop", "$limiter$", &long] {
            assert!(Sql::new(name, "limits", false).is_err(), "{name}");
            assert!(Sql::new("app", name, false).is_err(), "{name}");
        }
        assert!(Sql::new(&"a".repeat(40), "_limits_2", false).is_ok());
    }
}
