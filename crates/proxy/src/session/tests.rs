//! A session over a loopback connection, without a server around it.

use super::*;
use crate::destination::Destination;
use crate::observe::leg_stats::TlsLeg as _;
use crate::observe::log_throttle::counting::said;
use crate::observe::registry::{Protocol, Registry};
use crate::policy::accounts::Directory;
use crate::policy::accounts::testing::{OneAccount, account};
use crate::resources::{AcceptedClient, Resources};
use crate::runtime::shared::Shared;
use crate::settings::{
    AccessLog as AccessLogSetting, Account, Allowance, ExceededAction, Limits as AccountLimits,
    Settings,
};
use crate::transfer::end::End;
use crate::transfer::pipe::Pipe;
use ekiden_linux::host::clock;
use ekiden_model::units::{Bytes, Share, Span};
use ipnet::IpNet;
use socket2::SockRef;
use std::path::Path;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tracing::Level;

pub(crate) struct Fixture {
    pub(crate) session: Session,
    pub(crate) client: TcpStream,
    stop: watch::Sender<bool>,
    pub(crate) registry: Arc<Registry>,
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

/// A session of a client at `address`.
pub(crate) async fn fixture(
    address: &str,
    directory: Option<Arc<dyn Directory>>,
    settings: Settings,
) -> Fixture {
    let address: SocketAddr = format!("{address}:5000").parse().unwrap();
    let (resources, _admitted) = Resources::new(&settings, directory.is_some());
    let registry = Arc::new(Registry::new(Arc::clone(&resources) as _));
    let shared = Shared::new(&settings, resources, None);
    let config = RuntimeConfig::new(Arc::new(settings), Arc::clone(&shared), directory, None);
    let config = Arc::new(config.unwrap());
    let (client, accepted) = pair().await;
    let accepted = End::from(accepted);
    let managed = shared.resources.manage(&accepted, &config.client_leg.leg, None);
    let arrived = AcceptedClient::new(accepted.clone(), address, Inherited::default());
    let permit = shared.resources.admit(&arrived);
    let (stop, stopping) = watch::channel(false);
    let session = Session {
        in_effect: watch::Sender::new(Arc::clone(&config)).subscribe(),
        config,
        client: accepted,
        managed,
        address,
        inherited: Inherited::default(),
        arrival: None,
        directed: None,
        slot: Mutex::default(),
        tls: None,
        tls_name: None,
        framing: None,
        hops: 0,
        log: Arc::new(AccessLog::open(&AccessLogSetting::Off).unwrap()),
        stopping,
        permit: permit.unwrap(),
        registration: registry.enter(address),
    };
    Fixture { session, client, stop, registry }
}

/// Settings with one account for 192.0.2.0/24 that may have one connection.
fn one_connection() -> Settings {
    let mut settings = Settings::default();
    settings.sharing.list.push(Account {
        name: "village".into(),
        addresses: vec!["192.0.2.0/24".parse().unwrap()],
        peers: vec![],
        limits: AccountLimits { connections: Some(1), ..AccountLimits::default() },
    });
    settings
}

#[tokio::test]
async fn admits_loopback_and_refuses_clients_that_no_rule_admits() {
    let local = fixture("127.0.0.1", None, Settings::default()).await;
    assert!(matches!(local.session.admit().await, Admission::Granted));
    let mut remote = fixture("192.0.2.1", None, Settings::default()).await;
    let mut answer = String::new();
    let (admitted, read) = tokio::join!(remote.session.admit(), async {
        let read = remote.client.read_to_string(&mut answer).await;
        drop(remote.client);
        read
    });
    read.unwrap();
    assert!(
        matches!(admitted, Admission::Refused) && answer.starts_with("HTTP/1.1 403 "),
        "{answer}"
    );
    assert!(answer.contains("no rule admits clients from 192.0.2.1"), "{answer}");
    assert_eq!(remote.registry.totals.refused.load(Relaxed), 1);
}

#[tokio::test]
async fn an_account_slot_stays_until_the_account_changes() {
    let Fixture { session, .. } = fixture("192.0.2.1", None, one_connection()).await;
    assert!(session.share().is_none());
    session.join_account().unwrap();
    // the only slot: joining again must not ask for another
    session.join_account().unwrap();
    let other = session.config.shared.quotas.admit_by_origin(session.address.ip(), None, None);
    assert!(other.is_err());
    // another account's connection leaves the slot to others
    session.set_account(Some(account(7, "home")));
    session.join_account().unwrap();
    let other = session.config.shared.quotas.admit_by_origin(session.address.ip(), None, None);
    assert!(other.unwrap().is_some());
}

#[tokio::test]
async fn the_first_inner_session_takes_over_the_slot() {
    let Fixture { session, .. } = fixture("192.0.2.1", None, one_connection()).await;
    session.join_account().unwrap();
    let permit = || session.permit.inner().unwrap();
    let framing = Arc::default();
    let first = session.inner(pair().await.0.into(), None, &framing, permit());
    assert!(first.tls.is_some() && first.share().is_some() && session.share().is_none());
    let second = session.inner(pair().await.0.into(), None, &framing, permit());
    assert!(second.join_account().is_err());
    drop(first);
    second.join_account().unwrap();
}

#[tokio::test]
async fn asks_for_a_log_in_only_where_accounts_require_it() {
    let known = || OneAccount { name: "home", at: [192, 0, 2, 1].into() };
    let directory = || Some(Arc::new(known()) as Arc<dyn Directory>);
    let open = fixture("127.0.0.1", None, Settings::default()).await;
    assert!(!open.session.must_log_in() && open.session.identify().unwrap().is_none());
    let required = fixture("127.0.0.1", directory(), Settings::default()).await;
    assert!(required.session.must_log_in());
    let mut settings = Settings::default();
    settings.accounts.required = false;
    let optional = fixture("127.0.0.1", directory(), settings.clone()).await;
    assert!(!optional.session.must_log_in());
    // no rule admits this client, so only a log-in can
    let remote = fixture("198.51.100.1", directory(), settings).await;
    assert!(remote.session.must_log_in());
    let known = fixture("192.0.2.1", directory(), Settings::default()).await;
    assert_eq!(known.session.identify().unwrap().unwrap().name, "home");
}

#[tokio::test]
async fn a_device_s_address_is_an_account_s_only_where_nobody_else_has_it() {
    let off = Settings::default();
    let mut on = off.clone();
    on.wireguard.listen = vec!["0.0.0.0:51820".parse().unwrap()];
    let mut elsewhere = on.clone();
    elsewhere.wireguard.network = "10.78.0.0/24".parse().unwrap();
    for (settings, guarded, device) in [
        (&off, "10.77.0.0/24", None),
        (&on, "10.77.0.0/24", Some(8)),
        (&elsewhere, "10.77.0.0/24", None),
        // the rules are those before a reload, or there are none
        (&on, "10.78.0.0/24", None),
        (&on, "", None),
    ] {
        for (address, id) in [("10.77.0.2", device), ("10.77.0.3", Some(7))] {
            let directory = OneAccount { name: "home", at: [10, 77, 0, 3].into() };
            let directory = Some(Arc::new(directory) as Arc<dyn Directory>);
            let session = fixture(address, directory, settings.clone()).await.session;
            *locked(&session.config.shared.guarded) =
                guarded.parse::<IpNet>().into_iter().collect();
            let found = session.identify().unwrap();
            assert_eq!(found.map(|account| account.id), id, "{address} of \"{guarded}\"");
            let of_datagrams = session.config.account_at(session.address.ip()).and_then(Result::ok);
            assert_eq!(of_datagrams.map(|account| account.id), id, "{address} of \"{guarded}\"");
        }
    }
}

#[test]
fn wrong_log_ins_are_a_line_of_the_log_and_not_each() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _within = runtime.enter();
    let directory = Arc::new(OneAccount { name: "home", at: [192, 0, 2, 1].into() });
    let made = fixture("127.0.0.1", Some(directory as Arc<dyn Directory>), Settings::default());
    let session = runtime.block_on(made).session;
    let guess = |password| assert!(runtime.block_on(session.log_in("anna", password)).is_err());
    let lines = said(Level::INFO, || (0..3).for_each(|_| guess("a guess")));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("client=127.0.0.1:5000 "), "{lines:?}");
    assert!(!lines[0].contains("anna") && !lines[0].contains("guess"), "{lines:?}");
}

