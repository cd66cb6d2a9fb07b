//! `config.example.toml`, written from the registry: every key, commented out at its default.
//!
//! Lines that begin `# ` are prose, `#key = …` is a key at its default, `#: ` is an example.

use super::draft::{Draft, LegDraft};
use super::key::Key;
use super::keys::{ACCESS, BUDGETS, DNS, LOG, RELAY, ROUTE, RULE, TIMEOUTS, TOP, UPSTREAM};
use super::keys_accounts::ACCOUNTS;
use super::keys_households::{HOUSEHOLD, HOUSEHOLDS};
use super::keys_leg::LEG;
use super::keys_management::MANAGEMENT;
use super::keys_resources::{BUFFERS, CACHE, POOL, PRESSURE};
use super::keys_tls::TLS;
use super::keys_tunnel::TUNNEL;
use super::keys_udp::UDP;

const WIDTH: usize = 100;

/// The example configuration.
#[must_use]
pub fn example() -> String {
    let draft = Draft::default();
    let mut out = Out(String::new());
    out.prose("Configuration of ekiden. Written by `ekiden config example`; do not edit it in the source tree.");
    out.prose("");
    out.prose("Nothing here is needed: without any file ekiden listens on 127.0.0.1:3128. To set a key, remove the `#` before it; text after `# ` explains, lines with `#:` are examples.");
    out.prose("Quantities have their unit: \"40 ms\", \"8 MiB\", \"25 Mbit/s\". `ekiden check FILE` finds every mistake; `ekiden config show` says what holds and where it comes from; SIGHUP reloads.");
    out.blank();
    out.keys(TOP, &draft.top);

    out.head("Legs", "A leg is one TCP connection of a path, tuned by a profile. `client` is for connections clients make to ekiden, `direct` for those ekiden makes to destinations; make others under names of your choice for upstreams and routes. \"kernel\" leaves an option to the kernel. What the kernel granted of each is in `ekiden status --json`.");
    out.line("#[leg.client]");
    out.keys(LEG, &LegDraft::default());
    out.line("#[leg.direct]");
    out.prose("The same keys as [leg.client].");
    out.blank();
    out.examples(&[
        "[leg.long]",
        "inherit = \"direct\"",
        "congestion = [\"bbr\", \"cubic\"]",
        "connect_timeout = \"20 s\"",
        "pace = \"25 Mbit/s\"",
    ]);

    out.head("Upstream proxies", "Other ekidens, squid, dante: anything that speaks HTTP CONNECT or SOCKS5; and relays at the other end of a tunnel. A route names them.");
    out.documented(UPSTREAM);
    out.examples(&[
        "[upstream.near]",
        "url = \"http://relay.example:3128\"",
        "leg = \"long\"",
        "[upstream.capital]",
        "url = \"socks5://192.0.2.7:1080\"",
        "[upstream.island]",
        "url = \"tunnel://island\"",
    ]);

    out.head(
        "Routes",
        "Which way destinations go; the first route that matches decides. Without any: direct.",
    );
    out.documented(ROUTE);
    out.examples(&[
        "[[route]]",
        "to = [\"10.0.0.0/8\", \"*.home.example\"]",
        "through = [\"direct\"]",
        "[[route]]",
        "through = [\"island\", \"near > capital\", \"capital\", \"direct\"]",
    ]);

    out.head("Access", "Who may come in and where they may go; the first rule that matches decides. Clients on loopback that no rule matches are allowed, all others refused. To listen beyond loopback, one rule at least must name its clients.");
    out.documented(RULE);
    out.examples(&[
        "[[rule]]",
        "from = [\"192.168.0.0/16\", \"2001:db8::/32\"]",
        "to = [\":25\"]",
        "action = \"deny\"",
        "[[rule]]",
        "from = [\"192.168.0.0/16\", \"2001:db8::/32\"]",
        "action = \"allow\"",
        "allow_destinations = [\"192.168.0.0/24\"]",
    ]);
    out.line("#[access]");
    out.keys(ACCESS, &draft.access);

    out.head("Accounts", "Households that may use this relay: `ekiden user add` makes one, `ekiden user list` shows them; a running daemon notices. With accounts, a public address may be listened on without a [[rule]].");
    out.line("#[accounts]");
    out.keys(ACCOUNTS, &draft.accounts);

    out.head("Time-outs", "How long each phase may take; a leg's own are in its profile.");
    out.line("#[timeouts]");
    out.keys(TIMEOUTS, &draft.timeouts);
    out.head("Budgets", "How much may be spent.");
    out.line("#[budgets]");
    out.keys(BUDGETS, &draft.budgets);
    out.head("Names", "Resolving them, and choosing among their addresses.");
    out.line("#[dns]");
    out.keys(DNS, &draft.dns);
    out.head("Relaying", "How bytes are moved between two legs.");
    out.line("#[relay]");
    out.keys(RELAY, &draft.relay);
    out.head("Buffers", "Socket buffers of all connections. `ekiden status` says what is given out, `ekiden explain CONNECTION` why one has what it has. A leg's own send_buffer and receive_buffer stay what they are.");
    out.line("#[buffers]");
    out.keys(BUFFERS, &draft.buffers);
    out.head("Pressure", "What happens when connections, descriptors, memory or ports run out: idle connections are closed, the longest idle first; then newcomers wait in turn; then they are told to come again.");
    out.line("#[pressure]");
    out.keys(PRESSURE, &draft.pressure);
    out.head("Pool", "Connections to origins and HTTP proxies, kept for the next request.");
    out.line("#[pool]");
    out.keys(POOL, &draft.pool);
    out.head("Cache", "Responses to plain http:// requests, kept for whoever asks next. Off unless it is given memory: most of the web is encrypted and cannot be kept here, and what can is remembered.");
    out.line("#[cache]");
    out.keys(CACHE, &draft.cache);
    out.head("TLS", "With a certificate, clients may begin with TLS on the same port: browsers and curl call it an HTTPS proxy. Passwords are then encrypted on their way.");
    out.line("#[tls]");
    out.keys(TLS, &draft.tls);
    out.head("Tunnels", "Legs to another ekiden over UDP: a held rate whatever is lost, interactive first. One relay invites (`ekiden relay invite`), the other joins (`ekiden relay join TOKEN`); then an upstream with url = \"tunnel://NAME\" goes there. Changes here need a restart; invitations do not.");
    out.line("#[tunnel]");
    out.keys(TUNNEL, &draft.tunnel);
    out.head("Datagrams", "UDP ASSOCIATE of SOCKS5: datagrams of one client, to where its rules let it go, directly. Upstream proxies and tunnels do not carry them yet.");
    out.line("#[udp]");
    out.keys(UDP, &draft.udp);
    out.head("Management", "Metrics, health and an API, for programs of this machine. The API's description is docs/openapi.json; metrics are listed in docs/metrics.md.");
    out.line("#[management]");
    out.keys(MANAGEMENT, &draft.management);
    out.head("Households", "Who shares this relay, and how much each may have. Rates and quotas count payload, holding for HTTP, CONNECT, SOCKS, tunnels and datagrams, for what is spliced and what comes out of the cache alike. A reload changes limits of connections that run. `ekiden status` says what each uses, `ekiden explain CONNECTION` for what one waits.");
    out.line("#[households]");
    out.keys(HOUSEHOLDS, &draft.shared);
    out.documented(HOUSEHOLD);
    out.examples(&[
        "[[household]]",
        "name = \"harbour\"",
        "addresses = [\"100.64.1.0/24\", \"2001:db8:1::/48\"]",
        "rate_down = \"5 Mbit/s\"",
        "rate_up = \"1 Mbit/s\"",
        "connections = 64",
        "connects_per_second = 20",
        "quota = \"100 GiB\"",
        "slower = \"256 kbit/s\"",
    ]);
    out.head("Logs", "To standard error; no log ever holds a password.");
    out.line("#[log]");
    out.keys(LOG, &draft.log);
    out.0.truncate(out.0.trim_end().len());
    out.0.push('\n');
    out.0
}

