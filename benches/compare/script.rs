//! Commands put into the wire's form before the clock runs, and the connection that plays them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::support::PATIENCE;

/// Commands in one write.
const PIPELINE: usize = 128;

/// How long the replies are. All are fixed, so that the reader only counts bytes, and a reply of another kind is noticed.
pub mod reply {
    /// `+OK`
    pub const OK: usize = 5;
    /// `:1` or `:0`
    pub const DIGIT: usize = 4;
    /// `$-1`
    pub const NULL: usize = 5;
    /// A token of 32 bytes alone.
    pub const TOKEN: usize = 5 + 32 + 2;
    /// A grant: an array of a token of 32 bytes and a fence, which has 16 digits until the year 2286.
    pub const GRANT: usize = 4 + TOKEN + 1 + 16 + 2;
}

#[derive(Default)]
pub struct Script {
    bytes: Vec<u8>,
    batches: Vec<Batch>,
    commands: usize,
}

#[derive(Default)]
struct Batch {
    /// Where it ends in the script's bytes.
    end: usize,
    commands: usize,
    reply_bytes: usize,
}

/// A command and the length of its reply.
pub struct Step {
    pub args: Vec<String>,
    pub reply_bytes: usize,
}

/// `step("DEL k", reply::DIGIT)`: no word has a space in it.
pub fn step(line: &str, reply_bytes: usize) -> Step {
    Step { args: line.split_whitespace().map(str::to_owned).collect(), reply_bytes }
}

impl Script {
    pub fn push(&mut self, step: &Step) {
        write!(self.bytes, "*{}\r\n", step.args.len()).expect("write to memory");
        for arg in &step.args {
            write!(self.bytes, "${}\r\n{arg}\r\n", arg.len()).expect("write to memory");
        }
        if self.batches.last().is_none_or(|batch| batch.commands == PIPELINE) {
            self.batches.push(Batch::default());
        }
        let batch = self.batches.last_mut().expect("one was just made sure");
        batch.end = self.bytes.len();
        batch.commands += 1;
        batch.reply_bytes += step.reply_bytes;
        self.commands += 1;
    }

    pub fn commands(&self) -> usize {
        self.commands
    }
}

impl FromIterator<Step> for Script {
    fn from_iter<T: IntoIterator<Item = Step>>(steps: T) -> Self {
        let mut script = Self::default();
        for step in steps {
            script.push(&step);
        }
        script
    }
}

/// A connection that plays scripts.
pub struct Player {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Player {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to the server");
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        stream.set_read_timeout(Some(PATIENCE)).expect("set the read timeout");
        Self { stream, buffer: vec![0; 1 << 18] }
    }

    /// Sends a batch, takes its replies, sends the next. Panics when the replies are not those that are due.
    pub fn play(&mut self, script: &Script) {
        let mut start = 0;
        for batch in &script.batches {
            self.stream.write_all(&script.bytes[start..batch.end]).expect("send to the server");
            self.take(batch.reply_bytes);
            start = batch.end;
        }
    }

    fn take(&mut self, due: usize) {
        let mut taken = 0;
        while taken < due {
            let count = match self.stream.read(&mut self.buffer) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(count) => count,
                Err(error) => panic!("{taken} of {due} bytes came, and then: {error}"),
            };
            assert!(taken > 0 || self.buffer[0] != b'-', "an error: {}", self.text(count));
            taken += count;
        }
        assert!(taken == due, "other replies than those due, the last: {}", self.text(taken.min(self.buffer.len())));
    }

    fn text(&self, count: usize) -> String {
        String::from_utf8_lossy(&self.buffer[..count.min(300)]).into_owned()
    }
}
