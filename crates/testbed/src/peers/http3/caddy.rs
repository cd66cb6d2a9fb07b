//! Caddy as a web server of HTTP/3, alone or beside HTTPS by TCP. `scripts/peers.sh --caddy` builds it, because Debian has no package.

use super::{Certificate, Http3, certificate};
use crate::peers::process::{Preparation, version};
use crate::peers::{PeerError, Protocol, Start, find_built};
use serde_json::json;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "caddy";

/// Where it is: in `PATH`, or where `go install` puts programs.
pub fn find() -> Result<PathBuf, PeerError> {
    find_built(PROGRAM, "(none: scripts/peers.sh --caddy)")
}

/// How a browser may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// By HTTP/3 alone.
    Http3,
    /// By TCP, too, where answers tell of HTTP/3 (Alt-Svc, RFC 7838).
    All,
}

/// Starts Caddy serving the files in `root` by HTTPS to each of these names. Each name has a certificate of its own, so
/// that no browser takes one connection for two of them. Errors: it is not there, or did not start.
pub fn https(
    start: &Start,
    root: &Path,
    names: &[String],
    versions: Versions,
) -> Result<Http3, PeerError> {
    let program = find()?;
    let version = version(&program, "version");
    let peer = Preparation::of_file(start, "caddy", program, version)?;
    let address = peer.address;
    let (mut files, mut keys) = (Vec::new(), Vec::new());
    for (number, name) in names.iter().enumerate() {
        let Certificate { certificate, key, spki } = certificate(&peer, number, name)?;
        files.push(json!({ "certificate": certificate, "key": key }));
        keys.push(spki);
    }
    let headers = json!({ "Access-Control-Allow-Origin": ["*"], "Timing-Allow-Origin": ["*"], "Cache-Control": ["no-store"] });
    let (admin, protocols) = match versions {
        // of TCP, so that it can be seen that it runs
        Versions::Http3 => (json!({ "listen": address.to_string() }), json!(["h3"])),
        Versions::All => (json!({ "disabled": true }), json!(["h1", "h2", "h3"])),
    };
    let configuration = json!({
        "admin": admin,
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "storage": { "module": "file_system", "root": peer.path("storage") },
        "apps": {
            "tls": { "certificates": { "load_files": files }, "disable_ocsp_stapling": true },
            "http": { "servers": {
                "pages": {
                    "listen": [address.to_string()],
                    "protocols": protocols,
                    "automatic_https": { "disable": true },
                    "tls_connection_policies": [{}],
                    "routes": [{ "handle": [
                        { "handler": "headers", "response": { "set": headers } },
                        { "handler": "file_server", "root": root },
                    ] }],
                },
            } },
        },
    });
    let file = peer.write("caddy.json", configuration.to_string())?;
    let arguments = ["run".into(), "--config".into(), file.into_os_string()];
    let server = peer.start(start, arguments, Protocol::HttpServer)?;
    Ok(Http3 { server, keys })
}
