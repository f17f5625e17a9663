//! A real server, and the program in a terminal that a test can look at.

#![allow(dead_code, reason = "no single test file uses all of it")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};
use redis::{Connection, Value};

const PROGRAM: &str = env!("CARGO_BIN_EXE_prlock-top");

/// Far above what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until `condition` gives a value; panics with `what` and what was seen last when it takes too long.
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match condition() {
            Ok(value) => return value,
            Err(seen) => assert!(start.elapsed() < PATIENCE, "waited in vain for {what}; last seen:\n{seen}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The module's file.
pub fn module() -> PathBuf {
    let module = std::env::var_os("PRLOCK_MODULE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libprlock.so"), PathBuf::from);
    module.canonicalize().unwrap_or_else(|_| panic!("{} is missing: make build", module.display()))
}

/// A server process, ended when dropped.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    folder: PathBuf,
    args: Vec<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With more settings, as on the server's command line.
    pub fn with(args: &[&str]) -> Self {
        let module = module();
        let mut all = vec!["--loadmodule".to_owned(), module.display().to_string()];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self::launch(all)
    }

    pub fn without_module() -> Self {
        Self::launch(Vec::new())
    }

    fn launch(args: Vec<String>) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("prlock-top-test-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("make a folder for the server");
        let mut server = Self { child: None, port, folder, args };
        server.launch_again();
        server
    }

    /// Comes back without the module, as after a failover to a node that was set up without it.
    pub fn lose_module(&mut self) {
        self.stop();
        self.args = ["--enable-module-command", "local"].map(str::to_owned).to_vec();
        self.launch_again();
    }

    pub fn launch_again(&mut self) {
        let program = std::env::var_os("PRLOCK_REDIS7").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(&self.folder)
            .args(&self.args)
            .stdout(Stdio::null())
            .spawn()
            .expect("start redis-server");
        self.child = Some(child);
        let port = self.port;
        wait_until("the server", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
        });
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn conn(&self) -> Connection {
        let client = redis::Client::open(self.address()).expect("an address");
        client.get_connection().expect("connect to the server")
    }

    #[track_caller]
    pub fn call(&self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.conn()).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Claims many locks: `order:000000` and so on, for an hour.
    pub fn fill(&self, count: usize) {
        let mut conn = self.conn();
        for start in (0..count).step_by(1_000) {
            let mut pipe = redis::pipe();
            for number in start..count.min(start + 1_000) {
                pipe.cmd("PRLOCK.CLAIM").arg(format!("order:{number:06}")).arg("PX").arg(3_600_000);
                pipe.arg("TOKEN").arg("t").arg("HOLDER").arg(format!("worker-{}", number % 10)).ignore();
            }
            pipe.query::<()>(&mut conn).expect("claim");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port below the range of outgoing connections.
pub fn free_port() -> u16 {
    let id = std::process::id();
    (0..2_000u32)
        .map(|step| 22_000 + u16::try_from((id.wrapping_mul(97) + step * 7 + rand()) % 9_000).unwrap_or(0))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

fn rand() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    (RandomState::new().hash_one(0) % 9_000) as u32
}

/// The program in a terminal of its own.
pub struct Screen {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn std::io::Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    pub fn open(columns: u16, rows: u16, args: &[&str]) -> Self {
        Self::open_with(columns, rows, args, &[])
    }

    pub fn open_with(columns: u16, rows: u16, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = CommandBuilder::new(PROGRAM);
        command.args(args);
        Self::run(columns, rows, command, env)
    }

    /// A line typed into a shell in this folder, where the program is installed.
    pub fn type_in_shell(line: &str, folder: &Path, env: &[(&str, &str)]) -> Self {
        let programs = Path::new(PROGRAM).parent().expect("a program lies in a folder").to_owned();
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(programs).chain(std::env::split_paths(&inherited));
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", line]);
        command.env("PATH", std::env::join_paths(paths).expect("a path"));
        command.cwd(folder);
        Self::run(120, 24, command, env)
    }

    fn run(columns: u16, rows: u16, mut command: CommandBuilder, env: &[(&str, &str)]) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("open a pseudo-terminal");
        command.env("TERM", "xterm-256color");
        command.env_remove("REDISCLI_AUTH");
        for (name, value) in env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("start prlock-top");
        drop(pair.slave);
        let parser = Arc::new(Mutex::new(vt100::Parser::new(count(rows), count(columns), 0)));
        let mut output = pair.master.try_clone_reader().expect("read the terminal");
        let sink = Arc::clone(&parser);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                sink.lock().expect("the screen").process(&buffer[..count]);
            }
        });
        let keys = pair.master.take_writer().expect("write to the terminal");
        Self { master: pair.master, keys, child, parser }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("press keys");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.parser.lock().expect("the screen").screen_mut().set_size(count(rows), count(columns));
        self.master.resize(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).expect("resize");
    }

    /// What the screen shows.
    pub fn text(&self) -> String {
        self.parser.lock().expect("the screen").screen().contents()
    }

    /// Waits until the screen shows all these.
    #[track_caller]
    pub fn shows(&self, parts: &[&str]) -> String {
        wait_until(&format!("a screen with {parts:?}"), || {
            let text = self.text();
            if parts.iter().all(|part| text.contains(part)) { Ok(text) } else { Err(text) }
        })
    }

    /// Waits until the screen does not show this any more.
    #[track_caller]
    pub fn hides(&self, part: &str) {
        wait_until(&format!("a screen without {part:?}"), || {
            let text = self.text();
            if text.contains(part) { Err(text) } else { Ok(()) }
        });
    }

    /// Waits until the program has ended, and returns whether it says that all went well.
    #[track_caller]
    pub fn ends(&mut self) -> bool {
        let child = &mut self.child;
        wait_until("the program to end", || match child.try_wait() {
            Ok(Some(status)) => Ok(status.success()),
            other => Err(format!("{other:?}")),
        })
    }
}

fn count(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal with room")
}

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
