//! The source tree itself: what was agreed on is tested, not remembered.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops on the first thing that is not as it should be"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// A file is one idea, and the longest so far has this many lines.
const LONGEST: usize = 450;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The tracked Rust files below a folder, with their text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let list = output(Command::new("git").args(["ls-files", "--", folder]));
    let paths = list.lines().filter(|path| Path::new(path).extension().is_some_and(|end| end == "rs"));
    let sources: Vec<_> = paths
        // A file that is deleted and not committed yet is still listed.
        .filter_map(|path| Some((PathBuf::from(path), fs::read_to_string(root().join(path)).ok()?)))
        .collect();
    assert!(!sources.is_empty(), "no sources below {folder}");
    sources
}

/// The lines of all files below `folder` that hold one of `words` in code, not in a comment.
fn lines_with(folder: &str, words: &[&str], except: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(folder) {
        if except.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            if words.iter().any(|word| code.contains(word)) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn no_decision_is_made_in_floating_point() {
    assert_eq!(lines_with("limiter-core/src", &["f32", "f64"], &[]), Vec::<String>::new());
}

#[test]
fn the_core_reads_the_time_in_one_place() {
    let readings = lines_with("limiter-core/src", &["SystemTime::now", "Instant::now"], &["clock.rs"]);
    assert_eq!(readings, Vec::<String>::new());
}

#[test]
fn a_file_is_one_idea() {
    let long: Vec<_> = sources(".")
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST)
        .collect();
    assert_eq!(long, Vec::new(), "longer than {LONGEST} lines");
}

/// `rust-version` as (major, minor).
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap_or(0))
}

/// Each package of the workspace states the oldest compiler it builds with, and so does what it is built from. (That our own
/// code uses nothing newer is clippy's `incompatible_msrv`.)
#[test]
fn no_dependency_needs_a_newer_compiler_than_we_state() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata =
        output(Command::new(cargo).args(["metadata", "--format-version", "1", "--locked", "--all-features"]));
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let oldest: BTreeMap<String, (String, Option<(u32, u32)>)> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let stated = package["rust_version"].as_str().map(version);
            (text(&package["id"]), (format!("{} {}", text(&package["name"]), text(&package["version"])), stated))
        })
        .collect();
    // What each package is built from, tests and benches left out.
    let built_from: BTreeMap<String, Vec<String>> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let used = node["deps"].as_array().unwrap().iter().filter(|dependency| {
                dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].as_str() != Some("dev"))
            });
            (text(&node["id"]), used.map(|dependency| text(&dependency["pkg"])).collect())
        })
        .collect();
    for member in metadata["workspace_members"].as_array().unwrap() {
        let (name, stated) = &oldest[member.as_str().unwrap()];
        let stated = stated.unwrap_or_else(|| panic!("{name} states no rust-version"));
        let (mut seen, mut open) = (BTreeSet::new(), vec![text(member)]);
        while let Some(id) = open.pop() {
            if seen.insert(id.clone()) {
                let (used, needs) = &oldest[&id];
                assert!(
                    needs.is_none_or(|needs| needs <= stated),
                    "{name} states {stated:?}, but {used} needs {needs:?}"
                );
                open.extend(built_from[&id].iter().cloned());
            }
        }
    }
}
