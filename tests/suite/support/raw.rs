//! A plain socket, for tests that look at the very bytes or send what no client would.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use redis::{ToRedisArgs, Value};

use super::memcheck::stretched;
use super::resp::{error_text, frame_len, line_len};
use super::wait::PATIENCE;

/// A connection without any client library's help.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    /// What has arrived and was not yet taken.
    buffer: Vec<u8>,
}

/// Why nothing came.
#[derive(Debug)]
enum Missing {
    TimeIsUp,
    Closed,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TimeIsUp => "the time is up",
            Self::Closed => "the connection is closed",
        })
    }
}

impl Raw {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to the server");
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        let write_timeout = Some(stretched(PATIENCE));
        stream.set_write_timeout(write_timeout).expect("set the write timeout");
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send to the server");
    }

    /// Writes lines at once, so that the server finds all of them in one turn.
    pub fn send_lines<L: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = L>) {
        self.send(&super::pipeline(lines).get_packed_pipeline());
    }

    /// Sends a command and does not wait for its reply.
    #[track_caller]
    pub fn send_command(&mut self, args: impl ToRedisArgs) {
        self.send(&pack(args));
    }

    /// Sends a command and returns its reply, or the error's text.
    #[track_caller]
    pub fn call(&mut self, args: impl ToRedisArgs) -> Result<Value, String> {
        self.send_command(args);
        self.reply(PATIENCE)
    }

    /// The next reply, or the error's text; panics when none comes in time or the connection closes.
    #[track_caller]
    pub fn reply(&mut self, timeout: Duration) -> Result<Value, String> {
        let frame = self.frame(timeout).unwrap_or_else(|why| panic!("no reply within {timeout:?}: {why}"));
        decode(&frame)
    }

    /// The very bytes of the next reply.
    #[track_caller]
    pub fn reply_bytes(&mut self, timeout: Duration) -> Vec<u8> {
        self.frame(timeout).unwrap_or_else(|why| panic!("no reply within {timeout:?}: {why}"))
    }

    /// The next reply if it comes within `timeout`; the text of an error if it is one or the connection closes.
    pub fn reply_within(&mut self, timeout: Duration) -> Option<Result<Value, String>> {
        match self.frame(timeout) {
            Ok(frame) => Some(decode(&frame)),
            Err(Missing::TimeIsUp) => None,
            Err(Missing::Closed) => Some(Err(Missing::Closed.to_string())),
        }
    }

    /// Nothing more was sent to this connection: the next reply is the one of a PING sent now.
    #[track_caller]
    pub fn assert_silent(&mut self) {
        self.send(b"PING sentinel\r\n");
        let next = self.reply(PATIENCE);
        let pong = Value::BulkString(b"sentinel".to_vec());
        assert_eq!(next, Ok(pong), "a reply too many");
    }

    /// Waits until the server has closed this connection, dropping what it sends before.
    #[track_caller]
    pub fn wait_closed(&mut self, timeout: Duration) {
        let deadline = Instant::now() + stretched(timeout);
        loop {
            self.buffer.clear();
            match self.fill(deadline) {
                Ok(()) => {}
                Err(Missing::Closed) => return,
                Err(Missing::TimeIsUp) => panic!("still connected after {timeout:?}"),
            }
        }
    }

    /// The connection's id in CLIENT LIST.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        super::int(&self.call(("CLIENT", "ID")).expect("CLIENT ID"))
    }

    /// The port at this end.
    pub fn local_port(&self) -> u16 {
        self.stream.local_addr().expect("the socket's address").port()
    }

    /// Takes exactly `count` bytes.
    #[track_caller]
    pub fn take_bytes(&mut self, count: usize, timeout: Duration) -> Vec<u8> {
        self.take_when(timeout, |buffer| (buffer.len() >= count).then_some(count))
            .unwrap_or_else(|why| panic!("no {count} bytes within {timeout:?}: {why}"))
    }

    /// Takes a line, without its CR LF.
    #[track_caller]
    pub fn take_line(&mut self, timeout: Duration) -> Vec<u8> {
        let mut line =
            self.take_when(timeout, line_len).unwrap_or_else(|why| panic!("no line within {timeout:?}: {why}"));
        line.truncate(line.len() - 2);
        line
    }

    /// Takes everything up to and with `mark`.
    #[track_caller]
    pub fn take_through(&mut self, mark: &[u8], timeout: Duration) -> Vec<u8> {
        self.take_when(timeout, |buffer| {
            let start = buffer.windows(mark.len()).position(|part| part == mark)?;
            Some(start + mark.len())
        })
        .unwrap_or_else(|why| panic!("no end mark within {timeout:?}: {why}"))
    }

    /// Closes the connection for good, as a process that ends does.
    pub fn close(self) {
        // It may be closed already by the other side, which is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn frame(&mut self, timeout: Duration) -> Result<Vec<u8>, Missing> {
        self.take_when(timeout, frame_len)
    }

    /// Takes as many bytes as `length` says, once it says so.
    fn take_when(&mut self, timeout: Duration, length: impl Fn(&[u8]) -> Option<usize>) -> Result<Vec<u8>, Missing> {
        let deadline = Instant::now() + stretched(timeout);
        loop {
            if let Some(length) = length(&self.buffer) {
                return Ok(self.buffer.drain(..length).collect());
            }
            self.fill(deadline)?;
        }
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), Missing> {
        // Zero would mean no timeout at all, and what is here already counts as in time.
        let rest = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(rest)).expect("set the read timeout");
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Missing::Closed),
            Ok(length) => {
                self.buffer.extend_from_slice(&chunk[..length]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(Missing::TimeIsUp),
                ErrorKind::Interrupted => Ok(()),
                _ => Err(Missing::Closed),
            },
        }
    }
}

/// A command in the protocol's form.
pub fn pack(args: impl ToRedisArgs) -> Vec<u8> {
    redis::Cmd::new().arg(args).get_packed_command()
}

fn decode(frame: &[u8]) -> Result<Value, String> {
    match redis::parse_redis_value(frame) {
        Ok(Value::ServerError(error)) => Err(error_text(&error)),
        Ok(value) => Ok(value),
        Err(error) => panic!("the client can't decode {frame:?}: {error}"),
    }
}
