//! The first bytes of a connection decide which protocol serves it.

use crate::inbound::http::forward;
use crate::inbound::{gateway, port_forward, socks, spent, tls, tunnel};
use crate::resources::arrival::Directed;
use crate::session::{Admission, OpenTunnel, Session, within};
use crate::transfer::buffered::BufferedStream;

/// Bytes that are read before their memory counts: a message of SOCKS, a short head.
const FIRST: usize = 512;

/// Serves one client to the end.
pub(crate) async fn serve(session: Session) {
    let _resets = session.registration.reset_on_panic();
    // while a certificate is ordered, its authority comes as a stranger
    let outer = session.tls.is_none() && session.arrival.is_none() && session.directed.is_none();
    if outer
        && session.config.shared.acme.is_challenged()
        && Box::pin(tls::challenge::answer(&session)).await
    {
        return;
    }
    match session.admit().await {
        Admission::Granted => {}
        Admission::Refused => return,
        Admission::Spent(account, not) => {
            return Box::pin(spent::serve(&session, &account, &not)).await;
        }
    }
    // each stage has a box of its own that is freed at its end, so that an idle tunnel holds none of them
    if let Some(tunnel) = detect(&session).await {
        session.relay(tunnel).await;
    }
}

/// Reads the first bytes and serves the protocol they belong to; returns the tunnel that follows, if any.
async fn detect(session: &Session) -> Option<OpenTunnel> {
    if let Some(arrival) = &session.arrival {
        return Box::pin(tunnel::serve(session, arrival)).await;
    }
    match &session.directed {
        Some(Directed::Diverted(to)) => return Box::pin(gateway::serve(session, to)).await,
        Some(Directed::Forward(to)) => return Box::pin(port_forward::serve(session, to)).await,
        None => {}
    }
    let mut client = BufferedStream::new(session.client.clone(), Vec::new());
    let limit = session.config.settings.timeouts.first_byte;
    match session.unless_stopping(within(limit, client.fill(FIRST))).await {
        Some(Ok(1..)) => {}
        _ => return None,
    }
    match client.bytes().first() {
        Some(5) => Box::pin(socks::socks5(session, client)).await,
        Some(4) => Box::pin(socks::socks4(session, client)).await,
        Some(&tls::FIRST_BYTE) if session.config.certificate.is_some() && session.tls.is_none() => {
            Box::pin(tls::serve(session, client)).await;
            None
        }
        #[cfg(feature = "fuzzing")]
        Some(b'P') if session.tls.is_none() => {
            Box::pin(tls::h2_in_the_clear(session, client)).await;
            None
        }
        _ => forward::serve(session, client).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::status::AccountsStatus;
    use crate::policy::accounts::{Directory, KnownAccount, LoginOutcome, PendingLogin};
    use crate::session::tests::{Fixture, fixture};
    use crate::settings::Settings;
    use std::io::ErrorKind;
    use std::net::IpAddr;
    use std::sync::Arc;
    use tokio::io::AsyncReadExt as _;

    /// Fails whoever asks whose an address is.
    #[derive(Debug)]
    struct Broken;

    impl Directory for Broken {
        fn at(&self, _: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
            panic!("a test asked for it");
        }

        fn behind(&self, _: &str) -> Option<Result<Arc<KnownAccount>, String>> {
            None
        }

        fn log_in<'a>(&'a self, _: &'a str, _: &'a str, _: IpAddr) -> PendingLogin<'a> {
            Box::pin(std::future::ready(LoginOutcome::Wrong))
        }

        fn may_stay(&self, _: i64) -> Result<(), String> {
            Ok(())
        }

        fn status(&self) -> AccountsStatus {
            AccountsStatus::default()
        }
    }

    #[tokio::test]
    async fn a_panic_before_anything_is_relayed_resets_the_client() {
        let directory: Arc<dyn Directory> = Arc::new(Broken);
        let made = fixture("127.0.0.1", Some(directory), Settings::default()).await;
        let Fixture { session, mut client, .. } = made;
        let task = tokio::spawn(serve(session));
        assert!(task.await.is_err_and(|error| error.is_panic()));
        let closed = client.read(&mut [0; 1]).await;
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
