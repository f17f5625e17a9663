//! Proof for those who don't trust us: each part does its worst to real servers for a given time, and says what it did,
//! what it checked, and the seed with which to do it again.
//!
//! `make prove` runs all parts on all servers; `cargo run --example prove -- --seconds 60 crash` runs one part on the
//! server of `PRLOCK_SERVER`. A part that cannot do its work here fails and says what is missing.

#[path = "../suite/support/mod.rs"]
mod support;

mod call;
mod cluster;
mod commands;
mod crash;
mod failover;
mod histories;
mod history;
mod link;
mod load;
mod run;
mod soak;
mod unrelated;
mod worker;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use run::Run;

/// A part: its name, what it proves, and its body, which returns what it did and checked.
struct Part {
    name: &'static str,
    about: &'static str,
    body: fn(&Run) -> String,
}

const PARTS: &[Part] = &[
    Part { name: "crash", about: "kill -9 at random moments, nothing answered is lost", body: crash::always },
    Part {
        name: "crash-everysec",
        about: "kill -9 and power cuts, no more lost than is documented",
        body: crash::everysec,
    },
    Part { name: "commands", about: "commands at random, with clients that vanish", body: commands::fuzz },
    Part { name: "unrelated", about: "another application beside the locks", body: unrelated::unrelated },
    Part {
        name: "cluster",
        about: "slots that move, primaries that hand over, one that is lost",
        body: cluster::cluster,
    },
    Part { name: "histories", about: "every answer explained, under stops, kills and pauses", body: histories::faults },
    Part { name: "clock", about: "a wall clock that jumps by hours", body: histories::clock },
    Part { name: "failover", about: "another primary by hand and by FAILOVER", body: failover::failover },
    Part { name: "sentinel", about: "a lost primary, replaced by three sentinels", body: failover::sentinel },
    Part { name: "soak", about: "millions of locks, and then a server as it was", body: soak::soak },
];

fn main() -> ExitCode {
    let all: Vec<String> = std::env::args().skip(1).collect();
    if all.first().is_some_and(|argument| argument == worker::ARGUMENT) {
        return match worker::work(&all[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let (seconds, names) = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}\n\nprove [--seconds N] [part...]\n");
            for part in PARTS {
                eprintln!("  {:<16} {}", part.name, part.about);
            }
            return ExitCode::FAILURE;
        }
    };
    let mut failed = Vec::new();
    for part in PARTS {
        if names.is_empty() || names.iter().any(|name| name == part.name) {
            let run = Run::new(part.name, Duration::from_secs(seconds));
            println!("== {} on {}, {seconds} s, PRLOCK_SEED={}: {}", part.name, run.server(), run.seed(), part.about);
            match std::panic::catch_unwind(AssertUnwindSafe(|| (part.body)(&run))) {
                Ok(done) => println!("   ok after {} s: {done}", run.elapsed_s()),
                // The panic has printed its message.
                Err(_) => {
                    println!("   FAILED after {} s; again with PRLOCK_SEED={}", run.elapsed_s(), run.seed());
                    failed.push(part.name);
                }
            }
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn arguments() -> Result<(u64, Vec<String>), String> {
    let (mut seconds, mut names) = (10, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            seconds = arguments.next().and_then(|text| text.parse().ok()).ok_or("--seconds takes a whole number")?;
        } else if PARTS.iter().any(|part| part.name == argument) {
            names.push(argument);
        } else {
            return Err(format!("no such part: {argument}"));
        }
    }
    Ok((seconds, names))
}
