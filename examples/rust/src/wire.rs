//! A connection of its own for each lock: a waiting claim holds up everything behind it, and LINGER needs one that stays.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tokio::time::timeout;

use crate::errors::LockError;

/// Opened when needed, and again after trouble.
pub(crate) struct Wire {
    client: Client,
    connection: Option<MultiplexedConnection>,
    /// Whether a server may have seen a command of ours.
    pub told: bool,
}

impl Wire {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), connection: None, told: false }
    }

    /// `limit`: how long the reply may take; `None` for ever.
    pub async fn call(&mut self, name: &str, command: &Cmd, limit: Option<Duration>) -> Result<Value, LockError> {
        let held = self.connection.take();
        let exchange = async {
            let mut connection = match held {
                Some(connection) => connection,
                None => self.client.get_multiplexed_async_connection_with_config(&no_timeouts()).await?,
            };
            self.told = true;
            // Also for whoever drops this call: see `hand_over`.
            self.connection = Some(connection.clone());
            command.query_async::<Value>(&mut connection).await
        };
        let outcome = match limit {
            Some(limit) => match timeout(limit, exchange).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.connection = None;
                    return Err(LockError::no_answer(name, &format!("no reply within {limit:?}")));
                }
            },
            None => exchange.await,
        };
        outcome.map_err(|error| {
            if error.code().is_none() {
                self.connection = None;
            }
            LockError::explain(name, &error)
        })
    }

    /// The connection as it is, even if it owes a reply.
    pub fn hand_over(&mut self) -> Option<MultiplexedConnection> {
        self.connection.take()
    }
}

/// Each call has its own limit.
fn no_timeouts() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None)
}
