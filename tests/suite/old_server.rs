//! A server that is too old for the module: refused with a line in the log, before anything is touched. CASES 58. No such
//! server can be had for a test, so a small program plays it.

use std::process::{Command, Output};

use crate::support::{compile_c_program, module_path};

/// Loads the module into a server without these functions.
fn load_without(functions: &[&str]) -> Output {
    let program = compile_c_program("old_server.c");
    Command::new(program).arg(module_path()).args(functions).output().expect("run the old server")
}

#[test]
fn a_server_that_is_too_old_is_refused_with_a_line_in_the_log() {
    for missing in [
        // As in Redis 4, and then what came with Redis 7.0 and with 6.2.
        &["all"][..],
        &["RedisModule_RegisterNumericConfig", "RedisModule_LoadConfigs"],
        &["RedisModule_SetCommandInfo"],
        &["RedisModule_ReplyWithMap"],
        &["RedisModule_RedactClientCommandArgument"],
        &["RedisModule_ACLCheckKeyPermissions"],
        &["RedisModule_GetDbIdFromOptCtx"],
        &["RedisModule_GetAbsExpire"],
        &["RedisModule_AvoidReplicaTraffic"],
        &["RedisModule_GetDetachedThreadSafeContext"],
    ] {
        let output = load_without(missing);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{missing:?}: {printed}");
        let line = "warning: prlock: this server is too old; Redis 7.0, Valkey 8.1 or later is needed";
        assert!(printed.lines().any(|printed| printed == line), "{missing:?}: {printed}");
    }
}

/// The program itself: with every function there, the module goes on to use them.
#[test]
fn a_server_with_every_function_is_not_too_old() {
    let output = load_without(&["no such function"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("a function was called"), "{printed}");
    assert!(!printed.contains("too old"), "{printed}");
}
