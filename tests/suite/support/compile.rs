//! Small C libraries and programs of the suite's own, compiled by the C compiler that building the module needs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::builder::target_folder;

/// Compiles a file beside the tests into a shared library.
#[track_caller]
pub fn compile_c(file: &str) -> PathBuf {
    compile(file, "so", &["-shared", "-fPIC"], &[])
}

/// Compiles a file beside the tests into a program.
#[track_caller]
pub fn compile_c_program(file: &str) -> PathBuf {
    compile(file, "program", &[], &["-ldl"])
}

/// Test programs may run side by side: what is compiled is put in its place whole, and whoever has loaded the one before
/// keeps that.
#[track_caller]
fn compile(file: &str, ending: &str, options: &[&str], libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(file);
    let folder = target_folder().join("tmp");
    std::fs::create_dir_all(&folder).expect("make a folder for what is compiled");
    let (compiled, draft) =
        (folder.join(format!("{file}.{ending}")), folder.join(format!("{file}-{:016x}", rand::random::<u64>())));
    let mut cc = Command::new("cc");
    let status = cc.args(options).args(["-O2", "-o"]).arg(&draft).arg(source).args(libraries).status();
    assert!(status.expect("run cc").success(), "cc has failed");
    std::fs::rename(draft, &compiled).expect("put it in its place");
    compiled
}
