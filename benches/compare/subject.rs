//! A server that is measured.

use std::cell::RefCell;
use std::time::Duration;

use crate::script::{Player, Script};
use crate::support::{Builder, Conn, Server, bytes};

pub struct Subject {
    server: Server,
    /// Asks and prepares; open from the start, since opening a connection costs the server time.
    control: RefCell<Conn>,
    player: RefCell<Player>,
}

impl Subject {
    pub fn with_module() -> Self {
        Self::of(Server::builder())
    }

    pub fn without_module() -> Self {
        Self::of(Server::builder().without_module())
    }

    pub fn of(builder: Builder) -> Self {
        let server = builder.start();
        let control = RefCell::new(server.conn());
        let player = RefCell::new(Player::connect(server.port()));
        Self { server, control, player }
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Starts the server anew with the snapshot that it has written, and returns the processor time in ms that its main
    /// thread has taken until it serves.
    pub fn reload_cpu_ms(&mut self) -> f64 {
        self.server.restart();
        *self.control.get_mut() = self.server.conn();
        *self.player.get_mut() = Player::connect(self.server.port());
        self.cpu_us() / 1e3
    }

    /// Asks the server something outside of what is measured.
    pub fn ask<T>(&self, question: impl FnOnce(&mut Conn) -> T) -> T {
        question(&mut self.control.borrow_mut())
    }

    /// Plays a script without measuring it.
    pub fn play(&self, script: &Script) {
        self.player.borrow_mut().play(script);
    }

    /// The server's processor time for a script, in µs per command.
    pub fn us_per_command(&self, script: &Script) -> f64 {
        self.cpu_us_of(|| self.play(script)) / script.commands() as f64
    }

    /// The processor time of the server's main thread while `work` is done, in µs.
    pub fn cpu_us_of(&self, work: impl FnOnce()) -> f64 {
        let before = self.cpu_us();
        work();
        self.cpu_us() - before
    }

    fn cpu_us(&self) -> f64 {
        let text = self.info("cpu");
        let seconds = |name: &str| -> f64 { field(&text, name).parse().expect("seconds") };
        (seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")) * 1e6
    }

    /// What the data takes, in bytes: all memory in use but the buffers of the connections. Waits until it stands still,
    /// since tables go on moving to their new size for a while.
    pub fn settled_memory(&self) -> i64 {
        let mut last = self.memory();
        let mut still = 0;
        // A second without change, within a minute.
        for _ in 0..300 {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.memory();
            still = if (now - last).abs() < 4096 { still + 1 } else { 0 };
            last = now;
            if still == 5 {
                break;
            }
        }
        last
    }

    fn memory(&self) -> i64 {
        let text = self.info("memory");
        let number = |name: &str| -> i64 { field(&text, name).parse().expect("bytes") };
        number("used_memory") - number("mem_clients_normal")
    }

    /// A section of INFO.
    pub fn info(&self, section: &str) -> String {
        self.ask(|conn| String::from_utf8_lossy(&bytes(&conn.ok(("INFO", section)))).into_owned())
    }

    pub fn flush(&self) {
        self.ask(|conn| conn.ok(("FLUSHALL", "SYNC")));
    }
}

/// The value of a field in INFO's text.
pub fn field<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("INFO has no field {name}"))
}
