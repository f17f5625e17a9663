//! The program: command line, terminal, and the loop between keys, news and the screen.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser as _;
use prlock_top::app::App;
use prlock_top::client::{Client, Filter};
use prlock_top::feed::{self, News, Order};
use prlock_top::options::{Options, Target};
use prlock_top::text::typed;
use prlock_top::view;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

/// How often the screen is drawn without a key: deadlines run down between two looks at the server.
const FRAME: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("prlock-top: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    // The client library leaves the choice to the program. Fails only if it was made before.
    _ = rustls::crypto::ring::default_provider().install_default();
    let target = options.target()?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("this is a view for a terminal; for scripts there is: redis-cli --json PRLOCK.LIST".to_owned());
    }
    let filter =
        Filter { pattern: options.r#match.as_deref().map(typed), holder: options.holder.as_deref().map(typed) };
    // What is wrong from the start is said where the shell shows it.
    let mut client = Client::open(&target).map_err(|problem| problem.text)?;
    client.page(&filter, None, 1).map_err(|problem| problem.text)?;

    let (order, orders) = channel();
    let (tell, news) = channel();
    let app = App::new(&target.address, target.db, filter, Instant::now());
    _ = order.send(app.first_order());
    let interval = options.interval();
    thread::spawn(move || feed_forever(client, &target, interval, &orders, &tell));

    let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal: {error}"))?;
    let ended = show(&mut terminal, app, &order, &news);
    ratatui::restore();
    ended.map_err(|error| format!("the terminal: {error}"))
}

fn feed_forever(client: Client, target: &Target, interval: Duration, orders: &Receiver<Order>, tell: &Sender<News>) {
    feed::run(Some(client), target, interval, orders, tell);
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut app: App,
    order: &Sender<Order>,
    news: &Receiver<News>,
) -> io::Result<()> {
    let mut shown = Vec::new();
    while !app.quits {
        let now = Instant::now();
        news.try_iter().for_each(|news| app.hear(news, now));
        let mut visible = Vec::new();
        terminal.draw(|frame| visible = view::draw(frame, &mut app, now))?;
        if visible != shown {
            _ = order.send(Order::Visible(visible.clone()));
            shown = visible;
        }
        // All keys that are there, then one picture: a key that repeats must not queue up.
        let mut wait = FRAME;
        while event::poll(wait)? {
            wait = Duration::ZERO;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && let Some(wanted) = app.press(key, Instant::now())
            {
                _ = order.send(wanted);
            }
            if app.quits {
                break;
            }
        }
    }
    Ok(())
}
