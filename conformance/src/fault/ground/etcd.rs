//! One etcd member, or three.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Time};

use serde_json::{Value, json};

use crate::fault::ground::{Act, Ground, Means, Setting, cannot};
use crate::store::topology::EtcdCluster;
use crate::store::wire::{base64, http_post, unbase64};
use crate::store::{Kind, Launch, Store};
use crate::subject::{BoxError, Stored};

/// What can be done to etcd members. Leases outlive what they are for by as much as an engine likes, so the usual bound on lifetimes is
/// none of theirs; the row of changing leaders looks at them.
pub(crate) const MEANS: [Means; 7] =
    [Means::Road, Means::Processes, Means::Pause, Means::Crash, Means::ReadOnly, Means::Members, Means::NodeClocks];

/// How long an election may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a member that is to be filled has room for, and what it is filled with: a request has to stay below 1.5 MiB.
const ROOM: &str = "16777216";
const PIECE: usize = 1_000_000;
const MOST_PIECES: usize = 64;

#[derive(Debug)]
struct Etcd {
    members: Vec<Store>,
    /// Those that are killed or stopped, by their place.
    out: Mutex<Vec<usize>>,
}

/// Starts a member, or three.
pub(crate) fn prepare(setting: &Setting) -> Result<Box<dyn Ground>, BoxError> {
    let members = if setting.members {
        EtcdCluster::start()?.members
    } else {
        let mut launch = Launch::new(Kind::Etcd).own();
        if setting.small {
            launch = launch.option("quota-backend-bytes", ROOM);
        }
        for (name, value) in &setting.options {
            launch = launch.option(name, value);
        }
        vec![launch.start()?]
    };
    Ok(Box::new(Etcd { members, out: Mutex::default() }))
}

/// Asks a member, and gives the answer's status and text.
fn ask(member: &Store, path: &str, question: &Value) -> Result<(u16, Value), BoxError> {
    let (status, body) = http_post(member.addr(), path, &question.to_string())?;
    Ok((status, serde_json::from_str(&body)?))
}

fn told(member: &Store, path: &str, question: &Value) -> Result<Value, BoxError> {
    match ask(member, path, question)? {
        (200, answer) => Ok(answer),
        (status, answer) => Err(format!("etcd answers {path} with {status}: {answer}").into()),
    }
}

/// A number, which the gateway writes as text.
fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl Etcd {
    fn member(&self, index: usize) -> Result<&Store, BoxError> {
        Ok(self.members.get(index).ok_or("there is no such member")?)
    }

    /// Which member leads, asked of any that answers.
    fn leader(&self) -> Result<usize, BoxError> {
        let began = Time::now();
        while began.elapsed() < PATIENCE {
            for (index, member) in self.members.iter().enumerate() {
                let Ok(status) = told(member, "/v3/maintenance/status", &json!({})) else { continue };
                let own = text(&status, "/header/member_id");
                if own.is_some() && own == text(&status, "/leader") {
                    return Ok(index);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("nobody leads after {PATIENCE:?}").into())
    }

    /// The member that is so many places after the one that leads.
    fn after_leader(&self, places: usize) -> Result<usize, BoxError> {
        Ok((self.leader()? + places) % self.members.len())
    }

    fn out(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self, index: usize) -> Result<(), BoxError> {
        self.member(index)?.kill()?;
        self.out().push(index);
        Ok(())
    }

    /// Does this to all that are out, which are in again then.
    fn back(&self, mend: impl Fn(&Store) -> Result<(), crate::store::StoreError>) -> Result<(), BoxError> {
        let out = std::mem::take(&mut *self.out());
        out.into_iter().try_for_each(|index| Ok(mend(self.member(index)?)?))
    }

    fn pause_most(&self) -> Result<(), BoxError> {
        let leader = self.leader()?;
        for places in 0..=self.members.len() / 2 {
            let index = (leader + places) % self.members.len();
            self.member(index)?.pause()?;
            self.out().push(index);
        }
        Ok(())
    }

    fn move_leader(&self) -> Result<(), BoxError> {
        let (leader, next) = (self.leader()?, self.after_leader(1)?);
        let next = told(self.member(next)?, "/v3/maintenance/status", &json!({}))?;
        let next = text(&next, "/header/member_id").ok_or("a member without a number")?;
        let order = json!({ "targetID": next });
        told(self.member(leader)?, "/v3/maintenance/transfer-leadership", &order).map(drop)
    }

    /// Puts pieces until there is no room, which sets the alarm.
    fn fill(&self) -> Result<(), BoxError> {
        let (member, piece) = (self.member(0)?, base64(&vec![0; PIECE]));
        for nth in 0..MOST_PIECES {
            let question = json!({ "key": base64(format!("fill-{nth}").as_bytes()), "value": piece });
            if ask(member, "/v3/kv/put", &question)?.0 != 200 {
                return Ok(());
            }
        }
        Err("the database has no end".into())
    }

    /// What an operator does: make room, give it back to the file, and end the alarm.
    fn empty(&self) -> Result<(), BoxError> {
        let member = self.member(0)?;
        let range = json!({ "key": base64(b"fill-"), "range_end": base64(b"fill.") });
        let deleted = told(member, "/v3/kv/deleterange", &range)?;
        let revision = text(&deleted, "/header/revision").ok_or("an answer without a revision")?;
        told(member, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true }))?;
        told(member, "/v3/maintenance/defragment", &json!({}))?;
        let alarms = told(member, "/v3/maintenance/alarm", &json!({ "action": "GET" }))?;
        for alarm in list(&alarms, "/alarms") {
            let id = text(alarm, "/memberID").ok_or("an alarm without a member")?;
            let order = json!({ "action": "DEACTIVATE", "memberID": id, "alarm": "NOSPACE" });
            told(member, "/v3/maintenance/alarm", &order)?;
        }
        Ok(())
    }
}

