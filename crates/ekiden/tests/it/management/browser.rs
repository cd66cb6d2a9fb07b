//! Both pages in Chromium: they load and work without a complaint of its own or of axe, narrow and wide, light and
//! dark; and the operator's page is what its sources build.

use super::Managed;
use crate::alerts::receivers::web as web_server;
use ekiden_testbed::chromium::{Chromium, program};
use ekiden_testkit::eventually;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A name that is markup and changes the direction of what follows.
const EVIL: &str = "<img src=x onerror=\"window.hit=1\">\u{202e}x";

/// Says that something is missing; in CI nothing may be.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("SKIPPED: {why}");
}

/// A copy of the page's sources with what `npm ci` installed; none without npm.
fn web() -> Option<&'static Path> {
    static WEB: OnceLock<Option<PathBuf>> = OnceLock::new();
    WEB.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let (from, to) = (root.join("crates/admin/web"), root.join("target/web"));
        for folder in ["src", "dist"] {
            let _none = fs::remove_dir_all(to.join(folder));
            fs::create_dir_all(to.join(folder)).unwrap();
            for file in fs::read_dir(from.join(folder)).unwrap() {
                let file = file.unwrap();
                fs::copy(file.path(), to.join(folder).join(file.file_name())).unwrap();
            }
        }
        for file in ["build.mjs", "package.json", "package-lock.json"] {
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&to);
        match npm.output() {
            Ok(done) if done.status.success() => Some(to),
            Ok(done) => {
                skipped(&format!("npm ci: {}", String::from_utf8_lossy(&done.stderr)));
                None
            }
            Err(error) => {
                skipped(&format!("npm, with which the page is built: {error}"));
                None
            }
        }
    })
    .as_deref()
}

#[test]
fn the_built_page_is_what_its_sources_build_and_is_small() {
    let Some(web) = web() else { return };
    let built = Command::new("node").args(["build.mjs", "--check"]).current_dir(web).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let files = fs::read_dir(web.join("dist")).unwrap();
    let sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
    let all: u64 = sizes.sum();
    assert!(all <= 80_000, "{all} bytes compressed");
}

/// A page that was opened, and all that the browser complained of.
struct Page {
    browser: Chromium,
    axe: String,
}

impl Page {
    fn new(axe: String) -> Self {
        let mut browser = Chromium::start(None, &[]).unwrap();
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({})).unwrap();
        }
        Self { browser, axe }
    }

    fn shape(&mut self, width: u32, scheme: &str, language: &str) {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.browser.ask("Emulation.setDeviceMetricsOverride", size).unwrap();
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.browser.ask("Emulation.setEmulatedMedia", features).unwrap();
        let agent = self.evaluate("navigator.userAgent");
        let language = json!({ "userAgent": agent, "acceptLanguage": language });
        self.browser.ask("Emulation.setUserAgentOverride", language).unwrap();
    }

    fn open(&mut self, url: &str) {
        self.browser.ask("Page.navigate", json!({ "url": url })).unwrap();
        self.wait("document.readyState === 'complete'");
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let wanted =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut said = self.browser.ask("Runtime.evaluate", wanted).unwrap();
        assert!(said["exceptionDetails"].is_null(), "{expression}: {said:#}");
        said["result"]["value"].take()
    }

    fn wait(&mut self, expression: &str) {
        eventually(expression, || (self.evaluate(expression) == true).then_some(()));
    }

    /// Types into the field whose label begins with these words.
    fn fill(&mut self, label: &str, text: &str) {
        let [label, text] = [label, text].map(|text| json!(text));
        let done = self.evaluate(&format!(
            "(() => {{ const label = [...document.querySelectorAll('label')].find(l => l.textContent.startsWith({label}));
               if (!label) return false;
               const field = label.querySelector('input');
               field.value = {text};
               field.dispatchEvent(new Event('input', {{ bubbles: true }}));
               return true; }})()"
        ));
        assert_eq!(done, true, "no field {label}");
    }

    /// Chooses from the list whose label begins with these words.
    fn choose(&mut self, label: &str, value: &str) {
        let [label, value] = [label, value].map(|text| json!(text));
        let done = self.evaluate(&format!(
            "(() => {{ const label = [...document.querySelectorAll('label')].find(l => l.textContent.startsWith({label}));
               const list = label?.querySelector('select');
               if (!list) return false;
               list.value = {value};
               list.dispatchEvent(new Event('change', {{ bubbles: true }}));
               return list.value === {value}; }})()"
        ));
        assert_eq!(done, true, "no list {label}");
    }

    fn press(&mut self, button: &str) {
        let button = json!(button);
        let done = self.evaluate(&format!(
            "(() => {{ const button = [...document.querySelectorAll('button')].find(b => b.textContent.trim() === {button});
               button?.click();
               return Boolean(button); }})()"
        ));
        assert_eq!(done, true, "no button {button}");
    }

    /// Nothing that axe finds, nothing wider than the window, no markup that came to life.
    fn check(&mut self, what: &str) {
        let axe = self.axe.clone();
        self.evaluate(&format!("{axe}; true"));
        let found = self.evaluate(
            "axe.run().then(r => r.violations.map(v => `${v.id}: ${v.nodes.map(n => n.html).join(' ')}`))",
        );
        assert_eq!(found, json!([]), "{what}");
        let wide = self.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(wide.as_i64().unwrap() <= 0, "{what}: {wide} px too wide");
        assert_eq!(self.evaluate("window.hit ?? 0"), 0, "{what}");
    }

    /// What the browser complained of since the start: the console, exceptions, the policy of the page.
    fn complaints(&mut self) -> Vec<String> {
        let last = self.browser.send("Runtime.evaluate", json!({ "expression": "1" })).unwrap();
        let mut found = Vec::new();
        loop {
            let heard = self.browser.hear().unwrap();
            if heard["id"] == last {
                return found;
            }
            let params = &heard["params"];
            let bad = match heard["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => params["type"] != "log",
                Some("Log.entryAdded") => params["entry"]["level"] != "verbose",
                _ => false,
            };
            if bad {
                found.push(params.to_string());
            }
        }
    }
}

