//! The one who waits: orders when it is due, asks the authority for advice, reports.

use crate::certificate::{Issued, now, seconds, stamp};
use crate::folder::{Folder, Unfinished};
use crate::order::{self, Failed};
use crate::web::Web;
use crate::words;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ekiden_linux::host::panics::caught;
use ekiden_model::renewal::{Config, Renewal};
use ekiden_model::units::{Span, Time};
use ekiden_proxy::policy::trust;
use ekiden_proxy::settings::{Acme, UpstreamTls};
use ekiden_proxy::{AcmeReport, AcmeState, Handle};
use instant_acme::{Account, Error};
use ring::digest::{SHA256, digest};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The longest sleep: clocks are set, and machines sleep, too.
const LONGEST: Span = Span::from_secs(600);
/// A clock that differs by more from the time that has passed was set.
const SET: Span = Span::from_secs(30);
/// The longest that a whole order may take.
const ORDER: Duration = Duration::from_secs(600);

pub(crate) struct Watch {
    settings: Acme,
    state: Arc<AcmeState>,
    web: Web,
    folder: Folder,
    asked: Arc<Notify>,
    account: Option<Account>,
    issued: Option<Issued>,
    renewal: Renewal,
    /// The calendar's time, and the machine's, at the last look.
    looked: (Time, Instant),
}

impl Watch {
    /// Looks at what is kept; fails in words.
    pub(crate) fn new(settings: Acme, handle: Handle, asked: Arc<Notify>) -> Result<Self, String> {
        let trusted = UpstreamTls { authorities: settings.authorities.clone(), fingerprint: None };
        let tls = trust::client(&trusted)
            .map_err(|why| format!("[acme] TLS to the certificates' authority: {why}"))?;
        let folder = Folder::open(&settings)?;
        let state = handle.acme();
        let seed = RandomState::new().hash_one(std::process::id());
        let mut renewal = Renewal::new(Config::default(), seed);
        let kept = folder.certificate().map_err(|error| error.to_string());
        let kept = kept.and_then(|pem| pem.map(|pem| Issued::read(&pem)).transpose());
        let issued = kept.unwrap_or_else(|why| {
            tracing::error!("the kept certificate is of no use, and another is ordered: {why}");
            None
        });
        match &issued {
            Some(issued) if issued.is_for(&settings.names) => {
                renewal.on_certificate(now(), issued.validity);
            }
            Some(_) => {
                tracing::info!("the names of [acme] have changed: another certificate is ordered")
            }
            None => {}
        }
        if let Some(begun) = folder.unfinished().filter(|begun| begun.settings == sign(&settings)) {
            let told = Some(Span::from_secs(begun.wait));
            renewal.on_unfinished(seconds(begun.begun_at).min(now()), told);
        }
        let report = AcmeReport {
            names: settings.names.clone(),
            directory: settings.directory.clone(),
            until: issued.as_ref().map(|issued| stamp(issued.validity.until)),
            ..AcmeReport::default()
        };
        state.report(|of| *of = Some(report));
        let web = Web::new(handle, tls);
        let looked = (now(), Instant::now());
        Ok(Self { settings, state, web, folder, asked, account: None, issued, renewal, looked })
    }

    /// Works until it is aborted. A panic is a failure as others are: nobody else would order.
    pub(crate) async fn run(mut self) {
        loop {
            let now = self.look();
            if now >= self.renewal.due() {
                if let Err(why) = caught(self.order()).await {
                    self.on_failed(&self.settings.names.join(", "), &Failed::from(why));
                }
            } else if now >= self.renewal.ask_at()
                && let Err(why) = caught(self.ask_for_advice()).await
            {
                tracing::error!("no advice on the renewal from the authority: {why}");
                self.account = None;
                self.renewal.on_no_window(crate::certificate::now());
            }
            self.report(|report, renewal| report.next = Some(stamp(renewal.due())));
            let wait = self.renewal.deadline().since(crate::certificate::now()).min(LONGEST);
            tokio::select! {
                () = tokio::time::sleep(wait.into()) => {}
                () = self.asked.notified() => self.renewal.on_asked(crate::certificate::now()),
            }
        }
    }

    /// The calendar's time. A clock that was set since the last look, as at a boot without a battery, changes what is due.
    fn look(&mut self) -> Time {
        let (before, at) = self.looked;
        self.looked = (now(), Instant::now());
        let (now, expected) = (self.looked.0, before + Span::from(at.elapsed()));
        if now.since(expected).max(expected.since(now)) > SET {
            tracing::info!("this machine's clock was set, by more than {SET}");
            self.renewal.on_clock(now, expected);
        }
        now
    }

    fn report(&self, change: impl FnOnce(&mut AcmeReport, &Renewal)) {
        self.state.report(|of| {
            if let Some(report) = of {
                change(report, &self.renewal);
            }
        });
    }

