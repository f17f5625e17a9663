//! How a client reaches the locks: straight, through failovers, or through a cluster.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Cmd, ConnectionLike, Value};

use crate::support::{Conn, PATIENCE};

/// Longer than any wait or stop of a server.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries in a cluster that is not ready.
const PAUSE: Duration = Duration::from_millis(5);

/// What came back.
pub enum Reply {
    Value(Value),
    /// The code of a server's error: it has done nothing.
    Error(String),
    /// Sent, but the server closed the connection before it answered: by now it has done it or never will.
    Lost,
    /// Sent, and nobody knows whether it was done, or will be.
    Unknown,
    /// There was nobody to send it to.
    NotSent,
}

pub trait Link: Send {
    fn call(&mut self, command: &Cmd) -> Reply;
}

/// A connection to one server, wherever that is now.
pub struct Direct<P> {
    port: P,
    conn: Option<Conn>,
}

impl<P: FnMut() -> u16> Direct<P> {
    pub fn new(port: P) -> Self {
        Self { port, conn: None }
    }
}

impl<P: FnMut() -> u16 + Send> Link for Direct<P> {
    fn call(&mut self, command: &Cmd) -> Reply {
        let Some(mut conn) = self.conn.take().or_else(|| connect((self.port)())) else { return Reply::NotSent };
        let reply = send(&mut conn, command);
        // A server that says that it can't may be another's replica by now.
        if matches!(reply, Reply::Value(_)) {
            self.conn = Some(conn);
        }
        match reply {
            Reply::Error(text) => Reply::Error(code(&text)),
            other => other,
        }
    }
}

fn connect(port: u16) -> Option<Conn> {
    let conn = Conn::open(port, Conn::resp2()).ok()?;
    conn.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    Some(conn)
}

/// Errors come with their whole text.
fn send(conn: &mut Conn, command: &Cmd) -> Reply {
    match conn.req_command(command) {
        Ok(Value::ServerError(error)) => {
            Reply::Error(format!("{} {}", error.code(), error.details().unwrap_or_default()))
        }
        Ok(value) => Reply::Value(value),
        Err(error) if error.code().is_some() => Reply::Error(error.to_string()),
        Err(_) => Reply::Lost,
    }
}

fn code(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// A cluster client by hand, which follows every redirection by the letter.
pub struct Router {
    ports: Vec<u16>,
    conns: HashMap<u16, Conn>,
    /// Where each key was last.
    places: HashMap<Vec<u8>, u16>,
}

impl Router {
    pub fn new(ports: &[u16]) -> Self {
        Self { ports: ports.to_vec(), conns: HashMap::new(), places: HashMap::new() }
    }
}

impl Link for Router {
    fn call(&mut self, command: &Cmd) -> Reply {
        let key = command.args_iter().nth(1).map(|arg| match arg {
            redis::Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        });
        let key = key.unwrap_or_default();
        let mut port = self.places.get(&key).copied().unwrap_or(self.ports[0]);
        let mut asking = false;
        let (start, mut tries) = (Instant::now(), 0);
        while start.elapsed() < PATIENCE {
            tries += 1;
            let Some(mut conn) = self.conns.remove(&port).or_else(|| connect(port)) else {
                self.places.remove(&key);
                port = self.ports[tries % self.ports.len()];
                asking = false;
                std::thread::sleep(PAUSE);
                continue;
            };
            if asking && matches!(send(&mut conn, &redis::cmd("ASKING")), Reply::Lost) {
                asking = false;
                continue;
            }
            let reply = send(&mut conn, command);
            if matches!(reply, Reply::Lost) {
                self.places.remove(&key);
                return reply;
            }
            self.conns.insert(port, conn);
            let Reply::Error(text) = reply else {
                return reply;
            };
            asking = false;
            match code(&text).as_str() {
                "MOVED" => {
                    port = redirected(&text).unwrap_or(port);
                    self.places.insert(key.clone(), port);
                }
                "ASK" => {
                    port = redirected(&text).unwrap_or(port);
                    asking = true;
                }
                "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "UNBLOCKED" | "READONLY" => {
                    self.places.remove(&key);
                    port = self.ports[tries % self.ports.len()];
                    std::thread::sleep(PAUSE);
                }
                other => return Reply::Error(other.to_owned()),
            }
        }
        Reply::Error("PATIENCE".to_owned())
    }
}

/// The port in `MOVED 3999 127.0.0.1:6381`.
fn redirected(text: &str) -> Option<u16> {
    text.trim().rsplit(':').next()?.parse().ok()
}

/// The cluster client of the redis crate. It sends again by itself, so that an error of its says nothing of what was done.
pub struct Library {
    client: ClusterClient,
    conn: Option<ClusterConnection>,
}

impl Library {
    pub fn new(ports: &[u16]) -> Self {
        let nodes: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let client = ClusterClient::builder(nodes)
            .retries(50)
            .min_retry_wait(2)
            .max_retry_wait(50)
            .build()
            .expect("a cluster client");
        Self { client, conn: None }
    }
}

impl Link for Library {
    fn call(&mut self, command: &Cmd) -> Reply {
        let Some(mut conn) = self.conn.take().or_else(|| self.client.get_connection().ok()) else {
            return Reply::NotSent;
        };
        match conn.req_command(command) {
            Ok(Value::ServerError(_)) | Err(_) => Reply::Unknown,
            Ok(value) => {
                self.conn = Some(conn);
                Reply::Value(value)
            }
        }
    }
}
