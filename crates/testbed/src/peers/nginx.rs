//! nginx, twice: as a TCP relay (the stream module) and as the web server of the tests. One worker.

use super::process::{Preparation, io_error, several};
use super::{Peer, PeerError, Protocol, Start, find};
use crate::certificate::Certificate;
use crate::limits;
use std::io;
use std::net::SocketAddr;
use std::path::{Display, Path};

const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Starts nginx forwarding to `targets` in turn; with a certificate, what is within TLS 1.3.
pub fn stream(
    start: &Start,
    targets: &[SocketAddr],
    certificate: Option<&Certificate>,
) -> Result<Peer, PeerError> {
    find("nginx", "nginx")?;
    if !Path::new(STREAM_MODULE).exists() {
        let program = "nginx's stream module".to_owned();
        return Err(PeerError::Missing(program, "libnginx-mod-stream"));
    }
    let peer = Preparation::new(start, "nginx stream", ("nginx", "nginx"), "-v")?;
    let mut text =
        format!("load_module {STREAM_MODULE};\n{}stream {{\nupstream t {{\n", main(&peer));
    for target in targets {
        text += &format!("server {target} max_fails=0;\n");
    }
    let (ssl, files) = certificate.map_or((" ", String::new()), |certificate| {
        let (certificate, key) = (certificate.certificate(), certificate.key());
        let files = format!(
            "ssl_protocols TLSv1.3; ssl_session_cache off; ssl_certificate {}; ssl_certificate_key {};",
            certificate.display(),
            key.display()
        );
        (" ssl ", files)
    });
    text += &format!(
        "}}\nserver {{ listen {}{ssl}backlog=4096; {files} proxy_pass t; proxy_timeout 1h; }}\n}}\n",
        peer.address
    );
    let file = peer.write("nginx.conf", text)?;
    run(peer, start, &file, Protocol::TcpForward(targets.to_vec()))
}

/// Starts nginx serving `root`.
///
/// - `access.log` in its folder: method, URI, status, bytes, `Via` of each request, separated by tabs.
/// - `PUT /upload/NAME` stores the body in `root`.
/// - `POST /post` answers 200 and names the stored body's file in `X-Body-File`.
pub fn http(start: &Start, root: &Path) -> Result<Peer, PeerError> {
    serve(start, root, |folder, address| {
        format!(
            "types {{ text/html html; image/svg+xml svg; application/octet-stream bin; }}
log_format tabs '$request_method\\t$request_uri\\t$status\\t$body_bytes_sent\\t$http_via';
access_log {folder}/access.log tabs;
client_max_body_size 0;
keepalive_requests 1000000;
server {{
  location /upload/ {{ dav_methods PUT; create_full_put_path on; }}
  location = /post {{
    client_body_in_file_only on;
    add_header X-Body-File $request_body_file;
    proxy_pass http://{address}/posted;
  }}
  location = /posted {{ return 200 \"posted\\n\"; }}"
        )
    })
}

/// Starts nginx serving the files in `root` and nothing else: by sendfile, without a log.
pub fn files(start: &Start, root: &Path) -> Result<Peer, PeerError> {
    serve(start, root, |_, _| "access_log off;\nsendfile on;\nserver {".to_owned())
}

/// Starts nginx serving the files in `root` by HTTPS to each of these names: TLS 1.3, HTTP/2 or HTTP/1.1, no tickets.
/// Each name has a certificate of its own, so that no browser takes one connection for two of them.
pub fn https(start: &Start, root: &Path, names: &[String]) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "nginx", ("nginx", "nginx"), "-v")?;
    let folder = peer.folder.path().display();
    let mut text = format!(
        "{main}http {{
{temporary}
access_log off; sendfile on; tcp_nodelay on;
types {{ text/html html; text/css css; application/javascript js; application/octet-stream bin; }}
ssl_protocols TLSv1.3; ssl_session_tickets off;
root {root};
add_header Access-Control-Allow-Origin *; add_header Timing-Allow-Origin *; add_header Cache-Control no-store;
",
        main = main(&peer),
        temporary = temporary(&folder),
        root = root.display(),
    );
    for (number, name) in names.iter().enumerate() {
        let failed = |error| io_error(&peer.name, io::Error::other(error));
        let made = rcgen::generate_simple_self_signed([name.clone()]).map_err(failed)?;
        let certificate = peer.write(&format!("{number}.pem"), made.cert.pem())?;
        let key = peer.write(&format!("{number}.key"), made.signing_key.serialize_pem())?;
        // an option of the socket may stand once
        let once = if number == 0 { " backlog=4096" } else { "" };
        text += &format!(
            "server {{ listen {} ssl http2{once}; server_name {name}; ssl_certificate {}; ssl_certificate_key {}; }}\n",
            peer.address,
            certificate.display(),
            key.display()
        );
    }
    let file = peer.write("nginx.conf", text + "}\n")?;
    run(peer, start, &file, Protocol::HttpServer)
}

/// Starts nginx as a reverse proxy, once for each of these origins; returns where it listens for them, in their
/// order. It takes absolute targets, too, and passes on the `Host` it read.
pub fn proxies(
    start: &Start,
    origins: &[SocketAddr],
) -> Result<(Peer, Vec<SocketAddr>), PeerError> {
    let peer = Preparation::new(start, "nginx", ("nginx", "nginx"), "-v")?;
    let addresses = several(&peer, origins.len())?;
    let folder = peer.folder.path().display();
    let mut text = format!(
        "{}http {{\n{}\naccess_log off; client_max_body_size 0;\n",
        main(&peer),
        temporary(&folder)
    );
    for (address, origin) in addresses.iter().zip(origins) {
        text += &format!(
            "server {{ listen {address}; location / {{ proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Host $host; }} }}\n"
        );
    }
    let file = peer.write("nginx.conf", text + "}\n")?;
    Ok((run(peer, start, &file, Protocol::HttpServer)?, addresses))
}

/// A web server by `settings`, which end within its `server`.
fn serve(
    start: &Start,
    root: &Path,
    settings: impl FnOnce(&Display<'_>, SocketAddr) -> String,
) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "nginx", ("nginx", "nginx"), "-v")?;
    let folder = peer.folder.path().display();
    let text = format!(
        "{main}http {{
{temporary}
{settings}
  listen {address} backlog=4096;
  root {root};
}}
}}
",
        temporary = temporary(&folder),
        settings = settings(&folder, peer.address),
        main = main(&peer),
        address = peer.address,
        root = root.display(),
    );
    let file = peer.write("nginx.conf", text)?;
    run(peer, start, &file, Protocol::HttpServer)
}

fn temporary(folder: &Display<'_>) -> String {
    format!(
        "client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;"
    )
}

fn main(peer: &Preparation) -> String {
    let folder = peer.folder.path().display();
    let descriptors = limits::descriptors();
    // Workers of a root nginx would be www-data, who may not read a temporary folder of ours.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off; worker_processes 1; {user}
worker_rlimit_nofile {descriptors}; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
events {{ worker_connections {descriptors}; }}
"
    )
}

fn run(
    peer: Preparation,
    start: &Start,
    file: &Path,
    protocol: Protocol,
) -> Result<Peer, PeerError> {
    // -e: or it complains that /var/log/nginx is not there.
    let log = peer.path("nginx.log").into_os_string();
    let arguments = ["-e".into(), log, "-c".into(), file.as_os_str().to_owned()];
    peer.start(start, arguments, protocol)
}
