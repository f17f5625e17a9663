//! What the parts of a run share.

use crate::million::Million;
use crate::options::Options;
use crate::report::Report;

pub struct Bench {
    pub options: Options,
    pub report: Report,
    /// Made when the first part asks for it.
    million: Option<Million>,
}

impl Bench {
    pub fn new(options: Options) -> Self {
        Self { options, report: Report::default(), million: None }
    }

    /// The servers with a million locks each, and the report.
    pub fn million(&mut self) -> (&mut Million, &Options, &mut Report) {
        let million = self.million.get_or_insert_with(|| {
            let mut million = Million::fill();
            // Before a part empties it.
            if self.options.wants("start") {
                million.save();
            }
            million
        });
        (million, &self.options, &mut self.report)
    }
}