#[test]
fn log_ins_that_are_not_looked_at_are_a_line_of_the_log() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let _within = runtime.enter();
    let directory = Arc::new(OneAccount { name: "home", at: [192, 0, 2, 1].into() });
    let made = fixture("127.0.0.1", Some(directory as Arc<dyn Directory>), Settings::default());
    let session = runtime.block_on(made).session;
    let lines = said(Level::INFO, || {
        for _ in 0..2 {
            let failure = runtime.block_on(session.log_in("anna", "late")).unwrap_err();
            assert_eq!((failure.status(), failure.is_refusal()), (429, true));
            session.on_failure(&mut session.new_entry(Protocol::Http), &failure);
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("no password is checked for 30 s"), "{lines:?}");
}

#[test]
fn an_address_that_accounts_have_is_named_as_perhaps_a_proxy() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let _within = runtime.enter();
    for shared in [false, true] {
        let directory = Arc::new(OneAccount { name: "home", at: [192, 0, 2, 1].into() });
        let made = fixture("127.0.0.1", Some(directory as Arc<dyn Directory>), Settings::default());
        let made = runtime.block_on(made);
        let other = made.registry.enter(made.session.address);
        other.set_account(shared.then(|| account(7, "home")));
        let lines = said(Level::INFO, || {
            assert!(runtime.block_on(made.session.log_in("anna", "late")).is_err());
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].contains("access.proxy_protocol_from"), shared, "{lines:?}");
    }
}