impl Ground for Etcd {
    fn addr(&self) -> Option<SocketAddr> {
        match self.members.as_slice() {
            [one] => Some(one.addr()),
            _ => None,
        }
    }

    fn url(&self, at: Option<SocketAddr>) -> String {
        let all = || self.members.iter().map(|member| member.addr().to_string()).collect::<Vec<_>>().join(",");
        format!("etcd://{}", at.map_or_else(all, |at| at.to_string()))
    }

    fn act(&self, act: Act) -> Result<(), BoxError> {
        match (act, self.members.as_slice()) {
            (Act::Pause, [one]) => one.pause()?,
            (Act::Resume, [one]) => one.resume()?,
            (Act::Kill, [one]) => one.kill()?,
            (Act::Restart, [one]) => one.restart()?,
            (Act::RefuseWrites, [_]) => self.fill()?,
            (Act::TakeWrites, [_]) => self.empty()?,
            (Act::KillLeader, [_, _, ..]) => self.kill(self.leader()?)?,
            (Act::KillFollower, [_, _, ..]) => self.kill(self.after_leader(1)?)?,
            (Act::Restart, _) => self.back(Store::restart)?,
            (Act::PauseMost, [_, _, ..]) => self.pause_most()?,
            (Act::Resume, _) => self.back(Store::resume)?,
            (Act::MoveLeader, [_, _, ..]) => self.move_leader()?,
            _ => return Err(cannot("etcd", act)),
        }
        Ok(())
    }

    fn stored(&self, part: &str) -> Result<Vec<Stored>, BoxError> {
        let (member, all) = (self.member(0)?, base64(&[0]));
        let range = told(member, "/v3/kv/range", &json!({ "key": all, "range_end": all, "keys_only": true }))?;
        let (mut leases, mut stored) = (HashMap::new(), Vec::new());
        for found in list(&range, "/kvs") {
            let key = String::from_utf8_lossy(&unbase64(text(found, "/key").unwrap_or_default())).into_owned();
            if !key.contains(part) {
                continue;
            }
            let lifetime = match text(found, "/lease") {
                None => None,
                Some(lease) => Some(if let Some(left) = leases.get(lease) {
                    *left
                } else {
                    let answer = told(member, "/v3/lease/timetolive", &json!({ "ID": lease }))?;
                    let left: u64 = text(&answer, "/TTL").unwrap_or_default().parse().unwrap_or_default();
                    *leases.entry(lease).or_insert(Duration::from_secs(left))
                }),
            };
            stored.push(Stored { key, lifetime });
        }
        Ok(stored)
    }
}
