//! Which rules a query meets, and under which limit and key.

use limiter::policy::Query;

use super::policy;

const POLICY: &str = r#"
default_plan = "starter"

[[rule]]
name = "endpoint"
key = "endpoint,user,tenant"
limit = "10/1s fixed-window"
when = { endpoint = "/api/*" }

[[rule]]
name = "user"
key = "tenant,user"
limit = "50/1s fixed-window"
missing = "skip"

[[rule]]
name = "daily"
key = "tenant"

[[rule]]
name = "global"
key = "global"
limit = "1000/1s fixed-window"
count = "requests"
unless = { plan = "pro", method = "GET" }

[plans.starter]
daily = "10000/1d fixed-window"
[plans.pro]
daily = "100000/1d fixed-window"
endpoint = "unlimited"

[tenants]
acme = "pro"
bigcorp = { plan = "pro", limits = { daily = "2000000/1d fixed-window" } }

[endpoints]
"/api/*" = 2
"POST /api/search" = 5
"/api/search" = 3
"#;

#[track_caller]
fn explained(query: &Query<'_>, expected: &[&str]) {
    let told = policy(POLICY).explain(query).to_string();
    assert_eq!(told.lines().collect::<Vec<_>>(), expected, "{query:?}");
}

#[test]
fn rules_are_asked_from_the_widest_to_the_narrowest() {
    let query = Query::new().tenant("t7").user("42").method("GET").endpoint("/api/orders?x=1");
    explained(
        &query,
        &[
            "plan      starter",
            "endpoint  /api/*",
            "cost      2",
            "rule      global    1000/1s fixed-window, cost 1, key rl:{%}:global",
            "rule      daily     10000/1d fixed-window, cost 2, key rl:{t=t7}:daily",
            "rule      user      50/1s fixed-window, cost 2, key rl:{t=t7}:user:u=42",
            "rule      endpoint  10/1s fixed-window, cost 2, key rl:{t=t7}:endpoint:u=42:e=/api/*",
        ],
    );
}

#[test]
fn a_plan_and_a_tenant_have_their_own() {
    let query = Query::new().tenant("acme").method("GET").endpoint("/api/search");
    explained(
        &query,
        &[
            "plan      pro",
            "endpoint  /api/search",
            "cost      3",
            "rule      global    - not when plan is pro and method is GET",
            "rule      daily     100000/1d fixed-window, cost 3, key rl:{t=acme}:daily",
            "rule      user      - no user",
            "rule      endpoint  - unlimited",
        ],
    );
    let daily = |query: &Query<'_>| {
        let told = policy(POLICY).explain(query).to_string();
        told.lines().find(|line| line.contains(" daily ")).unwrap().to_owned()
    };
    assert!(daily(&Query::new().tenant("bigcorp")).contains(" 2000000/1d fixed-window, cost 1, "));
    // A plan that the request names counts for those whom the policy does not list, if the policy knows it.
    assert!(daily(&Query::new().tenant("new").plan("pro")).contains(" 100000/1d "));
    assert!(daily(&Query::new().tenant("acme").plan("starter")).contains(" 100000/1d "));
    assert!(daily(&Query::new().tenant("new").plan("gold")).contains(" 10000/1d "));
    assert!(daily(&Query::new().tenant("new").plan(&b"\xff"[..])).contains(" 10000/1d "));
}

#[test]
fn the_closest_endpoint_says_the_cost() {
    let cost = |method: &str, endpoint: &str| {
        let told = policy(POLICY).explain(&Query::new().method(method).endpoint(endpoint)).to_string();
        told.lines().nth(2).unwrap().to_owned()
    };
    assert_eq!(cost("POST", "/api/search"), "cost      5");
    assert_eq!(cost("POST", "//api/%73earch?q"), "cost      5");
    assert_eq!(cost("GET", "/api/search"), "cost      3");
    assert_eq!(cost("POST", "/api/search/x"), "cost      2");
    assert_eq!(cost("GET", "/"), "cost      1");
    let told = policy(POLICY).explain(&Query::new().endpoint("/api/search").cost(11)).to_string();
    assert!(told.contains("cost      11\n") && told.contains("which the cost can NEVER pass"), "{told}");
}

#[test]
fn lists_come_before_rules() {
    let text = "[allow]\nip = [\"10.0.0.0/8\", \"2001:db8::/32\"]\nheader.x-probe = \"yes\"\n[deny]\nuser = \"mal*\"\n";
    let explained = |query: Query<'_>| policy(text).explain(&query).to_string().lines().nth(3).map(str::to_owned);
    assert_eq!(explained(Query::new().address([10, 1, 2, 3])).unwrap(), "EXEMPT    on the allow list by its ip");
    let mapped: std::net::IpAddr = "::ffff:10.1.2.3".parse().unwrap();
    assert_eq!(explained(Query::new().address(mapped)).unwrap(), "EXEMPT    on the allow list by its ip");
    assert_eq!(
        explained(Query::new().header("x-probe", "yes")).unwrap(),
        "EXEMPT    on the allow list by its header.x-probe"
    );
    assert_eq!(explained(Query::new().header("x-probe", "no")), None);
    assert_eq!(explained(Query::new().address([11, 0, 0, 1])), None);
    let both = Query::new().address([10, 0, 0, 1]).user("mallory");
    assert_eq!(explained(both).unwrap(), "REFUSED   on the deny list by its user");
}
