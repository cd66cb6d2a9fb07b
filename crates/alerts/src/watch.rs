//! The task that looks, decides and sends.

use crate::facts::{Around, Facts, days};
use crate::folders::disk;
use crate::kept::Kept;
use crate::kind::AlertKind;
use crate::message::AlertMessage;
use crate::receiver::Receiver;
use crate::{AlertSettings, Ask, AskShared, SharedUse, Trial};
use ekiden_linux::host::clock;
use ekiden_model::alerts::{Alerts, Config, Firing, Notice, Outbox, OutboxConfig, State};
use ekiden_model::units::{Span, Time};
use ekiden_proxy::observe::status::AlertReceiverStatus;
use ekiden_proxy::{AlertReport, CertificateFiles, Handle, StandingAlert};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};

/// Between two looks, or less where an alert comes sooner.
const LOOK: Span = Span::from_secs(5);
/// But no sooner than this.
const SOONEST: Span = Span::from_millis(250);
/// The database is asked so often for what is used of shared quotas.
const SHARED: Span = Span::from_secs(30);
/// A certificate in files is looked at so often.
const CERTIFICATE: Span = Span::from_secs(60);

/// What became of a delivery.
type Sent = Result<String, String>;

/// Somebody who is told, and what waits for them.
#[derive(Debug)]
struct Told {
    receiver: Receiver,
    outbox: Outbox<AlertKind>,
    last_error: Option<String>,
    /// Which of the receivers since the start it is: deliveries end after settings change.
    number: u64,
}

pub(crate) struct Watch {
    settings: AlertSettings,
    handle: Handle,
    folder: Option<PathBuf>,
    kept: Kept,
    facts: Facts,
    alerts: Alerts<AlertKind>,
    told: Vec<Told>,
    numbers: u64,
    /// Deliveries, and the number of each one's receiver.
    sending: JoinSet<Sent>,
    numbers_of: HashMap<Id, u64>,
    /// The certificate in files that ends soon, and when that was looked at.
    ending: (Time, Option<(String, String)>),
    /// What is used of shared quotas, when that was asked, and whom.
    shared: (Time, Vec<SharedUse>),
    ask_shared: Option<AskShared>,
}

/// The waits that the settings ask for.
fn config(settings: &AlertSettings) -> Config {
    let (after, repeat) = (settings.alerts.after, settings.alerts.repeat);
    Config { after, repeat, ..Config::default() }
}

fn wall() -> u64 {
    clock::wall() / 1_000_000_000
}

impl Watch {
    pub(crate) fn new(
        settings: AlertSettings,
        (handle, ask_shared): (Handle, Option<AskShared>),
        folder: Option<PathBuf>,
    ) -> Self {
        let kept = Kept::new(folder.as_deref());
        let mut this = Self {
            alerts: Alerts::new(config(&settings)),
            settings,
            handle,
            folder,
            kept,
            facts: Facts::default(),
            told: Vec::new(),
            numbers: 0,
            sending: JoinSet::new(),
            numbers_of: HashMap::new(),
            ending: (Time::ZERO, None),
            shared: (Time::ZERO, Vec::new()),
            ask_shared,
        };
        for firing in this.kept.read() {
            this.facts.on_restored(&firing.key);
            this.alerts.on_restored(clock::now(), firing);
        }
        for receiver in Receiver::all(&this.settings) {
            this.add(receiver);
        }
        this
    }

    /// Works until it is aborted.
    pub(crate) async fn run(mut self, asked: &mut mpsc::Receiver<Ask>) {
        let mut next_look = Time::ZERO;
        loop {
            if clock::now() >= next_look {
                self.look().await;
                let now = clock::now();
                next_look = (now + LOOK).min(self.alerts.deadline().max(now + SOONEST));
            }
            self.send();
            self.report();
            let due = self.told.iter().map(|told| told.outbox.deadline());
            let deadline = due.chain([next_look]).min();
            let wait = deadline.unwrap_or(next_look).since(clock::now());
            tokio::select! {
                () = tokio::time::sleep(Duration::from(wait)) => {}
                Some(ended) = self.sending.join_next_with_id() => self.on_ended(ended),
                Some(ask) = asked.recv() => match ask {
                    Ask::Follow(settings) => {
                        self.follow(*settings);
                        next_look = Time::ZERO;
                    }
                    Ask::Try(answer) => {
                        // nobody waits for it here; whoever asked may have gone
                        let trial = self.trial();
                        tokio::spawn(async move { drop(answer.send(trial.await)) });
                    }
                },
            }
        }
    }

