//! Orders from an authority whose answers are not what an authority should send.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on panics

mod authority;

use authority::{Authority, Manner};
use ekiden_acme::{Orders, certificate_file};
use ekiden_proxy::settings::{Acme, Settings};
use ekiden_proxy::{AcmeReport, Server};
use ekiden_testkit::eventually_or;
use rcgen::{CertificateParams, Issuer, KeyPair};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "relay.example";

/// A relay that orders from an authority.
struct Place {
    folder: TempDir,
    authority: Authority,
    runtime: Runtime,
    server: Server,
}

impl Place {
    fn new(manner: Manner) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::start(folder.path(), manner);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let settings = Settings { listen: vec![([127, 0, 0, 1], 0).into()], ..Settings::default() };
        let server = runtime.block_on(async { Server::start(Arc::new(settings)) }).unwrap();
        Self { folder, authority, runtime, server }
    }

    fn settings(&self) -> Acme {
        Acme {
            names: vec![NAME.to_owned()],
            agree_to_terms: true,
            directory: self.authority.url("dir"),
            authorities: Some(self.authority.file.clone()),
            state: Some(self.folder.path().to_owned()),
            ..Acme::default()
        }
    }

    /// Keeps a certificate, as if it had been ordered before the start.
    fn keep(&self, certificate: &str, key: &KeyPair) -> (PathBuf, String) {
        let file = certificate_file(&self.settings()).unwrap();
        let text = format!("{}{certificate}", key.serialize_pem());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &text).unwrap();
        (file, text)
    }

    fn order(&self) -> Orders {
        let _entered = self.runtime.enter();
        Orders::start(self.settings(), self.server.handle()).unwrap()
    }

    fn report(&self) -> AcmeReport {
        let mut seen = None;
        self.server.handle().acme().report(|report| seen = report.clone());
        seen.unwrap()
    }

    /// Waits until something has been done: the time of the next order is said then.
    fn settled(&self) -> AcmeReport {
        let why = || format!("{:?} {:?}", self.report(), self.authority.asked());
        eventually_or(why, || Some(self.report()).filter(|report| report.next.is_some()))
    }
}

/// A certificate that ends with a year, for a key.
fn certificate(key: &KeyPair, until: i32) -> String {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    // by which the authority is asked for its advice
    params.use_authority_key_identifier_extension = true;
    let issuing = KeyPair::generate().unwrap();
    let issuer = Issuer::new(CertificateParams::default(), issuing);
    params.signed_by(key, &issuer).unwrap().pem()
}

#[test]
fn an_authority_that_says_to_come_back_in_ages_ends_no_orders() {
    let place = Place::new(Manner::NeverReady);
    let orders = place.order();
    let report = place.settled();
    assert_eq!(report.failures, 1);
    let (_, why) = report.last_failure.unwrap();
    assert!(why.contains("did not decide in time"), "{why}");
    assert!(orders.is_for(&place.settings()));
}

#[test]
fn advice_that_is_to_be_asked_for_again_in_ages_ends_no_orders() {
    let place = Place::new(Manner::NeverReady);
    let key = KeyPair::generate().unwrap();
    place.keep(&certificate(&key, 2100), &key);
    let orders = place.order();
    assert_eq!(place.settled().failures, 0);
    let asked = place.authority.asked();
    assert!(asked.iter().any(|path| path.starts_with("/renewal/")), "{asked:?}");
    assert!(orders.is_for(&place.settings()));
}

#[test]
fn a_certificate_for_another_key_is_a_failure_and_the_one_in_use_stays() {
    let other = KeyPair::generate().unwrap();
    let place = Place::new(Manner::Issues(certificate(&other, 2100)));
    let key = KeyPair::generate().unwrap();
    // it has ended, so that another is ordered at once
    let (file, text) = place.keep(&certificate(&key, 2021), &key);
    let _orders = place.order();
    let report = place.settled();
    assert_eq!((report.failures, report.obtained), (1, 0));
    let (_, why) = report.last_failure.unwrap();
    assert!(why.contains("the key, it does not match the certificate"), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn a_kept_certificate_for_another_key_is_no_certificate() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let place = Place::new(Manner::NeverReady);
    place.keep(&certificate(&other, 2100), &key);
    let _orders = place.order();
    assert_eq!(place.settled().until, None);
    let asked = place.authority.asked();
    assert!(asked.iter().any(|path| path == "/order"), "{asked:?}");
}
