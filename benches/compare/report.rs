//! What the run has found: a table with targets, values, ratios and verdicts.

use crate::support::{ServerKind, server_kind};

/// The targets are those of Redis 7.0. The other servers may be this much off.
const ALLOWANCE_OF_OTHERS: f64 = 0.10;

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

/// One comparison.
struct Row {
    part: &'static str,
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

/// A value with its unit.
#[derive(Clone, Copy)]
pub struct Value(pub f64, pub &'static str);

impl Report {
    pub fn new() -> Self {
        Self::default()
    }

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

    pub fn print(&self) {
        let cells: Vec<[String; 7]> = std::iter::once(HEAD.map(str::to_owned)).chain(self.cells()).collect();
        let widths: Vec<usize> =
            (0..HEAD.len()).map(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
        let mut part = "";
        for (number, row) in cells.iter().enumerate() {
            // A blank line between parts.
            if let Some(now) = number.checked_sub(1).map(|at| self.rows[at].part)
                && now != part
            {
                println!("\n{now}");
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
            println!("  {}", line.join("  ").trim_end());
        }
        let verdicts: Vec<bool> = self.rows.iter().filter_map(|row| row.met).collect();
        let met = verdicts.iter().filter(|met| **met).count();
        println!("\n{met} of {} targets met", verdicts.len());
    }

    fn cells(&self) -> impl Iterator<Item = [String; 7]> {
        self.rows.iter().map(|row| {
            let met = match row.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "",
            };
            [&row.what, &row.ours, &row.other, &row.theirs, &row.finding, &row.target, met].map(str::to_owned)
        })
    }
}

const HEAD: [&str; 7] = ["what", "PRLOCK", "beside", "its value", "ratio", "target", ""];

/// Whether this column holds text; the others hold numbers.
fn is_text(column: usize) -> bool {
    matches!(column, 0 | 2 | 6)
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

impl std::fmt::Display for Value {
    /// Three digits that say something, and the unit.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(value, unit) = *self;
        let digits = match value.abs() {
            size if size >= 100.0 || size == 0.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 1.0 => 2,
            _ => 3,
        };
        write!(f, "{value:.digits$} {unit}")
    }
}