struct Out(String);

impl Out {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn blank(&mut self) {
        self.line("");
    }

    fn prose(&mut self, text: &str) {
        self.wrapped("# ", "# ", text);
    }

    fn wrapped(&mut self, first: &str, other: &str, text: &str) {
        let mut line = first.to_owned();
        let mut fresh = true;
        for word in text.split_whitespace() {
            if !fresh && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(line.trim_end());
                line = other.to_owned();
                fresh = true;
            }
            if !fresh {
                line.push(' ');
            }
            line.push_str(word);
            fresh = false;
        }
        self.line(line.trim_end());
    }

    fn head(&mut self, title: &str, text: &str) {
        let rule = "-".repeat(WIDTH - 5 - title.chars().count());
        self.line(&format!("# -- {title} {rule}"));
        self.prose(text);
        self.blank();
    }

    /// What a key's documentation says; `default` is left out where a key has none.
    fn document<T>(&mut self, indent: &str, key: &Key<T>) {
        let mut about = String::new();
        about.push_str(&key.kind.describe());
        if let Some(word) = key.unset.filter(|word| !word.is_empty()) {
            about.push_str(&format!(", or \"{word}\""));
        }
        self.wrapped(indent, indent, key.what);
        self.wrapped(indent, indent, &format!("Written as: {about}."));
        for (label, text) in [("Cost", key.cost), ("Change it", key.who)] {
            if text != "None." && text != "-" && text != "Rarely anybody." {
                self.wrapped(indent, indent, &format!("{label}: {text}"));
            }
        }
    }

    fn keys<T>(&mut self, keys: &[Key<T>], defaults: &T) {
        for key in keys {
            self.document("# ", key);
            self.line(&format!("#{} = {}", key.name, key.toml(defaults)));
            self.blank();
        }
    }

    /// Keys of tables of which there is none at first: no defaults to show.
    fn documented<T>(&mut self, keys: &[Key<T>]) {
        for key in keys {
            self.line(&format!("# {}", key.name));
            self.document("#     ", key);
        }
        self.blank();
    }

    fn examples(&mut self, lines: &[&str]) {
        for line in lines {
            self.line(&format!("#: {line}"));
        }
        self.blank();
    }
}