#[tokio::test]
async fn reaches_what_the_rules_allow_at_the_resolved_address() {
    let Fixture { session, .. } = fixture("127.0.0.1", None, Settings::default()).await;
    let to = Destination::parse("example.org:80", None).unwrap();
    assert!(session.may_reach(&to, None));
    assert!(session.may_reach(&to, Some([9, 9, 9, 9].into())));
    assert!(!session.may_reach(&to, Some([127, 0, 0, 1].into())));
}

#[tokio::test]
async fn a_log_entry_begins_with_its_request() {
    let Fixture { session, .. } = fixture("127.0.0.1", None, Settings::default()).await;
    session.registration.moved(clock::now(), 10, 20, 0);
    let to = Destination::parse("example.org:80", None).unwrap();
    let entry = session.begin(Protocol::Connect, &to, Some("CONNECT".into()), to.to_string());
    assert_eq!(entry.target.as_deref(), Some("example.org:80"));
    session.registration.moved(clock::now(), 1, 2, 0);
    assert_eq!(entry.bytes(&session.registration), (1, 2));
}

/// The lines of the log, and the errors of finished traces.
fn written(session: &Session, path: &Path) -> (Vec<String>, Vec<Option<&'static str>>) {
    assert!(session.log.pending_lines().wait(Duration::from_secs(60)));
    let lines = std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    let traces = session.config.shared.traces.take(100);
    (lines, traces.iter().map(|trace| trace.error).collect())
}

#[tokio::test]
async fn a_request_that_is_cut_off_has_one_line_and_its_trace_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut made = fixture("192.0.2.1", None, Settings::default()).await;
    let log = AccessLog::open(&AccessLogSetting::File(path.clone())).unwrap();
    made.session.log = Arc::new(log);
    let session = &made.session;
    let all = Share::from_percent(100).unwrap();
    session.config.shared.traces.follow(Some((all, "http://c:4318/".to_owned())));
    let quotas = &session.config.shared.quotas;
    quotas.set("home", ekiden_model::resources::quota::Limits::default());
    session.set_account(Some(account(7, "home")));
    session.join_account().unwrap();
    let to = Destination::parse("example.org:443", None).unwrap();
    let begin = || session.begin(Protocol::Connect, &to, Some("CONNECT".into()), to.to_string());
    // one that ended by itself
    session.log(&mut begin(), "closed");
    let cut = begin();
    session.registration.moved(clock::now(), 3, 5, 0);
    drop(cut);
    // another has the line in its place
    let entry = begin().hand_over();
    drop(OpenEntry { session, entry });
    session.registration.entry.evicted.store(true, Relaxed);
    drop(begin());
    session.registration.entry.evicted.store(false, Relaxed);
    made.stop.send_replace(true);
    drop(begin());
    assert_eq!(quotas.remove("home"), 1);
    drop(begin());
    let (lines, errors) = written(session, &path);
    let cut = Some("cut");
    assert_eq!(errors, [None, cut, cut, cut, cut, cut]);
    let results = [
        "closed",
        "cut off",
        "cut off",
        "closed to make room",
        "the relay is stopping",
        "account \"home\" is not served any more",
    ];
    assert_eq!(lines.len(), results.len(), "{lines:?}");
    for (nth, (line, result)) in lines.iter().zip(results).enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["result"], result);
        assert_eq!(line["target"], "example.org:443");
        assert_eq!(line["cut_by"].as_str(), (nth > 0).then_some("relay"), "{line}");
        let moved = [&line["bytes_up"], &line["bytes_down"]].map(serde_json::Value::as_u64);
        assert_eq!(moved, if nth == 1 { [Some(3), Some(5)] } else { [Some(0); 2] });
    }
}

