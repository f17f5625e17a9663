//! Numbers as people read them.

use std::fmt;

/// A value with its unit.
#[derive(Clone, Copy)]
pub struct Value(pub f64, pub &'static str);

impl fmt::Display for Value {
    /// Three digits that say something, and the unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        let digits = match value.abs() {
            size if size >= 100.0 || size == 0.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 1.0 => 2,
            _ => 3,
        };
        let number = format!("{value:.digits$}");
        write!(f, "{}", grouped(&number))?;
        if unit.is_empty() { Ok(()) } else { write!(f, " {unit}") }
    }
}

/// A whole number with a comma before every third digit; others as they are.
fn grouped(number: &str) -> String {
    let whole = !number.contains('.');
    let mut text = String::new();
    for (at, digit) in number.char_indices() {
        let behind = number.len() - at;
        if whole && at > 0 && behind.is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
