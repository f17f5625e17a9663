//! A TCP port that is this test's alone.
//!
//! Parallel tests, and parallel runs of the suite, share the machine. A port that the kernel hands out could be taken by
//! any outgoing connection while its server restarts, so ports come from below the kernel's own range, and each is held
//! by a name in the abstract socket namespace: like TCP ports these belong to the network namespace, and the kernel
//! takes them back when their process ends, however it ends.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Below the range of outgoing connections, and so is the cluster bus at [`BUS_OFFSET`] above it.
const RANGE: std::ops::Range<u16> = 12_000..22_000;

/// Where a server in cluster mode listens for the other nodes.
const BUS_OFFSET: u16 = 10_000;

/// A port held until it is dropped.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    _held: UnixListener,
}

impl Port {
    /// Takes a port on which, and on whose bus port, nothing listens.
    pub fn take() -> Self {
        for _ in 0..RANGE.len() {
            let number = rand::random_range(RANGE);
            let name = format!("prlock-test-port-{number}");
            let address = SocketAddr::from_abstract_name(name).expect("a valid socket name");
            if let Ok(held) = UnixListener::bind_addr(&address)
                && is_free(number)
                && is_free(number + BUS_OFFSET)
            {
                return Self { number, _held: held };
            }
        }
        panic!("no free port in {RANGE:?}");
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
