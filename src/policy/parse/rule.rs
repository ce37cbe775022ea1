//! The rules of a policy file, and the conditions in them.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Reader, entries, shown, value};
use crate::policy::condition::Condition;
use crate::policy::error::Place;
use crate::policy::model::PolicyBuilder;
use crate::policy::recipe::Recipe;
use crate::policy::rule::{Count, Missing, Rule};

impl Reader<'_> {
    pub(super) fn rules(&mut self, builder: &mut PolicyBuilder, value: &Spanned<DeValue<'_>>) {
        let place = Place::Top("rule");
        self.places.insert(place.clone(), value.span().start);
        let DeValue::Array(rules) = value.get_ref() else {
            let message = format!("{} where `[[rule]]` is wanted", value::kind(value.get_ref()));
            return self.fault(value.span().start, &place, message);
        };
        for (index, rule) in rules.iter().enumerate() {
            let Some(table) = self.table(rule, &Place::Rule(index, String::new(), "")) else { continue };
            if let Some(read) = self.rule(index, rule.span().start, table) {
                builder.rules.push(read);
            }
        }
    }

    fn rule(&mut self, index: usize, at: usize, table: &DeTable<'_>) -> Option<Rule> {
        let name = match table.get("name").map(Spanned::get_ref) {
            Some(DeValue::String(name)) => name.as_ref(),
            _ => "",
        };
        let place = |field| Place::Rule(index, name.to_owned(), field);
        self.places.insert(place(""), at);
        let mut key = None;
        let mut rule = Rule::new(name, Recipe::default());
        for (field, span, value) in entries(table) {
            match field {
                "name" => drop(self.read(value, place("name"), value::text)),
                "key" => key = Some(self.read(value, place("key"), recipe)),
                "limit" => rule.limit = self.read(value, place("limit"), value::limit),
                "when" => rule.when = self.condition(&place("when"), value),
                "unless" => rule.unless = self.condition(&place("unless"), value),
                "missing" => {
                    let read = |value: &DeValue<'_>| value::one_of(value, &Missing::ALL);
                    rule.missing = self.read(value, place("missing"), read).unwrap_or_default();
                }
                "count" => {
                    let read = |value: &DeValue<'_>| value::one_of(value, &Count::ALL);
                    rule.count = self.read(value, place("count"), read).unwrap_or_default();
                }
                "shadow" => rule.shadow = self.read(value, place("shadow"), value::truth).unwrap_or_default(),
                "on_failure" => rule.on_failure = self.read(value, place("on_failure"), value::failure_policy),
                "deadline" => rule.deadline = self.read(value, place("deadline"), value::duration),
                _ => {
                    let known =
                        "name, key, limit, when, unless, missing, count, shadow, on_failure and deadline are known";
                    self.fault(span.start, &place(""), format!("unknown field `{}`: {known}", shown(field)));
                }
            }
        }
        if !table.contains_key("name") {
            self.fault(at, &place("name"), "it is missing");
        }
        // Not a global key by an oversight.
        let Some(key) = key else {
            self.fault(at, &place("key"), "it is missing; `global` is one key for all");
            return None;
        };
        rule.key = key?;
        Some(rule)
    }

    /// A table of fields, each with a text or a list of them; headers may be a table of their own.
    pub(super) fn condition(&mut self, place: &Place, value: &Spanned<DeValue<'_>>) -> Condition {
        let mut condition = Condition::new();
        self.places.insert(place.clone(), value.span().start);
        let Some(table) = self.table(value, place) else { return condition };
        for (field, _, value) in entries(table) {
            if let ("header", DeValue::Table(headers)) = (field, value.get_ref()) {
                for (name, _, value) in entries(headers) {
                    self.wanted(&mut condition, place, &format!("header.{name}"), value);
                }
            } else {
                self.wanted(&mut condition, place, field, value);
            }
        }
        condition
    }

    fn wanted(&mut self, condition: &mut Condition, place: &Place, field: &str, value: &Spanned<DeValue<'_>>) {
        let at = value.span().start;
        let pushed = value::texts(value.get_ref()).and_then(|values| condition.push(field, values));
        if let Err(message) = pushed {
            self.fault(at, place, message);
        }
    }
}

fn recipe(value: &DeValue<'_>) -> Result<Recipe, String> {
    match value::texts(value)?.as_slice() {
        [one] => one.parse().map_err(|error: crate::policy::RecipeError| error.to_string()),
        [] => Err("it is empty; `global` is one key for all".to_owned()),
        several => Recipe::of(several.iter().copied()),
    }
}
