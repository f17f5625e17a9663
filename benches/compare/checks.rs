//! What would make a run fail later is said before it starts.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::options::Options;
use crate::support::{module_path, server_kind};

pub fn before_the_run(_options: &Options) -> Result<(), String> {
    // Both end the program with what to do when the file is missing.
    let module = module_path();
    let program = server_kind().program();
    runs(&program)?;
    eprintln!("module: {}", module.display());
    Ok(())
}

fn runs(program: &Path) -> Result<(), String> {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} does not run: {status}", program.display())),
        Err(error) => Err(format!("the server {} does not start: {error}", program.display())),
    }
}
