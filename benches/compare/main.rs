//! PRLOCK beside what one would use instead, on real servers: `make bench`.
//!
//! Each part of the run lets its contenders take turns round by round, and adds rows to the report. What a command costs
//! is the processor time of the server's main thread, as its INFO tells it: unlike wall time it does not grow when the
//! machine is busy with something else. All that PRLOCK is compared with runs in a server without the module.

mod bench;
mod checks;
mod fill;
mod listing;
mod machine;
mod million;
mod options;
mod parts;
mod picture;
mod profile;
mod recipes;
mod report;
mod rounds;
mod script;
mod stats;
mod subject;
#[path = "../../tests/suite/support/mod.rs"]
mod support;
mod talker;
mod valgrind;
mod value;
mod words;
mod writing;

use std::process::ExitCode;
use std::time::Instant;

use bench::Bench;
use options::Options;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let options = Options::from_environment()?;
    checks::before_the_run(&options)?;
    let title = machine::title(&options);
    eprintln!("{title}");
    let writes = options.write;
    let mut bench = Bench::new(options);
    let start = Instant::now();
    for part in parts::ALL {
        if bench.options.wants(part.name) {
            eprintln!("[{:3.0} s] {}: {}", start.elapsed().as_secs_f64(), part.name, part.what);
            (part.run)(&mut bench);
        }
    }
    eprintln!("[{:3.0} s] done", start.elapsed().as_secs_f64());
    println!("{title}\n");
    print!("{}", bench.report.table());
    if writes {
        writing::write(&title, &bench.report).map_err(|error| format!("can't write into docs: {error}"))?;
    }
    Ok(())
}
