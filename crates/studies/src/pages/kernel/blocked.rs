//! A page of a server of HTTP/3 behind a gateway that blocks QUIC: how much later it is than over TCP alone.

use super::load::{STARTING, flags, load, url};
use super::site::Site;
use crate::long_link::duration;
use crate::pages::page::Page;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_testbed::chromium::Chromium;
use std::thread;

/// The first load tells the browser of HTTP/3; then it is started anew for each. What it tried in the first it may
/// remember, and not try again.
pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    const BROWSER: &str = "a browser";
    let cell = run.cell;
    let page = Page::of(cell)?;
    let patience = duration(cell, "duration")?;
    let site = Site::build(run, std::slice::from_ref(&page))?;
    let flags = flags(cell.text("way")?, &site);
    let place = Some(site.near());
    let see = |browser: &mut Chromium| {
        thread::sleep(STARTING);
        load(browser, &url(&site, &page), page.objects.len(), patience)
            .map_err(|error| site.error(&format!("page `{}`", page.name), &error))
    };
    let mut browser = Chromium::start(place, &flags).during(BROWSER)?;
    let before = site.scene.unreachable()?;
    see(&mut browser)?;
    let first = site.scene.unreachable()?;
    let mut browser = browser.again(place, &flags).during(BROWSER)?;
    let tried = see(&mut browser)?;
    let again = site.scene.unreachable()?;
    if again == before {
        return Err(site.error(&page.name, &"the browser tried no QUIC, or was not told"));
    }
    let over_tcp: Vec<String> = flags.into_iter().filter(|flag| flag != "--enable-quic").collect();
    let mut browser = browser.again(place, &over_tcp).during(BROWSER)?;
    let alone = see(&mut browser)?;
    drop(browser);
    let mut outcome = tried.outcome(cell, &page)?;
    let alone = alone.outcome(cell, &page)?.value;
    let later = (outcome.value - alone) * 1e3;
    outcome.add_figures([
        ("tcp_alone_s", alone),
        ("later_ms", later),
        ("refused_first", (first - before) as f64),
        ("refused_again", (again - first) as f64),
    ]);
    site.finish(&mut outcome)?;
    Ok(outcome)
}
