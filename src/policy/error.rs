//! What is wrong with a policy: where, and in which words.

use std::fmt;

/// A place in a policy, whether it was written in a file or built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Top(&'static str),
    /// By its number, from 0, and its name.
    Rule(usize, String, &'static str),
    Plan(String, String),
    Tenant(String, String),
    Endpoint(String),
    List(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| text.chars().take(64).flat_map(char::escape_debug).collect::<String>();
        match self {
            Self::Top(field) => f.write_str(field),
            Self::Rule(number, name, field) => {
                if name.is_empty() {
                    write!(f, "rule {}", number + 1)?;
                } else {
                    write!(f, "rule `{}`", shown(name))?;
                }
                if field.is_empty() { Ok(()) } else { write!(f, ": {field}") }
            }
            Self::Plan(plan, rule) if rule.is_empty() => write!(f, "plan `{}`", shown(plan)),
            Self::Plan(plan, rule) => write!(f, "plan `{}`: {}", shown(plan), shown(rule)),
            Self::Tenant(tenant, field) if field.is_empty() => write!(f, "tenant `{}`", shown(tenant)),
            Self::Tenant(tenant, field) => write!(f, "tenant `{}`: {}", shown(tenant), shown(field)),
            Self::Endpoint(pattern) => write!(f, "endpoint `{}`", shown(pattern)),
            Self::List(name) => write!(f, "{name} list"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(super) position: Option<(usize, usize)>,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn at(place: &Place, message: impl fmt::Display) -> (Place, Self) {
        (place.clone(), Self { position: None, message: format!("{place}: {message}") })
    }

    /// Line and column in the file, both from 1, the column in characters. None for a policy that was built.
    #[must_use]
    pub const fn position(&self) -> Option<(usize, usize)> {
        self.position
    }

    /// Where and what: `rule `login`: limit: amount 0 is under its bound of 1`.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A policy that can't be used, with all that is wrong with it. Nothing of it took effect.
///
/// Its text is a line for each fault: `policy.toml:12:9: rule `login`: limit: amount 0 is under its bound of 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    pub(super) file: Option<String>,
    pub(super) faults: Vec<Fault>,
}

impl PolicyError {
    /// What is wrong, in the order of the file.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The same, told as of this file.
    #[must_use]
    pub fn in_file(mut self, name: &str) -> Self {
        self.file = Some(name.to_owned());
        self
    }
}

impl std::error::Error for PolicyError {}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match (&self.file, fault.position) {
                (Some(file), Some((line, column))) => write!(f, "{file}:{line}:{column}: ")?,
                (Some(file), None) => write!(f, "{file}: ")?,
                (None, Some((line, column))) => write!(f, "line {line}, column {column}: ")?,
                (None, None) => {}
            }
            f.write_str(&fault.message)?;
        }
        Ok(())
    }
}
