//! The example server of tokio-quiche, whose CUBIC takes a reduction back where few losses came of it. `scripts/peers.sh --quiche` builds it.

use super::{Certificate, Http3, certificate};
use crate::peers::process::Preparation;
use crate::peers::{PeerError, Protocol, Start, find_built};
use std::path::PathBuf;

const PROGRAM: &str = "async_http3_server";
/// It serves as many bytes as a number after this says.
pub const BYTES: &str = "stream-bytes";
/// As in `scripts/peers.sh`: it prints none itself.
const VERSION: &str = "tokio-quiche 0.20.1";

/// Where it is: in `PATH`, or where `cargo install` puts programs.
pub fn find() -> Result<PathBuf, PeerError> {
    find_built(PROGRAM, "(none: scripts/peers.sh --quiche)")
}

/// Starts it for this name, by UDP alone. Errors: it is not there, or did not start.
pub fn https(start: &Start, name: &str) -> Result<Http3, PeerError> {
    let peer = Preparation::of_file(start, "quiche", find()?, VERSION.to_owned())?;
    let Certificate { certificate, key, spki } = certificate(&peer, 0, name)?;
    let address = peer.address.to_string();
    let arguments = ["--address".into(), address.into(), "--tls-cert-path".into()];
    let files = [certificate.into_os_string(), "--tls-private-key-path".into(), key.into()];
    let server = peer.start(start, arguments.into_iter().chain(files), Protocol::Http3Server)?;
    Ok(Http3 { server, keys: vec![spki] })
}
