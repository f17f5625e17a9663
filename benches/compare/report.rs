//! What the run has found: values, ratios, targets and verdicts.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::support::{ServerKind, server_kind};
use crate::value::Value;

/// The targets are those of Redis 7.0. The other servers may be this much off.
const ALLOWANCE_OF_OTHERS: f64 = 0.10;

#[derive(Default)]
pub struct Report {
    pub rows: Vec<Row>,
    /// The numbers that the picture shows.
    figures: BTreeMap<String, f64>,
}

/// One comparison.
pub struct Row {
    pub part: &'static str,
    what: String,
    ours: String,
    /// Who it is beside of, and its value.
    other: String,
    theirs: String,
    finding: String,
    target: String,
    /// None where there is no target.
    met: Option<bool>,
}

/// What a value is to be.
#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Only shown.
    None,
}

pub const HEAD: [&str; 7] = ["what", "PRLOCK", "beside", "its value", "finding", "target", ""];

/// Whether this column holds text; the others hold numbers.
pub fn is_text(column: usize) -> bool {
    matches!(column, 0 | 2 | 6)
}

impl Report {
    /// A value beside another's, and what the comparison gave: usually the ratio of the two.
    pub fn beside(
        &mut self,
        part: &'static str,
        what: impl Into<String>,
        ours: Value,
        (other, theirs): (&str, Value),
        (finding, target): (Value, Target),
    ) {
        let target = target.on(server_kind());
        self.rows.push(Row {
            part,
            what: what.into(),
            ours: ours.to_string(),
            other: other.to_owned(),
            theirs: theirs.to_string(),
            finding: finding.to_string(),
            target: target.text(finding.1),
            met: target.is_met_by(finding.0),
        });
    }

    /// A value that stands for itself.
    pub fn alone(&mut self, part: &'static str, what: impl Into<String>, ours: Value, target: Target) {
        let target = target.on(server_kind());
        self.rows.push(Row {
            part,
            what: what.into(),
            ours: ours.to_string(),
            other: String::new(),
            theirs: String::new(),
            finding: String::new(),
            target: target.text(ours.1),
            met: target.is_met_by(ours.0),
        });
    }

    /// Keeps a number for the picture.
    pub fn keep(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }

    pub fn figure(&self, name: &str) -> f64 {
        *self.figures.get(name).unwrap_or_else(|| panic!("no part has kept {name:?}"))
    }

    /// For the terminal.
    pub fn table(&self) -> String {
        let cells: Vec<[String; 7]> =
            std::iter::once(HEAD.map(str::to_owned)).chain(self.rows.iter().map(Row::cells)).collect();
        let widths: Vec<usize> =
            (0..HEAD.len()).map(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
        let mut table = String::new();
        let mut part = "";
        for (number, row) in cells.iter().enumerate() {
            if let Some(now) = number.checked_sub(1).map(|at| self.rows[at].part)
                && now != part
            {
                table += &format!("\n{now}\n");
                part = now;
            }
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(
                    |(at, (text, &width))| {
                        if is_text(at) { format!("{text:width$}") } else { format!("{text:>width$}") }
                    },
                )
                .collect();
            writeln!(table, "  {}", line.join("  ").trim_end()).expect("write to a string");
        }
        writeln!(table, "\n{}", self.summary()).expect("write to a string");
        table
    }

    /// How many targets are met.
    pub fn summary(&self) -> String {
        let verdicts: Vec<bool> = self.rows.iter().filter_map(|row| row.met).collect();
        let met = verdicts.iter().filter(|met| **met).count();
        format!("{met} of {} targets met", verdicts.len())
    }
}

impl Row {
    pub fn cells(&self) -> [String; 7] {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "",
        };
        [&self.what, &self.ours, &self.other, &self.theirs, &self.finding, &self.target, met].map(str::to_owned)
    }
}

impl Target {
    fn on(self, server: ServerKind) -> Self {
        let allowance = if server == ServerKind::Redis7 { 0.0 } else { ALLOWANCE_OF_OTHERS };
        match self {
            Self::AtMost(limit) => Self::AtMost(limit * (1.0 + allowance)),
            Self::AtLeast(limit) => Self::AtLeast(limit * (1.0 - allowance)),
            Self::None => Self::None,
        }
    }

    fn is_met_by(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(value <= limit),
            Self::AtLeast(limit) => Some(value >= limit),
            Self::None => None,
        }
    }

    fn text(self, unit: &'static str) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {}", Value(limit, unit)),
            Self::AtLeast(limit) => format!("≥ {}", Value(limit, unit)),
            Self::None => String::new(),
        }
    }
}
