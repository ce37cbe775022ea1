//! A policy file: TOML, read with the place of everything in it.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, Place, PolicyError};
use super::model::{Policy, PolicyBuilder};

mod rule;
mod value;

impl Policy {
    /// Reads a policy file's text.
    ///
    /// ```
    /// use limiter::policy::Policy;
    ///
    /// let error = Policy::parse("[[rule]]\nname = \"login\"\nkey = \"ip\"\nlimit = \"0/1m sliding-log\"\n").unwrap_err();
    /// assert_eq!(
    ///     error.in_file("policy.toml").to_string(),
    ///     "policy.toml:4:9: rule `login`: limit: amount 0 is under its bound of 1",
    /// );
    /// ```
    ///
    /// # Errors
    /// [`PolicyError`] with every fault that was found, in the file's order. A text that is no TOML has one.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        // An editor's mark at the beginning of a file is no part of it.
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let body = text.get(start..).unwrap_or_default();
        let mut reader = Reader { text: body, places: BTreeMap::new(), faults: Vec::new() };
        match DeTable::parse(body) {
            Ok(table) => {
                let builder = reader.policy(table.get_ref());
                if reader.faults.is_empty() {
                    match builder.assemble() {
                        Ok(policy) => return Ok(policy),
                        Err(faults) => faults.into_iter().for_each(|(place, fault)| {
                            let at = reader.place(&place);
                            reader.faults.push((at, fault));
                        }),
                    }
                }
            }
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                reader.faults.push((at, Fault { position: None, message: error.message().to_owned() }));
            }
        }
        Err(reader.into_error())
    }
}

/// The text, where everything in it lies, and what was wrong so far.
struct Reader<'t> {
    text: &'t str,
    places: BTreeMap<Place, usize>,
    faults: Vec<(usize, Fault)>,
}

