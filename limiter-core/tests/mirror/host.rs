//! A Redis of a few commands, in this process: the script runs in the Lua that Redis embeds, on a table of strings.
//!
//! It is stricter than the real one: a read after a write, a key that would stay for ever or a number that is not printed as a
//! whole one stops the test.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use limiter_core::script::{Answer, Exchange, TEXT};
use limiter_core::{Batch, Limit, Outcome};
use mlua::{Function, Lua, LuaString, Value, Variadic};

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) values: HashMap<Vec<u8>, Vec<u8>>,
    /// Milliseconds that each key was last given.
    pub(crate) lives: HashMap<Vec<u8>, u64>,
    /// What `TIME` says, in µs.
    pub(crate) now: u64,
    /// Of the last call.
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    pub(crate) moved: usize,
}

pub(crate) struct Host {
    lua: Lua,
    text: String,
    script: Function,
    pub(crate) store: Rc<RefCell<Store>>,
    nonce: u64,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::of(TEXT)
    }

    /// A host that runs another script in its place.
    pub(crate) fn of(text: &str) -> Self {
        let (lua, store) = (Lua::new(), Rc::new(RefCell::new(Store::default())));
        let globals = lua.globals();
        let table = lua.create_table().unwrap();
        table.set("pack", lua.create_function(pack).unwrap()).unwrap();
        table.set("unpack", lua.create_function(unpack).unwrap()).unwrap();
        globals.set("struct", table).unwrap();
        let redis = lua.create_table().unwrap();
        let shared = Rc::clone(&store);
        let call = move |lua: &Lua, words: Variadic<LuaString>| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            call(lua, &mut shared.borrow_mut(), &words).map_err(mlua::Error::runtime)
        };
        redis.set("call", lua.create_function(call).unwrap()).unwrap();
        globals.set("redis", redis).unwrap();
        let script = lua.load(text).set_name("script").into_function().unwrap();
        Self { lua, text: text.to_owned(), script, store, nonce: 0 }
    }

    /// One machine's `fits` for a single check of one unit, from numbers.
    pub(crate) fn machine(&self, shape: u8) -> impl Fn((u64, u64, u64), &Limit, u64) -> u64 {
        let (begin, end) = (format!("machines[{shape}] = function()\n"), format!("end\nmachines[{}]", shape + 1));
        let text = self.text.split(&begin).nth(1).unwrap().split(&end).next().unwrap();
        let fits: Function = self.lua.load(text).call::<Function>(()).unwrap();
        let lua = self.lua.clone();
        move |(a, b, c), limit, now| {
            let table = lua.create_table().unwrap();
            table.set("amount", limit.amount()).unwrap();
            table.set("period", u64::try_from(limit.period().as_micros()).unwrap()).unwrap();
            fits.call((a, b, c, table, now, 1, 0, 0, 1)).unwrap()
        }
    }

    /// Decides a batch as an engine does.
    pub(crate) fn submit(&mut self, batch: &Arc<Batch>) -> Result<Vec<Outcome>, String> {
        self.nonce += 1;
        {
            let mut store = self.store.borrow_mut();
            (store.reads, store.writes, store.moved) = (0, 0, 0);
        }
        let mut exchange = Exchange::new("mirror", Arc::clone(batch), self.nonce);
        while let Some(command) = exchange.command() {
            let keys = command.keys.iter().map(|key| self.lua.create_string(key.as_str()).unwrap());
            let globals = self.lua.globals();
            globals.set("KEYS", self.lua.create_sequence_from(keys).unwrap()).unwrap();
            let argument = self.lua.create_string(command.argument).unwrap();
            globals.set("ARGV", self.lua.create_sequence_from([argument]).unwrap()).unwrap();
            match self.script.call::<LuaString>(()) {
                Ok(reply) => exchange.answer(Answer::Reply(&reply.as_bytes())),
                Err(error) => return Err(format!("the script failed: {error}")),
            }
        }
        let store = self.store.borrow();
        let timed = store.values.keys().all(|key| store.lives.contains_key(key));
        drop(store);
        if timed { Ok(exchange.outcomes()) } else { Err("a key without an expiry".to_owned()) }
    }
}

