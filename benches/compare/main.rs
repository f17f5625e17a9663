//! PRLOCK beside what one would use instead, on real servers: `make bench`.
//!
//! Each part of the run starts its own servers, lets the contenders take turns round by round, and adds rows to the
//! report. What a command costs is the processor time of the server's main thread, as its INFO tells it: unlike wall
//! time it does not grow when the machine is busy with something else.

mod checks;
mod fill;
mod options;
mod parts;
mod report;
mod rounds;
mod script;
mod stats;
mod subject;
#[path = "../../tests/suite/support/mod.rs"]
mod support;
mod words;

use std::process::ExitCode;
use std::time::Instant;

use options::Options;
use report::Report;

fn main() -> ExitCode {
    let options = match Options::from_environment() {
        Ok(options) => options,
        Err(why) => return refuse(&why),
    };
    if let Err(why) = checks::before_the_run(&options) {
        return refuse(&why);
    }
    let start = Instant::now();
    let mut report = Report::new();
    for part in parts::ALL {
        if options.wants(part.name) {
            eprintln!("[{:3.0} s] {}: {}", start.elapsed().as_secs_f64(), part.name, part.what);
            (part.run)(&options, &mut report);
        }
    }
    eprintln!("[{:3.0} s] done", start.elapsed().as_secs_f64());
    report.print();
    ExitCode::SUCCESS
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}
