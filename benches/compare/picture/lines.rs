//! Lines over sizes that grow tenfold at each step.

use super::svg::Svg;
use crate::value::Value;

pub struct Lines {
    pub title: &'static str,
    pub subtitle: &'static str,
    pub ticks: Vec<&'static str>,
    pub lines: Vec<Line>,
    /// The label of the line that grows as the sizes do.
    pub linear: &'static str,
}

pub struct Line {
    pub label: &'static str,
    /// One for each tick, the first of them 1.
    pub values: Vec<f64>,
    pub is_ours: bool,
}

/// What the frame leaves free: for the scale, the labels of the lines, the title and the ticks.
const LEFT: f64 = 26.0;
const RIGHT: f64 = 148.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 40.0;
/// Between the labels of two lines.
const LABEL: f64 = 16.0;

impl Lines {
    pub fn draw(&self, svg: &mut Svg, x: f64, y: f64, (width, height): (f64, f64)) {
        svg.text(x, y + 16.0, "title", self.title);
        svg.text(x, y + 34.0, "small", self.subtitle);
        let (left, right) = (x + LEFT, x + width - RIGHT);
        let (top, bottom) = (y + TOP, y + height - BOTTOM);
        let most = self.most();
        let across = |step: f64| left + step / (self.ticks.len() - 1) as f64 * (right - left);
        let up = |value: f64| bottom - value / most * (bottom - top);

        for value in 0..=most as usize {
            svg.path(&[(left, up(value as f64)), (right, up(value as f64))], "grid");
            svg.text(left - 6.0, up(value as f64) + 4.0, "small right", &value.to_string());
        }
        for (number, tick) in self.ticks.iter().enumerate() {
            svg.text(across(number as f64), bottom + 17.0, "small middle", tick);
        }
        self.draw_linear(svg, most, across, up);
        let mut labels: Vec<(f64, &Line)> = Vec::new();
        for line in &self.lines {
            let class = if line.is_ours { "ours" } else { "theirs" };
            let points: Vec<(f64, f64)> =
                line.values.iter().enumerate().map(|(at, value)| (across(at as f64), up(*value))).collect();
            svg.path(&points, &format!("line {class}"));
            for point in &points {
                svg.dot(*point, class);
            }
            labels.push((points[points.len() - 1].1, line));
        }
        self.draw_labels(svg, right + 10.0, labels);
    }

    /// What O(n) would be, as far as the frame reaches.
    fn draw_linear(&self, svg: &mut Svg, most: f64, across: impl Fn(f64) -> f64, up: impl Fn(f64) -> f64) {
        let parts = 20;
        let points: Vec<(f64, f64)> = (0..=parts)
            .map(|part| f64::from(part) / f64::from(parts) * most.log10())
            .map(|step| (across(step), up(10f64.powf(step))))
            .collect();
        svg.path(&points, "line linear");
        let (x, y) = points[points.len() - 1];
        svg.text(x + 6.0, y + 16.0, "small", self.linear);
    }

    /// Behind the ends of the lines, pushed apart where these are close.
    fn draw_labels(&self, svg: &mut Svg, x: f64, mut labels: Vec<(f64, &Line)>) {
        labels.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut free_from = f64::MIN;
        for (end, line) in labels {
            let y = end.max(free_from);
            free_from = y + LABEL;
            svg.text(x, y + 4.0, "small", &format!("{} {}", Value(last(line), "x"), line.label));
        }
    }

    /// The top of the scale: a whole number above all values.
    fn most(&self) -> f64 {
        let most = self.lines.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
        most.ceil().max(3.0)
    }

    pub fn describe(&self) -> String {
        let lines: Vec<String> =
            self.lines.iter().map(|line| format!("{} {}", line.label, Value(last(line), "x"))).collect();
        format!(
            "{} ({}), at {} locks: {}.",
            self.title,
            self.subtitle,
            self.ticks[self.ticks.len() - 1],
            lines.join(", ")
        )
    }
}

fn last(line: &Line) -> f64 {
    line.values[line.values.len() - 1]
}
