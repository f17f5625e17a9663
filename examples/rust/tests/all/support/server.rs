//! Real servers for the tests: own port, own folder, on loopback, ended by the test that started them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

pub struct Server {
    pub port: u16,
    folder: PathBuf,
    process: Child,
}

impl Server {
    pub async fn start(args: &[&str]) -> Self {
        let module = env::var("PRLOCK_MODULE").map_or(project().join("target/release/libprlock.so"), PathBuf::from);
        assert!(module.exists(), "{module:?} is missing: run 'make build' in the project's folder");
        let module = module.to_string_lossy().into_owned();
        Self::run(free_port().await, &[&["--loadmodule", module.as_str()], args].concat()).await
    }

    pub async fn without_module(port: u16) -> Self {
        Self::run(port, &[]).await
    }

    /// A sentinel for the primary on this port, which it calls `locks`.
    pub async fn sentinel(primary: u16) -> Self {
        let settings = format!(
            "sentinel monitor locks 127.0.0.1 {primary} 1\nsentinel down-after-milliseconds locks 500\n\
             sentinel failover-timeout locks 2000\n"
        );
        Self::spawn(free_port().await, &settings, &["--sentinel"]).await
    }

    async fn run(port: u16, args: &[&str]) -> Self {
        Self::spawn(port, "", args).await
    }

    async fn spawn(port: u16, settings: &str, args: &[&str]) -> Self {
        let folder = env::temp_dir().join(format!("prlock-client-test-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("server.conf");
        std::fs::write(&file, settings).expect("a file");
        let process = Command::new(program())
            .arg(&file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--logfile", "log"])
            .args(["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0", "--dir"])
            .arg(&folder)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server");
        let mut server = Self { port, folder, process };
        let began = Instant::now();
        while !matches!(server.ask(&["PING"]).await, Ok(reply) if reply.starts_with("+PONG") || reply.starts_with("-NOAUTH"))
        {
            assert!(began.elapsed() < Duration::from_secs(20), "the server did not start");
            assert!(server.process.try_wait().expect("its state").is_none(), "the server did not start");
            sleep(Duration::from_millis(10)).await;
        }
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// One command on a connection of its own, without any client library; gives the reply's first bytes.
    pub async fn raw(&self, args: &[&str]) -> String {
        self.ask(args).await.expect("a reply")
    }

    async fn ask(&self, args: &[&str]) -> std::io::Result<String> {
        let mut command = format!("*{}\r\n", args.len());
        for arg in args {
            command += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).await?;
        connection.write_all(command.as_bytes()).await?;
        let mut reply = vec![0; 65536];
        let read = timeout(Duration::from_secs(10), connection.read(&mut reply)).await??;
        Ok(String::from_utf8_lossy(&reply[..read]).into_owned())
    }

    pub async fn number(&self, args: &[&str]) -> i64 {
        let reply = self.raw(args).await;
        reply
            .trim()
            .strip_prefix(':')
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{args:?}: {reply}"))
    }

    /// One field of INFO.
    pub async fn info(&self, section: &str, field: &str) -> String {
        let reply = self.raw(&["INFO", section]).await;
        let found = reply.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_default().to_string()
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The project's folder: this example's grandparent, unless it is a copy elsewhere.
pub fn project() -> PathBuf {
    env::var("PRLOCK_ROOT").map_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

fn program() -> PathBuf {
    let cached = |path: &str| project().join(".cache/servers").join(path);
    let kind = env::var("PRLOCK_SERVER").unwrap_or_default();
    let (name, default) = match kind.as_str() {
        "" | "redis7" => ("PRLOCK_REDIS7", PathBuf::from("redis-server")),
        "redis8" => ("PRLOCK_REDIS8", cached("redis8/redis-server")),
        "valkey8" => ("PRLOCK_VALKEY8", cached("valkey8/valkey-server")),
        "valkey9" => ("PRLOCK_VALKEY9", cached("valkey9/valkey-server")),
        _ => panic!("PRLOCK_SERVER can be redis7, redis8, valkey8 or valkey9"),
    };
    env::var(name).map_or(default, PathBuf::from)
}

pub async fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    probe.local_addr().expect("its number").port()
}
