//! Against real servers, with `target/release/libprlock.so`.

#[macro_use]
mod support;

mod golden;
mod lock;
mod nodes;
mod readme;
mod trouble;
