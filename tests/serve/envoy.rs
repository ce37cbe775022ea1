//! Envoy's rate limit service, asked by a client that is generated from Envoy's own definitions.

use std::sync::Arc;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf;
use limiter::Memory;
use limiter::http::RateLimitLayer;
use limiter::policy::{Policy, PolicyLimiter};
use prost::Message;
use tonic::transport::{Channel, Server as Tonic};

use super::Server;

const POLICY: &str = r#"
[[rule]]
name = "tenant"
key = "tenant"
limit = "5/1m sliding-log"
missing = "skip"
[[rule]]
name = "address"
key = "ip,header:generic_key"
limit = "2/1h fixed-window"
missing = "skip"
[[rule]]
name = "domain"
key = "header:envoy-domain"
limit = "1000/1d fixed-window"
[deny]
tenant = "mallory"
"#;

async fn client(addr: std::net::SocketAddr) -> RateLimitServiceClient<Channel> {
    RateLimitServiceClient::connect(format!("http://{addr}")).await.unwrap()
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

fn request(descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|entries| descriptor(entries)).collect();
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

fn header<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    let mut values = response.response_headers_to_add.iter().filter(|header| header.key == name);
    let value = values.next();
    assert!(values.next().is_none());
    value.map(|header| header.value.as_str())
}

#[tokio::test]
async fn a_generated_client_is_answered() {
    let server = Server::start("envoy", POLICY, &[]);
    let mut client = client(server.envoy).await;
    let mut ask =
        async |request: RateLimitRequest| client.should_rate_limit(request).await.map(tonic::Response::into_inner);
    let asked = request(&[&[("remote_address", "192.0.2.7"), ("generic_key", "slow")], &[("tenant", "acme")]]);
    for left in [1, 0] {
        let response = ask(asked.clone()).await.unwrap();
        assert_eq!((response.overall_code(), response.statuses.len()), (Code::Ok, 2));
        let status = &response.statuses[0];
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("address", 2, Unit::Hour));
        assert_eq!(header(&response, "x-ratelimit-remaining"), Some(left.to_string().as_str()));
    }
    let refused = ask(asked.clone()).await.unwrap();
    assert_eq!((refused.overall_code(), refused.statuses[1].code()), (Code::OverLimit, Code::OverLimit));
    let wait = refused.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!((0..=3_600).contains(&wait.seconds) && (wait.seconds, wait.nanos) > (0, 0));
    assert!(header(&refused, "retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(header(&refused, "ratelimit").unwrap().starts_with("\"address\";r=0;t="));
    // The refused request was charged nowhere: 2 of 5 are gone.
    let mut three = request(&[&[("tenant", "acme")]]);
    three.hits_addend = 3;
    assert_eq!(ask(three.clone()).await.unwrap().overall_code(), Code::Ok);
    assert_eq!(ask(request(&[&[("tenant", "acme")]])).await.unwrap().overall_code(), Code::OverLimit);
    // A descriptor's own addend counts for more than the request's.
    let mut own = request(&[&[("tenant", "zeta")]]);
    own.hits_addend = 1;
    own.descriptors[0].hits_addend = Some(protobuf::UInt64Value { value: 5 });
    let response = ask(own).await.unwrap();
    assert_eq!((response.overall_code(), response.statuses[0].limit_remaining), (Code::Ok, 0));
    // What can never pass, and who is on a list, is over the limit.
    three.hits_addend = u32::MAX;
    assert_eq!(ask(three).await.unwrap().overall_code(), Code::OverLimit);
    assert_eq!(ask(request(&[&[("tenant", "mallory")]])).await.unwrap().overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn what_envoy_may_send_is_no_failure_of_ours() {
    let server = Server::start("envoy-odd", POLICY, &[]);
    let mut client = client(server.envoy).await;
    let mut ask =
        async |request: RateLimitRequest| client.should_rate_limit(request).await.map(tonic::Response::into_inner);
    let long = "x".repeat(60_000);
    for entries in [
        &[("remote_address", "junk"), ("generic_key", "")][..],
        &[("masked_remote_address", "2001:db8::/48"), ("generic_key", "}{")],
        &[("remote_address", "192.0.2.1:80"), ("generic_key", "\r\n\0")],
        &[("tenant", "a"), ("tenant", "b"), ("", "")],
        &[("generic_key", &long)],
        &[],
    ] {
        assert_eq!(ask(request(&[entries])).await.unwrap().overall_code(), Code::Ok, "{:?}", entries.first());
    }
    assert_eq!(ask(request(&[])).await.unwrap().overall_code(), Code::Ok);
    let mut negative = request(&[&[("tenant", "a")]]);
    negative.descriptors[0].is_negative_hits = true;
    assert_eq!(ask(negative).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let many = vec![&[("tenant", "a")][..]; 65];
    assert_eq!(ask(request(&many)).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    // The same key twice with one value is told once; with two it names nobody.
    let twice = request(&[&[("remote_address", "192.0.2.9"), ("generic_key", "k")], &[("generic_key", "k")]]);
    assert_eq!(ask(twice.clone()).await.unwrap().statuses[0].limit_remaining, 1);
    assert_eq!(ask(twice).await.unwrap().statuses[0].limit_remaining, 0);
    let other = request(&[&[("remote_address", "192.0.2.9"), ("generic_key", "k")], &[("generic_key", "l")]]);
    assert_eq!(ask(other).await.unwrap().statuses[0].current_limit.as_ref().unwrap().name, "domain");
}

/// The tower layer in front of tonic's server: the client sees a gRPC status with the time to wait.
#[tokio::test]
async fn the_layer_refuses_a_grpc_call_as_grpc_does() {
    let limiter = |text: &str| PolicyLimiter::new(Arc::new(Memory::new()), Policy::parse(text).unwrap());
    let layer = RateLimitLayer::new(limiter(
        "[[rule]]\nname = \"calls\"\nkey = \"ip\"\nlimit = \"2/1h sliding-log\"\nmissing = \"refuse\"\n",
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = limiter::envoy::Envoy::new(limiter(POLICY)).service();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Tonic::builder().layer(layer).add_service(service).serve_with_incoming(incoming));
    let mut client = client(addr).await;
    for left in ["1", "0"] {
        let response = client.should_rate_limit(request(&[])).await.unwrap();
        assert_eq!(response.metadata().get("x-ratelimit-remaining").unwrap(), left);
    }
    let refused = client.should_rate_limit(request(&[])).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::ResourceExhausted, "rate limited"));
    let status = envoy_types::pb::google::rpc::Status::decode(refused.details()).unwrap();
    assert_eq!((status.code, status.details.len()), (8, 1));
    assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    // RetryInfo has one field, the delay: number 1, a message.
    let value = &status.details[0].value;
    assert_eq!((value[0], usize::from(value[1])), (0x0a, value.len() - 2));
    let delay = protobuf::Duration::decode(&value[2..]).unwrap();
    assert!((3_590..=3_600).contains(&delay.seconds), "{delay:?}");
}
