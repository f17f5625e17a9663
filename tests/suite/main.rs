//! The suite against real servers.
