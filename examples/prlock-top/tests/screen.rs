//! Pictures of the screen, drawn into memory.

use std::time::{Duration, Instant};

use prlock_top::app::{App, Mode};
use prlock_top::client::{Counters, Filter, Freed, Node};
use prlock_top::feed::{News, Order};
use prlock_top::lock::Lock;
use prlock_top::problem::Problem;
use prlock_top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// One app, at a moment that stands still.
struct Stage {
    app: App,
    now: Instant,
}

impl Stage {
    fn new() -> Self {
        let now = Instant::now();
        let mut app = App::new("127.0.0.1:6379", 0, Filter::default(), now);
        let node = Node { version: "Redis 7.0.15".to_owned(), is_primary: true, is_cluster: false };
        let counters = Counters::from([("held".to_owned(), 5), ("claims_granted".to_owned(), 1_234)]);
        app.hear(News::Counters(Ok((node, counters))), now);
        Self { app, now }
    }

    fn with(locks: Vec<Lock>) -> Self {
        let mut stage = Self::new();
        stage.hear_page(locks);
        stage
    }

    fn hear_page(&mut self, locks: Vec<Lock>) {
        self.app.hear(News::Page { generation: 1, after: None, locks, is_last: true }, self.now);
    }

    /// The lines of the screen, each with all its columns.
    fn draw(&mut self, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
        terminal.draw(|frame| _ = view::draw(frame, &mut self.app, self.now)).expect("draw");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).filter_map(|x| buffer.cell((x, y))).map(ratatui::buffer::Cell::symbol).collect();
        (0..height).map(row).collect()
    }

    fn press(&mut self, code: KeyCode) -> Option<Order> {
        self.app.press(KeyEvent::new(code, KeyModifiers::NONE), self.now)
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|letter| _ = self.press(KeyCode::Char(letter)));
    }
}

fn lock(key: &str, holder: &str, now: Instant) -> Lock {
    Lock {
        key: key.into(),
        holder: holder.into(),
        fence: 1_754_524_812_345_678,
        ttl_ms: Some(30_000),
        held_ms: 95_000,
        idle_ms: 30_000,
        renewals: 9,
        linger_ms: None,
        waiters: 0,
        seen: now,
    }
}

fn five(now: Instant) -> Vec<Lock> {
    let mut locks: Vec<Lock> = (1..=5).map(|number| lock(&format!("order:{number}"), "worker-1", now)).collect();
    locks[1].waiters = 3;
    locks[2].ttl_ms = None;
    locks[3].linger_ms = Some(2_000);
    locks
}

#[test]
fn eighty_columns_show_all_of_a_lock() {
    let mut stage = Stage::with(five(Instant::now()));
    let lines = stage.draw(80, 24);
    let row = lines.iter().find(|line| line.contains("order:2 ")).expect("a row");
    assert_eq!(row, " order:2          worker-1     1754524812345678  1m35s ██▌░░    30s     9     3 ");
    assert!(lines[0].starts_with(" 127.0.0.1:6379 db 0 · Redis 7.0.15 · primary"), "{lines:#?}");
    assert!(lines[0].ends_with("live "), "{lines:#?}");
    assert!(lines[1].starts_with(" 5 locks · by key ↑"), "{lines:#?}");
    assert!(lines.concat().contains("claims granted 1,234"), "{lines:#?}");
    let title = lines.iter().find(|line| line.contains("HOLDER")).expect("the titles");
    assert_eq!(title, " KEY↑             HOLDER                  FENCE    AGE REST         RENEW  WAIT ");
}

#[test]
fn two_hundred_columns_show_more_of_it() {
    let mut stage = Stage::with(five(Instant::now()));
    let lines = stage.draw(200, 50);
    let row = lines.iter().find(|line| line.contains("order:4 ")).expect("a row");
    assert!(row.contains("██████████░░░░░░░░░░    30s"), "{row}");
    assert!(row.trim_end().ends_with("30s   2.0s"), "{row}");
    assert!(lines.concat().contains("IDLE LINGER"), "{lines:#?}");
}

#[test]
fn an_empty_server_is_no_blank_screen() {
    let text = Stage::with(Vec::new()).draw(80, 24).concat();
    assert!(text.contains("no locks are held in database 0"), "{text}");
    let text = Stage::new().draw(80, 24).concat();
    assert!(text.contains("looking …"), "{text}");
}