type Entry<'t, 'i> = (&'t str, Range<usize>, &'t Spanned<DeValue<'i>>);

/// The entries of a table in the order of the file.
fn entries<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Entry<'t, 'i>> {
    let mut entries: Vec<Entry<'_, '_>> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, place: &Place, message: impl std::fmt::Display) {
        self.faults.push((at, Fault::at(place, message).1));
    }

    /// Where a place is; of one that is not written, its owner's.
    fn place(&self, place: &Place) -> usize {
        let owner = match place {
            Place::Rule(index, name, _) => Place::Rule(*index, name.clone(), ""),
            Place::Plan(plan, _) => Place::Plan(plan.clone(), String::new()),
            Place::Tenant(tenant, _) => Place::Tenant(tenant.clone(), String::new()),
            Place::Top(_) | Place::Endpoint(_) | Place::List(_) => place.clone(),
        };
        self.places.get(place).or_else(|| self.places.get(&owner)).copied().unwrap_or_default()
    }

    fn policy(&mut self, table: &DeTable<'_>) -> PolicyBuilder {
        let mut builder = Policy::builder();
        for (key, span, value) in entries(table) {
            match key {
                "rule" => self.rules(&mut builder, value),
                "plans" => self.plans(&mut builder, value),
                "tenants" => self.tenants(&mut builder, value),
                "endpoints" => self.endpoints(&mut builder, value),
                "allow" => builder.allow = self.condition(&Place::List("allow"), value),
                "deny" => builder.deny = self.condition(&Place::List("deny"), value),
                "default_plan" => builder.default_plan = self.top(value, "default_plan", value::text),
                "ipv6_prefix" => builder.ipv6_prefix = self.top(value, "ipv6_prefix", value::small),
                "shadow" => builder.shadow = self.top(value, "shadow", value::truth).unwrap_or_default(),
                "on_failure" => builder.on_failure = self.top(value, "on_failure", value::failure_policy),
                "deadline" => builder.deadline = self.top(value, "deadline", value::duration),
                _ => {
                    let known = "rule, plans, tenants, endpoints, allow, deny, default_plan, ipv6_prefix, shadow, \
                                 on_failure and deadline are known";
                    let message = format!("unknown field: {known}");
                    self.faults
                        .push((span.start, Fault { position: None, message: format!("{}: {message}", shown(key)) }));
                }
            }
        }
        builder
    }

    fn top<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        field: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        self.read(value, Place::Top(field), read)
    }

    /// A value at its place; what is wrong with it is noted.
    fn read<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        place: Place,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let at = value.span().start;
        match read(value.get_ref()) {
            Ok(read) => {
                self.places.insert(place, at);
                Some(read)
            }
            Err(message) => {
                self.fault(at, &place, message);
                None
            }
        }
    }

    fn table<'v, 'i>(&mut self, value: &'v Spanned<DeValue<'i>>, place: &Place) -> Option<&'v DeTable<'i>> {
        if let DeValue::Table(table) = value.get_ref() {
            return Some(table);
        }
        self.fault(value.span().start, place, format!("{} where a table is wanted", value::kind(value.get_ref())));
        None
    }

    fn plans(&mut self, builder: &mut PolicyBuilder, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table(value, &Place::Top("plans")) else { return };
        for (plan, span, limits) in entries(table) {
            let place = Place::Plan(plan.to_owned(), String::new());
            self.places.insert(place.clone(), span.start);
            let Some(limits) = self.table(limits, &place) else { continue };
            let known = builder.plans.entry(plan.to_owned()).or_default();
            for (rule, span, limit) in entries(limits) {
                let place = Place::Plan(plan.to_owned(), rule.to_owned());
                if let Some(allowance) = self.read(limit, place.clone(), value::allowance) {
                    known.insert(rule.to_owned(), allowance);
                }
                // A rule that is not known is wrong where it is named.
                self.places.insert(place, span.start);
            }
        }
    }

    fn tenants(&mut self, builder: &mut PolicyBuilder, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table(value, &Place::Top("tenants")) else { return };
        for (tenant, span, fields) in entries(table) {
            let owner = Place::Tenant(tenant.to_owned(), String::new());
            self.places.insert(owner.clone(), span.start);
            let known = builder.tenants.entry(tenant.to_owned()).or_default();
            // `acme = "pro"` is the short form.
            if let DeValue::String(plan) = fields.get_ref() {
                known.0 = Some(plan.clone().into_owned());
                self.places.insert(Place::Tenant(tenant.to_owned(), "plan".to_owned()), fields.span().start);
                continue;
            }
            let Some(table) = self.table(fields, &owner) else { continue };
            for (field, span, value) in entries(table) {
                let place = Place::Tenant(tenant.to_owned(), field.to_owned());
                match field {
                    "plan" => known.0 = self.read(value, place, value::text),
                    "limits" => {
                        let Some(limits) = self.table(value, &place) else { continue };
                        for (rule, span, limit) in entries(limits) {
                            let place = Place::Tenant(tenant.to_owned(), rule.to_owned());
                            if let Some(allowance) = self.read(limit, place.clone(), value::allowance) {
                                known.1.insert(rule.to_owned(), allowance);
                            }
                            self.places.insert(place, span.start);
                        }
                    }
                    _ => self.fault(span.start, &place, "unknown field: plan and limits are known"),
                }
            }
        }
    }

    fn endpoints(&mut self, builder: &mut PolicyBuilder, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table(value, &Place::Top("endpoints")) else { return };
        for (pattern, span, cost) in entries(table) {
            let place = Place::Endpoint(pattern.to_owned());
            if let Some(cost) = self.read(cost, place.clone(), value::cost) {
                builder.endpoints.push((pattern.to_owned(), cost));
            }
            self.places.insert(place, span.start);
        }
    }

    fn into_error(mut self) -> PolicyError {
        self.faults.sort_by_key(|(at, _)| *at);
        let text = self.text;
        let faults = self.faults.into_iter().map(|(at, fault)| Fault { position: Some(position(text, at)), ..fault });
        PolicyError { file: None, faults: faults.collect() }
    }
}

/// Line and column of a byte, from 1. A column is a character, as editors count.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before.get(start..).unwrap_or_default().chars().count() + 1)
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}
