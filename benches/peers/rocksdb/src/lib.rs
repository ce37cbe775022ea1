//! The names of RocksDB that limitador uses, and nothing behind them.
//!
//! limitador 0.14 compiles its Redis storage only together with its disk storage, which needs RocksDB: a C++ library, ten minutes to
//! build, that no bench here opens. Who opens one all the same is told so.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// What every call gives.
#[derive(Debug)]
pub struct Error;

/// Kinds of errors, as far as limitador asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "RocksDB's own names")]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
    NotSupported,
}

impl Error {
    /// Never one of those that may pass.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build has no RocksDB")
    }
}

impl StdError for Error {}

/// What a compaction filter may say.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "RocksDB's own names")]
pub enum CompactionDecision {
    Keep,
    Remove,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "RocksDB's own names")]
pub enum DBCompressionType {
    None,
    Bz2,
}

/// Where an iterator begins.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "RocksDB's own names")]
pub enum IteratorMode<'a> {
    Start,
    From(&'a [u8], Direction),
}

/// Which way an iterator goes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "RocksDB's own names")]
pub enum Direction {
    Forward,
    Reverse,
}

/// A marker.
#[derive(Clone, Copy, Debug)]
pub struct MultiThreaded;

/// Options that nobody reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options;

/// The operands of a merge: none.
#[derive(Clone, Copy, Debug)]
pub struct MergeOperands;

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::empty()
    }
}

#[allow(missing_docs, clippy::unused_self, reason = "RocksDB's own names")]
impl Options {
    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + 'static,
    {
    }

    pub fn create_if_missing(&mut self, _: bool) {}
}

/// A database that can't be opened.
#[derive(Debug)]
pub struct DBWithThreadMode<T>(PhantomData<T>);

/// The usual kind.
pub type DB = DBWithThreadMode<MultiThreaded>;

/// An entry of a database.
pub type KVBytes = (Box<[u8]>, Box<[u8]>);

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unused_self, reason = "RocksDB's own names; each fails")]
impl<T> DBWithThreadMode<T> {
    pub fn open<P: AsRef<Path>>(_: &Options, _: P) -> Result<Self, Error> {
        Err(Error)
    }

    pub fn get<K: AsRef<[u8]>>(&self, _: K) -> Result<Option<Vec<u8>>, Error> {
        Err(Error)
    }

    pub fn delete<K: AsRef<[u8]>>(&self, _: K) -> Result<(), Error> {
        Err(Error)
    }

    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, _: K, _: V) -> Result<(), Error> {
        Err(Error)
    }

    pub fn iterator(&self, _: IteratorMode<'_>) -> std::vec::IntoIter<Result<KVBytes, Error>> {
        Vec::new().into_iter()
    }

    pub fn prefix_iterator<P: AsRef<[u8]>>(&self, _: P) -> std::vec::IntoIter<Result<KVBytes, Error>> {
        Vec::new().into_iter()
    }
}
