//! A page whose hosts a resolver beyond the link knows, asked by the browser itself, and by its gateway.

use super::load::{STARTING, load, url};
use super::site::Site;
use crate::long_link::duration;
use crate::pages::page::Page;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::units::Span;
use ekiden_testbed::chromium::Chromium;
use std::net::IpAddr;
use std::thread;

/// A fresh browser for each: by the far resolver, by the gateway that knows no name yet, and by the gateway again.
pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let page = Page::of(cell)?;
    let patience = duration(cell, "duration")?;
    let site = Site::build(run, std::slice::from_ref(&page))?;
    let flags = ["--ignore-certificate-errors", "--no-proxy-server"].map(str::to_owned);
    let see = |resolver: IpAddr| {
        let place = site.asking(resolver)?;
        let mut browser = Chromium::start(Some(&place), &flags).during("a browser")?;
        thread::sleep(STARTING);
        let loaded = load(&mut browser, &url(&site, &page), page.objects.len(), patience);
        let what = format!("page `{}`, names by {resolver}", page.name);
        loaded.map_err(|error| site.error(&what, &error))?.outcome(cell, &page)
    };
    let (near, far) = (site.scene.near()?.address(), site.scene.far()?.address());
    let afar = see(far.into())?.value;
    let cold = see(near.into())?.value;
    let mut outcome = see(near.into())?;
    let trip = cell.value::<Span>("rtt")?.as_secs_f64();
    let saved = (afar - outcome.value) / trip;
    outcome.add_figures([("far_names_s", afar), ("unknown_names_s", cold), ("saved_trips", saved)]);
    site.finish(&mut outcome)?;
    Ok(outcome)
}
