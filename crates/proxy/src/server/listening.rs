//! The sockets that are listened on.

use super::StartError;
use crate::settings::{Leg, Settings};
use ekiden_linux::answer::{Answer, Outcomes, Stage};
use ekiden_linux::key::Key;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A listening socket with its address.
pub(super) type Bound = (SocketAddr, TcpListener);

/// The listening sockets and the tasks that accept on them, by address.
pub(super) type Listeners = BTreeMap<SocketAddr, (Arc<TcpListener>, JoinHandle<()>)>;

/// Listens on every address that is not in `running`, with the client leg's options, and replaces
/// port 0 by what the kernel chose.
pub(super) fn bind(
    settings: Arc<Settings>,
    running: &Listeners,
) -> Result<(Vec<Bound>, Arc<Settings>), StartError> {
    let client = settings.legs.get("client").cloned().unwrap_or_default();
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for &address in &settings.listen {
        if running.contains_key(&address) {
            addresses.push(address);
            continue;
        }
        let bound = listen(&client, address);
        let bound = bound.map_err(|error| StartError::Listen { address, error })?;
        addresses.push(bound.0);
        listeners.push(bound);
    }
    let settings = match addresses == settings.listen {
        true => settings,
        false => Arc::new(Settings { listen: addresses, ..Settings::clone(&settings) }),
    };
    Ok((listeners, settings))
}

fn listen(client: &Leg, address: SocketAddr) -> io::Result<Bound> {
    let (socket, outcomes) =
        client.socket.new_stream_socket(address.is_ipv6(), Stage::Listening)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into())?;
    say_refused(address, &outcomes, client);
    Ok((listener.local_addr()?, listener))
}

/// Connections that wait to be accepted; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Says what the listening socket was refused: no connection's status shows it. A source address is
/// for connections made and means nothing here.
pub(super) fn say_refused(address: SocketAddr, outcomes: &Outcomes, client: &Leg) {
    for Answer { option, asked, refused, .. } in outcomes.answers(&client.socket) {
        if let Some(why) = refused.filter(|_| option != Key::Source.name()) {
            tracing::warn!("listening on {address}: {option} = {asked} is not granted: {why}");
        }
    }
}
