use super::*;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Cursor};

struct Authority(Issuer<'static, KeyPair>, String);

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap();
    Authority(Issuer::new(params, key), pem_of(pem.der()))
}

fn pem_of(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn server(authority: &Authority, name: &str, years: [i32; 2]) -> (Arc<ServerConfig>, [u8; 32]) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(years[0], 1, 1);
    params.not_after = rcgen::date_time_ymd(years[1], 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority.0).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .unwrap();
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, certificate.der()).as_ref());
    (Arc::new(config), sha256)
}

/// A handshake in memory; the failure as the client meets it.
fn handshake(trust: &UpstreamTls, server: &Arc<ServerConfig>) -> Result<(), String> {
    let name = ServerName::try_from("relay.example").unwrap();
    let mut client = rustls::ClientConnection::new(client(trust).unwrap(), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut read = Cursor::new(bytes);
        while server.read_tls(&mut read).unwrap() > 0 {}
        // the server meets the client's alert
        let _ = server.process_new_packets();
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut read = Cursor::new(bytes);
        while client.read_tls(&mut read).unwrap() > 0 {}
        if let Err(error) = client.process_new_packets() {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            let (kind, text) = describe(&error, Some(["`ca`", "`fingerprint`"]));
            assert_eq!(kind, TlsFailure::Certificate);
            return Err(text);
        }
    }
    Ok(())
}

#[test]
fn a_certificate_is_taken_by_issuer_name_and_time_and_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (authority(), authority());
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &ours.1).unwrap();
    let trust = UpstreamTls { authorities: Some(file), fingerprint: None };
    let now = [2000, 4000];
    let right = server(&ours, "relay.example", now);
    assert_eq!(handshake(&trust, &right.0), Ok(()));
    for (server, words) in [
        (server(&ours, "other.example", now), "for other.example, and not for relay.example"),
        (server(&ours, "relay.example", [2000, 2001]), "expired on 2001-01-01T00:00:00Z"),
        (server(&ours, "relay.example", [3999, 4000]), "set the clock if that is wrong"),
        (server(&others, "relay.example", now), "issuer that this machine does not trust"),
    ] {
        let error = handshake(&trust, &server.0).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    // what the refusal says can be set
    let (stranger, sha256) = server(&others, "relay.example", now);
    let error = handshake(&trust, &stranger).unwrap_err();
    assert!(error.contains(&fingerprint_text(&sha256)), "{error}");
}

#[test]
fn a_pinned_certificate_needs_no_name_time_or_issuer() {
    let (old, sha256) = server(&authority(), "other.example", [2000, 2001]);
    let trust = UpstreamTls { authorities: None, fingerprint: Some(sha256) };
    assert_eq!(handshake(&trust, &old), Ok(()));
    let (other, shown) = server(&authority(), "relay.example", [2000, 4000]);
    let error = handshake(&trust, &other).unwrap_err();
    let text = fingerprint_text(&shown);
    assert!(error.contains("than the pinned one") && error.contains(&text), "{error}");
}

#[test]
fn a_file_of_authorities_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let trust = UpstreamTls { authorities: Some(file.clone()), fingerprint: None };
    for (content, words) in [(None, "cannot be read"), (Some("no PEM"), "contains no certificate")]
    {
        content.into_iter().for_each(|content| std::fs::write(&file, content).unwrap());
        let error = client(&trust).unwrap_err();
        assert!(error.contains(words) && error.contains("ca.pem"), "{error}");
    }
}
