//! The servers: exchanges, HTTP, datagrams, names, alerts. Each account has ports of its own, so that its bytes are counted from
//! the first one on.

mod alerts;
mod datagrams;
mod http;
mod messages;
mod names;
mod versions;

pub(crate) use alerts::{ALERTS, AlertReceiver};
pub(crate) use datagrams::{compared, datagram};
pub(crate) use http::{OBJECTS, PatternBody, compare, object, path};
pub(crate) use messages::{Head, Message};
pub(crate) use names::Names;
pub(crate) use versions::{CHANGING, FRESH, Version};

use crate::exchange::{self, Failure};
use crate::laws::{DOORS, Door};
use crate::ledger::{Counted, Ledger, Towards};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What a server of an account speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Exchange,
    Http,
    Datagrams,
    Messages,
}

/// The port of an account's server.
pub(crate) const fn port(service: Service, door: Door) -> u16 {
    7_000 + 100 * service as u16 + door as u16
}

/// Starts all servers on this address; they run until the runtime ends. Errors: a port is taken.
pub(crate) async fn start(address: Ipv4Addr, ledger: &Arc<Ledger>) -> io::Result<()> {
    for door in DOORS {
        let streams = TcpListener::bind((address, port(Service::Exchange, door))).await?;
        tokio::spawn(exchanges(streams, door, Arc::clone(ledger)));
        let requests = TcpListener::bind((address, port(Service::Http, door))).await?;
        tokio::spawn(http::serve(requests, door, Arc::clone(ledger)));
        datagrams::start(address, door, ledger).await?;
    }
    let door = Door::Messages;
    let messages = TcpListener::bind((address, port(Service::Messages, door))).await?;
    tokio::spawn(messages::serve(messages, door, Arc::clone(ledger)));
    Ok(())
}

async fn exchanges(listener: TcpListener, door: Door, ledger: Arc<Ledger>) {
    loop {
        let Some(stream) = accept(&listener).await else { continue };
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let counted = Counted::new(stream, &ledger, door, Towards::Client);
            // what breaks is the client's to tell; a connection that broke before its order is no wrong one
            if let Err(Failure::Wrong(what)) = exchange::server(counted, &ledger, door).await {
                ledger.on_wrong(format!("{} at the server: {what}", door.name()));
            }
        });
    }
}

/// The next connection. A connection that was reset before it was accepted is none.
async fn accept(listener: &TcpListener) -> Option<tokio::net::TcpStream> {
    let (stream, _) = listener.accept().await.ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}
