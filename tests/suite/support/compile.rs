//! Small C libraries of the suite's own, compiled by the C compiler that building the module needs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::builder::target_folder;

/// Compiles a file beside the tests into a shared library. Test programs may run side by side: it is put in its place
/// whole, and whoever has loaded the one before keeps that.
#[track_caller]
pub fn compile_c(file: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(file);
    let folder = target_folder().join("tmp");
    std::fs::create_dir_all(&folder).expect("make a folder for the library");
    let (library, draft) =
        (folder.join(format!("{file}.so")), folder.join(format!("{file}-{:016x}", rand::random::<u64>())));
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&draft).arg(source).status();
    assert!(compiled.expect("run cc").success(), "cc has failed");
    std::fs::rename(draft, &library).expect("put the library in its place");
    library
}