    /// Looks at everything, and decides.
    async fn look(&mut self) {
        let (handle, folder) = (self.handle.clone(), self.folder.clone());
        let (now, last) = (clock::now(), self.ending.0);
        let is_due = last == Time::ZERO || now.since(last) >= CERTIFICATE;
        let within = self.settings.alerts.certificate;
        // accounts may be thousands, and a disk may hang: not on a thread that relays
        let looking = tokio::task::spawn_blocking(move || {
            let disks: Vec<_> = folder.iter().filter_map(|folder| disk(folder)).collect();
            let ending = is_due.then(|| ending_soon(&handle, within));
            (handle.overview(), disks, ending)
        });
        let Ok((status, disks, ending)) = looking.await else { return };
        if status.stopping {
            return;
        }
        if let Some(ending) = ending {
            self.ending = (now, ending);
        }
        if let Some(ask) = &self.ask_shared
            && (self.shared.0 == Time::ZERO || clock::now().since(self.shared.0) >= SHARED)
        {
            let used = ask().await;
            self.shared.0 = clock::now();
            // what was known stays true while the database is away
            self.shared.1 = used.unwrap_or_else(|| std::mem::take(&mut self.shared.1));
        }
        let around = Around {
            disks,
            unsaved: self.handle.unsaved(),
            ending: self.ending.1.clone(),
            shared: self.shared.1.clone(),
        };
        let facts = self.facts.look(&status, &around, &self.settings.alerts);
        let (now, before) = (clock::now(), self.alerts.snapshot());
        let notices = self.alerts.on_look(now, wall(), facts);
        for notice in &notices {
            log(notice);
            self.told.iter_mut().for_each(|told| told.outbox.on_notice(now, notice.clone()));
        }
        let standing = self.alerts.snapshot();
        if keys(&standing) != keys(&before) {
            let kept = self.kept.clone();
            let written = tokio::task::spawn_blocking(move || kept.write(&standing)).await;
            let written = written.unwrap_or_else(|error| Err(error.to_string()));
            self.handle.alerts().on_saved("alerts", written);
        }
    }

    fn add(&mut self, receiver: Receiver) {
        self.numbers += 1;
        let outbox = Outbox::new(OutboxConfig::default());
        self.told.push(Told { receiver, outbox, last_error: None, number: self.numbers });
    }

    /// Begins what is due.
    fn send(&mut self) {
        for told in &mut self.told {
            let notices = told.outbox.on_deadline(clock::now());
            if notices.is_empty() {
                continue;
            }
            let message = AlertMessage::of(&self.settings.relay, &notices);
            let (receiver, handle) = (told.receiver.clone(), self.handle.clone());
            let task = self.sending.spawn(async move { receiver.deliver(&handle, &message).await });
            self.numbers_of.insert(task.id(), told.number);
        }
    }

    fn on_ended(&mut self, ended: Result<(Id, Sent), JoinError>) {
        // the outbox waits for each, also for one that panicked; none is aborted
        let panicked = || Err("the delivery ended with a panic".to_owned());
        let (id, sent) = ended.unwrap_or_else(|error| (error.id(), panicked()));
        let number = self.numbers_of.remove(&id);
        // of a receiver that the settings name no more, nobody wants to know
        let told = self.told.iter_mut().find(|told| Some(told.number) == number);
        let Some(told) = told else { return };
        let (now, to) = (clock::now(), told.receiver.word());
        match sent {
            Ok(answer) => {
                told.outbox.on_delivered(now);
                told.last_error = None;
                tracing::info!("alerts sent by {to}: {answer}");
            }
            Err(why) => {
                told.outbox.on_failed(now);
                // again and again the same is said once
                if told.last_error.as_ref() != Some(&why) {
                    tracing::warn!("alerts could not be sent by {to}, and are sent later: {why}");
                }
                told.last_error = Some(why);
            }
        }
    }