fn call(lua: &Lua, store: &mut Store, words: &[Vec<u8>]) -> Result<Value, String> {
    let text = |bytes: &[u8]| Value::String(lua.create_string(bytes).unwrap());
    let number = |word: usize| -> Result<usize, String> {
        let text = String::from_utf8_lossy(&words[word]);
        text.parse().map_err(|_| format!("{text} is not printed as a whole number"))
    };
    let life = |word: usize| match number(word)? {
        0 => Err("an expiry of 0".to_owned()),
        life => Ok(u64::try_from(life).unwrap()),
    };
    let key = words.get(1).cloned().unwrap_or_default();
    let name = String::from_utf8_lossy(&words[0]);
    store.moved += words.iter().skip(2).map(Vec::len).sum::<usize>();
    match (&*name, words.len()) {
        ("TIME", 1) => {
            let (seconds, micros) = (store.now / 1_000_000, store.now % 1_000_000);
            let parts = [text(seconds.to_string().as_bytes()), text(micros.to_string().as_bytes())];
            return Ok(Value::Table(lua.create_sequence_from(parts).unwrap()));
        }
        ("GET", 2) => {
            if store.writes > 0 {
                return Err("a read after a write".to_owned());
            }
            store.reads += 1;
            let value = store.values.get(&key).map(Vec::as_slice);
            return Ok(value.map_or(Value::Boolean(false), text));
        }
        ("GETRANGE", 4) => {
            if store.writes > 0 {
                return Err("a read after a write".to_owned());
            }
            store.reads += 1;
            let value = store.values.get(&key).map_or(&[][..], Vec::as_slice);
            let (start, end) = (number(2)?.min(value.len()), (number(3)? + 1).min(value.len()));
            store.moved += end.saturating_sub(start);
            return Ok(text(value.get(start..end).unwrap_or_default()));
        }
        ("SET", 5) if words[3] == b"PX" => {
            let life = life(4)?;
            store.values.insert(key.clone(), words[2].clone());
            store.lives.insert(key, life);
        }
        ("SETRANGE", 4) => {
            let (start, bytes) = (number(2)?, &words[3]);
            let value = store.values.get_mut(&key).ok_or("a range of a key that is not there")?;
            if start > value.len() {
                return Err("a gap".to_owned());
            }
            value.resize(value.len().max(start + bytes.len()), 0);
            value[start..start + bytes.len()].copy_from_slice(bytes);
        }
        ("PEXPIRE", 3) => {
            store.lives.insert(key, life(2)?);
        }
        ("DEL", 2) => {
            store.values.remove(&key).ok_or("a write for nothing")?;
            store.lives.remove(&key);
        }
        _ => return Err(format!("the script calls {name} with {} arguments", words.len() - 1)),
    }
    store.writes += 1;
    Ok(Value::Nil)
}

/// `struct.pack` of the formats that the script uses: `<`, `d`, `B`, `I4`.
fn pack(lua: &Lua, (format, values): (LuaString, Variadic<f64>)) -> mlua::Result<LuaString> {
    let (mut bytes, mut values) = (Vec::new(), values.iter().copied());
    for letter in &format.as_bytes() {
        match letter {
            b'd' => bytes.extend_from_slice(&values.next().unwrap().to_le_bytes()),
            b'B' => bytes.extend_from_slice(&whole::<1>(values.next().unwrap())?),
            b'I' => bytes.extend_from_slice(&whole::<4>(values.next().unwrap())?),
            b'<' | b'4' => {}
            other => panic!("format {}", char::from(*other)),
        }
    }
    assert_eq!(values.next(), None, "more values than the format has");
    lua.create_string(&bytes)
}

fn whole<const N: usize>(number: f64) -> mlua::Result<[u8; N]> {
    let not = || mlua::Error::runtime(format!("{number} is not a whole number of {N} bytes"));
    let whole: u64 = format!("{number}").parse().map_err(|_| not())?;
    let (bytes, rest) = whole.to_le_bytes().split_first_chunk().map(|(bytes, rest)| (*bytes, rest.to_vec())).unwrap();
    if rest.iter().all(|byte| *byte == 0) { Ok(bytes) } else { Err(not()) }
}

fn unpack(_: &Lua, (format, bytes, from): (LuaString, LuaString, Option<usize>)) -> mlua::Result<Variadic<f64>> {
    let (bytes, mut at) = (bytes.as_bytes(), from.unwrap_or(1) - 1);
    let mut values = Variadic::new();
    let mut next = |length: usize| {
        let part = bytes.get(at..at + length).map(<[u8]>::to_vec);
        at += length;
        part.ok_or_else(|| mlua::Error::runtime("data string too short"))
    };
    for letter in &format.as_bytes() {
        match letter {
            b'd' => values.push(f64::from_le_bytes(next(8)?.try_into().unwrap())),
            b'B' => values.push(f64::from(next(1)?[0])),
            b'I' => values.push(f64::from(u32::from_le_bytes(next(4)?.try_into().unwrap()))),
            b'<' | b'4' => {}
            other => panic!("format {}", char::from(*other)),
        }
    }
    values.push(f64::from(u32::try_from(at + 1).unwrap()));
    Ok(values)
}
