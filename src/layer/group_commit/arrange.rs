//! Which order the requests of a call go in: equal ones side by side, so that an engine can fold them.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use limiter_core::Request;

/// Puts equal requests next to one another. It keeps its tables from one call to the next.
///
/// **Two requests that differ and share a key keep their order**, so each key sees what it would have seen: a request joins
/// the earlier ones that equal it only if nothing else has touched any of its keys since. All others do not see one another, and
/// their order is free.
#[derive(Debug, Default)]
pub(super) struct Arranger {
    hasher: RandomState,
    /// By a key's hash, the group that was last to touch it. Keys of one hash count as one key, which costs a join at most.
    touched: HashMap<u64, usize, RandomState>,
    /// The request's group, for each request. Groups are numbered as they begin.
    groups: Vec<usize>,
}

impl Arranger {
    /// The order in which to send `requests`, as their places. None: as they are.
    pub(super) fn arrange(&mut self, requests: &[&Request]) -> Option<Vec<usize>> {
        self.touched.clear();
        self.groups.clear();
        // The first request of each group.
        let mut firsts: Vec<&Request> = Vec::with_capacity(requests.len());
        let mut moved = false;
        let mut before = None;
        for &request in requests {
            // What a busy key's calls are made of: the one before it was the last to touch its keys.
            if before.replace(request) == Some(request) {
                self.groups.extend(self.groups.last().copied());
                continue;
            }
            let group = self.joins(request, &firsts).unwrap_or(firsts.len());
            if group == firsts.len() {
                firsts.push(request);
            }
            for check in request.checks() {
                self.touched.insert(self.hasher.hash_one(check.key.as_str()), group);
            }
            moved |= self.groups.last().is_some_and(|&last| last > group);
            self.groups.push(group);
        }
        moved.then(|| {
            let mut order: Vec<(usize, usize)> = self.groups.iter().copied().zip(0..).collect();
            order.sort_unstable();
            order.into_iter().map(|(_, place)| place).collect()
        })
    }

    /// The group that `request` may join: it equals that group's, which was the last to touch each of its keys.
    fn joins(&self, request: &Request, firsts: &[&Request]) -> Option<usize> {
        let mut last = request.checks().iter().map(|check| self.touched.get(&self.hasher.hash_one(check.key.as_str())));
        let &group = last.next()??;
        (last.all(|other| other == Some(&group)) && firsts.get(group) == Some(&request)).then_some(group)
    }
}