#[tokio::test]
async fn a_break_by_a_cut_is_logged_as_the_relay_s_cut_and_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut made = fixture("127.0.0.1", None, Settings::default()).await;
    let log = AccessLog::open(&AccessLogSetting::File(path.clone())).unwrap();
    made.session.log = Arc::new(log);
    let session = &made.session;
    let to = Destination::parse("example.org:443", None).unwrap();
    let begin = || session.begin(Protocol::Connect, &to, Some("CONNECT".into()), to.to_string());
    // as between the reset of its legs and the abort of its task, which is not known here
    session.registration.entry.end();
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    session.on_failure(&mut begin(), &Failure::client_gone(&broken));
    session.on_broken(&mut begin(), CutBy::Destination, "it broke");
    let (near, far) = Pipe::pair();
    far.abort("");
    let upstream = End::Pipe(Arc::new(near));
    let managed = session.resources().manage(&upstream, &session.config.client_leg.leg, None);
    let [early_up, early_down] = [EarlyBytes::default(), EarlyBytes::default()];
    let limits = Limits { idle: Span::from_secs(600), half_closed: Span::from_secs(600) };
    let entry = begin().hand_over();
    let tunnel =
        OpenTunnel { upstream, managed, early_up, early_down, limits, entry, answer: None };
    // nothing here takes so long; it keeps a failing test from hanging
    let relaying = tokio::time::timeout(Duration::from_secs(60), session.relay(tunnel));
    relaying.await.expect("it goes on");
    let (lines, _) = written(session, &path);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let is_cut = |line: &String| line.contains("\"cut_by\":\"relay\",\"result\":\"cut off\"");
    assert!(lines.iter().all(is_cut), "{lines:?}");
    assert_eq!(made.registry.totals.failed.load(Relaxed), 0);
}

#[tokio::test]
async fn an_open_way_does_not_wait_for_the_account_of_a_client_that_reset() {
    let (bytes, period) = (Bytes::new(1_000), Span::from_secs(3_600));
    let mut settings = one_connection();
    let quota = Allowance { bytes, period, on_exceeded: ExceededAction::Cut };
    settings.sharing.list[0].limits.quota = Some(quota);
    let Fixture { session, client, .. } = fixture("192.0.2.1", None, settings).await;
    session.join_account().unwrap();
    // nothing passes until more is granted
    assert!(session.config.shared.quotas.set_until("village", 0, period, true));
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let to = Destination::parse("example.org:443", None).unwrap();
    let mut entry = session.begin(Protocol::Connect, &to, Some("CONNECT".into()), to.to_string());
    let opened = session.answer_opened(b"HTTP/1.1 200 OK\r\n\r\n", (&mut entry, 200));
    // nothing here takes so long; it keeps a failing test from hanging
    let opened = tokio::time::timeout(Duration::from_secs(60), opened).await;
    assert_eq!((opened.ok(), entry.cut_by), (Some(false), Some(CutBy::Client)));
}

#[tokio::test]
async fn stops_waiting_when_the_relay_stops() {
    let Fixture { session, stop, .. } = fixture("127.0.0.1", None, Settings::default()).await;
    assert_eq!(session.unless_stopping(async { 1 }).await, Some(1));
    stop.send_replace(true);
    assert!(session.is_stopping());
    let never = session.unless_stopping(std::future::pending::<()>());
    assert_eq!(never.await, None);
}

#[tokio::test]
async fn a_limit_turns_silence_into_an_error() {
    let late = within(Span::from_millis(1), std::future::pending::<io::Result<()>>()).await;
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(within(Span::from_secs(60), async { Ok(1) }).await.unwrap(), 1);
}

#[tokio::test]
async fn log_ins_that_are_held_back_are_counted() {
    let directory =
        Arc::new(OneAccount { name: "home", at: [192, 0, 2, 1].into() }) as Arc<dyn Directory>;
    let local = fixture("127.0.0.1", Some(directory), Settings::default()).await;
    let held_back = || local.session.config.shared.log_ins_held_back.now();
    // there is no room for it, or it was found wrong before
    for password in ["", "again"] {
        {
            let mut logs_in = std::pin::pin!(local.session.log_in("anna", password));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(logs_in.as_mut().poll(&mut cx).is_pending());
            assert_eq!(held_back(), 1);
        }
        assert_eq!(held_back(), 0);
    }
}
