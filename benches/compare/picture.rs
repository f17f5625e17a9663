//! The picture of a run.

use crate::report::Report;

pub fn draw(_title: &str, report: &Report) -> String {
    format!("{}", report.figure("cycle"))
}
