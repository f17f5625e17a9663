//! The Makefile, and the lines with which pages and comments call it.

use std::collections::BTreeMap;

/// What each target has the shell do.
pub struct Makefile {
    recipes: BTreeMap<String, String>,
}

/// A target, and what it is given, as some text has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Call<'a> {
    pub target: &'a str,
    pub variables: Vec<(&'a str, &'a str)>,
}

impl Makefile {
    pub fn parse(text: &str) -> Self {
        let mut recipes: BTreeMap<String, String> = BTreeMap::new();
        let mut target = None;
        // A comment may stand within a recipe.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match (line.strip_prefix('\t'), &target) {
                (Some(step), Some(target)) => recipes.entry(String::clone(target)).or_default().push_str(step),
                _ => target = target_of(line).map(|(target, _)| target.to_owned()),
            }
        }
        Self { recipes }
    }

    /// Of the text of a Makefile: what the help of each target names as its variables.
    pub fn helps(text: &str) -> Vec<Call<'_>> {
        let targets = text.lines().filter_map(target_of);
        targets.map(|(target, help)| Call { target, variables: variables(help).collect() }).collect()
    }

    /// None for a target that is not there.
    pub fn recipe(&self, target: &str) -> Option<&str> {
        self.recipes.get(target).map(String::as_str)
    }

    /// `NAME=$(OTHER)` in a recipe: the names that a program finds in its environment.
    pub fn environment(&self, target: &str) -> Vec<&str> {
        let words = self.recipe(target).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.split_once("=$(")).map(|(name, _)| name.trim_start_matches('@')).collect()
    }
}

/// In lines of their own, or between quotes in a sentence or a string.
pub fn calls(text: &str) -> impl Iterator<Item = Call<'_>> {
    let pieces = text.split(['`', '\n', '"', '\'']);
    let lines = pieces.filter_map(|piece| piece.trim_start_matches(['#', ' ', '@', '\t']).strip_prefix("make "));
    lines.filter_map(|line| {
        // Without a target it is another project's.
        let target = line.split_whitespace().next().filter(|target| !target.contains('='))?;
        Some(Call { target, variables: variables(line).collect() })
    })
}

/// The line of a target, and its help.
fn target_of(line: &str) -> Option<(&str, &str)> {
    let (target, rest) = line.split_once(':')?;
    let is_name = !target.is_empty() && target.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    is_name.then(|| (target, rest.split_once("## ").map_or("", |(_, help)| help)))
}

/// What is given to make, up to a comment.
fn variables(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = line.split("  #").next().unwrap_or(line).split_whitespace();
    let words = words.map(|word| word.trim_matches(['(', ')', ',', ';', '.']));
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs
        .filter(|(name, _)| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
}
