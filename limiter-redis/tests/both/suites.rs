//! The whole suite: on a server that is reached through a proxy, on a cluster of three primaries and three replicas, and on the
//! primary that sentinels name.

use std::sync::LazyLock;

use limiter_conformance::rig::{Rig, redis_keys};
use limiter_conformance::store::topology::{RedisCluster, RedisSentinel};
use limiter_conformance::store::{Kind, Store, shared};
use limiter_conformance::{Ability, BoxError, Subject, conformance_suite};

use crate::{Config, Engine, NAME};

async fn connect(url: String) -> Result<Engine, BoxError> {
    Ok(Engine::connect(Config::from_url(&url)?).await?)
}

mod server {
    use super::*;

    fn through_a_proxy() -> Subject {
        let store = shared(Kind::Redis).unwrap();
        let rig = Rig::before([store.addr()]).unwrap();
        let url = rig.url(store.url());
        rig.equip(Subject::new(NAME, move || connect(url.clone())))
            .with_stored(move |part| async move { Ok(redis_keys([store.addr()], &part)?) })
            .with_processes(store.url())
    }

    conformance_suite!(through_a_proxy(), connect);
}

mod cluster {
    use super::*;

    static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start().unwrap());

    fn cluster() -> Subject {
        let primaries = || CLUSTER.nodes.iter().take(RedisCluster::PRIMARIES).map(Store::addr);
        let elsewhere = "the cases run on a cluster of their own: tests/both/cluster.rs";
        Subject::new(format!("{NAME}-cluster"), || connect(CLUSTER.url()))
            .with_stored(move |part| async move { Ok(redis_keys(primaries(), &part)?) })
            .with_processes(CLUSTER.url())
            .lacks(Ability::LostReplies, elsewhere)
            .lacks(Ability::Outages, elsewhere)
            .lacks(Ability::AllKeys, "keys of different scopes lie in different slots: taken in turn, and refunded")
    }

    conformance_suite!(cluster(), connect);
}

mod sentinel {
    use super::*;

    static SET: LazyLock<RedisSentinel> = LazyLock::new(|| RedisSentinel::start().unwrap());

    fn sentinel() -> Subject {
        let elsewhere = "the cases run on a set of their own: tests/both/sentinel.rs";
        Subject::new(format!("{NAME}-sentinel"), || connect(SET.url()))
            .with_stored(|part| async move { Ok(redis_keys([SET.pair.primary.addr()], &part)?) })
            .with_processes(SET.url())
            .lacks(Ability::LostReplies, elsewhere)
            .lacks(Ability::Outages, elsewhere)
    }

    conformance_suite!(sentinel(), connect);
}
