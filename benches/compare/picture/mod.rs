//! The picture of a run: what a cycle costs, how fast a lock changes hands, what looking costs, and how it all grows.

mod bars;
mod lines;
mod svg;

use crate::parts::growth::{CYCLE, HOLDER, PAGE, PLAIN_CYCLE, SIZES};
use crate::recipes;
use crate::report::Report;
use bars::{Bar, Bars};
use lines::{Line, Lines};
use svg::Svg;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 490.0;
const MARGIN: f64 = 16.0;
/// Of the four panels, two beside each other.
const PANEL: (f64, f64) = (420.0, 230.0);
const COLUMNS: [f64; 2] = [MARGIN, WIDTH - MARGIN - PANEL.0];
const ROWS: [f64; 2] = [MARGIN, MARGIN + PANEL.1];

pub fn draw(title: &str, report: &Report) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "PRLOCK beside what one would use instead", &describe(report));
    cycle(report).draw(&mut svg, COLUMNS[0], ROWS[0], PANEL.0);
    handover(report).draw(&mut svg, COLUMNS[1], ROWS[0], PANEL.0);
    list(report).draw(&mut svg, COLUMNS[0], ROWS[1], PANEL.0);
    growth(report).draw(&mut svg, COLUMNS[1], ROWS[1], PANEL);
    svg.text(MARGIN, HEIGHT - MARGIN, "small", title);
    svg.finish()
}

fn cycle(report: &Report) -> Bars {
    let bar = |label, name: &str| Bar { label, value: report.figure(&format!("cycle, {name}")) };
    Bars {
        title: "Claim, renew, release",
        subtitle: "server time for the three, less is better",
        unit: "µs",
        bars: vec![
            bar("PRLOCK", recipes::PRLOCK),
            bar("unsafe: SET, PEXPIRE, DEL", recipes::PLAIN),
            bar("SET, Lua by EVALSHA", recipes::EVALSHA),
            bar("SET, Lua by FCALL", recipes::FCALL),
        ],
    }
}

fn handover(report: &Report) -> Bars {
    let bar = |label, name: &str| Bar { label, value: report.figure(&format!("handover, {name}")) };
    Bars {
        title: "Hand-over: 16 workers on one key",
        subtitle: "grants per second, more is better",
        unit: "/s",
        bars: vec![
            bar("PRLOCK, BLOCK", "PRLOCK BLOCK"),
            bar("publish/subscribe", "publish/subscribe"),
            bar("polling, 50 ms", "polling every 50 ms"),
            bar("polling, 100 ms", "polling every 100 ms"),
        ],
    }
}

fn list(report: &Report) -> Bars {
    let bar = |label, name: &str| Bar { label, value: report.figure(&format!("list, {name}")) };
    Bars {
        title: "Find locks among 1,000,000",
        subtitle: "server time, less is better",
        unit: "ms",
        bars: vec![
            bar("PRLOCK: 1,000 of a holder", "holder"),
            bar("SCAN: 1,000 of a holder", "holder by SCAN"),
            bar("PRLOCK: 100 of a prefix", "prefix"),
            bar("SCAN: 100 of a prefix", "prefix by SCAN"),
        ],
    }
}

fn growth(report: &Report) -> Lines {
    let line = |label, what: &str, is_ours| {
        let values = SIZES.map(|size| report.figure(&format!("growth, {what}, {size}")));
        Line { label, values: values.map(|value| value / values[0]).to_vec(), is_ours }
    };
    Lines {
        title: "Growth with the locks held",
        subtitle: "server time, 1 at 10,000 locks, less is better",
        ticks: vec!["10,000", "100,000", "1,000,000"],
        lines: vec![
            line("a cycle", CYCLE, true),
            line("a page of 100", PAGE, true),
            line("a holder's 1,000", HOLDER, true),
            line("plain strings", PLAIN_CYCLE, false),
        ],
        // What O(n) would be, cut off by the frame.
        linear: "linear growth",
    }
}

/// For those who can't see it.
fn describe(report: &Report) -> String {
    let parts: Vec<String> = [cycle(report), handover(report), list(report)].iter().map(Bars::describe).collect();
    format!("{}. {}", parts.join(". "), growth(report).describe())
}
