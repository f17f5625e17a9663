//! What callgrind wrote: where the instructions were spent. The format is described in valgrind's manual ("Callgrind Format
//! Specification"): names stand behind their number where they first occur, positions may be relative, and the line after
//! `calls=` is what the call cost with all below it.

use std::collections::HashMap;

/// Instructions, or reads and writes that no cache held; in all and by where they were spent.
pub struct Profile {
    pub total: f64,
    /// By the program or library whose code they are, by its path.
    own: HashMap<String, f64>,
    /// Calls from one library into another's function, with all that the function calls: by both names.
    calls: HashMap<(String, String), f64>,
}

impl Profile {
    /// `events` are callgrind's names for what is counted, and their numbers are added: `["Ir"]` for instructions.
    pub fn read(text: &str, events: &[&str]) -> Self {
        let all: Vec<&str> = text
            .lines()
            .find_map(|line| line.strip_prefix("events: "))
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        // The first column is a line's position.
        let columns: Vec<usize> =
            (1..).zip(&all).filter(|(_, event)| events.contains(event)).map(|(column, _)| column).collect();
        assert_eq!(columns.len(), events.len(), "callgrind has counted {all:?}");
        let (mut objects, mut functions) = (Names::default(), Names::default());
        let (mut object, mut called_function) = (String::new(), String::new());
        let mut profile = Self { total: 0.0, own: HashMap::new(), calls: HashMap::new() };
        let mut is_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                object = objects.name(name);
            } else if let Some(name) = line.strip_prefix("cob=") {
                objects.name(name);
            } else if let Some(name) = line.strip_prefix("fn=") {
                functions.name(name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                called_function = functions.name(name);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '*')) {
                // Zeros at the end of a line are left out.
                let numbers: Vec<&str> = line.split_whitespace().collect();
                let number = |column: &usize| numbers.get(*column).and_then(|text| text.parse::<f64>().ok());
                let cost: f64 = columns.iter().filter_map(number).sum();
                if std::mem::take(&mut is_call) {
                    *profile.calls.entry((object.clone(), called_function.clone())).or_default() += cost;
                } else {
                    *profile.own.entry(object.clone()).or_default() += cost;
                    profile.total += cost;
                }
            }
        }
        profile
    }

    /// Those of the code of the library whose path ends so.
    pub fn own(&self, library: &str) -> f64 {
        self.own.iter().filter(|(path, _)| path.ends_with(library)).map(|(_, cost)| cost).sum()
    }

    /// What the functions with this start of a name cost that the library calls, the most first.
    pub fn called(&self, library: &str, start: &str) -> Vec<(String, f64)> {
        let mut costs: HashMap<&str, f64> = HashMap::new();
        for ((caller, function), cost) in &self.calls {
            if caller.ends_with(library) && function.starts_with(start) {
                *costs.entry(function).or_default() += cost;
            }
        }
        let mut costs: Vec<(String, f64)> = costs.into_iter().map(|(name, cost)| (name.to_owned(), cost)).collect();
        costs.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        costs
    }
}

/// Names by their numbers.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// `(7) name` says that 7 stands for this name, `(7)` is that name.
    fn name(&mut self, text: &str) -> String {
        match text.split_once(' ') {
            Some((number, name)) => {
                self.0.insert(number.to_owned(), name.to_owned());
                name.to_owned()
            }
            None => self.0.get(text).cloned().unwrap_or_else(|| text.to_owned()),
        }
    }
}
