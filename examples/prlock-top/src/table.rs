//! The table of locks.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr as _;

use crate::app::{App, Link};
use crate::lock::Lock;
use crate::rows::Column;
use crate::text::{duration, fit, printable, short_number};

/// From here on there is room for long bars and for more columns.
const WIDE: usize = 120;
/// A time in text.
const TIME: usize = 6;

/// The widths of the columns for a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Widths {
    key: usize,
    holder: usize,
    bar: usize,
    is_wide: bool,
}

const FENCE: usize = 16;
const RENEWALS: usize = 5;
const WAITERS: usize = 5;

impl Widths {
    fn of(width: usize) -> Self {
        let is_wide = width >= WIDE;
        let bar = if is_wide { 20 } else { 5 };
        let more = if is_wide { 2 * (TIME + 1) } else { 0 };
        // A space before each column, and one at the end.
        let fixed = FENCE + TIME + bar + 1 + TIME + RENEWALS + WAITERS + more + 8;
        let rest = width.saturating_sub(fixed);
        let key = rest * 3 / 5;
        Self { key, holder: rest - key, bar, is_wide }
    }
}

pub fn draw(frame: &mut Frame, app: &App, titles: Rect, body: Rect, now: Instant) {
    let widths = Widths::of(usize::from(body.width));
    frame.render_widget(Paragraph::new(title(app, widths)).style(Modifier::REVERSED), titles);
    let mut lines = Vec::with_capacity(usize::from(body.height));
    for row in app.top..app.top + usize::from(body.height) {
        let Some(lock) = app.rows.get(row) else { break };
        let mut line = row_line(lock, widths, now);
        if row == app.selected {
            line = line.style(Style::new().bg(Color::Blue).fg(Color::White).add_modifier(Modifier::BOLD));
        }
        if app.link != Link::Live {
            line = line.patch_style(Modifier::DIM);
        }
        lines.push(line);
    }
    frame.render_widget(Paragraph::new(lines), body);
}

fn title(app: &App, widths: Widths) -> Line<'static> {
    let name = |column: Column, title: &str| {
        let sign = match (app.column == column, app.descending) {
            (false, _) => "",
            (true, false) => "↑",
            (true, true) => "↓",
        };
        format!("{title}{sign}")
    };
    let mut cells = vec![
        left(&name(Column::Key, "KEY"), widths.key),
        left(&name(Column::Holder, "HOLDER"), widths.holder),
        right(&name(Column::Fence, "FENCE"), FENCE),
        right(&name(Column::Age, "AGE"), TIME),
        left(&name(Column::Rest, "REST"), widths.bar + 1 + TIME),
        right(&name(Column::Renewals, "RENEW"), RENEWALS),
        right(&name(Column::Waiters, "WAIT"), WAITERS),
    ];
    if widths.is_wide {
        cells.extend([right("IDLE", TIME), right("LINGER", TIME)]);
    }
    Line::raw(format!(" {} ", cells.join(" ")))
}

fn row_line(lock: &Lock, widths: Widths, now: Instant) -> Line<'static> {
    let rest = lock.rest_ms(now).map_or_else(|| "none".to_owned(), duration);
    let (bar, color) = bar(lock.rest_share(now), widths.bar);
    let mut spans = vec![
        Span::raw(format!(
            " {} {} {} {} ",
            left(&printable(&lock.key), widths.key),
            left(&printable(&lock.holder), widths.holder),
            right(&lock.fence.to_string(), FENCE),
            right(&duration(lock.age_ms(now)), TIME),
        )),
        Span::styled(bar, Style::new().fg(color)),
        Span::raw(format!(" {} {} ", right(&rest, TIME), right(&short_number(lock.renewals), RENEWALS))),
    ];
    let waiters = right(&short_number(lock.waiters), WAITERS);
    spans.push(match lock.waiters {
        0 => Span::raw(waiters),
        _ => Span::styled(waiters, Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)),
    });
    if widths.is_wide {
        let linger = lock.linger_ms.map_or_else(|| "-".to_owned(), duration);
        let idle = duration(lock.idle_now_ms(now));
        spans.push(Span::raw(format!(" {} {}", right(&idle, TIME), right(&linger, TIME))));
    }
    spans.push(Span::raw(" "));
    Line::from(spans)
}

/// A bar of `width` columns, in eighths of a column, and its color.
fn bar(share: Option<f64>, width: usize) -> (String, Color) {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let Some(share) = share.map(|share| share.clamp(0.0, 1.0)) else {
        return ("∞".to_owned() + &" ".repeat(width.saturating_sub(1)), Color::Magenta);
    };
    let eighths = (share * (width * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(EIGHTHS[eighths % 8]);
    let color = match share {
        0.5.. => Color::Green,
        0.2.. => Color::Yellow,
        _ => Color::Red,
    };
    // What is gone is shown too, so that the bar's end can be seen.
    let filled = text.width();
    text.push_str(&"░".repeat(width.saturating_sub(filled)));
    (text, color)
}

fn left(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let gap = width.saturating_sub(text.width());
    text + &" ".repeat(gap)
}

fn right(text: &str, width: usize) -> String {
    let text = fit(text, width);
    " ".repeat(width.saturating_sub(text.width())) + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_screen() {
        for width in [60, 80, 119, 120, 200, 300] {
            let widths = Widths::of(width);
            let fixed = FENCE + TIME + widths.bar + 1 + TIME + RENEWALS + WAITERS;
            let more = if widths.is_wide { 2 * (TIME + 1) } else { 0 };
            assert_eq!(widths.key + widths.holder + fixed + more + 8, width, "{widths:?}");
            assert!(widths.holder >= 3, "{widths:?}");
        }
    }

    #[test]
    fn a_bar_shows_its_share_in_eighths() {
        assert_eq!(bar(Some(1.0), 4).0, "████");
        assert_eq!(bar(Some(0.5), 4).0, "██░░");
        assert_eq!(bar(Some(0.0), 4).0, "░░░░");
        assert_eq!(bar(Some(0.03), 4), ("▏░░░".to_owned(), Color::Red));
        assert_eq!(bar(None, 4).0, "∞   ");
    }
}
