//! An authority of a few lines, which checks nothing and answers as a test wants.

use ekiden_testkit::{Certificate, PATIENCE};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

/// The longest wait that a number can say.
const AGES: u64 = u64::MAX;

/// How it behaves.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// Each answer says to come back in ages.
    NeverReady,
    /// It issues this certificate, whatever is ordered.
    Issues(String),
}

pub(crate) struct Authority {
    /// Its own certificate.
    pub(crate) file: PathBuf,
    base: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Authority {
    pub(crate) fn start(folder: &Path, manner: Manner) -> Self {
        let own = Certificate::self_signed(folder, "own", &["127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&own.certificate).unwrap()];
        let tls = Arc::new(config.with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let this = Self { file: own.certificate, base: base.clone(), asked: Arc::default() };
        let asked = Arc::clone(&this.asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
                // a client that goes is none of its business
                let _ = answer(StreamOwned::new(connection, stream), &base, &manner, &asked);
            }
        });
        this
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// The paths that were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers one request, and closes.
fn answer(
    stream: StreamOwned<ServerConnection, TcpStream>,
    base: &str,
    manner: &Manner,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if stream.read_line(&mut head)? == 0 {
            return Ok(());
        }
        if let Some(said) = head[before..].to_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    let path = head.split(' ').nth(1).unwrap();
    asked.lock().unwrap().push(path.to_owned());
    let order = |status: &str| {
        let certificate = (status == "valid").then(|| format!("{base}/certificate"));
        let finalize = format!("{base}/finalize");
        json!({ "status": status, "authorizations": [], "finalize": finalize, "certificate": certificate })
    };
    let (status, location, body) = match path {
        "/dir" => {
            let directory = json!({
                "newNonce": format!("{base}/nonce"),
                "newAccount": format!("{base}/account"),
                "newOrder": format!("{base}/order"),
                "renewalInfo": format!("{base}/renewal"),
            });
            (200, "", directory.to_string())
        }
        "/nonce" => (200, "", String::new()),
        "/account" => (201, "/account/1", json!({ "status": "valid" }).to_string()),
        "/order" => (201, "/order/1", order("ready").to_string()),
        "/finalize" => (200, "", order("processing").to_string()),
        "/order/1" => match manner {
            Manner::NeverReady => (200, "", order("processing").to_string()),
            Manner::Issues(_) => (200, "", order("valid").to_string()),
        },
        "/certificate" => match manner {
            Manner::NeverReady => (404, "", String::new()),
            Manner::Issues(chain) => (200, "", chain.clone()),
        },
        path if path.starts_with("/renewal/") => {
            let window = json!({ "start": "2090-01-01T00:00:00Z", "end": "2090-01-02T00:00:00Z" });
            (200, "", json!({ "suggestedWindow": window }).to_string())
        }
        _ => (404, "", String::new()),
    };
    let location = match location {
        "" => String::new(),
        path => format!("Location: {base}{path}\r\n"),
    };
    let wait = match manner {
        Manner::NeverReady => format!("Retry-After: {AGES}\r\n"),
        Manner::Issues(_) => String::new(),
    };
    let stream = stream.get_mut();
    write!(
        stream,
        "HTTP/1.1 {status} fine\r\nContent-Length: {}\r\nReplay-Nonce: bm9uY2U\r\n{location}{wait}Connection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}
