//! A live view of the locks of a server with the PRLOCK module.
//!
//! `feed` asks the server on a thread of its own and sends what it finds; `app` keeps it and gives keys their meaning;
//! `view` draws it.

pub mod app;
pub mod client;
pub mod feed;
pub mod header;
pub mod lock;
pub mod options;
pub mod problem;
pub mod rows;
pub mod table;
pub mod text;
pub mod view;
