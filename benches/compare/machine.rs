//! On what all this was measured.

use std::process::Command;
use std::thread::available_parallelism;

use crate::options::Options;
use crate::support::server_kind;

/// One line: server, module, cores, processor, rounds.
pub fn title(options: &Options) -> String {
    let cores = available_parallelism().map_or(1, usize::from);
    format!(
        "{}, prlock {}; {cores} cores, {}; median of {} rounds",
        server(),
        env!("CARGO_PKG_VERSION"),
        processor(),
        options.rounds
    )
}

/// The server's name and version: `Redis 7.0.15`.
fn server() -> String {
    let output = Command::new(server_kind().program()).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let name = if server_kind().is_valkey() { "Valkey" } else { "Redis" };
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    format!("{name} {}", version.unwrap_or("of unknown version"))
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "an unknown processor".to_owned(), |(_, model)| model.to_owned())
}
