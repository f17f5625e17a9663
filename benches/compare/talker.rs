//! A connection that says one thing at a time, as a worker does.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::support::PATIENCE;

pub struct Talker {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    /// Commands sent: each is a round trip.
    pub sent: u64,
}

/// A command in the wire's form. No word has a space in it.
pub fn command(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let args: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{args}", words.len()).into_bytes()
}

impl Talker {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to the server");
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        stream.set_read_timeout(Some(PATIENCE)).expect("set the read timeout");
        Self { stream, buffer: vec![0; 1 << 12], filled: 0, sent: 0 }
    }

    /// Sends a command and returns whether the reply says yes: a grant, OK or 1, and not null or 0.
    pub fn ask(&mut self, command: &[u8]) -> bool {
        self.send(command);
        self.answer()
    }

    pub fn send(&mut self, command: &[u8]) {
        self.stream.write_all(command).expect("send to the server");
        self.sent += 1;
    }

    /// Takes the reply to what was sent.
    pub fn answer(&mut self) -> bool {
        self.filled = 0;
        while !self.is_complete() {
            let count = self.stream.read(&mut self.buffer[self.filled..]).expect("a reply");
            assert!(count > 0, "the server has closed the connection");
            self.filled += count;
        }
        let reply = &self.buffer[..self.filled];
        assert!(reply[0] != b'-', "an error: {}", String::from_utf8_lossy(reply));
        !(reply.starts_with(b"$-1") || reply.starts_with(b"*-1") || reply.starts_with(b":0"))
    }

    /// A grant has four lines, every other reply that is asked for here has one.
    fn is_complete(&self) -> bool {
        let reply = &self.buffer[..self.filled];
        let due = if reply.starts_with(b"*2") { 4 } else { 1 };
        reply.iter().filter(|byte| **byte == b'\n').count() == due
    }

    /// Waits until anything comes, a published message, and takes all that is there; false when nothing came in time.
    pub fn hears_within(&mut self, timeout: Duration) -> bool {
        self.stream.set_read_timeout(Some(timeout)).expect("set the read timeout");
        match self.stream.read(&mut self.buffer) {
            Ok(count) => count > 0,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) => panic!("listening: {error}"),
        }
    }
}