    fn follow(&mut self, settings: AlertSettings) {
        if settings == self.settings {
            return;
        }
        self.alerts.set_config(config(&settings));
        self.settings = settings;
        (self.ending.0, self.ending.1) = (Time::ZERO, None);
        let wanted = Receiver::all(&self.settings);
        self.told.retain(|told| wanted.contains(&told.receiver));
        let now = clock::now();
        for receiver in wanted {
            if self.told.iter().any(|told| told.receiver == receiver) {
                continue;
            }
            self.add(receiver);
            let Some(told) = self.told.last_mut() else { continue };
            // a newcomer knows nothing of what stands
            for Firing { key, since, text } in self.alerts.snapshot() {
                let notice = Notice { key, state: State::Firing, since, until: None, text };
                told.outbox.on_notice(now, notice);
            }
        }
    }

    /// Sends a trial to everybody.
    fn trial(&self) -> impl Future<Output = Vec<Trial>> + use<> {
        let message = AlertMessage::trial(&self.settings.relay, wall());
        let receivers: Vec<Receiver> = self.told.iter().map(|told| told.receiver.clone()).collect();
        let handle = self.handle.clone();
        async move {
            // one that does not answer holds up no other
            let sending = receivers.into_iter().map(|receiver| {
                let (handle, message) = (handle.clone(), message.clone());
                let to = receiver.word().to_owned();
                let sent = async move { receiver.deliver(&handle, &message).await };
                (to, tokio::spawn(sent))
            });
            let mut trials = Vec::new();
            for (to, sent) in sending.collect::<Vec<_>>() {
                let sent = sent.await.unwrap_or_else(|error| Err(error.to_string()));
                let (answer, error) = match sent {
                    Ok(answer) => (Some(answer), None),
                    Err(why) => (None, Some(why)),
                };
                trials.push(Trial { to, answer, error });
            }
            trials
        }
    }

    /// Tells the status.
    fn report(&self) {
        let standing = |firing: Firing<AlertKind>| StandingAlert {
            alert: firing.key.alert.word(),
            subject: firing.key.subject,
            text: firing.text,
            since: firing.since,
        };
        let receiver = |told: &Told| {
            let seen = told.outbox.snapshot();
            AlertReceiverStatus {
                to: told.receiver.word().to_owned(),
                delivered: seen.delivered,
                failed: seen.failed,
                waiting: seen.waiting as u64,
                dropped: seen.dropped,
                last_error: told.last_error.clone(),
            }
        };
        self.handle.alerts().report(Some(AlertReport {
            standing: self.alerts.snapshot().into_iter().map(standing).collect(),
            receivers: self.told.iter().map(receiver).collect(),
        }));
    }
}

/// The certificate in files, where it ends soon.
fn ending_soon(handle: &Handle, within: Span) -> Option<(String, String)> {
    let [certificate, key] = handle.certificate_files()?;
    let now = SystemTime::now();
    let files = CertificateFiles::read(&certificate, &key);
    let shown = certificate.display().to_string();
    let text = match files {
        Err(why) => format!("the certificate cannot be used: {why}"),
        Ok(files) if !files.holds(now) => {
            format!("the certificate in {shown} has ended, or has not begun")
        }
        Ok(files) if !files.holds(now + Duration::from(within)) => {
            format!("the certificate in {shown} ends within {}", days(within.as_secs_f64()))
        }
        Ok(_) => return None,
    };
    Some((shown, text))
}

fn keys(standing: &[Firing<AlertKind>]) -> Vec<(&str, AlertKind)> {
    standing.iter().map(|firing| (firing.key.subject.as_str(), firing.key.alert)).collect()
}