    async fn account(&mut self) -> Result<Account, String> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let account = order::account(&self.settings, &self.folder, &self.web).await?;
        self.account = Some(account.clone());
        Ok(account)
    }

    async fn order(&mut self) {
        self.report(|report, _| report.next = None);
        self.web.begin();
        let names = self.settings.names.join(", ");
        // what cannot be kept is not ordered: authorities issue few of the same names
        if let Err(why) = self.note(Span::ZERO) {
            let writable = "ekiden's user must be able to write there; nothing was ordered";
            return self.on_failed(&names, &Failed::from(format!("{why}; {writable}")));
        }
        tracing::info!("ordering a certificate for {names} from {}", self.settings.directory);
        let ordered = tokio::time::timeout(ORDER, self.attempt()).await;
        let ordered = ordered.unwrap_or_else(|_| {
            Err(Failed::from(format!("not done within {} s", ORDER.as_secs())))
        });
        match ordered {
            Ok(issued) => self.on_issued(&names, issued),
            Err(failed) => self.on_failed(&names, &failed),
        }
    }

    /// Remembers over a restart that an order was begun, or failed.
    fn note(&self, wait: Span) -> Result<(), String> {
        let (begun_at, wait) = (stamp(now()), wait.as_secs());
        let begun = Unfinished { begun_at, wait, settings: sign(&self.settings) };
        self.folder.note(&begun)
    }

    async fn attempt(&mut self) -> Result<Issued, Failed> {
        let account = self.account().await?;
        let before = self.issued.as_ref();
        let ordered =
            order::certificate(&self.settings, &self.folder, &self.state, &account, before).await;
        match ordered {
            // the authority has forgotten it, as test authorities do at each start
            Err(Failed { error: Some(error), .. })
                if words::is_problem(&error, "accountDoesNotExist") =>
            {
                tracing::warn!("the authority does not know the account: another is made");
                self.folder.forget_account();
                self.account = None;
                let account = self.account().await?;
                order::certificate(&self.settings, &self.folder, &self.state, &account, None).await
            }
            ordered => ordered,
        }
    }

    fn on_issued(&mut self, names: &str, issued: Issued) {
        let now = now();
        self.renewal.on_issued(now, issued.validity);
        self.folder.finish();
        let until = stamp(issued.validity.until);
        if !issued.validity.holds(now) {
            let clock = words::clock(self.web.noticed());
            tracing::error!("the new certificate is not valid by this machine's clock{clock}");
        }
        tracing::info!(
            "a certificate for {names} was issued; it ends on {}",
            humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(until))
        );
        self.report(|report, _| {
            report.until = Some(until);
            report.obtained += 1;
            report.failures = 0;
            report.last_failure = None;
        });
        self.issued = Some(issued);
    }

    fn on_failed(&mut self, names: &str, failed: &Failed) {
        let (now, noticed) = (now(), self.web.noticed());
        // what the authority says in the answer to one order does not hold for a broken connection
        let told = matches!(failed.error, Some(Error::Api(_))).then_some(noticed.retry_after);
        self.renewal.on_failure(now, told.flatten());
        if let Err(why) = self.note(told.flatten().unwrap_or(Span::ZERO)) {
            tracing::debug!("{why}");
        }
        // a directory that has moved, or an account that was made before the key was set
        self.account = None;
        let words = format!("{}{}", failed.words, words::clock(noticed));
        let wait = Duration::from_secs(self.renewal.due().since(now).as_secs());
        let wait = humantime::format_duration(wait);
        let failures = self.renewal.failures();
        let left = self.issued.as_ref().map(|issued| issued.validity.until);
        let still = match left {
            Some(until) if until > now => {
                let left = until.since(now).as_secs() / 86_400;
                format!("the certificate in use holds for {left} more days")
            }
            Some(_) => "the certificate in use has ended".to_owned(),
            None => "there is no certificate".to_owned(),
        };
        tracing::error!(
            "no certificate for {names}: {words}; {still}; the next order is in {wait} ({failures} failures in a row)"
        );
        self.report(|report, renewal| {
            report.failures = renewal.failures();
            report.last_failure = Some((stamp(now), words));
        });
    }

    /// Asks whether the certificate is to be renewed earlier or later (RFC 9773).
    async fn ask_for_advice(&mut self) {
        let id = self.issued.as_ref().and_then(|issued| issued.id.clone());
        let Some(id) = id else { return self.renewal.on_no_window(now()) };
        let advice = match self.account().await {
            Ok(account) => account.renewal_info(&id).await.map_err(|error| words::error(&error)),
            Err(why) => Err(why),
        };
        let now = now();
        match advice {
            Ok((info, again)) => {
                let window = info.suggested_window;
                let at = |stamp: i64| seconds(u64::try_from(stamp).unwrap_or(0));
                let before = self.renewal.due();
                let (start, end) =
                    (at(window.start.unix_timestamp()), at(window.end.unix_timestamp()));
                self.renewal.on_window(now, start, end, Some(Span::from(again)));
                if self.renewal.due() != before {
                    self.say_when(info.explanation_url.as_deref());
                }
            }
            Err(why) => {
                tracing::debug!("no advice on the renewal from the authority: {why}");
                self.renewal.on_no_window(now);
            }
        }
    }

    fn say_when(&self, explanation: Option<&str>) {
        let due: Time = self.renewal.due();
        let due = std::time::UNIX_EPOCH + Duration::from_secs(stamp(due));
        let why = explanation.map_or_else(String::new, |url| format!("; its reason: {url}"));
        tracing::info!(
            "the certificate is renewed on {}, as the authority advises{why}",
            humantime::format_rfc3339_seconds(due)
        );
    }
}

/// Stands for the settings in a file that outlives them.
fn sign(settings: &Acme) -> String {
    let hash = digest(&SHA256, format!("{settings:?}").as_bytes());
    URL_SAFE_NO_PAD.encode(hash.as_ref())
}
