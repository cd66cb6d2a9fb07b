//! Keys of the management port and of what is sent without being asked: `[management]`, `[alerts]`, `[traces]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::keys::HOUR;
use crate::value::kind::{Kind, absolute_path};
use crate::value::receiver;
use ekiden_model::units::{Bytes, Share, Span};

/// A name in `Host`, without a port.
fn host(text: &str) -> Result<(), String> {
    let fine = (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if fine {
        Ok(())
    } else {
        Err("a host's name without a port, such as \"relay.example\"".to_owned())
    }
}

pub(super) static MANAGEMENT: &[Key<Draft>] = keys! { Draft, |draft| draft.management;
    listen = listen: Kind::SocketOrOff(9128), None,
        "Address of /metrics, /healthz, /readyz and the API below /api/v1, over HTTP. \"off\" disables them. If the default address is in use, the daemon warns and runs without. An address set here must be free.",
        "Programs on this machine can read /metrics, including accounts' names; the API needs a token.",
        "Several daemons on one machine. Needs a restart.";
    cleartext = cleartext: Kind::Switch, None,
        "Whether `listen` may be an address beyond loopback. This port has no TLS: the token and the answers cross the network unencrypted.",
        "Anybody on the network between can read the token, and with it change every account.",
        "Networks that are your own, or encrypted below. Otherwise: ssh -L 9128:127.0.0.1:9128 HOST, or a web server with TLS before it.";
    hosts = hosts: Kind::Words("names of this machine, such as \"relay.example\"", host), Some("localhost"),
        "Accepted names in `Host`, besides localhost and plain addresses. Others are rejected, because a web page could use a name that resolves to this machine (DNS rebinding).",
        "None.", "Behind a web server, or to reach the port by name. Needs a restart.";
    token_file = token_file: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The file with the API's token. The first start creates it, readable only by its owner. \"auto\": management.token beside the accounts. `ekiden token show` prints the token, `ekiden token rotate` replaces it.",
        "Its readers can do all that `ekiden account` can.", "Several daemons of one user on one machine. Needs a restart.";
    metrics_accounts = metrics_accounts: Kind::Number(0, 10_000), None,
        "Maximum number of accounts that /metrics names, in order of name. The rest are only counted.",
        "About 15 time series each in Prometheus. 0: no names.", "Large sites, or to keep names out of metrics. Needs a restart.";
    reports = reports: Kind::Text("an absolute path", absolute_path), Some(""),
        "A folder with reports of `ekiden lab run --out`, which the dashboard then shows.", "Whoever may log in reads them.", "Who measures own lines. Needs a restart.";
};

const DAY: Span = HOUR.saturating_mul(24);

pub(super) static ALERTS: &[Key<Draft>] = keys! { Draft, |draft| draft.alerts;
    webhook = webhook: Kind::Text("an https:// or http:// URL", receiver::webhook), Some(""),
        "Where alerts are sent to by POST, as JSON. docs/book/src/operate/alerts.md describes the document. The connection goes out directly, by the leg `direct`, and not by [[route]].",
        "The receiver learns names of peers and accounts. http:// is not encrypted.", "To be told without a monitoring system.";
    webhook_authorization_file = webhook_authorization_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "A file whose first line is the value of the field `Authorization`, such as \"Bearer …\".", "None.", "If the receiver asks for it.";
    mail_to = mail_to: Kind::Words("mail addresses", receiver::address), Some(""),
        "Who gets alerts by mail.", "As webhook.", "As webhook.";
    mail_from = mail_from: Kind::Text("a mail address", receiver::address), Some("auto"),
        "The sender of these mails. \"auto\": the first of `mail_to`.", "None.", "If the server wants another.";
    mail_server = mail_server: Kind::Text("a URL such as \"smtps://user@mail.example.org\" or \"smtp://user@mail.example.org:587\"", |text| receiver::MailServer::read(text).map(|_| ())), Some(""),
        "The server that takes the mails. `smtps://` is TLS from the first byte (port 465). `smtp://` is STARTTLS (port 587), without which nothing is sent, except without a user to this machine itself. Needed with `mail_to`.",
        "None.", "-";
    mail_password_file = mail_password_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "A file whose first line is the password of the user in `mail_server`.", "None.", "If the server asks for it.";
    ca = authorities: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the authorities to trust for both servers' certificates. They replace the system's.",
        "None.", "For an authority of your own.";
    after = after: Kind::Span(Span::from_secs(1), DAY), None,
        "How long a tunnel, the database or a disk must be in trouble before that is an alert, and be well before it is over. What comes and goes must be well for up to 30 min.",
        "A shorter time sends messages about short faults.", "Lines that fade for minutes: longer.";
    repeat = repeat: Kind::Span(Span::from_secs(60), DAY.saturating_mul(365)), Some("never"),
        "How often an alert that stands is sent again.", "None.", "If nobody reads the first one.";
    quota = quota: Kind::Share(Share::NONE, Share::ALL), None,
        "An alert comes when an account has used this much of its quota, and another one at all of it.", "None.", "Rarely needed.";
    certificate = certificate: Kind::Span(HOUR, DAY.saturating_mul(365)), None,
        "An alert comes when the certificate of [tls] ends within this time, or the ordered one does and is not renewed.", "None.", "Rarely needed.";
    disk_free = disk_free: Kind::Size(Bytes::new(0), Bytes::mib(1 << 30)), None,
        "An alert comes when the disk of the state folder has less free.", "None.", "Small disks: less.";
};

/// The name of a service: what OpenTelemetry takes, in one line.
fn service(text: &str) -> Result<(), String> {
    let fine = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
    if fine { Ok(()) } else { Err("1 to 255 bytes without control characters".to_owned()) }
}

pub(super) static TRACES: &[Key<Draft>] = keys! { Draft, |draft| draft.traces;
    endpoint = endpoint: Kind::Text("an http:// or https:// URL such as \"http://collector:4318\"", receiver::collector), Some(""),
        "Where traces are sent to: the URL of an OpenTelemetry collector that takes OTLP over HTTP. /v1/traces is added to it. The connection goes out directly, by the leg `direct`, and not by [[route]].",
        "The receiver learns addresses of clients and destinations, and names of accounts. http:// is not encrypted.", "To see where the time of single connections goes, beside other services' traces.";
    sample = sample: Kind::Share(Share::NONE, Share::ALL), None,
        "The share of requests and tunnels that is traced. A request with the field `traceparent` is traced if its client traces it, whatever is set here. At most 200 begin in a second.",
        "About 1 kB each to the collector.", "Few connections: more.";
    service = service: Kind::Text("a name", service), None,
        "The `service.name` of these traces. `service.instance.id` is the relay's `name`.", "None.", "Several groups of relays with one collector.";
    authorization_file = authorization_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "A file whose first line is the value of the field `Authorization`, such as \"Bearer …\".", "None.", "If the collector asks for it.";
    ca = authorities: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the authorities to trust for the collector's certificate. They replace the system's.",
        "None.", "For an authority of your own.";
};
