//! The module's state, reachable from the thread that the server calls the module on, and from no other meanwhile.

use std::cell::RefCell;

use lazy_static::lazy_static;

use super::log::{Level, log};
use crate::locks::state::State;

struct MainThread(RefCell<State>);

// SAFETY: only callbacks that the server makes one at a time call `state`: on its main thread, or on a thread of another
// module, which holds the server's lock while it calls a command. The one callback that may run beside them,
// `lock_type::free`, does not.
unsafe impl Sync for MainThread {}

lazy_static! {
    static ref STATE: MainThread = MainThread(RefCell::default());
}

/// Runs `f` on the state. `f` sees plain data and must not call the server, which may come back here in the middle
/// (deleting a key calls `lock_type::unlink`). Should that happen all the same, it is logged and `f` is left out.
#[inline]
pub fn state<R: Default>(f: impl FnOnce(&mut State) -> R) -> R {
    match STATE.0.try_borrow_mut() {
        Ok(mut state) => f(&mut state),
        Err(_) => {
            complain();
            R::default()
        }
    }
}

#[cold]
fn complain() {
    log(Level::Warning, "prlock: the state was asked for while in use; this is a defect of the module");
}
