//! The few shapes that the picture needs.

use std::fmt::Write;

/// Middle tones that can be read on white and on dark, and finer ones where the viewer says which it is.
const STYLE: &str = "\
    text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; \
           font-size: 13px; fill: #6e7781; }\
    .title { font-size: 15px; font-weight: 600; }\
    .small { font-size: 11px; }\
    .value { font-weight: 600; }\
    .right { text-anchor: end; }\
    .middle { text-anchor: middle; }\
    .ours { fill: #2f81f7; }\
    .theirs { fill: #a0a8b2; }\
    .line { fill: none; stroke-width: 2; stroke-linejoin: round; }\
    .line.ours { stroke: #2f81f7; fill: none; }\
    .line.theirs { stroke: #a0a8b2; fill: none; }\
    .line.linear { stroke: #a0a8b2; stroke-width: 1; stroke-dasharray: 3 4; }\
    .grid { stroke: #a0a8b2; stroke-opacity: 0.35; stroke-width: 1; }\
    @media (prefers-color-scheme: light) { text { fill: #424a53; } }\
    @media (prefers-color-scheme: dark) { text { fill: #b1bac4; } .theirs { fill: #6e7681; } }";

pub struct Svg {
    text: String,
}

impl Svg {
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n<style>{STYLE}</style>\n",
            escaped(title),
            escaped(description)
        );
        Self { text }
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.line(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text)));
    }

    /// A bar with rounded corners.
    pub fn bar(&mut self, x: f64, y: f64, (width, height): (f64, f64), class: &str) {
        self.line(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"{class}\"/>"
        ));
    }

    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.line(&format!("<polyline points=\"{}\" class=\"{class}\"/>", points.join(" ")));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        self.line(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>"));
    }

    pub fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("write to a string");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