#[test]
fn a_deadline_that_never_comes_has_no_bar() {
    let mut stage = Stage::with(five(Instant::now()));
    let lines = stage.draw(80, 24);
    let row = lines.iter().find(|line| line.contains("order:3 ")).expect("a row");
    assert!(row.contains("∞       none"), "{row}");
}

#[test]
fn rest_and_age_run_on_between_two_looks() {
    let mut stage = Stage::with(five(Instant::now()));
    stage.now += Duration::from_secs(20);
    let lines = stage.draw(80, 24);
    let row = lines.iter().find(|line| line.contains("order:1 ")).expect("a row");
    assert!(row.contains(" 1m55s "), "{row}");
    assert!(row.contains(" 10s ") || row.contains(" 9."), "{row}");
}

#[test]
fn wide_letters_and_control_bytes_keep_the_columns_in_place() {
    let now = Instant::now();
    let mut stage =
        Stage::with(vec![lock("\x1b[2J\x07", "\u{202e}evil", now), lock("鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵", "ワーカー", now)]);
    let lines = stage.draw(80, 24);
    let text = lines.concat();
    assert!(text.contains("\\x1b[2J\\x07"), "{text}");
    assert!(text.contains("\\u{202e}evi"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text}");
    let wide = lines.iter().find(|line| line.contains('鍵') && line.contains("175")).expect("a row");
    // The second half of a wide letter is no cell of its own here.
    assert!(wide.trim_end().ends_with("1754524812345678  1m35s ██▌░░    30s     9     0"), "{wide}");
}

#[test]
fn a_small_terminal_says_so_and_a_smaller_one_lives() {
    let mut stage = Stage::with(five(Instant::now()));
    let text = stage.draw(50, 10).concat();
    assert!(text.contains("too small: 50x10, needs 60x12"), "{text}");
    for (width, height) in [(1, 1), (2, 1), (5, 3), (60, 12), (61, 13), (500, 12), (60, 200)] {
        stage.draw(width, height);
    }
}

#[test]
fn fifty_thousand_rows_are_paged_through_at_once() {
    let now = Instant::now();
    let mut stage = Stage::with((0..50_000).map(|number| lock(&format!("k{number:05}"), "w", now)).collect());
    assert!(stage.draw(80, 24)[1].contains("50,000 locks · rows 1–"));
    stage.press(KeyCode::End);
    let began = Instant::now();
    let lines = stage.draw(80, 24);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(lines.iter().any(|line| line.starts_with(" k49999 ")), "{lines:#?}");
    stage.press(KeyCode::PageUp);
    stage.draw(80, 24);
    assert_eq!(stage.app.selected, 49_999 - (stage.app.height - 1));
    stage.press(KeyCode::Home);
    assert!(stage.draw(80, 24).iter().any(|line| line.starts_with(" k00000 ")));
}

#[test]
fn loading_shows_how_far_it_is() {
    let now = Instant::now();
    let mut stage = Stage::new();
    let locks = (0..3).map(|number| lock(&format!("k{number}"), "w", now)).collect();
    stage.app.hear(News::Page { generation: 1, after: None, locks, is_last: false }, now);
    let lines = stage.draw(80, 24);
    assert!(lines[1].contains("loading 3 of 5"), "{lines:#?}");
}

#[test]
fn the_selection_stays_with_its_lock_when_others_come() {
    let now = Instant::now();
    let mut stage = Stage::with(vec![lock("b", "w", now), lock("c", "w", now)]);
    stage.draw(80, 24);
    stage.press(KeyCode::Down);
    stage.hear_page(vec![lock("a", "w", now), lock("b", "w", now), lock("c", "w", now)]);
    stage.draw(80, 24);
    assert_eq!(stage.app.selected_lock().map(|lock| lock.key.as_slice()), Some(&b"c"[..]));
    // Untouched, it is the first row, whatever comes there.
    stage.press(KeyCode::Home);
    stage.hear_page(vec![lock("0", "w", now), lock("b", "w", now)]);
    stage.draw(80, 24);
    assert_eq!(stage.app.selected_lock().map(|lock| lock.key.as_slice()), Some(&b"0"[..]));
}

#[test]
fn freeing_asks_first_and_names_the_grant() {
    let mut stage = Stage::with(five(Instant::now()));
    stage.draw(80, 24);
    stage.press(KeyCode::Down);
    assert_eq!(stage.press(KeyCode::Char('f')), None);
    let text = stage.draw(80, 24).concat();
    for part in ["free this lock?", "order:2", "worker-1", "1754524812345678", "3 clients wait for it"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Neither a stray key nor Enter frees anything.
    assert_eq!(stage.press(KeyCode::Enter), None);
    assert_eq!(stage.press(KeyCode::Char('j')), None);
    assert!(matches!(stage.app.mode, Mode::Ask(_)));
    assert_eq!(stage.press(KeyCode::Char('n')), None);
    assert_eq!(stage.app.mode, Mode::List);

    stage.press(KeyCode::Char('f'));
    let order = Order::Free { key: b"order:2".to_vec(), fence: 1_754_524_812_345_678 };
    assert_eq!(stage.press(KeyCode::Char('y')), Some(order));
    let newer = Freed::Newer { holder: b"worker-2".to_vec(), fence: 1_754_524_812_345_679 };
    stage.app.hear(News::Freed { key: b"order:2".to_vec(), outcome: Ok(newer) }, stage.now);
    let text = stage.draw(80, 24).concat();
    assert!(text.contains("left alone: order:2 has a newer grant, 1754524812345679 by worker-2"), "{text}");
}

#[test]
fn filters_are_typed_and_asked_of_the_server() {
    let mut stage = Stage::with(five(Instant::now()));
    stage.draw(80, 24);
    stage.press(KeyCode::Char('/'));
    stage.type_text("order:*x");
    stage.press(KeyCode::Backspace);
    assert!(stage.draw(80, 24).concat().contains("keys like: order:*"));
    let pattern = Some(b"order:*".to_vec());
    let filter = Filter { pattern: pattern.clone(), holder: None };
    assert_eq!(stage.press(KeyCode::Enter), Some(Order::Watch(2, filter)));

    // What was asked before comes too late.
    stage.hear_page(five(stage.now));
    assert!(stage.app.rows.is_empty());
    stage.app.hear(News::Page { generation: 2, after: None, locks: Vec::new(), is_last: true }, stage.now);
    let text = stage.draw(80, 24).concat();
    assert!(text.contains("no lock matches this filter"), "{text}");

    stage.press(KeyCode::Char('h'));
    stage.type_text("w\\xff");
    let filter = Filter { pattern, holder: Some(b"w\xff".to_vec()) };
    assert_eq!(stage.press(KeyCode::Enter), Some(Order::Watch(3, filter)));
    assert!(stage.draw(120, 24)[1].contains("keys like order:* · holder w\\xff"));
    assert_eq!(stage.press(KeyCode::Esc), Some(Order::Watch(4, Filter::default())));
    assert_eq!(stage.press(KeyCode::Esc), None);
}

#[test]
fn a_lost_connection_says_why_and_when_again() {
    let mut stage = Stage::with(five(Instant::now()));
    let retry_at = stage.now + Duration::from_secs(2);
    let problem = Problem::new("nothing listens on 127.0.0.1:6379");
    stage.app.hear(News::Lost { problem, retry_at }, stage.now);
    let lines = stage.draw(80, 24);
    assert!(lines[0].ends_with("nothing listens on 127.0.0.1:6379; again in 2 s "), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("order:1")), "what was seen last stays: {lines:#?}");
    stage.press(KeyCode::Char('f'));
    assert_eq!(stage.app.mode, Mode::List);
}

#[test]
fn a_cluster_s_node_says_that_it_is_not_the_whole() {
    let mut stage = Stage::with(five(Instant::now()));
    let node = Node { version: "Valkey 9.1.2".to_owned(), is_primary: false, is_cluster: true };
    stage.app.hear(News::Counters(Ok((node, Counters::new()))), stage.now);
    let lines = stage.draw(100, 24);
    assert!(lines[0].contains("Valkey 9.1.2 · replica · cluster: this node's locks only"), "{lines:#?}");
}
