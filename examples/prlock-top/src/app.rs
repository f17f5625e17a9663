//! What the screen shows, and what each key does. No terminal and no server here.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::client::{Counters, Filter, Freed, Node};
use crate::feed::{News, Order};
use crate::lock::Lock;
use crate::problem::Problem;
use crate::rows::{Column, Rows};
use crate::text::{fit, printable, typed};

/// How long the outcome of an action stays on the screen.
const NOTE: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub struct App {
    pub address: String,
    pub db: i64,
    pub rows: Rows,
    pub column: Column,
    pub descending: bool,
    pub filter: Filter,
    generation: u64,
    /// The key of the selected row; none: the first row, whatever it is.
    selected_key: Option<Vec<u8>>,
    pub selected: usize,
    /// The first row on the screen.
    pub top: usize,
    /// Rows that fit on the screen.
    pub height: usize,
    pub mode: Mode,
    note: Option<(Note, Instant)>,
    pub node: Option<Node>,
    pub counters: Result<Counters, Problem>,
    pub link: Link,
    pub progress: Progress,
    pub is_paused: bool,
    pub quits: bool,
}

/// Where the keys go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    List,
    Help,
    /// A filter is being typed.
    Edit {
        what: What,
        text: String,
    },
    /// Whether to free this lock.
    Ask(Box<Lock>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Match,
    Holder,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    Live,
    /// The server answers, but not with locks.
    Refused(Problem),
    Lost {
        problem: Problem,
        retry_at: Instant,
    },
}

/// How much of the list is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The whole list was there once.
    pub is_complete: bool,
    /// Locks that this round has listed by now.
    pub listed: usize,
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub text: String,
    pub is_good: bool,
}

impl App {
    pub fn new(address: &str, db: i64, filter: Filter, now: Instant) -> Self {
        Self {
            address: address.to_owned(),
            db,
            rows: Rows::new(now),
            column: Column::Key,
            descending: false,
            filter,
            generation: 1,
            selected_key: None,
            selected: 0,
            top: 0,
            height: 0,
            mode: Mode::List,
            note: None,
            node: None,
            counters: Ok(Counters::new()),
            link: Link::Live,
            progress: Progress::default(),
            is_paused: false,
            quits: false,
        }
    }

    /// What to ask for at the beginning.
    pub fn first_order(&self) -> Order {
        Order::Watch(self.generation, self.filter.clone())
    }

    pub fn note(&self, now: Instant) -> Option<&Note> {
        self.note.as_ref().filter(|(_, until)| now < *until).map(|(note, _)| note)
    }

    pub fn selected_lock(&self) -> Option<&Lock> {
        self.rows.get(self.selected)
    }

