//! Connections to the management port: few at a time, none for long, and none waits for a slow client.
//! Those that have not logged in give way to newcomers, so that they shut no operator out.

pub(super) mod health;
mod places;
mod turns;

pub(super) use places::PlaceState;
pub(super) use turns::Turns;

use axum::extract::{Extension, Request};
use axum::middleware::{Next, from_fn};
use ekiden_proxy::LogThrottle;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use places::{Place, Places};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections at once. For another one that has not logged in is closed; while all have, the one that was silent longest;
/// while all are being answered, it waits in the kernel.
const CONNECTIONS: usize = 64;
/// For a request's head, the first and each further one.
const HEAD: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// After so long a connection takes no further request. It is what ends clients that do not read.
const LIFE: Duration = Duration::from_secs(60);
/// And so long the last one has: the dashboard's stream of events lasts 50 s, and may be the last.
const END: Duration = Duration::from_secs(55);

#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Takes connections until the task is ended.
pub(super) async fn serve(listener: Arc<TcpListener>, router: axum::Router) {
    let places = Arc::new(Places::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (router, place) = (router.clone(), Places::take(&places, peer.ip()).await);
                tokio::spawn(async move {
                    tokio::select! {
                        // first: a connection that is busy without end does not stay
                        biased;
                        () = place.lost() => log_lost(peer),
                        () = connection(stream, peer, router, &place) => {}
                    }
                });
            }
            Err(error) => {
                // out of descriptors, most likely: others give some back
                tracing::debug!(%error, "the management port accepts nothing for now");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn log_lost(peer: SocketAddr) {
    static LOST: LogThrottle = LogThrottle::new();
    if LOST.is_due() {
        tracing::warn!(
            %peer,
            "management: all {CONNECTIONS} connections are in use; closed one for a newcomer, first of those not logged in"
        );
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: axum::Router, place: &Place) {
    let (state, own) = (place.state(), place.state());
    let answering = from_fn(move |request: Request, next: Next| {
        let answering = state.answer();
        async move {
            let response = next.run(request).await;
            drop(answering);
            response
        }
    });
    let router = router.layer(Extension(Peer(peer))).layer(Extension(own)).layer(answering);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = match tokio::time::timeout(LIFE, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(END, connection.as_mut()).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection to the management port broke");
    }
}
