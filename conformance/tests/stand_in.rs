//! A store over the network, with clients in processes of their own: the suite's machinery for cluster engines at work.

use limiter_conformance::{conformance_suite, stand_in};

conformance_suite!(stand_in::subject().unwrap(), stand_in::connect);
