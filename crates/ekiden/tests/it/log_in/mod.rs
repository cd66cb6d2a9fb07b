//! Clients that people have, logging in: curl over HTTP, an HTTPS proxy and SOCKS, and Chromium.

mod crowd;
pub(crate) mod devtools;

use crate::accounts::Accounts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use devtools::Browser;
use ekiden_testkit::{Certificate, Daemon, wait_for};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest as _, Sha256};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

const PAGE: &str = "this is the page";

/// A relay with one account, its certificate, and servers of HTTP and HTTPS.
struct Stage {
    accounts: Accounts,
    daemon: Daemon,
    certificate: PathBuf,
    /// The hash of the certificate's key, by which Chromium is told to trust it.
    key: String,
    http: SocketAddr,
    https: SocketAddr,
}

impl Stage {
    fn new() -> Self {
        let accounts = Accounts::new();
        let made = Certificate::self_signed(accounts.path(), "own", &["localhost"]);
        let private = made.pair.serialize_der();
        let certificate = made.certificate;
        accounts.configure(&format!(
            "[accounts]\nenabled = true\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n",
            certificate.display(),
            made.key.display()
        ));
        accounts
            .account(&["add", "home", "--user", "anna", "--password-stdin"], "right password\n");
        let daemon = accounts.serve();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der.into()], PrivateKeyDer::Pkcs8(private.into()))
            .unwrap();
        let key = STANDARD
            .encode(Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&made.pair)));
        let (http, https) = (server(None), server(Some(Arc::new(config))));
        Self { accounts, daemon, certificate, key, http, https }
    }

    /// What curl says with these arguments, to a server of HTTP and one of HTTPS.
    fn curl(&self, args: &[&str]) -> [Output; 2] {
        let urls =
            [format!("http://{}/", self.http), format!("https://localhost:{}/", self.https.port())];
        urls.map(|url| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--max-time", "30", "--noproxy", ""]);
            curl.arg("--cacert").arg(&self.certificate);
            curl.arg("--proxy-cacert").arg(&self.certificate).args(args).arg(url).output().unwrap()
        })
    }

    /// By this kind of proxy, with the right password and with a wrong one.
    fn logs_in_by(&self, scheme: &str) {
        let proxy = format!("{scheme}://localhost:{}", self.daemon.address.port());
        let user = |user: &str| self.curl(&["--proxy", &proxy, "--proxy-user", user]);
        for output in user("anna:right password") {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), PAGE, "{scheme}: {said}");
        }
        for output in user("anna:wrong password").iter().chain(&self.curl(&["--proxy", &proxy])) {
            assert!(!output.status.success() && output.stdout.is_empty(), "{scheme}: {output:?}");
        }
    }
}

/// Answers every request with the page.
fn server(tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, tls) = (stream.unwrap(), tls.clone());
            std::thread::spawn(move || match tls {
                Some(config) => {
                    let connection = ServerConnection::new(config).unwrap();
                    answer(StreamOwned::new(connection, stream));
                }
                None => answer(stream),
            });
        }
    });
    address
}

fn answer(mut stream: impl Read + Write) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            // a browser opens connections to have them
            _ => return,
        }
    }
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length:";
    let _ = stream.write_all(format!("{head} {}\r\n\r\n{PAGE}", PAGE.len()).as_bytes());
    let _ = stream.flush();
}

/// Whether a program is there. Where it is not, the test is skipped and says so; in CI it fails.
pub(crate) fn present(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
        eprintln!("SKIPPED: {program} is not installed; scripts/peers.sh installs it");
    }
    found
}

#[test]
fn curl_logs_in_by_http_an_https_proxy_and_socks() {
    if !present("curl") {
        return;
    }
    let stage = Stage::new();
    // four wrong ones each way are fewer than make an address wait
    for scheme in ["http", "https"] {
        stage.logs_in_by(scheme);
    }
    let stage = Stage::new();
    for scheme in ["socks5", "socks5h"] {
        stage.logs_in_by(scheme);
    }
    let used = stage.accounts.account(&["usage", "--csv"], "");
    assert!(used.starts_with("account,name,begun,down,up\n"), "{used}");
}

/// As an account's browser does: TLS to the proxy, HTTP/2 on it, the page within a tunnel or asked for by itself.
#[test]
fn chromium_logs_in_at_an_https_proxy() {
    if !present("chromium") {
        return;
    }
    let stage = Stage::new();
    for (password, comes_in) in [("right password", true), ("wrong password", false)] {
        for url in [
            format!("http://{}/", stage.http),
            format!("https://localhost:{}/", stage.https.port()),
        ] {
            let args = [
                format!("--proxy-server=https://localhost:{}", stage.daemon.address.port()),
                // without this, loopback would go around the proxy
                "--proxy-bypass-list=<-loopback>".to_owned(),
                format!("--ignore-certificate-errors-spki-list={}", stage.key),
            ];
            let mut browser = Browser::start(&args);
            let (text, asked) = browser.read(&url, "anna", password);
            assert!(asked >= 1, "{url}: the proxy asked for no password: {text}");
            assert_eq!(text == PAGE, comes_in, "{url}, {password}: {text}");
        }
    }
    wait_for("what it used in the journal", || {
        let json = stage.accounts.account(&["usage", "home", "--json"], "");
        let used: serde_json::Value = serde_json::from_str(&json).unwrap();
        used["usage"][0]["down"].as_u64().is_some_and(|down| down > PAGE.len() as u64)
    });
}

/// Beyond this machine there is no relay without accounts.
#[test]
fn a_public_address_without_accounts_is_refused() {
    let output = Accounts::with("").run(&["serve", "--listen", "0.0.0.0:0"]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("neither a rule nor an account restricts who may use it"), "{said}");
}
