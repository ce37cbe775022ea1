//! A Redis of a few commands, in this process: the script runs in the Lua that Redis embeds, on a table of strings.
//!
//! It is stricter than the real one: a read after a write, a key that would stay for ever or a number that is not printed as a
//! whole one stops the test.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use limiter_core::script::{Answer, Exchange, TEXT};
use limiter_core::{Batch, Outcome};
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
            Ok(call(lua, &mut shared.borrow_mut(), &words))
        };
        redis.set("call", lua.create_function(call).unwrap()).unwrap();
        globals.set("redis", redis).unwrap();
        let script = lua.load(text).set_name("script").into_function().unwrap();
        Self { lua, script, store, nonce: 0 }
    }

    /// Decides a batch as an engine does.
    pub(crate) fn submit(&mut self, batch: &Arc<Batch>) -> Vec<Outcome> {
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
                Err(error) => panic!("the script failed: {error}"),
            }
        }
        let store = self.store.borrow();
        let timed = store.values.keys().all(|key| store.lives.contains_key(key));
        assert!(timed, "a key without an expiry");
        drop(store);
        exchange.outcomes()
    }
}

fn call(lua: &Lua, store: &mut Store, words: &[Vec<u8>]) -> Value {
    let text = |bytes: &[u8]| Value::String(lua.create_string(bytes).unwrap());
    let number = |word: usize| -> usize {
        let text = std::str::from_utf8(&words[word]).unwrap();
        text.parse().unwrap_or_else(|_| panic!("{text} is not printed as a whole number"))
    };
    let key = words.get(1).cloned().unwrap_or_default();
    let name = std::str::from_utf8(&words[0]).unwrap();
    store.moved += words.iter().skip(2).map(Vec::len).sum::<usize>();
    match (name, words.len()) {
        ("TIME", 1) => {
            let (seconds, micros) = (store.now / 1_000_000, store.now % 1_000_000);
            let parts = [text(seconds.to_string().as_bytes()), text(micros.to_string().as_bytes())];
            Value::Table(lua.create_sequence_from(parts).unwrap())
        }
        ("GETRANGE", 4) => {
            assert_eq!(store.writes, 0, "a read after a write");
            store.reads += 1;
            let value = store.values.get(&key).map_or(&[][..], Vec::as_slice);
            let (start, end) = (number(2).min(value.len()), (number(3) + 1).min(value.len()));
            store.moved += end.saturating_sub(start);
            text(value.get(start..end).unwrap_or_default())
        }
        ("SET", 5) => {
            assert_eq!(words[3], b"PX");
            store.writes += 1;
            let life = u64::try_from(number(4)).unwrap();
            assert!(life > 0, "an expiry of 0");
            store.values.insert(key.clone(), words[2].clone());
            store.lives.insert(key, life);
            Value::Nil
        }
        ("SETRANGE", 4) => {
            store.writes += 1;
            let (start, bytes) = (number(2), &words[3]);
            let value = store.values.get_mut(&key).expect("a range of a key that is there");
            assert!(start <= value.len(), "a gap");
            value.resize(value.len().max(start + bytes.len()), 0);
            value[start..start + bytes.len()].copy_from_slice(bytes);
            Value::Nil
        }
        ("PEXPIRE", 3) => {
            store.writes += 1;
            let life = u64::try_from(number(2)).unwrap();
            assert!(life > 0, "an expiry of 0");
            store.lives.insert(key, life);
            Value::Nil
        }
        ("DEL", 2) => {
            store.writes += 1;
            assert!(store.values.remove(&key).is_some(), "a write for nothing");
            store.lives.remove(&key);
            Value::Nil
        }
        _ => panic!("the script calls {name} with {} arguments", words.len() - 1),
    }
}

/// `struct.pack` of the formats that the script uses: `<`, `d`, `B`, `I4`.
fn pack(lua: &Lua, (format, values): (LuaString, Variadic<f64>)) -> mlua::Result<LuaString> {
    let (mut bytes, mut values) = (Vec::new(), values.iter().copied());
    for letter in format.as_bytes().iter() {
        match letter {
            b'd' => bytes.extend_from_slice(&values.next().unwrap().to_le_bytes()),
            b'B' => bytes.push(whole(values.next().unwrap()).try_into().unwrap()),
            b'I' => bytes.extend_from_slice(&u32::try_from(whole(values.next().unwrap())).unwrap().to_le_bytes()),
            b'<' | b'4' => {}
            other => panic!("format {}", char::from(*other)),
        }
    }
    assert_eq!(values.next(), None, "more values than the format has");
    lua.create_string(&bytes)
}

fn whole(number: f64) -> u64 {
    assert!(number >= 0.0 && number.fract() == 0.0, "{number} is not a whole number");
    format!("{number:.0}").parse().unwrap()
}

fn unpack(_: &Lua, (format, bytes, from): (LuaString, LuaString, Option<usize>)) -> mlua::Result<Variadic<f64>> {
    let (bytes, mut at) = (bytes.as_bytes(), from.unwrap_or(1) - 1);
    let mut values = Variadic::new();
    let mut next = |length: usize| {
        let part = bytes.get(at..at + length).map(<[u8]>::to_vec);
        at += length;
        part.ok_or_else(|| mlua::Error::runtime("data string too short"))
    };
    for letter in format.as_bytes().iter() {
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
