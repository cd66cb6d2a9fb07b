//! The page for an account's owner on the proxy's own port: whose figures it shows to whom, and in which language.

use crate::accounts::Accounts;
use crate::log_in::devtools::Browser;
use crate::log_in::present;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{Certificate, Daemon, PATIENCE, wait_for};
use sha2::{Digest as _, Sha256};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

/// Fields of *Host* that a browser may send for a name of a stranger, and that are no host to this relay.
pub(crate) const UNREADABLE: [&str; 3] = [
    "Host: a+b.evil.example:3128\r\n",
    "Host: evil.example:3128\r\nHost: 127.0.0.1:3128\r\n",
    "Host: bücher.evil.example\r\n",
];

/// Status, head and body of the answer to a request.
fn say(daemon: &Daemon, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// The same, of a request in origin form with these fields.
fn ask(daemon: &Daemon, path: &str, fields: &str) -> (u16, String, String) {
    let at: SocketAddr = daemon.address;
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {at}\r\n") };
    say(daemon, &format!("GET {path} HTTP/1.1\r\n{host}{fields}\r\n"))
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn figures_are_shown_to_the_accounts_own_devices_alone() {
    let accounts = Accounts::new();
    let password = "right password\n";
    accounts.account(
        &["add", "tanaka", "--user", "<b>anna</b>", "--password-stdin", "--quota", "300 GB/month"],
        password,
    );
    let daemon = accounts.serve();
    // nobody yet, and that is no refusal
    let (status, head, body) = ask(&daemon, "/", "");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("This device is not known") && body.contains("/?login"), "{body}");
    assert!(!body.contains("tanaka"), "{body}");
    for field in ["style-src 'sha256-", "frame-ancestors 'none'", "nosniff", "no-store"] {
        assert!(head.contains(field), "{field}\n{head}");
    }
    assert!(!head.contains("unsafe") && !body.contains("<script"), "{head}");
    let (status, head, _) = ask(&daemon, "/?login", "");
    assert_eq!(status, 401);
    assert!(head.contains("WWW-Authenticate: Basic realm=\"Ekiden\""), "{head}");
    assert_eq!(ask(&daemon, "/?login", &basic("<b>anna</b>", "wrong password")).0, 401);
    let (status, _, body) = ask(&daemon, "/?login", &basic("<b>anna</b>", "right password"));
    assert_eq!(status, 200, "{body}");
    for part in [
        "<bdi>tanaka</bdi>",
        "Used <b>0 kB</b> of 300 GB</p><p>Left <b>300 GB</b>",
        "&lt;b&gt;anna&lt;/b&gt;",
        "Begins anew: ",
        "/proxy.pac",
        "<svg class=\"qr\"",
    ] {
        assert!(body.contains(part), "{part}\n{body}");
    }
    // by its address, unless the name could be a stranger's
    accounts.account(&["set", "tanaka", "--address", "127.0.0.0/8"], "");
    wait_for("the address", || ask(&daemon, "/", "").2.contains("<bdi>tanaka</bdi>"));
    let strange = ask(&daemon, "/", "Host: relay.example\r\n").2;
    assert!(
        strange.contains("by the relay&#39;s address") && !strange.contains("tanaka"),
        "{strange}"
    );
    let local = ask(&daemon, "/", "Host: relay.local\r\n").2;
    assert!(local.contains("<bdi>tanaka</bdi>"), "{local}");
    // what was used is what is shown
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = server.local_addr().unwrap();
    let (head, mut stream) = daemon.connect(to, "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (mut far, _) = server.accept().unwrap();
    let (up, down) = Daemon::opening(to, "");
    let mut sent = vec![7; 70_000 - up - down];
    stream.write_all(&sent).unwrap();
    far.read_exact(&mut sent).unwrap();
    wait_for("the use", || ask(&daemon, "/", "").2.contains("Used <b>70.0 kB</b>"));
    // browsers know more names than this relay: one that it cannot read is no absent one
    for hosts in UNREADABLE {
        let (status, _, body) = ask(&daemon, "/", hosts);
        assert!(status == 400 && !body.contains("tanaka"), "{hosts}: {status} {body}");
    }
    let absent = say(&daemon, "GET / HTTP/1.0\r\n\r\n").2;
    assert!(absent.contains("<bdi>tanaka</bdi>"), "{absent}");
    accounts.account(&["set", "tanaka", "--disable"], "");
    wait_for("the refusal", || ask(&daemon, "/", "").2.contains("account is disabled"));
    assert_eq!(ask(&daemon, "/", "").0, 403);
}

/// Status, head and body of the answer to a form.
fn send(daemon: &Daemon, form: &str, fields: &str) -> (u16, String, String) {
    let kind = match fields.contains("Content-Type:") {
        true => "",
        false => "Content-Type: application/x-www-form-urlencoded\r\n",
    };
    let host = match fields.contains("Host:") {
        true => String::new(),
        false => format!("Host: {}\r\n", daemon.address),
    };
    let length = form.len();
    let head =
        format!("POST /?password HTTP/1.1\r\n{host}Content-Length: {length}\r\n{kind}{fields}\r\n");
    say(daemon, &format!("{head}{form}"))
}

fn form(old: &str, new: &str) -> String {
    format!("user=anna&old={old}&new={new}&again={new}")
}

#[test]
fn a_user_changes_the_own_password_and_nobody_elses_site_does() {
    let accounts = Accounts::new();
    let add = ["add", "tanaka", "--user", "anna", "--password-stdin", "--address", "127.0.0.1/32"];
    accounts.account(&add, "right password\n");
    accounts.account(&["add", "sato", "--address", "192.0.2.0/24"], "");
    let daemon = accounts.serve();
    let page = ask(&daemon, "/", "").2;
    assert!(page.contains("<a href=\"/?password\">Change a password</a>"), "{page}");
    let (status, head, body) = ask(&daemon, "/?password", "");
    assert!(status == 200 && body.contains("<form method=\"post\""), "{body}");
    assert!(head.contains("form-action 'self'") && !body.contains("<script"), "{head}");
    let works = |password: &str| ask(&daemon, "/?login", &basic("anna", password)).0 == 200;
    assert!(works("right password"));

    // nothing of this changes anything
    let fine = form("right+password", "a+new+p%C3%A4ssword");
    let host = daemon.address;
    for (form, fields, expected, words) in [
        (form("wrong+password", "a+new+one"), String::new(), 403, "User or password is wrong"),
        (form("right+password", "short"), String::new(), 422, "8 to 255 bytes"),
        (form("right+password", "right+password"), String::new(), 422, "is the old one"),
        (format!("{fine}x"), String::new(), 422, "passwords differ"),
        (format!("{fine}&old=again"), String::new(), 400, "not the form of this page"),
        ("user=anna".to_owned(), String::new(), 400, "not the form"),
        (format!("{fine}&more={}", "x".repeat(5_000)), String::new(), 413, "not the form"),
        (fine.clone(), "Content-Type: text/plain\r\n".to_owned(), 415, "not the form"),
        (fine.clone(), "Origin: http://evil.example\r\n".to_owned(), 403, "from another page"),
        (fine.clone(), format!("Origin: https://{host}\r\n"), 403, "from another page"),
        (fine.clone(), "Origin: null\r\n".to_owned(), 403, "from another page"),
        (fine.clone(), "Sec-Fetch-Site: cross-site\r\n".to_owned(), 403, "from another page"),
        (fine.clone(), "Sec-Fetch-Site: same-site\r\n".to_owned(), 403, "from another page"),
    ] {
        let (status, head, body) = send(&daemon, &form, &fields);
        assert_eq!(status, expected, "{form} {fields}: {body}");
        assert!(body.contains(words), "{words}\n{body}");
        assert!(!head.contains("WWW-Authenticate"), "{head}");
    }
    assert!(works("right password"));

    let own = format!("Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n");
    let (status, _, body) = send(&daemon, &fine, &own);
    assert!(status == 200 && body.contains("need the new password"), "{status} {body}");
    wait_for("the new password", || works("a new pässword"));
    assert!(!works("right password"));
    // and an account has one try a minute
    let (status, head, body) = send(&daemon, &form("a+new+p%C3%A4ssword", "a+third+one"), &own);
    assert!(status == 429 && body.contains("one try a minute"), "{status} {body}");
    assert!(head.contains("Retry-After: "), "{head}");
    assert!(works("a new pässword"));
    let audit = accounts.state("audit-changes.jsonl");
    let line = audit.lines().last().unwrap();
    for part in ["\"user\":\"anna\"", "\"path\":\"tanaka\"", "its own password"] {
        assert!(line.contains(part), "{part}\n{line}");
    }
    assert!(!audit.contains("a new") && !accounts.log().contains("a new"));

    // guesses here count as those at the log-in do
    let waits = (0..40).find_map(|n| {
        let (status, head, _) = send(&daemon, &form(&format!("guess+{n}"), "a+third+one"), "");
        (status == 429).then_some(head)
    });
    assert!(waits.is_some_and(|head| head.contains("Retry-After: ")));
    let counted = daemon.status()["accounts"]["log_ins"].clone();
    assert!(counted["wrong"].as_u64() > Some(3) && counted["waited"].as_u64() > Some(0));
}

#[test]
fn in_the_clear_no_password_is_taken_under_a_name_of_strangers() {
    let accounts = Accounts::new();
    accounts.account(&["add", "tanaka", "--user", "anna", "--password-stdin"], "right password\n");
    let daemon = accounts.serve();
    let right = basic("anna", "right password");
    // as a page of that name asks, once the name leads here
    let strange = "Host: evil.example:3128\r\n";
    let origin = "Origin: http://evil.example:3128\r\nSec-Fetch-Site: same-origin\r\n";
    let by_address = "by the relay&#39;s address";
    let (status, _, body) = ask(&daemon, "/", strange);
    assert!(status == 200 && body.contains(by_address) && !body.contains("?login"), "{body}");
    for (path, fields) in [("/", right.as_str()), ("/?login", right.as_str()), ("/?login", "")] {
        let (status, head, body) = ask(&daemon, path, &format!("{strange}{fields}"));
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains(by_address) && !body.contains("tanaka"), "{body}");
        assert!(!head.contains("WWW-Authenticate"), "{head}");
    }
    let (status, _, body) = ask(&daemon, "/?password", strange);
    assert!(status == 200 && body.contains(by_address) && !body.contains("<form"), "{body}");
    let fine = form("right+password", "another+password");
    let (status, _, body) = send(&daemon, &fine, &format!("{strange}{origin}"));
    assert!(status == 403 && body.contains("Nothing was changed"), "{status} {body}");
    // no password was looked at
    assert_eq!(daemon.status()["accounts"]["log_ins"]["wrong"].as_u64(), Some(0));
    assert_eq!(ask(&daemon, "/?login", &right).0, 200);
    assert_eq!(ask(&daemon, "/?login", &format!("Host: relay.local\r\n{right}")).0, 200);
}

#[test]
fn accounts_without_a_password_are_told_who_changes_them() {
    let accounts = Accounts::new();
    accounts.account(&["add", "tanaka", "--address", "127.0.0.0/8"], "");
    let daemon = accounts.serve();
    wait_for("the account", || ask(&daemon, "/", "").2.contains("<bdi>tanaka</bdi>"));
    let page = ask(&daemon, "/", "").2;
    assert!(page.contains("This account has no password") && !page.contains("?password"), "{page}");
    // those of the configuration file have none at all
    let config = "[[account]]\nname = \"sato\"\naddresses = [\"127.0.0.0/8\"]\n";
    let daemon = Accounts::with(config);
    let daemon = daemon.serve();
    for (status, body) in [
        (ask(&daemon, "/?password", "").0, ask(&daemon, "/?password", "").2),
        (send(&daemon, &form("a+password", "another+one"), "").0, ask(&daemon, "/?password", "").2),
    ] {
        assert!(matches!(status, 200 | 403), "{status}");
        assert!(body.contains("Accounts in its configuration file") && !body.contains("<form"));
    }
    daemon.reload(&format!("[pac]\npage = false\n{config}"));
    assert_eq!(ask(&daemon, "/?password", "").0, 400);
}

#[test]
fn speaks_japanese_and_english_and_can_be_switched_off() {
    let accounts = Accounts::with("");
    let daemon = accounts.serve();
    let (_, head, body) = ask(&daemon, "/", "Accept-Language: ja,en;q=0.5\r\n");
    assert!(head.contains("Content-Language: ja"), "{head}");
    assert!(body.contains("<html lang=\"ja\">") && body.contains("端末の設定"), "{body}");
    assert!(ask(&daemon, "/", "Accept-Language: fr\r\n").2.contains("Set up a device"));
    assert!(ask(&daemon, "/", "").2.contains("This relay has no accounts"));
    // a host cannot write into the page
    let (status, _, body) = ask(&daemon, "/", "Host: \"><script>\r\n");
    assert!(status == 400 || body.matches("<script").count() == 1, "{status} {body}");
    for other in ["/x", "/?x", "//"] {
        assert_eq!(ask(&daemon, other, "").0, 400, "{other}");
    }
    daemon.reload("[pac]\npage = false\n");
    assert_eq!(ask(&daemon, "/", "").0, 400);
    assert_eq!(ask(&daemon, "/proxy.pac", "").0, 200);
}

/// A relay with accounts and a certificate for `localhost` and 127.0.0.1.
struct Secured {
    accounts: Accounts,
    daemon: Daemon,
    made: Certificate,
}

impl Secured {
    fn start() -> Self {
        let accounts = Accounts::new();
        let made = Certificate::self_signed(accounts.path(), "own", &["localhost", "127.0.0.1"]);
        let [certificate, key] = [&made.certificate, &made.key].map(|file| file.display());
        accounts.configure(&format!(
            "[accounts]\nenabled = true\n[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n"
        ));
        let user = ["add", "home", "--user", "anna", "--password-stdin"];
        accounts.account(&user, "right password\n");
        let daemon = accounts.serve();
        Self { accounts, daemon, made }
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.daemon.address.port())
    }

    /// Status and body, as curl gets them without a proxy.
    fn curl(&self, args: &[&str], url: &str) -> (String, String) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*"]);
        curl.args(["--write-out", "\n%{http_version} %{http_code}", "--cacert"]);
        let output = curl.arg(&self.made.certificate).args(args).arg(url).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), format!("{body}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

#[test]
fn the_page_the_log_in_and_the_script_come_by_http_2() {
    if !present("curl") {
        return;
    }
    let relay = Secured::start();
    for (version, flag) in [("1.1", "--http1.1"), ("2", "--http2")] {
        let fine = format!("{version} 200");
        for host in ["localhost", "127.0.0.1"] {
            let (status, body) = relay.curl(&[flag], &relay.url(host, "/"));
            assert_eq!(status, fine, "{host}: {body}");
            assert!(body.contains("This device is not known"), "{body}");
            let (status, script) = relay.curl(&[flag], &relay.url(host, "/proxy.pac"));
            assert_eq!(status, fine, "{host}: {script}");
            let proxy = format!("HTTPS {host}:{}", relay.daemon.address.port());
            assert!(script.contains(&proxy), "{script}");
        }
        let login = relay.url("localhost", "/?login");
        assert_eq!(relay.curl(&[flag], &login).0, format!("{version} 401"));
        let (status, body) = relay.curl(&[flag, "--user", "anna:right password"], &login);
        assert_eq!(status, fine, "{body}");
        assert!(body.contains("<bdi>home</bdi>"), "{body}");
        // a name that is not the relay's, and what only a proxy could fetch
        for (field, path) in [("Host: other.example", "/"), ("A: b", "/other")] {
            let (status, body) =
                relay.curl(&[flag, "--header", field], &relay.url("localhost", path));
            let own = version == "1.1" && path == "/";
            assert_eq!(status == fine, own, "{field} {path}: {status} {body}");
        }
    }
    let absolute = |target: &str| {
        relay.curl(&["--http1.1", "--request-target", target], &relay.url("localhost", "/"))
    };
    assert_eq!(absolute(&relay.url("localhost", "/")).0, "1.1 200");
    assert_eq!(absolute(&relay.url("localhost", "/proxy.pac")).0, "1.1 200");
    assert_ne!(absolute("https://other.example/").0, "1.1 200");
}

#[test]
fn chromium_opens_the_page_by_https_and_logs_in() {
    if !present("chromium") {
        return;
    }
    let relay = Secured::start();
    let key = rcgen::PublicKeyData::subject_public_key_info(&relay.made.pair);
    let key = STANDARD.encode(Sha256::digest(key));
    let mut browser = Browser::start(&[format!("--ignore-certificate-errors-spki-list={key}")]);
    let (text, asked) = browser.read(&relay.url("localhost", "/"), "anna", "right password");
    assert!(text.contains("This device is not known") && asked == 0, "{text}");
    let (text, asked) = browser.read(&relay.url("localhost", "/?login"), "anna", "right password");
    assert!(text.contains("Account home") && asked == 1, "{text}");
}

/// Sends so many bytes through the relay, or fewer if it cuts the connection.
fn spend(daemon: &Daemon, bytes: usize) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (head, mut stream) = daemon.connect(server.local_addr().unwrap(), "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (mut far, _) = server.accept().unwrap();
    let _cut = stream.write_all(&vec![7; bytes]);
    drop(stream);
    let _cut = far.read_to_end(&mut Vec::new());
}

const CUT: &str = "The volume is used up. Connections are refused until it begins anew.";

#[test]
fn a_cut_account_reads_its_page_and_nothing_else() {
    if !present("curl") {
        return;
    }
    let relay = Secured::start();
    let limits = ["--quota", "50 kB/month", "--on-quota-exceeded", "cut"];
    let address = ["--address", "127.0.0.0/8"];
    relay.accounts.account(&[&["set", "home"], &limits[..], &address].concat(), "");
    wait_for("the quota", || ask(&relay.daemon, "/", "").2.contains("of 50.0 kB"));
    spend(&relay.daemon, 200_000);
    wait_for("the cut", || {
        let (status, _, body) = ask(&relay.daemon, "/", "");
        status == 200 && body.contains(CUT) && body.contains("Begins anew: ")
    });
    for flag in ["--http1.1", "--http2"] {
        let (status, body) = relay.curl(&[flag], &relay.url("localhost", "/"));
        assert!(status.ends_with(" 200") && body.contains(CUT), "{status} {body}");
        let (status, body) = relay.curl(&[flag], &relay.url("localhost", "/other"));
        assert!(status.ends_with(" 403") && body.contains("quota is used up"), "{status} {body}");
    }
    assert_eq!(ask(&relay.daemon, "/other", "").0, 403);
    assert_eq!(ask(&relay.daemon, "http://127.0.0.1:1/", "Host: 127.0.0.1:1\r\n").0, 403);
    let (head, _) = relay.daemon.connect(([127, 0, 0, 1], 1).into(), "");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[test]
fn an_account_of_the_configuration_is_shown_and_tls_is_refused_by_an_alert() {
    let account = |address: &str| {
        format!(
            "[[account]]\nname = \"village\"\naddresses = [\"{address}\"]\nquota = \"2 MB/30 d\"\non_quota_exceeded = \"cut\"\n"
        )
    };
    let accounts = Accounts::with(&account("192.0.2.0/24"));
    let daemon = accounts.serve();
    let (_, _, body) = ask(&daemon, "/", "");
    assert!(body.contains("This device is not known"), "{body}");
    assert!(!body.contains("no accounts") && !body.contains("/?login"), "{body}");
    daemon.reload(&account("127.0.0.0/8"));
    let (_, _, body) = ask(&daemon, "/", "");
    assert!(body.contains("<bdi>village</bdi>") && body.contains("of 2.00 MB"), "{body}");
    let strange = ask(&daemon, "/", "Host: relay.example\r\n").2;
    assert!(strange.contains("by the relay&#39;s address"), "{strange}");
    spend(&daemon, 4_000_000);
    wait_for("the cut", || ask(&daemon, "/", "").2.contains(CUT));
    // a client of TLS, where there is none
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[22, 3, 1, 0, 1, 1]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 49]);
}
