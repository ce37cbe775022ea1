//! What a query would meet, in words: for people who write policies.

use std::fmt;

use super::model::Policy;
use super::query::Query;
use super::select::{Choice, Considered, Context};

/// What a policy makes of a query, rule by rule. It asks no store.
#[derive(Clone, Debug)]
pub struct Explanation(Vec<String>);

impl Policy {
    /// What `query` meets: the plan, the endpoint, the cost, and for each rule whether it applies, and under which limit and key.
    #[must_use]
    pub fn explain(&self, query: &Query<'_>) -> Explanation {
        let context = Context::new(self, query);
        let mut lines = vec![
            format!("plan      {}", context.plan.unwrap_or("none")),
            match context.endpoint {
                Some(endpoint) => format!("endpoint  {}", endpoint.text.escape_debug()),
                None if self.endpoints.is_empty() => "endpoint  as it is: the policy lists none".to_owned(),
                None => "endpoint  none of the policy's".to_owned(),
            },
            format!("cost      {}", context.cost),
        ];
        let choice = context.choose();
        match &choice {
            Choice::Listed(field) => lines.push(format!("REFUSED   on the deny list by its {field}")),
            Choice::Exempt(field) => lines.push(format!("EXEMPT    on the allow list by its {field}")),
            Choice::Missing { .. } | Choice::Rules(_) => {}
        }
        if matches!(choice, Choice::Missing { .. } | Choice::Rules(_)) {
            let width = self.rules.iter().map(|rule| rule.name.len()).max().unwrap_or_default();
            for rule in &self.rules {
                let said = match context.consider(rule) {
                    Considered::Applies { check, anonymous } => {
                        let mut said = format!("{}, cost {}, key {}", check.limit, check.cost, check.key);
                        if let Some(field) = anonymous {
                            said.push_str(" (no ");
                            said.push_str(&field);
                            said.push(')');
                        }
                        if check.cost > check.limit.capacity() {
                            said.push_str(", which the cost can NEVER pass");
                        }
                        if rule.shadow {
                            said.push_str(", shadow: refuses nothing");
                        }
                        said
                    }
                    Considered::Missing { field } => format!("REFUSES for want of {field}"),
                    Considered::SkippedFor { field } => format!("- no {field}"),
                    Considered::WhenNotMet => format!("- only when {}", rule.when),
                    Considered::UnlessMet => format!("- not when {}", rule.unless),
                    Considered::Unlimited => "- unlimited".to_owned(),
                    Considered::NoLimit => "- no limit for this plan".to_owned(),
                };
                lines.push(format!("rule      {:width$}  {said}", rule.name));
            }
        }
        Explanation(lines)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}
