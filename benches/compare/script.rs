//! Commands put into the wire's form before the clock runs, and the connection that plays them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::support::PATIENCE;

/// Commands in one write.
const PIPELINE: usize = 128;

/// What a command is to be answered with. The lengths are fixed, so that the reader only counts bytes.
#[derive(Clone, Copy)]
pub enum Reply {
    /// `+OK`
    Ok,
    /// `:1`
    One,
    /// `:0`
    Zero,
    /// `$-1` or `*-1`
    Null,
    /// A bulk string of 32 bytes.
    Token,
    /// An array of a token of 32 bytes and a fence, which has 16 digits until the year 2286.
    Grant,
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
    replies: Vec<Reply>,
    reply_bytes: usize,
}

/// A command and its reply.
pub struct Step {
    pub args: Vec<String>,
    pub reply: Reply,
}

/// `step("DEL k", Reply::One)`: no word has a space in it.
pub fn step(line: &str, reply: Reply) -> Step {
    Step { args: line.split_whitespace().map(str::to_owned).collect(), reply }
}

impl Reply {
    fn len(self) -> usize {
        match self {
            Self::Ok | Self::Null => 5,
            Self::One | Self::Zero => 4,
            Self::Token => 5 + 32 + 2,
            Self::Grant => 4 + Self::Token.len() + 1 + 16 + 2,
        }
    }

    fn is(self, bytes: &[u8]) -> bool {
        match self {
            Self::Ok => bytes.starts_with(b"+OK"),
            Self::One => bytes.starts_with(b":1"),
            Self::Zero => bytes.starts_with(b":0"),
            Self::Null => bytes.starts_with(b"$-1") || bytes.starts_with(b"*-1"),
            Self::Token => bytes.starts_with(b"$32"),
            Self::Grant => bytes.starts_with(b"*2"),
        }
    }
}

impl Script {
    pub fn push(&mut self, step: &Step) {
        write!(self.bytes, "*{}\r\n", step.args.len()).expect("write to memory");
        for arg in &step.args {
            write!(self.bytes, "${}\r\n{arg}\r\n", arg.len()).expect("write to memory");
        }
        if self.batches.last().is_none_or(|batch| batch.replies.len() == PIPELINE) {
            self.batches.push(Batch::default());
        }
        let batch = self.batches.last_mut().expect("one was just made sure");
        batch.end = self.bytes.len();
        batch.replies.push(step.reply);
        batch.reply_bytes += step.reply.len();
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
            self.take(batch);
            start = batch.end;
        }
    }

    fn take(&mut self, batch: &Batch) {
        let mut taken = 0;
        while taken < batch.reply_bytes {
            match self.stream.read(&mut self.buffer[taken..]) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(count) => taken += count,
                Err(error) => panic!("after {:?}: {error}", self.text(taken)),
            }
        }
        let mut at = 0;
        for reply in &batch.replies {
            assert!(reply.is(&self.buffer[at..]), "another reply than the one due: {:?}", self.text(taken));
            at += reply.len();
        }
        assert!(at == taken, "a reply too many: {:?}", self.text(taken));
    }

    fn text(&self, count: usize) -> String {
        String::from_utf8_lossy(&self.buffer[..count.min(300)]).into_owned()
    }
}
