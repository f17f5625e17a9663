//! The thread that asks the server, and how little it asks.
//!
//! Few locks are listed whole at each look. Many are listed page by page, with pauses in proportion to what a page took,
//! so that a list of any length takes only a small part of the server's time; meanwhile the rows on the screen are
//! looked up by their keys at each look.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::client::{Client, Counters, Filter, Freed, Looked, Node};
use crate::lock::Lock;
use crate::options::Target;
use crate::problem::Problem;

/// Locks in a page: a few hundred microseconds of the server's time, during which others wait.
pub const PAGE: usize = 500;
/// The pause after a page, in times of what it took: until the whole list is there once, and later.
const FIRST_PAUSE: u32 = 2;
const LATER_PAUSE: u32 = 19;
/// From one attempt to connect to the next.
const RETRY: Duration = Duration::from_secs(2);
/// A wrong password is not tried often: servers log it.
const RETRY_SLOWLY: Duration = Duration::from_secs(10);

/// What the screen wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// List these from now on. The number comes back with what is found.
    Watch(u64, Filter),
    /// The keys on the screen.
    Visible(Vec<Vec<u8>>),
    Pause(bool),
    Free {
        key: Vec<u8>,
        fence: u64,
    },
}

/// What was found.
#[derive(Debug)]
pub enum News {
    Counters(Result<(Node, Counters), Problem>),
    Page {
        generation: u64,
        after: Option<Vec<u8>>,
        locks: Vec<Lock>,
        is_last: bool,
    },
    Looked {
        generation: u64,
        locks: Looked,
    },
    /// The server answers, but not with locks.
    Refused(Problem),
    Connected,
    Lost {
        problem: Problem,
        retry_at: Instant,
    },
    Freed {
        key: Vec<u8>,
        outcome: Result<Freed, Problem>,
    },
}

/// Serves the screen until it is gone. Starts with `client`, and connects again whenever the connection is lost.
pub fn run(
    mut client: Option<Client>,
    target: &Target,
    interval: Duration,
    orders: &Receiver<Order>,
    news: &Sender<News>,
) {
    let mut feed = Feed::new(interval);
    loop {
        let wait = match &client {
            Some(_) => feed.next_due().saturating_duration_since(Instant::now()),
            None => feed.retry_at.saturating_duration_since(Instant::now()),
        };
        match orders.recv_timeout(wait) {
            Ok(Order::Free { key, fence }) => {
                let outcome = match &mut client {
                    Some(client) => client.free(&key, fence),
                    None => Err(Problem::new("there is no connection to the server")),
                };
                if outcome.as_ref().is_err_and(|problem| problem.is_fatal_to_connection) {
                    client = None;
                }
                feed.look_now();
                _ = news.send(News::Freed { key, outcome });
                continue;
            }
            Ok(order) => {
                feed.take(order);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let result = match &mut client {
            Some(client) => feed.step(client, news),
            None => Client::open(target).map(|opened| {
                client = Some(opened);
                feed.start_over();
                _ = news.send(News::Connected);
            }),
        };
        if let Err(problem) = result {
            if client.is_some() && !problem.is_fatal_to_connection {
                // It may be mended on the server while this connection stays: a right given, a module loaded.
                feed.start_over_at(Instant::now() + RETRY);
                _ = news.send(News::Refused(problem));
                continue;
            }
            client = None;
            let is_password = problem.text.contains("password");
            feed.retry_at = Instant::now() + if is_password { RETRY_SLOWLY } else { RETRY };
            _ = news.send(News::Lost { problem, retry_at: feed.retry_at });
        }
    }
}

struct Feed {
    interval: Duration,
    generation: u64,
    filter: Filter,
    visible: Vec<Vec<u8>>,
    is_paused: bool,
    /// Where the list goes on; none at its beginning.
    after: Option<Vec<u8>>,
    sweep_began: Instant,
    /// The whole list was there once.
    has_all: bool,
    takes_many_pages: bool,
    page_at: Instant,
    look_at: Instant,
    retry_at: Instant,
}

impl Feed {
    fn new(interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            interval,
            generation: 0,
            filter: Filter::default(),
            visible: Vec::new(),
            is_paused: false,
            after: None,
            sweep_began: now,
            has_all: false,
            takes_many_pages: false,
            page_at: now,
            look_at: now,
            retry_at: now,
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Watch(generation, filter) => {
                self.generation = generation;
                self.filter = filter;
                self.start_over();
            }
            Order::Visible(keys) => self.visible = keys,
            Order::Pause(is_paused) => {
                self.is_paused = is_paused;
                if !is_paused {
                    self.look_now();
                }
            }
            Order::Free { .. } => {}
        }
    }

    fn start_over(&mut self) {
        self.start_over_at(Instant::now());
    }

    fn start_over_at(&mut self, at: Instant) {
        (self.after, self.has_all, self.takes_many_pages) = (None, false, false);
        (self.page_at, self.look_at, self.sweep_began) = (at, at, at);
    }

    fn look_now(&mut self) {
        self.look_at = Instant::now();
        if !self.takes_many_pages {
            self.page_at = self.look_at;
        }
    }

    fn next_due(&self) -> Instant {
        if self.is_paused && self.has_all {
            // Any order ends this wait.
            return Instant::now() + Duration::from_secs(3_600);
        }
        self.page_at.min(self.look_at)
    }

    /// Does what is due.
    fn step(&mut self, client: &mut Client, news: &Sender<News>) -> Result<(), Problem> {
        if self.look_at <= Instant::now() {
            self.look_at = Instant::now() + self.interval;
            self.look(client, news)?;
        }
        if self.page_at <= Instant::now() {
            self.page(client, news)?;
        }
        Ok(())
    }

    fn look(&mut self, client: &mut Client, news: &Sender<News>) -> Result<(), Problem> {
        match client.info() {
            Err(problem) if problem.is_fatal_to_connection => return Err(problem),
            // Without the right to INFO there still is the list.
            counters => _ = news.send(News::Counters(counters)),
        }
        if self.takes_many_pages && !self.visible.is_empty() {
            let locks = client.look(&self.visible)?;
            _ = news.send(News::Looked { generation: self.generation, locks });
        }
        Ok(())
    }

    fn page(&mut self, client: &mut Client, news: &Sender<News>) -> Result<(), Problem> {
        let began = Instant::now();
        let after = self.after.take();
        if after.is_none() {
            self.sweep_began = began;
        }
        let locks = client.page(&self.filter, after.as_deref(), PAGE)?;
        let is_last = locks.len() < PAGE;
        self.after = if is_last { None } else { locks.last().map(|lock| lock.key.clone()) };
        let took = began.elapsed();
        if is_last {
            self.takes_many_pages = after.is_some();
            self.has_all = true;
            self.page_at = (self.sweep_began + self.interval).max(began + took * LATER_PAUSE);
        } else {
            self.takes_many_pages = true;
            self.page_at = Instant::now() + took * if self.has_all { LATER_PAUSE } else { FIRST_PAUSE };
        }
        _ = news.send(News::Page { generation: self.generation, after, locks, is_last });
        Ok(())
    }
}
