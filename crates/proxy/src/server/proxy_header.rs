//! Connections from proxies that are trusted to say whose they are: each begins with a header of the PROXY
//! protocol, and the client in it takes the proxy's place for rules, accounts and logs.

use super::Inner;
use crate::observe::log_throttle::LogThrottle;
use crate::resources::AcceptedClient;
use crate::transfer::end::End;
use crate::wire::proxy_header::{BadHeader, MOST, ProxyHeader, read};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How much is looked at first: headers without extensions are shorter.
const FIRST: usize = 232;
/// How soon a header that is not whole is looked at again.
const AGAIN: Duration = Duration::from_millis(10);

impl Inner {
    /// Admits a client of a listening address, once it is known who it is.
    pub(super) fn arrive(self: &Arc<Self>, client: AcceptedClient) {
        let config = self.config();
        let trusted = &config.settings.access.proxy_protocol_from;
        let from = client.address.ip().to_canonical();
        if !trusted.iter().any(|net| net.contains(&from)) {
            return self.admit(client);
        }
        let (inner, limit) = (Arc::clone(self), config.settings.timeouts.first_byte);
        tokio::spawn(async move {
            let header = tokio::time::timeout(limit.into(), take_header(&client.stream)).await;
            let why = match header {
                // past the kernel's rule that keeps others from its address
                Ok(Ok(Ok(ProxyHeader { client: Some(said) })))
                    if inner.config().settings.wireguard.is_client(said.ip()) =>
                {
                    format!("it names {}, an address of [wireguard]", said.ip())
                }
                Ok(Ok(Ok(ProxyHeader { client: said }))) => {
                    let address = said.unwrap_or(client.address);
                    return inner.admit(AcceptedClient { address, ..client });
                }
                // a balancer asks only whether the port is open
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => return,
                Ok(Ok(Err(bad))) => bad.to_string(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("its header of the PROXY protocol did not come within {limit}"),
            };
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!(proxy = %client.address, "connection refused: {why} (`proxy_protocol_from` of [access])");
            }
            inner.registry.totals.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            client.stream.abort("refused");
        });
    }
}

/// Takes the header, and nothing behind it, out of the stream. `ConnectionAborted`: it ended before its first byte.
async fn take_header(stream: &End) -> io::Result<Result<ProxyHeader, BadHeader>> {
    let mut bytes = vec![0; FIRST];
    let mut before = 0;
    loop {
        let seen = match stream.peek(&mut bytes).await {
            Ok(0) if before == 0 => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if before == 0 && error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            seen => seen?,
        };
        match read(bytes.get(..seen).unwrap_or_default()) {
            Err(bad) => return Ok(Err(bad)),
            Ok(Some((header, length))) => {
                let mut taken = 0;
                while taken < length {
                    // the bytes are there
                    taken += stream.try_read(bytes.get_mut(taken..length).unwrap_or_default())?;
                }
                return Ok(Ok(header));
            }
            Ok(None) if seen == bytes.len() => bytes.resize((2 * seen).min(MOST), 0),
            Ok(None) if seen == before => tokio::time::sleep(AGAIN).await,
            Ok(None) => {}
        }
        before = seen;
    }
}
