//! limiter on Redis beside bare commands and limitador, on one server in one run:
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench redis`, with `-- ROUNDS SECONDS` for other than 5 rounds of 1 s, and with
//! words after those for the loads only whose titles have one of them: `-- 3 1 "key, 128 tasks" layers`.
//!
//! Everything rides one connection. `once` asks the script for each check by itself; `grouped` is what `limiter::connect` gives,
//! two lanes with two calls in flight each; beside it, four lanes of one.
//!
//! Two peers are programs of others. They are measured if they are named, and `scripts/bench` fetches them: `THROTTLECRAB`, the path of
//! `throttlecrab-server`, a store of its own that speaks Redis's protocol; `PYTHON`, an interpreter that has the packages `limits` and
//! `redis`, which is asked from as many threads as there are tasks.

use std::collections::HashMap;
use std::env;
use std::net::TcpListener;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use limitador::counter::Counter;
use limitador::limit::Context;
use limitador::storage::AsyncCounterStorage;
use limitador::storage::redis::AsyncRedisStorage;
use limiter::layer::GroupCommit;
use limiter::{Backend, BackendExt, Check, Key, Limit, Op, Request};
use limiter_benches::{Bars, Rounds, Run, median_wait, rate, server};
use limiter_conformance::load::{Load, closed, cpu_time};
use limiter_conformance::store::{Kind, Launch, Road, Store};
use redis::aio::MultiplexedConnection;

type Asked = Pin<Box<dyn Future<Output = bool> + Send>>;
type Ask = Arc<dyn Fn(u64) -> Asked + Send + Sync>;

const MANY: usize = 100_000;
/// One GET and one SET: the least that a script which decides has to do.
const FLOOR: &str = "local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return v";

/// Where question `turn` goes: by a prime, so that neighbours are far apart.
fn place(turn: u64, places: usize) -> usize {
    (turn % (1 << 40)) as usize * 7_919 % places
}

/// Requests of that many keys. Of one key too each caller has a request of its own, as the callers of a service have, which do not share
/// what they ask: threads that count one reference up and down hold each other up.
fn requests(keys: usize) -> Vec<Request> {
    let limit: Limit = "1000000000/1s token-bucket".parse().expect("a limit");
    let names = (0..keys.max(4096)).map(|place| (place % keys).to_string());
    names.map(|name| Request::take(Key::new("t", "api", [name]), limit, 1).expect("a request")).collect()
}

/// A request under four limits of one tenant: all of it, its plan, a user, an endpoint.
fn layered() -> Vec<Request> {
    let limit: Limit = "1000000000/1s token-bucket".parse().expect("a limit");
    let layer = |rule: &str, part: String| Check::new(Key::new("t", rule, [part]), limit, 1);
    (0..1000)
        .map(|user| {
            let layers = [
                layer("all", String::new()),
                layer("plan", "pro".to_owned()),
                layer("user", user.to_string()),
                layer("endpoint", format!("{user}/search")),
            ];
            Request::new(Op::Take, layers).expect("a request")
        })
        .collect()
}

/// For the whole run, so that a question counts no references.
fn kept<T>(thing: T) -> &'static T {
    Box::leak(Box::new(thing))
}

fn limiter(backend: Arc<dyn Backend>, requests: Vec<Request>) -> Ask {
    let (backend, requests) = (kept(backend), kept(requests));
    Arc::new(move |turn| {
        Box::pin(async move {
            let request = requests[place(turn, requests.len())].clone();
            backend.ask(request).await.is_ok_and(|decisions| decisions.allowed)
        })
    })
}

fn peer(storage: Arc<AsyncRedisStorage>, keys: usize) -> Ask {
    let variables = ["user".try_into().expect("an expression")];
    let limit = Arc::new(limitador::limit::Limit::new("bench", 1_000_000_000, 60, [], variables));
    let counters: &Vec<Counter> = kept(
        (0..keys)
            .map(|key| {
                let context = Context::from(HashMap::from([("user".to_owned(), key.to_string())]));
                Counter::new(Arc::clone(&limit), &context).expect("a counter").expect("that applies")
            })
            .collect(),
    );
    let storage = kept(storage);
    Arc::new(move |turn| {
        Box::pin(async move {
            let mut own = vec![counters[place(turn, counters.len())].clone()];
            let verdict = storage.check_and_update(&mut own, 1).await;
            verdict.is_ok_and(|verdict| matches!(verdict, limitador::storage::Authorization::Ok))
        })
    })
}

fn bare(connection: &MultiplexedConnection, keys: usize, command: fn(&str) -> redis::Cmd) -> Ask {
    let connection = connection.clone();
    Arc::new(move |turn| {
        let mut connection = connection.clone();
        let command = command(&format!("floor:{}", place(turn, keys)));
        Box::pin(async move { command.query_async::<redis::Value>(&mut connection).await.is_ok() })
    })
}

fn floor(key: &str) -> redis::Cmd {
    static HASH: LazyLock<String> = LazyLock::new(|| redis::Script::new(FLOOR).get_hash().to_owned());
    let mut command = redis::cmd("EVALSHA");
    command.arg(&*HASH).arg(1).arg(key).arg("12345678901234567890123456789012");
    command
}

fn throttle(key: &str) -> redis::Cmd {
    let mut command = redis::cmd("THROTTLE");
    // Burst, count, period in seconds.
    command.arg(key).arg(1_000_000).arg(1_000_000).arg(1);
    command
}

/// `throttlecrab-server` on a port of its own. It ends with the bench.
struct Throttlecrab {
    server: Child,
    connection: MultiplexedConnection,
}

impl Throttlecrab {
    async fn start(program: &str) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a free port").port();
        let mut server = Command::new(program)
            .args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port.to_string()])
            // A cleanup stops all for a moment; by this it decides itself when one is due.
            .args(["--store", "adaptive", "--log-level", "error"])
            .stdout(Stdio::null())
            .spawn()
            .expect("throttlecrab-server");
        let client = redis::Client::open(("127.0.0.1", port)).expect("a client");
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        for _ in 0..100 {
            // Its protocol knows few commands: those of a client that tells its name are errors, and no reason to fail.
            if let Ok(connection) = client.get_multiplexed_async_connection_with_config(&config).await {
                return Self { server, connection };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The panic is what is told; a server that has ended by itself is no fault besides.
        let _ = server.kill().and_then(|()| server.wait());
        panic!("throttlecrab-server does not answer on port {port}");
    }

    async fn run(&self, tasks: u32, keys: usize, span: Duration) -> Run {
        let ask = bare(&self.connection, keys, throttle);
        let before = cpu_time(self.server.id()).expect("/proc");
        let load = closed(tasks, span, move |turn| ask(turn)).await;
        let used = cpu_time(self.server.id()).expect("/proc").saturating_sub(before);
        Run { server: Some(load.each(used)), load }
    }
}

impl Drop for Throttlecrab {
    fn drop(&mut self) {
        drop(self.server.kill().and_then(|()| self.server.wait()));
    }
}

/// Python's `limits` in a process of its own.
fn python(program: &str, store: &Store, tasks: u32, keys: usize, span: Duration) -> Run {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/limits_peer.py");
    let numbers = [u64::from(tasks), keys as u64, span.as_secs()].map(|number| number.to_string());
    let pid = store.pid().expect("a server of our own");
    let before = cpu_time(pid).expect("/proc");
    let output = Command::new(program).arg(script).arg(store.url()).args(numbers).output().expect("an interpreter");
    let used = cpu_time(pid).expect("/proc").saturating_sub(before);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut waits = text.lines().map(|line| Duration::from_nanos(line.parse().expect("a wait in ns")));
    let elapsed = waits.next().expect("how long it took");
    let load = Load::of(elapsed, waits);
    Run { server: Some(load.each(used)), load }
}

async fn run(store: &Store, tasks: u32, span: Duration, ask: &Ask) -> Run {
    let ask = Arc::clone(ask);
    let pid = store.pid().expect("a server of our own");
    let before = cpu_time(pid).expect("/proc");
    let load = closed(tasks, span, move |turn| ask(turn)).await;
    let used = cpu_time(pid).expect("/proc").saturating_sub(before);
    Run { server: Some(load.each(used)), load }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let numbers: Vec<u32> = env::args().filter_map(|argument| argument.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(5);
    let span = Duration::from_secs(numbers.get(1).copied().unwrap_or(1).into());

    let words: Vec<String> =
        env::args().skip(1).filter(|word| word.parse::<u32>().is_err() && word != "--bench").collect();
    let wanted = |title: &str| words.is_empty() || words.iter().any(|word| title.contains(&**word));

    let store = Launch::new(Kind::Redis).road(Road::Local).own().start().expect("a server");
    let engine = limiter::engine(store.url()).await.expect("an engine");
    let grouped: Arc<dyn Backend> = Arc::new(GroupCommit::new(Arc::clone(&engine)));
    let single: Arc<dyn Backend> = Arc::new(GroupCommit::builder().lanes(4).in_flight(1).wrap(Arc::clone(&engine)));
    let storage = Arc::new(AsyncRedisStorage::new(store.url()).await.expect("limitador's storage"));
    let client = redis::Client::open(store.url()).expect("a client");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
    redis::Script::new(FLOOR).prepare_invoke().load_async(&mut connection.clone()).await.expect("the floor's script");

    let throttlecrab = match env::var("THROTTLECRAB") {
        Ok(program) => Some(Throttlecrab::start(&program).await),
        Err(_) => None,
    };
    let interpreter = env::var("PYTHON").ok();
    for (name, there) in [("THROTTLECRAB", throttlecrab.is_some()), ("PYTHON", interpreter.is_some())] {
        if !there {
            println!("{name} is not set: not measured");
        }
    }

    let mut bars = Bars::default();
    for (keys, name) in [(1, "one hot key"), (MANY, "100 k keys")] {
        let once = limiter(Arc::clone(&engine), requests(keys));
        let together = limiter(Arc::clone(&grouped), requests(keys));
        let singly = limiter(Arc::clone(&single), requests(keys));
        let limitador = peer(Arc::clone(&storage), keys);
        let floor = bare(&connection, keys, floor);
        let incr = bare(&connection, keys, |key| redis::Cmd::incr(format!("{key}:n"), 1));
        for tasks in [1, 16, 128, 512, 1024] {
            let title = format!("{name}, {tasks} tasks");
            if !wanted(&title) {
                continue;
            }
            let mut table = Rounds::default();
            for _ in 0..rounds {
                table.add("bare INCR", run(&store, tasks, span, &incr).await);
                table.add("bare EVALSHA of GET, SET", run(&store, tasks, span, &floor).await);
                table.add("limitador", run(&store, tasks, span, &limitador).await);
                if let Some(throttlecrab) = &throttlecrab {
                    table.add("throttlecrab-server", throttlecrab.run(tasks, keys, span).await);
                }
                if let (Some(program), 1 | 16) = (&interpreter, tasks) {
                    table.add("python limits", python(program, &store, tasks, keys, span));
                }
                table.add("limiter, once per check", run(&store, tasks, span, &once).await);
                table.add("limiter, grouped", run(&store, tasks, span, &together).await);
                table.add("limiter, grouped, one call a lane", run(&store, tasks, span, &singly).await);
            }
            table.print(&format!("{title}, {rounds} rounds of {span:?}"));
            let (once, together) = ("limiter, once per check", "limiter, grouped");
            let at = |what: &str| format!("{title}: {what}");
            match (keys, tasks) {
                (_, 1) => {
                    let ratio = table.ratio(together, "bare EVALSHA of GET, SET", median_wait);
                    bars.at_most(at("p50, grouped ÷ bare EVALSHA of GET, SET"), ratio, 1.25);
                }
                (1, 128) => bars.at_least(at("checks/s, grouped ÷ once"), table.ratio(together, once, rate), 8.0),
                (1, 1024) => bars.at_least(at("checks/s, grouped ÷ once"), table.ratio(together, once, rate), 20.0),
                (_, 128 | 1024) => {
                    bars.at_least(at("checks/s, grouped ÷ once"), table.ratio(together, once, rate), 1.5);
                    bars.at_most(at("server CPU, grouped ÷ once"), table.ratio(together, once, server), 0.6);
                }
                _ => {}
            }
            if let (Some(_), 512, MANY) = (&throttlecrab, tasks, keys) {
                let ratio = table.ratio(together, "throttlecrab-server", rate);
                bars.at_least(at("checks/s, grouped ÷ throttlecrab-server"), ratio, 1.0);
            }
            if matches!(tasks, 128 | 1024) {
                bars.at_least(at("checks/s, grouped ÷ limitador"), table.ratio(together, "limitador", rate), 3.0);
            }
        }
    }

    if wanted("layers, 1 task") {
        let one = limiter(Arc::clone(&engine), requests(1000));
        let four = limiter(Arc::clone(&engine), layered());
        let mut table = Rounds::default();
        for _ in 0..rounds {
            table.add("one limit", run(&store, 1, span, &one).await);
            table.add("four limits of one request", run(&store, 1, span, &four).await);
        }
        table.print(&format!("layers, 1 task, {rounds} rounds of {span:?}"));
        let ratio = table.ratio("four limits of one request", "one limit", median_wait);
        bars.at_most("layers, 1 task: p50, four limits ÷ one", ratio, 1.5);
    }
    bars.print();
}
