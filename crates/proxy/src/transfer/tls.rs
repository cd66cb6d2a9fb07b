//! A connection as TLS reads and writes it during a handshake.

use crate::transfer::end::End;
use crate::transfer::records::Records;
use crate::transfer::transient::is_transient;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP connection as TLS reads and writes it, after bytes that were read before.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    pub(crate) stream: End,
    early: Vec<u8>,
    used: usize,
    /// Of use where it is records that are read.
    moved: Handshake,
}

/// What a handshake moved.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) records: Records,
    /// Bytes of records that came whole.
    pub(crate) read: usize,
    pub(crate) written: u64,
}

impl TlsTransport {
    /// `early`: bytes of the other side that were read before.
    pub(crate) fn new(stream: End, early: Vec<u8>) -> Self {
        Self { stream, early, used: 0, moved: Handshake::default() }
    }

    /// The connection, and what was read before and not used.
    pub(crate) fn into_parts(mut self) -> (End, Vec<u8>, Handshake) {
        let rest = self.early.split_off(self.used.min(self.early.len()));
        (self.stream, rest, self.moved)
    }
}

impl Handshake {
    pub(crate) fn on_read(&mut self, bytes: &[u8]) {
        self.read += self.records.read(bytes);
    }
}

impl AsyncRead for TlsTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let early = this.early.get(this.used..).unwrap_or_default();
        if !early.is_empty() {
            let n = early.len().min(buffer.remaining());
            buffer.put_slice(&early[..n]);
            this.moved.on_read(&early[..n]);
            this.used += n;
            if this.used == this.early.len() {
                this.early = Vec::new();
                this.used = 0;
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(this.stream.poll_read_ready(context))?;
            match this.stream.try_read(buffer.initialize_unfilled()) {
                Ok(n) => {
                    buffer.advance(n);
                    let read = buffer.filled();
                    this.moved.on_read(&read[read.len() - n..]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if is_transient(&error) => {}
                written => {
                    self.moved.written += written.as_ref().map_or(0, |n| *n as u64);
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}

/// Both sides of a handshake for `relay.test`, by the providers of the server and of the client.
#[cfg(test)]
pub(crate) mod testing {
    use rcgen::generate_simple_self_signed;
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, RootCertStore, ServerConfig};

    pub(crate) fn configs([server, client]: [CryptoProvider; 2]) -> (ServerConfig, ClientConfig) {
        let made = generate_simple_self_signed(vec!["relay.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let server = ServerConfig::builder_with_provider(server.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(client.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, client)
    }
}
