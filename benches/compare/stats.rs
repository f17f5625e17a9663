//! Numbers out of many numbers.

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "no values");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}
