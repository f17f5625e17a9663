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

/// Redis 7.0.0 to 7.0.2: what they lack is said, and the load goes on.
#[test]
fn a_server_that_does_not_tell_names_is_served_with_a_line_in_the_log() {
    let line = "warning: prlock: this server does not tell the names of connections, as Redis does from 7.0.3 on: a claim \
                without HOLDER has no holder";
    for (missing, is_told) in [("RedisModule_GetClientNameById", true), ("no such function", false)] {
        let printed = String::from_utf8_lossy(&load_without(&[missing]).stdout).into_owned();
        assert_eq!(printed.lines().any(|printed| printed == line), is_told, "{missing}: {printed}");
        assert!(printed.contains("a function was called"), "{missing}: {printed}");
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
