//! A browser's download: how many bytes come in the time that counts.

use super::load::{STARTING, flags, url};
use super::site::Site;
use crate::long_link::PAYLOAD;
use crate::long_link::changes::{self, through};
use crate::long_link::duration;
use crate::pages::page::Page;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::units::{Rate, Span};
use ekiden_testbed::chromium::Chromium;
use serde_json::{Value, json};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long the first document may take.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
/// What came so far, and the page's clock, in ms.
const ASK: &str = "JSON.stringify([window.came, performance.now(), window.failed])";

pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let (settle, lasts) = (duration(cell, "settle")?, duration(cell, "duration")?);
    let rate: Rate = cell.value("downlink")?;
    // more than can come
    let whole = Page::file(rate.as_bits_per_second() / 4 * lasts.as_secs());
    let first = Page::file(1);
    let site = Site::build(run, &[first.clone(), whole.clone()])?;
    let way = cell.text("way")?;
    let browser = Chromium::start(Some(site.near()), &flags(way, &site))?;
    thread::sleep(STARTING);
    let by_http3 = !site.http3_keys().is_empty();
    let mut download = Download { browser, site: &site };
    let counted = download.count((&first, &whole), (settle, lasts), by_http3);
    let Counted { bytes, seconds, repairs } =
        counted.map_err(|error| site.error(&format!("a download by {way}"), &error))?;
    drop(download);
    let mut outcome = Outcome::of(bytes * 8e-6 / seconds);
    let [_, down] = changes::links(cell, run.seed)?;
    let [from, to] = [settle, lasts].map(|at| Span::from_nanos(at.as_nanos() as u64));
    let ceiling = through(&down, cell.value("told-down")?, from, to) * PAYLOAD;
    let share = bytes * 8.0 / ceiling * (lasts - settle).as_secs_f64() / seconds;
    outcome.add_figures([("of_ceiling", share)]);
    let repairs = repairs.map(|repairs| ("repairs_percent", repairs * 100.0 / bytes.max(1.0)));
    outcome.add_figures(repairs);
    site.finish(&mut outcome)?;
    Ok(outcome)
}

struct Counted {
    bytes: f64,
    seconds: f64,
    /// Bytes of repairs meanwhile, where there is a tunnel.
    repairs: Option<f64>,
}

struct Download<'a> {
    browser: Chromium,
    site: &'a Site,
}

impl Download<'_> {
    /// Opens the small page, begins the download there, and counts between two times since then.
    fn count(
        &mut self,
        (first, whole): (&Page, &Page),
        (settle, lasts): (Duration, Duration),
        by_http3: bool,
    ) -> io::Result<Counted> {
        let document = url(self.site, first);
        let answer = self.browser.ask("Page.navigate", json!({ "url": document }))?;
        if let Some(why) = answer["errorText"].as_str() {
            return Err(io::Error::other(format!("{document}: {why}")));
        }
        let wanted = if by_http3 { "h3" } else { "h2" };
        let end = Instant::now() + PATIENCE;
        while self.protocol()? != wanted {
            if Instant::now() > end {
                let text = format!("the page came by {}, not by {wanted}", self.protocol()?);
                return Err(io::Error::other(text));
            }
            thread::sleep(LOOK);
        }
        let begun = Instant::now();
        let file = format!("/{}", self.site.path(whole));
        self.browser.evaluate(&format!(
            "window.came = 0; window.failed = null;
             fetch({file:?}, {{cache: \"no-store\"}}).then(async answer => {{
               const reader = answer.body.getReader();
               for (;;) {{
                 const {{done, value}} = await reader.read();
                 if (done) throw \"it ended\";
                 window.came += value.length;
               }}
             }}).catch(why => {{ window.failed = String(why); }}); 0"
        ))?;
        let [then, now] = [settle, lasts].map(|at| {
            thread::sleep((begun + at).saturating_duration_since(Instant::now()));
            Ok::<_, io::Error>((self.came()?, self.site.scene.way.repairs()))
        });
        let (((bytes, at), repairs), ((more, later), after)) = (then?, now?);
        let repairs = repairs.zip(after).map(|(before, after)| after - before);
        Ok(Counted { bytes: more - bytes, seconds: (later - at) / 1e3, repairs })
    }

    /// By which protocol the page came; empty before it did.
    fn protocol(&mut self) -> io::Result<String> {
        let ask = "location.protocol != \"https:\" ? \"\" : \
                   (performance.getEntriesByType(\"navigation\")[0] || {}).nextHopProtocol || \"\"";
        Ok(self.browser.evaluate(ask)?.as_str().unwrap_or_default().to_owned())
    }

    /// Bytes so far, and the page's clock in ms. Errors: the download failed.
    fn came(&mut self) -> io::Result<(f64, f64)> {
        let said = self.browser.evaluate(ASK)?;
        let values: Value = serde_json::from_str(said.as_str().unwrap_or_default())?;
        if let Some(why) = values[2].as_str() {
            return Err(io::Error::other(why.to_owned()));
        }
        let number = |at: usize| values[at].as_f64();
        number(0).zip(number(1)).ok_or_else(|| io::Error::other(format!("the page said {values}")))
    }
}
