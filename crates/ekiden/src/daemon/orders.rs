//! Certificates that this relay orders: the files they are in, and the one who orders them.

#[cfg(feature = "acme")]
use super::state;
use ekiden_proxy::Handle;
use ekiden_proxy::settings::{Acme, Settings};

/// Fills in where an ordered certificate is kept. Errors: in words, where none can be ordered.
#[cfg(feature = "acme")]
pub(crate) fn settle(settings: &mut Settings) -> Result<(), String> {
    if !settings.acme.is_on() {
        return Ok(());
    }
    if settings.acme.state.is_none() {
        settings.acme.state = state::directory();
    }
    let file = ekiden_acme::certificate_file(&settings.acme);
    let file = file.ok_or("no home directory; set `state` in [acme]")?;
    settings.tls.key = Some(file.clone());
    settings.tls.certificate = Some(file);
    Ok(())
}

#[cfg(not(feature = "acme"))]
pub(crate) fn settle(settings: &mut Settings) -> Result<(), String> {
    match settings.acme.is_on() {
        false => Ok(()),
        true => are_possible(),
    }
}

/// Whether this program orders certificates. Errors: in words.
pub(crate) fn are_possible() -> Result<(), String> {
    match cfg!(feature = "acme") {
        true => Ok(()),
        false => Err("this ekiden was built without certificates that it orders; use files in [tls] instead of [acme], or build it with the feature `acme`".to_owned()),
    }
}

/// The one who orders, if one is wanted.
#[derive(Debug, Default)]
pub(crate) struct Ordering {
    #[cfg(feature = "acme")]
    orders: Option<ekiden_acme::Orders>,
}

impl Ordering {
    /// Orders by these settings from now on. One who does so already asks the authority anew.
    #[cfg(feature = "acme")]
    pub(crate) fn follow(&mut self, settings: &Acme, handle: &Handle) {
        if let Some(orders) = self.orders.as_ref().filter(|orders| orders.is_for(settings)) {
            return orders.ask_now();
        }
        // the one before ends, with its challenges
        self.orders = None;
        handle.acme().clear_challenges();
        handle.acme().report(|report| *report = None);
        if !settings.is_on() {
            return;
        }
        match ekiden_acme::Orders::start(settings.clone(), handle.clone()) {
            Ok(orders) => self.orders = Some(orders),
            Err(why) => tracing::error!("no certificate is ordered: {why}"),
        }
    }

    #[cfg(not(feature = "acme"))]
    pub(crate) fn follow(&mut self, _: &Acme, _: &Handle) {}
}
