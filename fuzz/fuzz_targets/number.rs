//! Numbers in arguments: read as Rust's own parser reads them, but for what the server does not take.
#![no_main]
#![allow(dead_code, reason = "the files are compiled whole")]

#[path = "../../src/locks/number.rs"]
mod number;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let read = number::parse_i64(text);
    // What is read is written in one way only.
    match read {
        Some(value) => assert_eq!(value.to_string().as_bytes(), text),
        None => {
            let plain = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
            assert!(plain.is_none_or(|value| value.to_string().as_bytes() != text));
        }
    }
});
