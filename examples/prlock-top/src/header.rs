//! The lines above the table: which server, how the connection is, what is listed, the counters.

use std::time::Instant;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::app::{App, Link};
use crate::text::{fit, number, printable};

/// The counters in groups that stay together on a line: title, then each field of `INFO prlock` with what to call it.
const GROUPS: [(&str, &[(&str, &str)]); 6] = [
    ("now", &[("held", "held"), ("waiters", "waiting"), ("linger_bound", "lingering")]),
    ("renewals", &[("renewals", "done"), ("renewals_refused", "refused")]),
    (
        "claims",
        &[
            ("claims_granted", "granted"),
            ("claims_after_wait", "waited"),
            ("claims_repeated", "again"),
            ("claims_refused", "refused"),
        ],
    ),
    ("releases", &[("releases", "done"), ("releases_refused", "refused")]),
    ("waits", &[("waits_started", "begun"), ("waits_timed_out", "timed out"), ("waits_abandoned", "given up")]),
    (
        "lost",
        &[
            ("steals", "stolen"),
            ("revoked", "revoked"),
            ("lingered", "lingered"),
            ("expired", "expired"),
            ("evicted", "evicted"),
            ("deleted", "deleted"),
        ],
    ),
];

/// Between two groups on a line.
const GAP: usize = 3;

pub fn lines(app: &App, width: usize, now: Instant) -> Vec<Line<'static>> {
    let mut lines = vec![server(app, width, now), listing(app, width)];
    lines.extend(counters(app, width));
    lines
}

fn server(app: &App, width: usize, now: Instant) -> Line<'static> {
    let mut text = format!(" {} db {}", app.address, app.db);
    if let Some(node) = &app.node {
        text.push_str(&format!(" · {} · {}", node.version, if node.is_primary { "primary" } else { "replica" }));
        if node.is_cluster {
            text.push_str(" · cluster: this node's locks only");
        }
    }
    let (state, color) = match &app.link {
        Link::Lost { problem, retry_at } => {
            let seconds = retry_at.saturating_duration_since(now).as_secs_f64().ceil();
            (format!("{}; again in {seconds:.0} s ", problem.text), Color::Red)
        }
        Link::Refused(_) => ("no locks to see ".to_owned(), Color::Red),
        Link::Live if app.is_paused => ("paused ".to_owned(), Color::Yellow),
        Link::Live => ("live ".to_owned(), Color::Green),
    };
    let state = fit(&state, width.saturating_sub(24));
    let text = fit(&text, width.saturating_sub(state.width() + 1));
    let gap = width.saturating_sub(text.width() + state.width());
    Line::from(vec![
        Span::styled(text, Modifier::BOLD),
        Span::raw(" ".repeat(gap)),
        Span::styled(state, Style::new().fg(color).add_modifier(Modifier::BOLD)),
    ])
}

fn listing(app: &App, width: usize) -> Line<'static> {
    let total = app.rows.len();
    let mut parts = vec![match (app.progress.is_complete, total) {
        (false, _) if matches!(app.link, Link::Refused(_)) => "no list".to_owned(),
        (false, _) => match app.counters.as_ref().ok().and_then(|counters| counters.get("held")) {
            Some(held) if *held > 0 && app.filter == Default::default() => {
                format!("loading {} of {}", number(app.progress.listed as u64), number(*held))
            }
            _ => format!("loading {}", number(app.progress.listed as u64)),
        },
        (true, 1) => "1 lock".to_owned(),
        (true, total) => format!("{} locks", number(total as u64)),
    }];
    if total > app.height && app.height > 0 {
        let last = (app.top + app.height).min(total);
        parts.push(format!("rows {}–{}", number(app.top as u64 + 1), number(last as u64)));
    }
    parts.push(format!("by {}{}", app.column.name(), if app.descending { " ↓" } else { " ↑" }));
    if let Some(pattern) = &app.filter.pattern {
        parts.push(format!("keys like {}", printable(pattern)));
    }
    if let Some(holder) = &app.filter.holder {
        parts.push(format!("holder {}", printable(holder)));
    }
    Line::raw(fit(&format!(" {}", parts.join(" · ")), width))
}

fn counters(app: &App, width: usize) -> Vec<Line<'static>> {
    let counters = match &app.counters {
        Ok(counters) if counters.is_empty() => return Vec::new(),
        Ok(counters) => counters,
        Err(problem) => {
            let text = fit(&format!(" no counters: {}", problem.text), width);
            return vec![Line::styled(text, Style::new().fg(Color::Yellow))];
        }
    };
    let mut lines: Vec<Line> = Vec::new();
    for (title, fields) in GROUPS {
        let mut group = vec![Span::styled(title, Modifier::DIM)];
        for (field, name) in fields {
            let value = counters.get(*field).copied().unwrap_or_default();
            group.push(Span::raw(format!(" {name} ")));
            group.push(Span::styled(number(value), Modifier::BOLD));
        }
        let group_width: usize = group.iter().map(Span::width).sum();
        match lines.last_mut() {
            Some(line) if line.width() + GAP + group_width <= width => {
                line.push_span(Span::raw(" ".repeat(GAP)));
                line.extend(group);
            }
            _ => {
                group.insert(0, Span::raw(" "));
                lines.push(Line::from(group));
            }
        }
    }
    lines
}
