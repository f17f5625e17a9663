//! Locks as native commands of Redis and Valkey.