fn log(notice: &Notice<AlertKind>) {
    let (kind, subject, text) = (notice.key.alert.word(), &notice.key.subject, &notice.text);
    match notice.state {
        State::Firing => tracing::warn!("alert {kind} of {subject}: {text}"),
        State::Resolved => tracing::info!("alert {kind} of {subject} is over"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_config::{AlertSecrets, Alerts};
    use ekiden_model::alerts::Key;
    use ekiden_proxy::Server;
    use ekiden_proxy::settings::{Settings, Tls};
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::{self, File};
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    #[test]
    fn a_delivery_that_panics_arrives_at_the_second_try() {
        let receiver = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let webhook = format!("http://{}/", receiver.local_addr().unwrap());
        let receiving = thread::spawn(move || {
            let (mut stream, _) = receiver.accept().unwrap();
            let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
            while !text.ends_with(b"]}") {
                let n = stream.read(&mut bytes).unwrap();
                assert!(n > 0, "it ends early");
                text.extend(&bytes[..n]);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            String::from_utf8(text).unwrap()
        });
        let working = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // the time limit of a delivery panics here
        let without_timers = Builder::new_current_thread().build().unwrap();
        let settings =
            Settings { listen: vec![(Ipv4Addr::LOCALHOST, 0).into()], ..Settings::default() };
        let server = working.block_on(async { Server::start(Arc::new(settings)) }).unwrap();
        let alerts = Alerts { webhook: Some(webhook), ..Alerts::default() };
        let secrets = AlertSecrets::default();
        let settings = AlertSettings { alerts, secrets, relay: "h".to_owned() };
        let mut watch = Watch::new(settings, (server.handle(), None), None);
        let at_once =
            OutboxConfig { gap: Span::ZERO, first_wait: Span::ZERO, ..Default::default() };
        watch.told[0].outbox = Outbox::new(at_once);
        let key = Key { subject: "ship".to_owned(), alert: AlertKind::LineDown };
        let (state, text) = (State::Firing, "no tunnel".to_owned());
        let notice = Notice { key, state, since: 0, until: None, text };
        watch.told[0].outbox.on_notice(clock::now(), notice);
        let mut deliver = |runtime: &Runtime| {
            runtime.block_on(async {
                watch.send();
                let ended = watch.sending.join_next_with_id().await.unwrap();
                watch.on_ended(ended);
            });
            watch.told[0].outbox.snapshot()
        };
        let first = deliver(&without_timers);
        assert_eq!((first.failed, first.waiting), (1, 1));
        let second = deliver(&working);
        assert_eq!((second.delivered, second.waiting), (1, 0));
        assert!(receiving.join().unwrap().contains("no tunnel"));
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_no_thread_that_relays() {
        let folder = tempfile::tempdir().unwrap();
        let made = ekiden_testkit::Certificate::self_signed(folder.path(), "own", &["localhost"]);
        let path = made.certificate;
        let settings = Settings {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            tls: Tls { certificate: Some(path.clone()), key: Some(made.key) },
            ..Settings::default()
        };
        let server = Server::start(Arc::new(settings)).unwrap();
        let handle = server.handle();
        // the relay itself looks at its certificate no more
        drop(server);
        // whoever reads a pipe waits for who writes
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let (is_read, reading) = oneshot::channel();
        let (go, goes_on) = mpsc::channel::<()>();
        let disk = thread::spawn(move || {
            let _end = File::options().write(true).open(path).unwrap();
            is_read.send(()).unwrap();
            // a runtime that waits for the disk never says so
            let _late = goes_on.recv_timeout(Duration::from_secs(60));
        });
        let (alerts, secrets) = (Alerts::default(), AlertSecrets::default());
        let settings = AlertSettings { alerts, secrets, relay: "h".to_owned() };
        let mut watch = Watch::new(settings, (handle, None), None);
        let looking = tokio::spawn(async move {
            watch.look().await;
            watch.ending.1.is_some()
        });
        reading.await.unwrap();
        go.send(()).unwrap();
        assert!(looking.await.unwrap(), "it is no certificate");
        disk.join().unwrap();
    }
}
