//! Replies taken apart, the same in RESP2 and RESP3; each panics with the reply when it is of another shape.

use std::collections::BTreeMap;

use redis::Value;

#[track_caller]
pub fn int(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => panic!("not an integer: {other:?}"),
    }
}

#[track_caller]
pub fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) => text.clone().into_bytes(),
        Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        Value::Okay => b"OK".to_vec(),
        other => panic!("not a string: {other:?}"),
    }
}

#[track_caller]
pub fn text(value: &Value) -> String {
    String::from_utf8(bytes(value)).expect("a reply in UTF-8")
}

#[track_caller]
pub fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items.clone(),
        other => panic!("not an array: {other:?}"),
    }
}

/// A map of RESP3, or the flat array that it is in RESP2.
#[track_caller]
pub fn map(value: &Value) -> BTreeMap<String, Value> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(k, v)| (text(k), v.clone())).collect(),
        Value::Array(flat) => {
            assert!(flat.len().is_multiple_of(2), "a field without value: {flat:?}");
            flat.chunks(2).map(|pair| (text(&pair[0]), pair[1].clone())).collect()
        }
        other => panic!("not a map: {other:?}"),
    }
}
