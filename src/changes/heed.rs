//! What a command is about to do to keys that somebody waits for, as far as its words tell.
//!
//! EXPIRE on a lock and any command on a plain string give the module no sign of what they did. But they name their key,
//! and so do the calls within a script. So every awaited key that a command names is looked at behind it.

use crate::server::main_thread::state;

/// What only reads, of what clients call often; any other command costs a look at its words.
const READING: [&[u8]; 14] = [
    b"get",
    b"ttl",
    b"pttl",
    b"exists",
    b"type",
    b"mget",
    b"strlen",
    b"expiretime",
    b"pexpiretime",
    b"watch",
    b"object",
    b"dump",
    b"touch",
    b"memory",
];
/// The module's own commands leave nothing to be looked for.
const OWN: &[u8] = b"prlock.";

/// Notes what to look at when the command has run. `words` are those behind its name. Returns whether there is anything.
pub fn command<'a>(name: &[u8], words: impl Iterator<Item = &'a [u8]>) -> bool {
    if READING.iter().any(|reading| name.eq_ignore_ascii_case(reading))
        || name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN))
    {
        return false;
    }
    if name.eq_ignore_ascii_case(b"exec") {
        return state(|state| state.waiting.name_again());
    }
    let mut any = false;
    for word in words {
        any |= state(|state| state.waiting.may_have(word) && state.waiting.name(word));
    }
    any
}
