//! What would make a run fail later is said before it starts.

use std::panic::{self, UnwindSafe};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::options::Options;
use crate::parts::waiters;
use crate::support::{module_path, server_kind};

pub fn before_the_run(options: &Options) -> Result<(), String> {
    checked(module_path)?;
    let server = checked(|| server_kind().program())?;
    runs(&server)?;
    if options.wants("instructions") {
        runs(Path::new("valgrind"))?;
        runs(Path::new("callgrind_control"))?;
    }
    if options.wants("waiters") {
        raise_descriptors(waiters::DESCRIPTORS)?;
    }
    Ok(())
}

/// What the tests' harness panics about is said in one line here.
fn checked<T>(check: impl FnOnce() -> T + UnwindSafe) -> Result<T, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(check);
    panic::set_hook(hook);
    outcome.map_err(|why| match why.downcast::<String>() {
        Ok(why) => *why,
        Err(_) => "something is missing".to_owned(),
    })
}

fn runs(program: &Path) -> Result<(), String> {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} --version: {status}", program.display())),
        Err(error) => Err(format!("{} does not start: {error}", program.display())),
    }
}

/// Makes sure that this process and its servers may open that many files and connections.
fn raise_descriptors(needed: u64) -> Result<(), String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| format!("ulimit -n: {error}"))?;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        return Err(format!(
            "The part 'waiters' needs {needed} file descriptors, and this system allows {hard}: raise the limit \
             (ulimit -Hn {needed}, as root), or choose other parts by ONLY."
        ));
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(|error| format!("ulimit -n {needed}: {error}"))
}
