//! Bars, with the first in colour where it is this module's.

use super::svg::Svg;
use crate::value::Value;

pub struct Bars {
    pub title: &'static str,
    pub subtitle: &'static str,
    pub unit: &'static str,
    pub bars: Vec<Bar>,
}

pub struct Bar {
    pub label: &'static str,
    pub value: f64,
}

const LABELS: f64 = 188.0;
/// For the values behind the bars.
const VALUES: f64 = 72.0;
const BAR: f64 = 22.0;
const STEP: f64 = 36.0;
/// One that is nearly nothing is still to be seen.
const LEAST: f64 = 2.0;

impl Bars {
    pub fn draw(&self, svg: &mut Svg, x: f64, y: f64, width: f64) {
        svg.text(x, y + 16.0, "title", self.title);
        svg.text(x, y + 34.0, "small", self.subtitle);
        let most = self.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        for (number, bar) in self.bars.iter().enumerate() {
            let top = y + 52.0 + number as f64 * STEP;
            let length = (bar.value / most * (width - LABELS - VALUES)).max(LEAST);
            let class = if bar.label.starts_with("PRLOCK") { "ours" } else { "theirs" };
            let baseline = top + BAR / 2.0 + 4.5;
            svg.text(x, baseline, "label", bar.label);
            svg.bar(x + LABELS, top, (length, BAR), class);
            svg.text(x + LABELS + length + 6.0, baseline, "value", &Value(bar.value, self.unit).to_string());
        }
    }

    pub fn describe(&self) -> String {
        let bars: Vec<String> =
            self.bars.iter().map(|bar| format!("{} {}", bar.label, Value(bar.value, self.unit))).collect();
        format!("{} ({}): {}", self.title, self.subtitle, bars.join(", "))
    }
}
