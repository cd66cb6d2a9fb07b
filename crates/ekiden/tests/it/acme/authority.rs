//! Pebble, the authority that Let's Encrypt made for tests, with its name server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{Certificate, eventually};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use tempfile::TempDir;

/// An address on loopback of one test's own, where no other program's connection takes a port that
/// was free a moment ago.
pub(crate) fn own_address() -> Ipv4Addr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    [127, 100 + (pid >> 8) as u8 % 100, pid as u8, CALLS.fetch_add(1, Relaxed)].into()
}

/// A port of `ip` that is free now.
pub(crate) fn free_port(ip: Ipv4Addr) -> u16 {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().port()
}

/// How an authority behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// The address of everything.
    pub(crate) ip: Ipv4Addr,
    /// Where it looks for the answers to its challenges.
    pub(crate) challenges: u16,
    /// Where it listens.
    pub(crate) port: u16,
    /// Whether it wants the external account `kid-1`.
    pub(crate) external: bool,
    /// Whether its name server has an address for every name, or for none.
    pub(crate) resolves: bool,
}

pub(crate) const EXTERNAL_KEY: &str =
    "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

pub(crate) struct Authority {
    folder: TempDir,
    children: Vec<Child>,
    ip: Ipv4Addr,
    management: u16,
    own: CertificateDer<'static>,
}

fn program(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pebble").join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    [here].into_iter().chain(found).find(|path| path.is_file())
}

impl Authority {
    /// Writes the certificate by which a directory is known, before there is one; its file.
    pub(crate) fn prepare(ip: Ipv4Addr) -> (TempDir, CertificateDer<'static>) {
        let folder = tempfile::tempdir().unwrap();
        let made = Certificate::self_signed(folder.path(), "own", &[&ip.to_string()]);
        (folder, made.der.into())
    }

    /// Starts it; `None`, said aloud, where pebble is missing.
    pub(crate) fn start(
        (folder, own): (TempDir, CertificateDer<'static>),
        manner: Manner,
    ) -> Option<Self> {
        let programs = [program("pebble"), program("pebble-challtestsrv")];
        let [Some(pebble), Some(names)] = programs else {
            assert!(std::env::var_os("CI").is_none(), "pebble is missing: sh scripts/peers.sh");
            println!("SKIPPED: pebble is missing: sh scripts/peers.sh builds it");
            return None;
        };
        let Manner { ip, .. } = manner;
        let management = free_port(ip);
        let external = match manner.external {
            true => format!(
                ",\"externalAccountBindingRequired\":true,\"externalAccountMACKeys\":{{\"kid-1\":\"{EXTERNAL_KEY}\"}}"
            ),
            false => String::new(),
        };
        let place = folder.path().display();
        let config = format!(
            "{{\"pebble\":{{\"listenAddress\":\"{ip}:{}\",\"managementListenAddress\":\"{ip}:{management}\",
            \"certificate\":\"{place}/own-certificate.pem\",\"privateKey\":\"{place}/own-key.pem\",\"httpPort\":1,\"tlsPort\":{},
            \"retryAfter\":{{\"authz\":1,\"order\":1}},\"keyAlgorithm\":\"ecdsa\",
            \"profiles\":{{\"default\":{{\"description\":\"\",\"validityPeriod\":7776000}}}}{external}}}}}",
            manner.port, manner.challenges
        );
        fs::write(folder.path().join("pebble.json"), config).unwrap();
        let dns = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap().to_string();
        let address = if manner.resolves { ip.to_string() } else { String::new() };
        let log = || fs::File::create(folder.path().join("log")).unwrap();
        let mut children = Vec::new();
        let mut resolver = Command::new(names);
        resolver.args([
            "-dnsserver",
            &dns,
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
        ]);
        resolver.args(["-management", &format!("{ip}:{}", free_port(ip))]);
        resolver.args(["-defaultIPv4", &address, "-defaultIPv6", ""]);
        resolver.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        children.push(resolver.spawn().unwrap());
        let mut authority = Command::new(pebble);
        authority.arg("-config").arg(folder.path().join("pebble.json")).args(["-dnsserver", &dns]);
        // a client has to survive that a nonce is not taken
        authority.env("PEBBLE_WFE_NONCEREJECT", "50").env("PEBBLE_VA_NOSLEEP", "1");
        authority.stdin(Stdio::null()).stdout(log()).stderr(Stdio::null());
        children.push(authority.spawn().unwrap());
        let port = manner.port;
        let started = Self { folder, children, ip, management, own };
        eventually("pebble", || TcpStream::connect((ip, port)).ok());
        eventually("pebble's management", || TcpStream::connect((ip, management)).ok());
        Some(started)
    }

    /// `[acme]` that orders from an authority on this port.
    pub(crate) fn table(folder: &Path, at: (Ipv4Addr, u16), names: &str, more: &str) -> String {
        let (place, (ip, port)) = (folder.display(), at);
        format!(
            "[management]\nlisten = \"off\"\n[acme]\nnames = {names}\nagree_to_terms = true\ndirectory = \"https://{ip}:{port}/dir\"\n\
             ca = \"{place}/own-certificate.pem\"\n{more}"
        )
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn ask(&self, request: &str) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.own.clone()).unwrap();
        let stream = TcpStream::connect((self.ip, self.management)).unwrap();
        let mut secure = secure(stream, &self.ip.to_string(), roots, &[]).unwrap();
        secure.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Go closes without an alert
        let _ = secure.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// The certificate that its clients have to trust.
    pub(crate) fn root(&self) -> RootCertStore {
        let answer =
            self.ask("GET /roots/0 HTTP/1.0\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(answer.as_bytes()).unwrap()).unwrap();
        roots
    }

    /// Advises to renew a certificate at once.
    pub(crate) fn wants_renewal(&self, certificate: &CertificateDer<'_>) {
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(certificate)
        );
        let window = "{\"suggestedWindow\":{\"start\":\"2020-01-01T00:00:00Z\",\"end\":\"2020-01-02T00:00:00Z\"}}";
        let body = serde_json::json!({ "Certificate": pem, "ARIResponse": window }).to_string();
        let answer = self.ask(&format!(
            "POST /set-renewal-info/ HTTP/1.0\r\nHost: localhost\r\nUser-Agent: test\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        for child in &mut self.children {
            // it has perhaps ended
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

/// TLS over `stream` with a server of this name; the failure in rustls's words.
pub(crate) fn secure(
    stream: TcpStream,
    name: &str,
    roots: RootCertStore,
    protocols: &[&[u8]],
) -> Result<Secure, String> {
    stream.set_read_timeout(Some(ekiden_testkit::PATIENCE)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut secure = StreamOwned::new(connection, stream);
    while secure.conn.is_handshaking() {
        secure.conn.complete_io(&mut secure.sock).map_err(|error| error.to_string())?;
    }
    // with TLS 1.3 a refusal comes after the client's end of the handshake
    Ok(secure)
}