#[test]
fn both_pages_work_in_a_browser_without_a_complaint() {
    let Some(web) = web() else { return };
    if let Err(error) = program() {
        return skipped(&error.to_string());
    }
    let axe = fs::read_to_string(web.join("node_modules/axe-core/axe.min.js")).unwrap();
    let config = "listen = [\"127.0.0.1:0\"]\n[access]\nallow_destinations = [\"127.0.0.0/8\"]\n\
        [accounts]\nenabled = true\n[management]\nlisten = \"127.0.0.1:0\"\nreports = \"DIR/reports\"\n\
        [tunnel]\nlisten = [\"127.0.0.1:0\"]\nstate = \"DIR/peers\"\n";
    let receiver = web_server(None, &["500 <img src=x onerror=window.hit=1>"]);
    let config = format!("{config}[alerts]\nwebhook = \"http://127.0.0.1:{}/\"\n", receiver.port);
    let daemon = Managed::start(&config);
    let report = daemon.path().join("reports/satellite/sim");
    fs::create_dir_all(&report).unwrap();
    let claims = json!([{ "text": EVIL, "holds": true, "evidence": "1.0" }]);
    let summary = json!({ "version": "0.1.0", "claims": claims }).to_string();
    fs::write(report.join("summary.json"), summary).unwrap();
    fs::write(report.join("report.html"), "<p>").unwrap();
    let new = json!({
        "name": "tanaka", "quota": 20_000_000_000_u64, "period": "month",
        "devices": [{ "kind": "password", "user": EVIL, "password": "right password" },
                    { "kind": "prefix", "prefix": "127.0.0.0/8" }]
    });
    assert_eq!(daemon.call("POST", "/api/v1/accounts", Some(&new)).0, 201);
    let agent = "User-Agent: <img src=x onerror=window.hit=1>\r\n";
    daemon.ask("GET", &format!("/api/{}", "%3Cscript%3E%E2%80%AE"), agent);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let _held = eventually("the account", || Some(daemon.connect(to, "")).filter(|c| c.0 == 200));
    let live = daemon.call("GET", "/api/v1/status", None).json()["connections"][0]["id"].clone();
    let connection = format!("connections/{live}");

    let mut page = Page::new(axe);
    let site = format!("http://{}/", daemon.port);
    page.open(&site);
    page.check("the log-in");
    page.fill("Token", &daemon.token());
    page.press("Log in");
    page.wait("document.querySelector('h1')?.textContent === 'Overview'");
    page.wait("document.querySelectorAll('.plot canvas').length === 2");
    // somebody else's script of the page's own site would not have the cookie
    assert_eq!(page.evaluate("document.cookie"), "");
    for (width, scheme) in [(360, "light"), (360, "dark"), (1_400, "light"), (1_400, "dark")] {
        page.shape(width, scheme, "en");
        for (view, ready) in [
            ("", "document.querySelector('h2#busy-connections')"),
            ("connections", "document.querySelectorAll('tbody tr').length === 1"),
            (&connection, "document.querySelectorAll('dl.facts').length > 1"),
            ("accounts", "document.querySelectorAll('tbody tr').length === 1"),
            ("accounts/tanaka", "document.querySelectorAll('tbody tr').length === 2"),
            ("accounts/", "document.querySelector('h1').textContent === 'Add an account'"),
            ("peers", "document.querySelector('h2#invite')"),
            ("alerts", "document.querySelector('h2#trial')"),
            ("doctor", "document.querySelectorAll('.findings li, section li').length >= 1"),
            ("reports", "document.querySelectorAll('tbody tr').length === 1"),
            ("audit", "document.querySelectorAll('tbody tr').length >= 1"),
            ("configuration", "document.querySelectorAll('tbody tr').length >= 1"),
            ("peers/%", "document.querySelector('h2#invite')"),
        ] {
            page.evaluate(&format!("location.hash = '#/{view}'; true"));
            page.wait(&format!("Boolean({ready})"));
            page.check(&format!("{view} at {width} px, {scheme}"));
        }
        for language in ["en", "ja"] {
            page.shape(width, scheme, language);
            page.open(&format!("http://{}/", daemon.daemon.address));
            assert_eq!(page.evaluate("document.documentElement.lang"), language);
            assert!(page.evaluate("document.body.innerText").as_str().unwrap().contains("tanaka"));
            page.check(&format!("the account's page, {language}, {width} px, {scheme}"));
            page.open(&format!("http://{}/?password", daemon.daemon.address));
            page.check(&format!("the password's page, {language}, {width} px, {scheme}"));
        }
        page.open(&site);
        page.wait("document.querySelector('h1')?.textContent === 'Overview'");
    }

    // a user measures the speed
    page.shape(360, "light", "ja");
    page.open(&format!("http://{}/", daemon.daemon.address));
    page.press("測定する");
    page.wait("document.getElementById('told').textContent === '測定しました。'");
    page.wait("[...document.querySelectorAll('td')].filter(d => d.textContent.endsWith(' Mbit/s')).length === 2");
    page.check("the measured speed");

    // a user changes the own password, and the browser says where the form was
    page.shape(360, "light", "en");
    page.open(&format!("http://{}/?password", daemon.daemon.address));
    page.fill("User", EVIL);
    page.fill("Password", "right password");
    page.fill("New password", "another password");
    page.fill("New password again", "another password");
    page.press("Change");
    page.wait("document.querySelector('[role=status]')?.textContent.startsWith('Changed.')");
    page.check("the changed password");
    page.open(&site);
    page.wait("document.querySelector('h1')?.textContent === 'Overview'");

    // an account is added, and a peer invited, as an operator would
    page.evaluate("location.hash = '#/accounts/'; true");
    page.wait("document.querySelector('h1').textContent === 'Add an account'");
    page.fill("Name", "sato");
    page.fill("Quota", "5");
    page.fill("User", "ken");
    page.press("Make one");
    page.wait("[...document.querySelectorAll('input')].some(i => i.value.length === 20)");
    page.press("Add");
    page.wait("document.querySelector('h1').textContent === 'Account sato'");
    let sato = daemon.call("GET", "/api/v1/accounts/sato", None).json();
    assert_eq!(
        (&sato["quota"], &sato["devices"][0]["identity"]),
        (&json!(5_000_000_000_u64), &json!("ken"))
    );
    page.wait("document.querySelectorAll('tbody tr').length === 1");
    page.press("Disable");
    page.wait("document.querySelector('.done').textContent.startsWith('Disabled')");
    assert_eq!(daemon.call("GET", "/api/v1/accounts/sato", None).json()["disabled"], true);
    // a telephone, where nobody has set up the door for it
    // the form begins anew with the changed account
    page.wait("[...document.querySelectorAll('button')].some(b => b.textContent === 'Enable')");
    page.choose("Recognised by", "wireguard");
    page.wait("[...document.querySelectorAll('label')].some(l => l.textContent.startsWith('Name of the device'))");
    page.fill("Name of the device", "phone");
    page.press("Add the device");
    page.wait(
        "document.querySelector('.problem')?.textContent.includes('init gateway --wireguard')",
    );
    page.check("a refused device");
    page.evaluate("location.hash = '#/alerts'; true");
    page.wait("Boolean(document.querySelector('h2#trial'))");
    page.press("Send a trial alert");
    page.wait("document.querySelector('table[aria-label=\"Outcome of the trial\"]')?.textContent.includes('500')");
    page.check("a trial that failed");
    assert_eq!(page.evaluate("document.querySelector('.problem')"), Value::Null);
    page.evaluate("location.hash = '#/peers'; true");
    page.wait("Boolean(document.querySelector('h2#invite'))");
    page.fill("Name of the peer", "ship");
    page.fill("Address of this relay", "relay.example.org:4433");
    page.fill("The link carries towards it", "20");
    page.fill("The link carries from it", "2");
    page.press("Invite");
    page.wait("Boolean(document.querySelector('.invitation .qr'))");
    page.check("an invitation");
    page.press("Log out");
    page.wait("document.querySelector('button')?.textContent.trim() === 'Log in'");
    // an operator who may look
    let guest = ["operator", "add", "guest", "--viewer"];
    assert!(daemon.run_with(&guest, "another password\n").status.success());
    page.fill("Operator", "guest");
    page.wait(
        "[...document.querySelectorAll('label')].some(l => l.textContent.startsWith('Password'))",
    );
    page.fill("Password", "another password");
    page.press("Log in");
    page.wait("document.querySelector('h1')?.textContent === 'Peers'");
    // a view that asks once, so that nothing is under way when the session ends
    page.evaluate("location.hash = '#/configuration'; true");
    page.wait("document.querySelectorAll('tbody tr').length >= 1");
    page.press("Log out");
    page.wait("document.querySelector('button')?.textContent.trim() === 'Log in'");
    page.fill("Token", "wrong");
    // a device was refused above, which a browser logs
    let mut complaints = page.complaints();
    complaints.retain(|complaint| !complaint.contains("status of 422"));
    assert_eq!(complaints, Vec::<String>::new());
    page.press("Log in");
    page.wait("document.querySelector('.problem')?.textContent.includes('wrong token')");
}
