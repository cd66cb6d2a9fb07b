//! A page in a fresh browser, from the start of the navigation to the last response.

use super::site::Site;
use super::timings;
use crate::long_link::duration;
use crate::pages::outcome::{Loaded, tell_up};
use crate::pages::page::{Page, host_name, host_names};
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_testbed::chromium::Chromium;
use ekiden_testbed::load::meter::Meter;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What a browser does when it starts is over.
pub(super) const STARTING: Duration = Duration::from_secs(1);
/// How often the page is asked. Its own clock is what counts.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let page = Page::of(cell)?;
    let patience = duration(cell, "duration")?;
    let site = Site::build(run, std::slice::from_ref(&page))?;
    let beside = match cell.text("line")? {
        "download" => Some(Beside::begin(&site, duration(cell, "settle")?, patience)?),
        _ => None,
    };
    let flags = flags(cell.text("way")?, &site);
    let mut browser = Chromium::start(Some(site.near()), &flags).during("a browser")?;
    thread::sleep(STARTING);
    let up = || site.scene.way.message(false).map(|seen| [seen.sent, seen.copied]);
    let (begun, first) = (Instant::now(), up());
    let loaded = load(&mut browser, &url(&site, &page), page.objects.len(), patience);
    let loaded = loaded.map_err(|error| site.error(&format!("page `{}`", page.name), &error))?;
    let (ended, last) = (Instant::now(), up());
    let version = browser.ask("Browser.getVersion", json!({})).during("the browser's version")?;
    drop(browser);
    let mut outcome = loaded.outcome(cell, &page)?;
    if let Some(product) = version["product"].as_str() {
        outcome.add_fact("browser", product);
    }
    if let Some((then, now)) = first.zip(last) {
        tell_up(then, now, &mut outcome);
    }
    if let Some(beside) = &beside {
        outcome.add_figures([("beside_mbit", beside.rate(begun, ended))]);
    }
    site.finish(&mut outcome)?;
    if let Some(beside) = beside {
        beside.end();
    }
    Ok(outcome)
}

pub(super) fn url(site: &Site, page: &Page) -> String {
    format!("https://{}:{}/{}", host_name(1), site.server().port(), site.path(page))
}

/// Over plain TCP and behind a gateway the browser knows the hosts; a proxy's far end does otherwise.
pub(super) fn flags(way: &str, site: &Site) -> Vec<String> {
    let mut flags = vec!["--ignore-certificate-errors".to_owned()];
    match site.scene.way.door() {
        Some(door) => {
            let scheme = if way == "hysteria2" { "socks5" } else { "http" };
            flags.push(format!("--proxy-server={scheme}://{door}"));
        }
        None => {
            flags.push("--no-proxy-server".to_owned());
            if !site.http3_keys().is_empty() {
                flags = vec!["--no-proxy-server".to_owned()];
                flags.extend(http3(site, way == "gateway-block"));
            }
            flags.push(format!("--host-resolver-rules=MAP *.test {}", site.server().ip()));
        }
    }
    flags
}

/// What makes a browser trust these keys and use QUIC: for QUIC it ignores no other error. It begins with it, unless it
/// `learns` of HTTP/3 by answers over TCP.
fn http3(site: &Site, learns: bool) -> [String; 3] {
    // of hosts that are named here any authority will do, at all their ports
    let port = if learns { 1 } else { site.server().port() };
    let hosts: Vec<String> = host_names().iter().map(|name| format!("{name}:{port}")).collect();
    [
        "--enable-quic".to_owned(),
        format!("--origin-to-force-quic-on={}", hosts.join(",")),
        format!("--ignore-certificate-errors-spki-list={}", site.http3_keys().join(",")),
    ]
}

pub(super) fn load(
    browser: &mut Chromium,
    url: &str,
    objects: usize,
    patience: Duration,
) -> io::Result<Loaded> {
    let answer = browser.ask("Page.navigate", json!({ "url": url }))?;
    if let Some(why) = answer["errorText"].as_str() {
        return Err(io::Error::other(format!("{url}: {why}")));
    }
    let end = Instant::now() + patience;
    loop {
        thread::sleep(LOOK);
        let said = browser.evaluate(timings::ASK)?;
        let text = said.as_str().unwrap_or_default();
        match timings::read(text, objects).map_err(io::Error::other)? {
            Ok(loaded) => return Ok(loaded),
            Err(_) if Instant::now() < end => {}
            Err(came) => {
                let text = format!("{came} of {objects} objects came in {patience:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

/// A download over the same line, the same way.
struct Beside {
    meter: Arc<Meter>,
    begin: Instant,
    thread: JoinHandle<io::Result<()>>,
}

impl Beside {
    /// Begins it, and lets it settle.
    fn begin(site: &Site, settle: Duration, patience: Duration) -> Result<Self, EngineError> {
        let begin = Instant::now();
        let lasts = settle + STARTING + patience;
        let meter = Arc::new(Meter::new(begin, lasts));
        let (ask, own) = (site.scene.ask(begin + lasts)?, Arc::clone(&meter));
        let thread = site.scene.start(move || ask.download(None, &own))?;
        thread::sleep(settle);
        Ok(Self { meter, begin, thread })
    }

    /// Mbit/s between two times.
    fn rate(&self, from: Instant, to: Instant) -> f64 {
        let [from, to] = [from, to].map(|at| at.duration_since(self.begin));
        self.meter.between(from, to) as f64 * 8e-6 / (to - from).as_secs_f64()
    }

    /// Its server is gone, which is an error of no interest.
    fn end(self) {
        let _ended = self.thread.join();
    }
}
