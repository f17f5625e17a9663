//! Small C libraries of the suite's own, compiled by the C compiler that building the module needs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::builder::target_folder;

/// Compiles a file beside the tests into a shared library, with a name of its own for each call: test programs may run
/// side by side.
#[track_caller]
pub fn compile_c(file: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(file);
    let number: u64 = rand::random();
    let folder = target_folder().join("tmp");
    std::fs::create_dir_all(&folder).expect("make a folder for the library");
    let library = folder.join(format!("{file}-{number:016x}.so"));
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("run cc").success(), "cc has failed");
    library
}
