//! What an access log is held against: limits, and the keys by which each counts.

use std::fmt;
use std::str::FromStr;

use limiter::Limit;

use super::check::{Check, Part};
use super::clf::Entry;

/// A field of an access log by which a limit can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Ip,
    User,
    Method,
    Path,
    Target,
    Status,
    Referer,
    UserAgent,
}

/// The names of the fields, as `--key` takes them.
const NAMES: [(&str, Field); 10] = [
    ("ip", Field::Ip),
    ("user", Field::User),
    ("method", Field::Method),
    ("path", Field::Path),
    ("target", Field::Target),
    ("status", Field::Status),
    ("referer", Field::Referer),
    ("user-agent", Field::UserAgent),
    ("header:referer", Field::Referer),
    ("header:user-agent", Field::UserAgent),
];

/// One `--key`: the fields that make up a key. None of them: one key for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFields(Vec<Field>);

impl FromStr for KeyFields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "global" {
            return Ok(Self(Vec::new()));
        }
        let mut fields = Vec::new();
        for name in text.split(',') {
            let name = name.trim();
            let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let (_, field) = found.ok_or_else(|| unknown(name))?;
            if fields.contains(field) {
                return Err(format!("`{name}` is in the key twice"));
            }
            fields.push(*field);
        }
        Ok(Self(fields))
    }
}

impl fmt::Display for KeyFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |field: &Field| NAMES.iter().find(|(_, known)| known == field).map_or("", |(name, _)| *name);
        if self.0.is_empty() {
            return f.write_str("global");
        }
        f.write_str(&self.0.iter().map(name).collect::<Vec<_>>().join(","))
    }
}

fn unknown(name: &str) -> String {
    match name.split_once(':') {
        _ if name == "global" => "`global` is the whole key: it can't be combined".to_owned(),
        Some(("header", header)) => format!("an access log has no header `{header}`: only referer and user-agent"),
        _ => format!(
            "unknown field `{name}`: ip, user, method, path, target, status, referer, user-agent and global are known"
        ),
    }
}

/// The limits that each line has to pass, all or nothing.
#[derive(Debug)]
pub(super) struct Rules {
    rules: Vec<(Limit, KeyFields)>,
    cost: u64,
}

impl Rules {
    /// Each limit with its key: one key is for all limits, and the nth of several for the nth limit.
    pub(super) fn new(limits: &[Limit], keys: &[KeyFields], cost: u64) -> Result<Self, String> {
        let key = |index: usize| if keys.len() == 1 { keys.first() } else { keys.get(index) };
        if limits.is_empty() {
            return Err("--format clf needs a --limit".to_owned());
        }
        if limits.len() > limiter::MAX_CHECKS {
            return Err(format!("there are {} --limit; the bound is {}", limits.len(), limiter::MAX_CHECKS));
        }
        if keys.len() != 1 && keys.len() != limits.len() {
            return Err(format!(
                "there are {} --key for {} --limit: give one for all, or one for each; `--key ip,path` is a combination",
                keys.len(),
                limits.len()
            ));
        }
        if let Some(limit) = limits.iter().find(|limit| limit.capacity() < cost) {
            return Err(format!(
                "--cost {cost} can never pass `{limit}`: it is over its bound of {}",
                limit.capacity()
            ));
        }
        let rules = limits.iter().enumerate().filter_map(|(index, limit)| Some((*limit, key(index)?.clone())));
        Ok(Self { rules: rules.collect(), cost })
    }

    /// What a line asks, or why it can't be read.
    pub(super) fn read(&self, line: &[u8]) -> Result<Check, String> {
        let entry = Entry::read(line)?;
        let mut check = Check::new(entry.at, self.cost);
        for (limit, KeyFields(fields)) in &self.rules {
            let parts: Result<Vec<Part>, String> = fields.iter().map(|field| part(*field, &entry)).collect();
            check.push(*limit, parts?);
        }
        Ok(check)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (limit, key)) in self.rules.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}{limit} by {key}")?;
        }
        Ok(())
    }
}

fn part(field: Field, entry: &Entry<'_>) -> Result<Part, String> {
    let common = |name: &str| format!("{name}: the line has none, as in the common log format");
    let bytes = match field {
        Field::Ip => entry.ip,
        Field::User => entry.user,
        Field::Method => entry.method(),
        Field::Path => entry.path(),
        Field::Target => entry.target(),
        Field::Status => entry.status,
        // Not `-` for all such lines: they would share one key that nobody asked for.
        Field::Referer => entry.referer.ok_or_else(|| common("referer"))?,
        Field::UserAgent => entry.user_agent.ok_or_else(|| common("user-agent"))?,
    };
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::{KeyFields, Rules};

    #[test]
    fn a_key_is_one_field_or_several() {
        let read = |text: &str| text.parse::<KeyFields>();
        assert_eq!(read("ip,path").unwrap().0.len(), 2);
        assert_eq!(read("header:User-Agent"), read("user-agent"));
        assert_eq!(read("global").unwrap().0.len(), 0);
        assert_eq!(read("ip,ip").unwrap_err(), "`ip` is in the key twice");
        assert_eq!(read("ip,global").unwrap_err(), "`global` is the whole key: it can't be combined");
        assert_eq!(
            read("header:accept").unwrap_err(),
            "an access log has no header `accept`: only referer and user-agent"
        );
        assert!(read("").unwrap_err().starts_with("unknown field ``: ip, user,"));
    }

    #[test]
    fn keys_go_with_limits() {
        let limit = "10/1m sliding-log".parse().unwrap();
        let key = "ip".parse::<KeyFields>().unwrap();
        let rules = |limits: usize, keys: usize, cost| Rules::new(&vec![limit; limits], &vec![key.clone(); keys], cost);
        assert!(rules(1, 1, 10).is_ok() && rules(3, 1, 1).is_ok() && rules(3, 3, 1).is_ok());
        assert!(rules(3, 2, 1).unwrap_err().starts_with("there are 2 --key for 3 --limit: "));
        assert!(rules(1, 2, 1).is_err() && rules(0, 1, 1).is_err() && rules(65, 1, 1).is_err());
        let reason = "--cost 11 can never pass `10/1m sliding-log`: it is over its bound of 10";
        assert_eq!(rules(1, 1, 11).unwrap_err(), reason);
    }

    #[test]
    fn a_common_log_has_no_user_agent() {
        let limits = ["1/1m fixed-window".parse().unwrap()];
        let line = br#"h - - [20/May/2015:21:05:00 +0000] "GET / HTTP/1.1" 200 5"#;
        let rules = |key: &str| Rules::new(&limits, &[key.parse().unwrap()], 1).unwrap();
        let reason = "user-agent: the line has none, as in the common log format";
        assert_eq!(rules("ip,user-agent").read(line).unwrap_err(), reason);
        assert_eq!(rules("ip,method,path,status").read(line).unwrap().name(0), "h GET / 200");
        assert_eq!(rules("global").read(line).unwrap().name(0), "(all)");
    }
}
