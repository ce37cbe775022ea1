//! A request as a policy sees it: of flags, or of JSON.

use std::collections::BTreeMap;
use std::net::IpAddr;

use limiter::policy::Query;
use serde::{Deserialize, Deserializer};

/// A request, as a policy sees it.
#[derive(Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "A request to explain")]
pub(crate) struct Asked {
    /// Whose quota it is
    #[arg(long)]
    tenant: Option<String>,
    /// Who sends it
    #[arg(long)]
    user: Option<String>,
    /// The plan of a tenant that the policy does not list
    #[arg(long)]
    plan: Option<String>,
    /// Where it goes: a path
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// The HTTP method
    #[arg(long)]
    method: Option<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// A header
    #[arg(id = "header", long = "header", value_name = "NAME=VALUE", value_parser = header)]
    #[serde(deserialize_with = "headers")]
    headers: Vec<(String, String)>,
    /// What it costs, over what the policy says
    #[arg(long, value_name = "N")]
    cost: Option<u64>,
}

impl Asked {
    pub(crate) fn is_none(&self) -> bool {
        let texts = [&self.tenant, &self.user, &self.plan, &self.endpoint, &self.method];
        texts.into_iter().all(Option::is_none) && self.ip.is_none() && self.headers.is_empty() && self.cost.is_none()
    }

    pub(crate) fn query(&self) -> Query<'_> {
        let mut query = Query::new();
        if let Some(tenant) = &self.tenant {
            query = query.tenant(tenant);
        }
        if let Some(user) = &self.user {
            query = query.user(user);
        }
        if let Some(plan) = &self.plan {
            query = query.plan(plan);
        }
        if let Some(endpoint) = &self.endpoint {
            query = query.endpoint(endpoint);
        }
        if let Some(method) = &self.method {
            query = query.method(method);
        }
        if let Some(ip) = self.ip {
            query = query.address(ip);
        }
        if let Some(cost) = self.cost {
            query = query.cost(cost);
        }
        for (name, value) in &self.headers {
            query = query.header(name.to_ascii_lowercase(), value);
        }
        query
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a header is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    BTreeMap::deserialize(deserializer).map(|headers| headers.into_iter().collect())
}
