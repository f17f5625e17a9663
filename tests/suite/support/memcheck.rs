//! Servers under valgrind's memcheck, for `make memcheck`. What memcheck looks for is the script's choice, by valgrind's own
//! variable `VALGRIND_OPTS`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How many times as long what a test waits for may take: memcheck makes a server some thirty times slower.
const STRETCH: u32 = 20;
/// Less than this is no patience but a look at what has come.
const PATIENCE_LEAST: Duration = Duration::from_secs(1);

/// The folder for what memcheck writes, from `PRLOCK_MEMCHECK`; without it the servers run as they are.
fn folder() -> Option<PathBuf> {
    std::env::var_os("PRLOCK_MEMCHECK").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Whether the servers run under memcheck.
pub fn is_on() -> bool {
    folder().is_some()
}

/// A time that a test gives a server, made longer under memcheck.
pub fn stretched(time: Duration) -> Duration {
    if is_on() && time >= PATIENCE_LEAST { time * STRETCH } else { time }
}

/// A promise in ms, such as the module's for a wake-up, which memcheck cannot keep.
pub fn slowed_ms(ms: i64) -> i64 {
    if is_on() { ms * i64::from(STRETCH) } else { ms }
}

/// A bound on a share of a processor, which under memcheck is another one.
pub fn slowed_share(percent: f64) -> f64 {
    if is_on() { percent * f64::from(STRETCH) } else { percent }
}

/// What starts `program`: the program itself, or valgrind around it, which becomes the same process.
pub(super) fn command(program: &Path) -> Command {
    let Some(folder) = folder() else { return Command::new(program) };
    let mut command = Command::new("valgrind");
    // A process that the server forks has a file of its own.
    command.arg(format!("--log-file={}/{}.%p", folder.display(), file_name())).arg(program);
    command
}

/// The name of the running test, which is its thread's, as a file may be called.
fn file_name() -> String {
    std::thread::current().name().unwrap_or("other-thread").replace("::", ".")
}