    /// Takes in what was found.
    pub fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Counters(Ok((node, counters))) => {
                self.node = Some(node);
                self.counters = Ok(counters);
            }
            News::Counters(Err(problem)) => self.counters = Err(problem),
            News::Page { generation, after, locks, is_last } if generation == self.generation => {
                self.link = Link::Live;
                let listed = if after.is_none() { 0 } else { self.progress.listed };
                self.progress.listed = listed + locks.len();
                self.progress.is_complete |= is_last;
                self.rows.merge(after.as_deref(), locks, is_last);
            }
            News::Looked { generation, locks } if generation == self.generation => self.rows.update(locks),
            // Of an earlier filter.
            News::Page { .. } | News::Looked { .. } => {}
            News::Refused(problem) => {
                // What was listed before may be gone with the module, say; and the reason stands where no lock is.
                self.forget();
                self.link = Link::Refused(problem);
            }
            News::Connected => {
                self.link = Link::Live;
                self.say(true, "connected again", now);
            }
            News::Lost { problem, retry_at } => self.link = Link::Lost { problem, retry_at },
            News::Freed { key, outcome } => self.freed(&key, outcome, now),
        }
    }

    fn freed(&mut self, key: &[u8], outcome: Result<Freed, Problem>, now: Instant) {
        // What became of it matters more than the end of a long name.
        let key = fit(&printable(key), 30);
        let (is_good, text) = match outcome {
            Ok(Freed::Free) => (true, format!("freed {key}")),
            Ok(Freed::HandedOn) => (true, format!("freed {key}: the next who waited has it now")),
            Ok(Freed::WasFree) => (false, format!("{key} was free already; nothing was done")),
            Ok(Freed::Newer { holder, fence }) => {
                (false, format!("left alone: {key} has a newer grant, {fence} by {}", printable(&holder)))
            }
            Ok(Freed::Busy) => (false, format!("{key} is renewed all the time; try again")),
            Err(problem) => (false, format!("not freed: {}", problem.text)),
        };
        self.say(is_good, text, now);
    }

    fn say(&mut self, is_good: bool, text: impl Into<String>, now: Instant) {
        self.note = Some((Note { text: text.into(), is_good }, now + NOTE));
    }

    /// Puts the rows in order and the selection where it belongs, for a screen of `height` rows. Returns the keys on it.
    pub fn arrange(&mut self, height: usize, now: Instant) -> Vec<Vec<u8>> {
        self.height = height;
        self.rows.arrange(now);
        if let Some(row) = self.selected_key.as_ref().and_then(|key| self.rows.row_of(key)) {
            // The screen goes with its selection when rows come and go above it.
            self.top = (self.top + row).saturating_sub(self.selected);
            self.selected = row;
        }
        self.selected = self.selected.min(self.rows.len().saturating_sub(1));
        self.top = self.top.min(self.rows.len().saturating_sub(height));
        self.top = self.top.clamp((self.selected + 1).saturating_sub(height), self.selected);
        (self.top..self.top + height).map_while(|row| self.rows.get(row)).map(|lock| lock.key.clone()).collect()
    }

    /// Does what a key means, and returns what to ask the server for.
    pub fn press(&mut self, key: KeyEvent, now: Instant) -> Option<Order> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.quits = true;
            return None;
        }
        match std::mem::replace(&mut self.mode, Mode::List) {
            Mode::List => self.press_in_list(key, now),
            Mode::Help => None,
            Mode::Edit { what, text } => self.press_in_edit(key, what, text),
            Mode::Ask(lock) => match key.code {
                KeyCode::Char('y' | 'Y') => Some(Order::Free { key: lock.key, fence: lock.fence }),
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => None,
                // A key that was meant for the list neither frees nor keeps.
                _ => {
                    self.mode = Mode::Ask(lock);
                    None
                }
            },
        }
    }

    fn press_in_list(&mut self, key: KeyEvent, now: Instant) -> Option<Order> {
        let page = self.height.saturating_sub(1).max(1);
        match key.code {
            KeyCode::Char('q') => self.quits = true,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.turn(self.selected.saturating_sub(page)),
            KeyCode::PageDown => self.turn(self.selected + page),
            KeyCode::Home | KeyCode::Char('g') => {
                self.select(0);
                self.selected_key = None;
            }
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('s') => {
                self.column = self.column.next();
                self.descending = self.column.starts_descending();
                self.sort();
            }
            KeyCode::Char('r') => {
                self.descending = !self.descending;
                self.sort();
            }
            KeyCode::Char('/') => self.edit(What::Match),
            KeyCode::Char('h') => self.edit(What::Holder),
            KeyCode::Esc if self.filter != Filter::default() => return Some(self.watch(Filter::default())),
            KeyCode::Char(' ') => {
                self.is_paused = !self.is_paused;
                return Some(Order::Pause(self.is_paused));
            }
            KeyCode::Char('f') => {
                if self.link != Link::Live {
                    self.say(false, "nothing can be freed while the server does not answer", now);
                } else if let Some(lock) = self.selected_lock() {
                    self.mode = Mode::Ask(Box::new(lock.clone()));
                }
            }
            _ => {}
        }
        None
    }

    fn press_in_edit(&mut self, key: KeyEvent, what: What, mut text: String) -> Option<Order> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter => {
                let bytes = Some(typed(&text)).filter(|bytes| !bytes.is_empty());
                let mut filter = self.filter.clone();
                match what {
                    What::Match => filter.pattern = bytes,
                    What::Holder => filter.holder = bytes,
                }
                return (filter != self.filter).then(|| self.watch(filter));
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(letter) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                text.push(letter);
            }
            KeyCode::Backspace => _ = text.pop(),
            _ => {}
        }
        self.mode = Mode::Edit { what, text };
        None
    }

    fn edit(&mut self, what: What) {
        let text = match what {
            // A glob's backslashes are its own, not escapes of this screen.
            What::Match => self.filter.pattern.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned(),
            What::Holder => match (&self.filter.holder, self.selected_lock()) {
                (Some(holder), _) => printable(holder),
                (None, Some(lock)) => printable(&lock.holder),
                (None, None) => String::new(),
            },
        };
        self.mode = Mode::Edit { what, text };
    }

    fn watch(&mut self, filter: Filter) -> Order {
        self.filter = filter;
        self.generation += 1;
        self.forget();
        self.first_order()
    }

    fn forget(&mut self) {
        self.rows.clear();
        self.progress = Progress::default();
        (self.selected, self.top, self.selected_key) = (0, 0, None);
    }

    fn sort(&mut self) {
        self.rows.sort_by(self.column, self.descending);
        (self.selected, self.top, self.selected_key) = (0, 0, None);
    }

    /// Selects a row on another page, which comes to where the selected one was on the screen.
    fn turn(&mut self, row: usize) {
        let place = self.selected.saturating_sub(self.top);
        self.select(row);
        self.top = self.selected.saturating_sub(place);
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
        self.selected_key = self.rows.get(self.selected).map(|lock| lock.key.clone());
    }
}
