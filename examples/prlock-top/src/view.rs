//! The screen.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use crate::app::{App, Link, Mode, What};
use crate::header;
use crate::table;
use crate::text::{duration, fit, printable};

/// Below this nothing can be read.
pub const SMALLEST: (u16, u16) = (60, 12);

const KEYS: &str =
    "↑↓ PgUp PgDn move · s sort · r reverse · / match · h holder · f free · space pause · ? help · q quit";
const KEYS_SHORT: &str = "↑↓ move · s sort · / match · h holder · f free · space pause · ? help · q quit";

/// Draws everything. Returns the keys that are on the screen.
pub fn draw(frame: &mut Frame, app: &mut App, now: Instant) -> Vec<Vec<u8>> {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("too small: {}x{}, needs {}x{}", area.width, area.height, SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return Vec::new();
    }
    let header_height = u16::try_from(header::lines(app, usize::from(area.width), now).len()).unwrap_or(u16::MAX);
    let [top, titles, body, detail, bottom] = Layout::vertical([
        Constraint::Length(header_height),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let visible = app.arrange(usize::from(body.height), now);
    // Again, now that it is known which rows are on the screen; it has as many lines as before.
    frame.render_widget(Paragraph::new(header::lines(app, usize::from(area.width), now)), top);
    table::draw(frame, app, titles, body, now);
    if app.rows.is_empty() {
        draw_empty(frame, app, body);
    }
    frame.render_widget(Paragraph::new(detail_line(app, usize::from(area.width), now)), detail);
    frame.render_widget(Paragraph::new(bottom_line(app, usize::from(area.width), now)), bottom);
    match &app.mode {
        Mode::List => {}
        Mode::Help => draw_box(frame, " keys ", help(), 66),
        Mode::Edit { what, text } => draw_edit(frame, *what, text, bottom),
        Mode::Ask(lock) => {
            let next = match lock.waiters {
                0 => "Nobody waits for it.".to_owned(),
                1 => "One client waits for it and gets it at once.".to_owned(),
                count => format!("{count} clients wait for it; the first of them gets it at once."),
            };
            let lines = vec![
                format!("key     {}", printable(&lock.key)),
                format!("holder  {}", printable(&lock.holder)),
                format!("fence   {}", lock.fence),
                format!("held    {}, {} renewals", duration(lock.age_ms(now)), lock.renewals),
                String::new(),
                "Its holder loses it and learns so at its next renewal.".to_owned(),
                next,
                "A newer grant of the same key is left alone.".to_owned(),
                String::new(),
                "y free it     n keep it".to_owned(),
            ];
            draw_box(frame, " free this lock? ", lines, 66);
        }
    }
    visible
}

/// What stands where no lock is.
fn draw_empty(frame: &mut Frame, app: &App, body: Rect) {
    let text = match &app.link {
        Link::Refused(problem) | Link::Lost { problem, .. } => problem.text.clone(),
        Link::Live if !app.progress.is_complete => "looking …".to_owned(),
        Link::Live if app.filter.pattern.is_some() || app.filter.holder.is_some() => {
            "no lock matches this filter; Esc takes it away".to_owned()
        }
        Link::Live => format!("no locks are held in database {}", app.db),
    };
    let width = body.width.saturating_sub(8).min(76);
    let paragraph = Paragraph::new(text).wrap(Wrap { trim: true }).centered();
    // A little above the middle, with all the room below for a long text.
    let above = body.height / 3;
    let area = Rect { x: body.x + (body.width - width) / 2, y: body.y + above, width, height: body.height - above };
    frame.render_widget(paragraph, area);
}

/// The selected lock in full, as far as it fits.
fn detail_line(app: &App, width: usize, now: Instant) -> Line<'static> {
    let Some(lock) = app.selected_lock() else { return Line::default() };
    let mut parts = vec![printable(&lock.key)];
    if !lock.holder.is_empty() {
        parts.push(format!("held by {}", printable(&lock.holder)));
    }
    parts.push(format!("idle {}", duration(lock.idle_now_ms(now))));
    if let Some(linger_ms) = lock.linger_ms {
        parts.push(format!("linger {}", duration(linger_ms)));
    }
    Line::styled(fit(&format!(" {}", parts.join(" · ")), width), Modifier::DIM)
}

/// The outcome of the last action, or the keys.
fn bottom_line(app: &App, width: usize, now: Instant) -> Line<'static> {
    if let Some(note) = app.note(now) {
        let color = if note.is_good { Color::Green } else { Color::Yellow };
        return Line::styled(fit(&format!(" {}", note.text), width), Style::new().fg(color));
    }
    let keys = if width > KEYS.chars().count() { KEYS } else { KEYS_SHORT };
    Line::styled(fit(&format!(" {keys}"), width), Modifier::DIM)
}

fn draw_edit(frame: &mut Frame, what: What, text: &str, area: Rect) {
    let (prompt, hint) = match what {
        What::Match => (" keys like: ", "  a glob as in KEYS, order:*"),
        What::Holder => (" locks of exactly: ", "  Ctrl-U empties"),
    };
    let room = usize::from(area.width).saturating_sub(prompt.len() + 2);
    // The end of a long text is where one types.
    let from = text.chars().count().saturating_sub(room);
    let shown: String = text.chars().skip(from).collect();
    let mut spans = vec![Span::styled(prompt, Modifier::BOLD), Span::raw(shown), Span::styled(" ", Modifier::REVERSED)];
    if Line::from(spans.clone()).width() + hint.len() < usize::from(area.width) {
        spans.push(Span::styled(hint, Modifier::DIM));
    }
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn help() -> Vec<String> {
    let keys = [
        "↑ ↓ j k          one lock up or down",
        "PgUp PgDn        one page up or down",
        "Home End g G     the first, the last lock",
        "s                sort by the next column",
        "r                the other way round",
        "/                only keys like …, a glob as in KEYS",
        "h                only locks of this holder",
        "Esc              all locks again",
        "f                free the selected lock, after a question",
        "space            stop asking the server, go on",
        "q                quit",
    ];
    keys.map(str::to_owned).to_vec()
}

/// A box in the middle of the screen.
fn draw_box(frame: &mut Frame, title: &'static str, lines: Vec<String>, width: u16) {
    let area = frame.area();
    let width = width.min(area.width.saturating_sub(2));
    let inner = usize::from(width.saturating_sub(4));
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let area = centered(area, width, height);
    let lines: Vec<Line> = lines.iter().map(|line| Line::raw(format!(" {}", fit(line, inner)))).collect();
    let block = Block::bordered().title(Span::styled(title, Modifier::BOLD));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
