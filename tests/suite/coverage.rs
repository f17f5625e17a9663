//! `tests/COVERAGE.md` names tests and files that are there, and some for every case from the field.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

const MAP: &str = include_str!("../COVERAGE.md");
const CASES: u32 = 65;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of the two tables, each as its cells.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = MAP.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// What stands between backticks in the last cell.
fn names(row: &[&'static str]) -> Vec<&'static str> {
    row.last().expect("a cell").split('`').skip(1).step_by(2).collect()
}

/// Says what is wrong with a name; nothing if it leads to a test, or to a whole file.
fn complaint(name: &str) -> Option<String> {
    let (path, function) = match (name.split_once("::"), name.split_once(": ")) {
        (Some((module, function)), _) => (PathBuf::from(format!("tests/suite/{module}.rs")), Some(function)),
        (None, Some((path, function))) => (path.into(), Some(function)),
        (None, None) => (name.into(), None),
    };
    let Ok(source) = read_to_string(root().join(&path)) else { return Some(format!("no file {}", path.display())) };
    let is_there = match function {
        None => !source.is_empty(),
        // A test, and not a helper of the same name.
        Some(function) => source.split("#[test]").skip(1).any(|test| {
            let line = test.lines().find(|line| line.trim_start().starts_with("fn "));
            line.is_some_and(|line| line.trim_start().starts_with(&format!("fn {function}(")))
        }),
    };
    (!is_there).then(|| format!("no test {name} in {}", path.display()))
}

#[test]
fn every_name_leads_to_a_test_or_a_file() {
    let complaints: Vec<String> = rows().flat_map(|row| names(&row)).filter_map(complaint).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    // This very test would see what is wrong.
    for wrong in ["claim::no_such_test", "claim::prepare", "no_such_file::x", "src/locks/number.rs: parse_i64", "x.rs"]
    {
        assert!(complaint(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn every_case_has_a_row_with_tests() {
    let cases: Vec<u32> = rows()
        .filter_map(|row| {
            let case = row[0].parse().ok()?;
            assert_eq!(row.len(), 3, "case {case}");
            assert!(!names(&row).is_empty(), "case {case} has no test");
            Some(case)
        })
        .collect();
    assert_eq!(cases, (1..=CASES).collect::<Vec<_>>());
}
