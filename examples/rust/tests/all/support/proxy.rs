//! A network that breaks where the test says: between client and server, seen command by command.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to a command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection breaks before the server sees it.
    Lost,
    /// The server carries it out; the connection breaks before the reply.
    Unanswered,
    /// Nothing is heard any more on this connection, and nothing closes.
    Silence,
    /// The server carries it out, and what follows it, but no reply comes back; and nothing closes.
    Unheard,
    /// The server never sees it; the client gets this reply.
    Answer(&'static str),
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

struct Shared {
    plan: Mutex<Plan>,
    /// Nobody gets through.
    down: watch::Sender<bool>,
}

#[derive(Default)]
struct Plan {
    steps: Vec<(&'static str, Fate)>,
    struck: usize,
}

impl Proxy {
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let shared = Arc::new(Shared { plan: Mutex::default(), down: watch::Sender::new(false) });
        let serving = shared.clone();
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = serving.clone();
                tokio::spawn(async move { shared.serve(client, target).await });
            }
        });
        Self { port, shared, listening }
    }

    /// The next time(s) that the command passes, this happens.
    pub fn next(&self, command: &'static str, fate: Fate, times: usize) {
        self.plan().steps.extend(vec![(command, fate); times]);
    }

    /// Forgets what was planned.
    pub fn behave(&self) {
        self.plan().steps.clear();
    }

    /// How many commands met their fate.
    pub fn struck(&self) -> usize {
        self.plan().struck
    }

    /// Nobody gets through, and all that are connected are cut off.
    pub fn cut(&self) {
        self.shared.down.send_replace(true);
    }

    pub fn mend(&self) {
        self.shared.down.send_replace(false);
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.plan.lock().expect("the plan")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Shared {
    /// Closes both when either closes.
    async fn serve(&self, mut client: TcpStream, target: u16) -> Option<()> {
        let mut down = self.down.subscribe();
        if *down.borrow_and_update() {
            return None;
        }
        let mut server = TcpStream::connect(("127.0.0.1", target)).await.ok()?;
        let (mut asked, mut replied) = (vec![0; 65536], vec![0; 65536]);
        let (mut silent, mut unanswered, mut unheard) = (false, false, false);
        loop {
            tokio::select! {
                _ = down.changed() => return None,
                read = server.read(&mut replied) => {
                    let read = read.ok().filter(|&read| read > 0 && !unanswered)?;
                    if !silent && !unheard {
                        client.write_all(&replied[..read]).await.ok()?;
                    }
                }
                read = client.read(&mut asked) => {
                    let read = read.ok().filter(|&read| read > 0)?;
                    if silent {
                        continue;
                    }
                    match self.fate(&asked[..read]) {
                        Some(Fate::Lost) => return None,
                        Some(Fate::Silence) => silent = true,
                        Some(Fate::Answer(reply)) => client.write_all(reply.as_bytes()).await.ok()?,
                        fate => {
                            unanswered = fate == Some(Fate::Unanswered);
                            unheard |= fate == Some(Fate::Unheard);
                            server.write_all(&asked[..read]).await.ok()?;
                        }
                    }
                }
            }
        }
    }

    fn fate(&self, data: &[u8]) -> Option<Fate> {
        let text = String::from_utf8_lossy(data);
        let mut plan = self.plan.lock().expect("the plan");
        let at = plan.steps.iter().position(|(command, _)| text.contains(command))?;
        plan.struck += 1;
        Some(plan.steps.remove(at).1)
    }
}
