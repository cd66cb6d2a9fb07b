//! A web server and a mail server that keep what they get.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{Authority, PATIENCE, eventually_or};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// TLS for `localhost`, by this authority.
pub(crate) fn tls(authority: &Authority, folder: &Path) -> Arc<ServerConfig> {
    let made = authority.certify(folder, "localhost", [2020, 2100]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::from_pem_file(&made.key).unwrap();
    let chain = vec![CertificateDer::from_pem_file(&made.certificate).unwrap()];
    Arc::new(config.with_single_cert(chain, key).unwrap())
}

fn secure(stream: TcpStream, tls: &Arc<ServerConfig>) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream)
}

/// Everything that arrived at a server.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) port: u16,
    texts: Arc<Mutex<Vec<String>>>,
}

impl Arrived {
    fn listen() -> (TcpListener, Self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Self { port, texts: Arc::default() })
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }

    fn keep(&self, text: String) {
        self.texts.lock().unwrap().push(text);
    }

    /// Waits for a text with all of these parts.
    #[track_caller]
    pub(crate) fn wait_for(&self, parts: &[&str]) -> String {
        let has = |text: &String| parts.iter().all(|part| text.contains(part));
        let why = || format!("{parts:?} did not come, but {:#?}", self.all());
        eventually_or(why, || self.all().into_iter().find(has))
    }

    /// The alerts of all documents, as `state alert subject`.
    pub(crate) fn alerts(&self) -> Vec<String> {
        let mut alerts = Vec::new();
        for text in self.all() {
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            let message: Value = serde_json::from_str(body).unwrap();
            for one in message["alerts"].as_array().unwrap() {
                let word = |name: &str| one[name].as_str().unwrap().to_owned();
                alerts.push(format!("{} {} {}", word("state"), word("alert"), word("subject")));
            }
        }
        alerts
    }
}

/// A web server that answers the first requests with these statuses, and the others with 204. What it took is kept.
pub(crate) fn web(tls: Option<Arc<ServerConfig>>, first: &[&'static str]) -> Arrived {
    let (listener, arrived) = Arrived::listen();
    let (keep, first) = (arrived.clone(), first.to_vec());
    thread::spawn(move || {
        let mut first = first.into_iter();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let status = first.next().unwrap_or("204 No Content");
            // a client that does not trust the certificate ends here
            let _ = match &tls {
                Some(tls) => answer(secure(stream, tls), status, &keep),
                None => answer(stream, status, &keep),
            };
        }
    });
    arrived
}

fn answer(mut stream: impl Read + Write, status: &str, arrived: &Arrived) -> io::Result<()> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body)?;
    if status.starts_with("204") {
        text.extend(body);
        arrived.keep(String::from_utf8(text).unwrap());
    }
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    stream.flush()
}

/// A mail server that takes mail of `me` with the password `geheim`, within TLS: at once, or after STARTTLS.
pub(crate) fn mail(tls: Arc<ServerConfig>, implicit: bool) -> Arrived {
    let (listener, arrived) = Arrived::listen();
    let keep = arrived.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = take(stream, &tls, implicit, &keep);
        }
    });
    arrived
}

fn take(
    mut plain: TcpStream,
    tls: &Arc<ServerConfig>,
    implicit: bool,
    arrived: &Arrived,
) -> io::Result<()> {
    if !implicit {
        plain.write_all(b"220 mail.example ESMTP\r\n")?;
        let mut lines = BufReader::new(plain.try_clone()?);
        loop {
            match next(&mut lines)?.as_str() {
                "STARTTLS" => break plain.write_all(b"220 go ahead\r\n")?,
                hello if hello.starts_with("EHLO") => {
                    plain.write_all(b"250-mail.example\r\n250 STARTTLS\r\n")?;
                }
                // nobody logs in without TLS
                other => panic!("{other} came in clear"),
            }
        }
    }
    let mut stream = BufReader::new(secure(plain, tls));
    if implicit {
        stream.get_mut().write_all(b"220 mail.example ESMTP\r\n")?;
    }
    loop {
        let line = next(&mut stream)?;
        let answer = match line.split(' ').next().unwrap() {
            "EHLO" => "250-mail.example\r\n250 AUTH PLAIN\r\n",
            "AUTH" => match line.rsplit(' ').next().map(|word| STANDARD.decode(word)) {
                Some(Ok(login)) if login == b"\0me\0geheim" => "235 welcome\r\n",
                _ => "535 wrong user or password\r\n",
            },
            "MAIL" | "RCPT" | "NOOP" => "250 fine\r\n",
            "DATA" => {
                stream.get_mut().write_all(b"354 go on\r\n")?;
                let mut text = String::new();
                loop {
                    match next(&mut stream)?.as_str() {
                        "." => break arrived.keep(text),
                        line => text.push_str(&format!("{line}\n")),
                    }
                }
                "250 kept\r\n"
            }
            "QUIT" => return stream.get_mut().write_all(b"221 bye\r\n"),
            _ => "502 what?\r\n",
        };
        stream.get_mut().write_all(answer.as_bytes())?;
        stream.get_mut().flush()?;
    }
}

/// The next line, without its end. Errors: there is none.
fn next(stream: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
