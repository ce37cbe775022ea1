//! A connection that is kept: how it is made and set up, and one call on it.

use std::fmt::Write as _;
use std::sync::Arc;

use limiter_core::Error;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

use crate::config::{Config, Source};
use crate::error::{Failure, of_call, of_connecting, refused};

/// A connection of our own, or one that a pool has lent for good.
pub(crate) enum Session {
    Own(Box<PgConnection>),
    Lent(Box<PoolConnection<Postgres>>),
}

impl Session {
    /// Connects, sets the session up, and makes sure that it is a primary's.
    pub(crate) async fn open(config: &Config) -> Result<Self, Error> {
        let mut session = match &config.source {
            Source::Server(options) => {
                let options = if config.pooler { options.as_ref().clone() } else { with_settings(options, config) };
                // A pooler takes no setting that it does not know.
                let options = if config.pooler { options.extra_float_digits(None) } else { options };
                let opened = options.disable_statement_logging().connect().await;
                Self::Own(Box::new(opened.map_err(|error| of_connecting(&error))?))
            }
            Source::Pool(pool) => {
                let mut lent = pool.acquire().await.map_err(|error| of_connecting(&error))?;
                lent.close_on_drop();
                Self::Lent(Box::new(lent))
            }
        };
        let mut words = String::new();
        if matches!(session, Self::Lent(_)) && !config.pooler {
            words.push_str("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; ");
            put_settings(&mut words, "SET", config);
        }
        words.push_str("SELECT pg_is_in_recovery()");
        let rows = session.all(&words).await.map_err(|error| of_connecting(&error))?;
        let standby: bool = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(true);
        if standby {
            return Err(refused("the server is a standby, which can't be written to"));
        }
        Ok(session)
    }

    /// Runs statements by the simple protocol, all in one transaction, and gives the rows.
    pub(crate) async fn all(&mut self, statements: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        self.connection().fetch_all(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))).await
    }

    /// Calls a function of one array of keys and one of numbers.
    ///
    /// The answer is read to its end, which is after the commit.
    pub(crate) async fn call(
        &mut self,
        config: &Config,
        sql: &Arc<str>,
        keys: &[String],
        argument: &[i64],
    ) -> Result<Vec<i64>, Failure> {
        if config.pooler {
            return self.in_one_message(config, &written_out(sql, keys, argument)).await;
        }
        let query = sqlx::query(AssertSqlSafe(Arc::clone(sql))).bind(keys).bind(argument);
        let row = self.connection().fetch_optional(query).await;
        numbers(row.map_err(|error| of_call(&error))?.as_ref())
    }

    /// Calls a function of two numbers.
    pub(crate) async fn call_with(
        &mut self,
        config: &Config,
        sql: &Arc<str>,
        [first, second]: [i64; 2],
    ) -> Result<Vec<i64>, Failure> {
        if config.pooler {
            let text = sql.replace("$1", &first.to_string()).replace("$2", &second.to_string());
            return self.in_one_message(config, &text).await;
        }
        let query = sqlx::query(AssertSqlSafe(Arc::clone(sql))).bind(first).bind(second);
        let row = self.connection().fetch_optional(query).await;
        numbers(row.map_err(|error| of_call(&error))?.as_ref())
    }

    /// One message of the simple protocol, hence one transaction, whatever session the pooler gives it to.
    async fn in_one_message(&mut self, config: &Config, text: &str) -> Result<Vec<i64>, Failure> {
        let mut words = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ".to_owned();
        put_settings(&mut words, "SET LOCAL", config);
        words.push_str(text);
        let rows = self.all(&words).await.map_err(|error| of_call(&error))?;
        numbers(rows.first())
    }

    pub(crate) async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.all("SELECT").await.map(drop)
    }

    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(connection) => connection,
        }
    }
}

/// With the settings in the message that opens the session, so that they cost no round trip.
fn with_settings(options: &PgConnectOptions, config: &Config) -> PgConnectOptions {
    options.clone().options([("default_transaction_isolation", "read committed")]).options(config.settings())
}

fn put_settings(words: &mut String, verb: &str, config: &Config) {
    for (name, value) in config.settings() {
        // Writing to a string does not fail.
        let _ = write!(words, "{verb} {name} = '{value}'; ");
    }
}

/// The call with its arguments written out. A key has no blank in it.
fn written_out(sql: &str, keys: &[String], argument: &[i64]) -> String {
    let keys = format!("string_to_array(convert_from(decode('{}', 'hex'), 'UTF8'), ' ')", hex(&keys.join(" ")));
    let mut numbers = String::with_capacity(8 * argument.len() + 16);
    numbers.push_str("'{");
    for (index, number) in argument.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(numbers, "{}{number}", if index > 0 { "," } else { "" });
    }
    numbers.push_str("}'::bigint[]");
    sql.replace("$1", &keys).replace("$2", &numbers)
}

/// Keys are printable, but a quote or a backslash may be in them: as hexadecimal digits they are nothing else than data.
fn hex(text: &str) -> String {
    text.bytes().fold(String::with_capacity(2 * text.len()), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn numbers(row: Option<&PgRow>) -> Result<Vec<i64>, Failure> {
    let numbers = row.and_then(|row| row.try_get(0).ok());
    numbers.ok_or_else(|| of_call(&sqlx::Error::RowNotFound))
}
