//! The documentation: what it points at is there, and the tests that it names exist.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops on the first thing that is not as it should be")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The page whose links name tests.
const GUARANTEES: &str = "docs/guarantees.md";
/// Where each fault row says which code runs it.
const ROWS: &str = "conformance/src/fault/row.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The README and the pages of the documentation, from the root.
fn pages() -> Vec<PathBuf> {
    let docs =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| Path::new("docs").join(entry.unwrap().file_name()));
    docs.filter(|path| path.extension().is_some_and(|end| end == "md")).chain(["README.md".into()]).collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// What stands in brackets, where in its line, and what comes after it there.
fn brackets(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    text.lines().flat_map(|line| {
        line.match_indices('[').filter_map(move |(start, _)| {
            let (label, rest) = line[start + 1..].split_once(']')?;
            Some((start, label, rest))
        })
    })
}

/// Where a link leads: `[label](target)`, or `[label]: target` at the beginning of a line.
fn target(start: usize, rest: &str) -> Option<&str> {
    match rest.strip_prefix('(') {
        Some(inline) => inline.split(')').next(),
        None if start == 0 => rest.strip_prefix(": "),
        None => None,
    }
}

/// Each link of this repository as (label, file), the file from the root.
fn links(page: &Path, text: &str) -> Vec<(String, PathBuf)> {
    let text = prose(text);
    let within = brackets(&text).filter_map(|(start, label, rest)| Some((label, target(start, rest)?)));
    let within = within.filter(|(_, target)| !target.contains("://"));
    // Of a link to a place within the page itself, the page is left.
    let file = |target: &str| match target.split('#').next() {
        Some("") | None => page.to_owned(),
        Some(path) => page.parent().unwrap().join(path),
    };
    within.map(|(label, target)| (label.to_owned(), file(target))).collect()
}

/// Links that lead nowhere.
fn dead(page: &Path, text: &str) -> Vec<String> {
    let links = links(page, text).into_iter();
    let dead = links.filter(|(_, file)| !root().join(file).exists());
    dead.map(|(label, file)| format!("{}: [{label}] leads to {}", page.display(), file.display())).collect()
}

/// The name of a test or of a case: a label in backticks that could be a function.
fn function(label: &str) -> Option<&str> {
    let name = label.strip_prefix('`')?.strip_suffix('`')?;
    let could_be = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(could_be).then_some(name)
}

/// The number of a fault row, as `F12`.
fn is_row(label: &str) -> bool {
    label.strip_prefix('F').is_some_and(|number| number.len() == 2 && number.bytes().all(|c| c.is_ascii_digit()))
}

/// The module of the code that runs a row.
fn module<'a>(rows: &'a str, id: &str) -> Option<&'a str> {
    let (_, row) = rows.split_once(&format!("id: \"{id}\""))?;
    row.split_once("run: ")?.1.split("::").next()
}

/// Names that are no function of the file they lead to, rows that other code runs, and names that lead nowhere.
fn untrue(page: &Path, text: &str) -> Vec<String> {
    let links = links(page, text);
    let rows = read(ROWS);
    let mut untrue = Vec::new();
    for (label, file) in links.iter().filter(|(_, file)| root().join(file).is_file()) {
        let is_so = match function(label) {
            Some(name) => read(file).contains(&format!("fn {name}(")),
            None if is_row(label) => file.file_stem().unwrap().to_str() == module(&rows, label),
            None => true,
        };
        if !is_so {
            untrue.push(format!("{label} is not in {}", file.display()));
        }
    }
    let defined: BTreeSet<&str> = links.iter().map(|(label, _)| label.as_str()).collect();
    let text = prose(text);
    let named = brackets(&text).map(|(_, label, _)| label).filter(|label| function(label).is_some() || is_row(label));
    untrue.extend(named.filter(|label| !defined.contains(label)).map(|label| format!("{label} leads nowhere")));
    untrue
}

/// Test programs in the commands of a text that no package has.
fn unknown_programs(text: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    for command in text.split("cargo test").skip(1) {
        let command = command.split(['`', '\n', '|']).next().unwrap();
        let after = |flag: &str| {
            let mut words = command.split_whitespace().skip_while(|word| *word != flag);
            words.nth(1)
        };
        let folder = match after("-p") {
            Some("limiter-conformance") => "conformance",
            package => package.unwrap_or_default(),
        };
        let Some(program) = after("--test") else { continue };
        let tests = root().join(folder).join("tests");
        if !tests.join(format!("{program}.rs")).exists() && !tests.join(program).join("main.rs").exists() {
            unknown.push(format!("cargo test{command}"));
        }
    }
    unknown
}

#[test]
fn every_link_leads_to_a_file() {
    let pages = pages();
    assert!(pages.iter().any(|page| page == Path::new(GUARANTEES)), "{pages:?}");
    let dead: Vec<String> = pages.iter().flat_map(|page| dead(page, &read(page))).collect();
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn the_tests_that_are_named_exist() {
    let (page, text) = (Path::new(GUARANTEES), read(GUARANTEES));
    assert_eq!(untrue(page, &text), Vec::<String>::new());
    assert_eq!(unknown_programs(&text), Vec::<String>::new());
    let links = links(page, &text);
    let names: BTreeSet<_> = links.iter().filter_map(|(label, file)| Some((function(label)?, file))).collect();
    assert!(names.len() > 50, "{} names: what is a name?", names.len());
}

#[test]
fn a_page_that_is_wrong_is_told_so() {
    let page = Path::new("docs/design.md");
    let of = |found: Vec<String>| found.len();
    for (text, due) in [
        ("[policies](policies.md), [this page](#here), [far away](https://example.org/), [F12]: 3", 0),
        ("[nothing](nothing.md#place)", 1),
        ("[`name`]\n\n[`name`]: ../tests/nothing.rs", 1),
        ("```text\n[nothing](nothing.md)\n```\n", 0),
    ] {
        assert_eq!(of(dead(page, text)), due, "{text}");
    }
    for (text, due) in [
        ("[`every_link_leads_to_a_file`](../tests/docs.rs)", 0),
        ("[`no_such_test`](../tests/docs.rs)", 1),
        ("[`every_link_leads`](../tests/docs.rs)", 1),
        ("Shown by [`some_test`].", 1),
        ("[F12] and [F99].\n\n[F12]: ../conformance/src/fault/row/crash.rs", 1),
        ("[F12]\n\n[F12]: ../conformance/src/fault/row/road.rs", 1),
    ] {
        assert_eq!(of(untrue(page, text)), due, "{text}");
    }
    let commands = "`cargo test --test docs`, `cargo test -p limiter-redis --test faults f12`, `cargo test -p limiter-redis --test no`";
    assert_eq!(of(unknown_programs(commands)), 1);
}
