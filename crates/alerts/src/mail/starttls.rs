//! STARTTLS that reads nothing ahead.
//!
//! lettre reads by a buffer, and keeps it when TLS begins. Somebody on the path could append answers to the server's `220`,
//! and they would count as answers within TLS: a mail that nobody took would be delivered. Other programs had that fault
//! (CVE-2011-0411). So a stream gives one byte at a time until TLS begins. What follows the `220` goes to TLS, which refuses it.

use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

/// With this byte TLS begins, as a record of its handshake (RFC 8446 §5.1). No command of SMTP does.
const HANDSHAKE: u8 = 22;
/// Bytes that are taken before TLS begins: a greeting and two answers. lettre looks at a line's length at its end, and
/// somebody on the path may send one without an end.
const MOST: usize = 64 << 10;

/// Connects to a mail server and makes TLS. `patience`: for each of its addresses. Errors: in words.
pub(super) async fn connect(
    (host, port): (&str, u16),
    patience: Duration,
    tls: TlsParameters,
) -> Result<AsyncSmtpConnection, String> {
    let stream = dial(host, port, patience).await.map_err(|error| super::words(&error))?;
    let stream = Box::new(Unbuffered { stream, is_secure: false, left: MOST });
    let name = ClientId::default();
    let begun = AsyncSmtpConnection::connect_with_transport(stream, &name).await;
    let mut connection = begun.map_err(|error| super::words(&error))?;
    let secured = connection.starttls(tls, &name).await;
    secured.map_err(|error| format!("TLS by STARTTLS: {}", super::words(&error)))?;
    Ok(connection)
}

async fn dial(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in lookup_host((host, port)).await? {
        match tokio::time::timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

/// A connection that gives one byte a read until TLS begins.
#[derive(Debug)]
struct Unbuffered {
    stream: TcpStream,
    is_secure: bool,
    /// Bytes that it still gives before TLS.
    left: usize,
}

impl AsyncRead for Unbuffered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_secure || into.remaining() == 0 {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        if self.left == 0 {
            let why = format!("the server says more than {} KiB before TLS", MOST >> 10);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let mut byte = [0];
        let mut one = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut one))?;
        self.left -= one.filled().len();
        into.put_slice(one.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Unbuffered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_secure |= bytes.first() == Some(&HANDSHAKE);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for Unbuffered {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

#[cfg(test)]
mod tests {
    use crate::AlertSettings;
    use crate::mail::Mail;
    use crate::message::AlertMessage;
    use ekiden_config::{AlertSecrets, Alerts};
    use ekiden_testkit::{Authority, PATIENCE};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{self, BufRead as _, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    /// Every answer that a delivery waits for after TLS has begun.
    const ANSWERS: [&str; 7] = [
        "250-mail.example\r\n250 AUTH PLAIN\r\n",
        "235 welcome\r\n",
        "250 fine\r\n",
        "250 fine\r\n",
        "354 go on\r\n",
        "250 kept\r\n",
        "221 bye\r\n",
    ];

    fn tls(authority: &Authority, folder: &Path) -> Arc<ServerConfig> {
        let made = authority.certify(folder, "localhost", [2020, 2100]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::from_pem_file(&made.key).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&made.certificate).unwrap()];
        Arc::new(config.with_single_cert(chain, key).unwrap())
    }

    /// Speaks with one client. `forged` comes with the `220`, and then nothing more is answered. Returns what the client sent
    /// within TLS.
    fn serve(
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        forged: Option<String>,
    ) -> JoinHandle<io::Result<String>> {
        std::thread::spawn(move || {
            let (mut plain, _) = listener.accept()?;
            plain.set_read_timeout(Some(PATIENCE))?;
            plain.write_all(b"220-mail.example\r\n220 ESMTP\r\n")?;
            line(&mut plain)?;
            plain.write_all(b"250-mail.example\r\n250-SIZE 1000000\r\n250 STARTTLS\r\n")?;
            assert_eq!(line(&mut plain)?, "STARTTLS\r\n");
            let go = format!("220 go ahead\r\n{}", forged.as_deref().unwrap_or_default());
            plain.write_all(go.as_bytes())?;
            let secure = StreamOwned::new(ServerConnection::new(tls).unwrap(), plain);
            take(secure, forged.is_none())
        })
    }

    /// Takes a mail within TLS, or drops all that is said.
    fn take(
        mut secure: StreamOwned<ServerConnection, TcpStream>,
        answers: bool,
    ) -> io::Result<String> {
        let mut got = String::new();
        if !answers {
            secure.read_to_string(&mut got)?;
            return Ok(got);
        }
        let mut stream = BufReader::new(secure);
        for answer in ANSWERS {
            let end = if answer.contains("kept") { "\r\n.\r\n" } else { "\r\n" };
            let before = got.len();
            while !got[before..].ends_with(end) && stream.read_line(&mut got)? > 0 {}
            stream.get_mut().write_all(answer.as_bytes())?;
            stream.get_mut().flush()?;
        }
        Ok(got)
    }

    /// A line, byte by byte: what follows belongs to TLS.
    fn line(stream: &mut TcpStream) -> io::Result<String> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn mail(authority: &Authority, port: u16) -> Mail {
        let alerts = Alerts {
            mail_server: Some(format!("smtp://me@localhost:{port}")),
            mail_to: vec!["you@example.org".to_owned()],
            authorities: Some(authority.file.clone()),
            ..Alerts::default()
        };
        let secrets =
            AlertSecrets { mail_password: Some("geheim".to_owned()), ..AlertSecrets::default() };
        Mail::of(&AlertSettings { alerts, secrets, relay: "h".to_owned() }).unwrap()
    }

    /// What a client says of its delivery, and what the server got within TLS.
    async fn deliver(forged: Option<String>) -> (Result<String, String>, io::Result<String>) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = serve(listener, tls(&authority, folder.path()), forged);
        let mail = mail(&authority, port);
        let sent = mail.send(&AlertMessage::trial("h", 1_790_000_000)).await;
        (sent, server.join().unwrap())
    }

    #[tokio::test]
    async fn a_mail_is_delivered_after_starttls() {
        let (sent, got) = deliver(None).await;
        assert!(sent.unwrap().ends_with("answered 250 kept"));
        let got = got.unwrap();
        assert!(got.contains("To: you@example.org") && got.ends_with("QUIT\r\n"), "{got}");
    }

    #[tokio::test]
    async fn answers_that_come_before_tls_deliver_nothing() {
        let (sent, _) = deliver(Some(ANSWERS.concat())).await;
        let why = sent.unwrap_err();
        assert!(why.contains("TLS by STARTTLS: ") && why.contains("corrupt"), "{why}");
    }

    #[tokio::test]
    async fn a_line_before_tls_that_does_not_end_ends_the_delivery() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut plain, _) = listener.accept().unwrap();
            // as long as somebody takes it, up to 1 MiB
            let _taken = (0..256).take_while(|_| plain.write_all(&[b'2'; 4096]).is_ok()).count();
        });
        let sent = mail(&authority, port).send(&AlertMessage::trial("h", 1_790_000_000)).await;
        let why = sent.unwrap_err();
        assert!(why.contains("more than 64 KiB before TLS"), "{why}");
        server.join().unwrap();
    }
}
