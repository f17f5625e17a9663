//! Numbers out of many numbers.

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "no values");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// Jain's index of fairness: 1 when all get the same, 1/n when one of n gets everything.
pub fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}
