//! `/metrics`: the status as Prometheus reads it, in OpenMetrics' text form.
//!
//! `families` has every name once; `docs/book/src/reference/metrics.md` is written from it. No
//! token is needed on this machine: a collector would have to keep the API's, which may do far more
//! than read.

mod families;

use super::Shared;
use super::problem::Problem;
use super::server::Peer;
use axum::extract::{Extension, State};
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use ekiden_proxy::observe::status::Status;
use families::{FAMILIES, Family, MetricKind, MetricValue, Values};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// What every name begins with.
const PREFIX: &str = "ekiden";
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer that is not compressed. On this machine, where everybody may ask, that would be work for each request.
#[derive(Debug, Clone, Copy)]
struct Plain;

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(Peer(peer)): Extension<Peer>,
) -> Response {
    let most = shared.settings.metrics_accounts as usize;
    let mut response = match shared.status.text(move |status| text(status, most)).await {
        Ok(text) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response(),
        Err(problem) => problem.into_response(),
    };
    if peer.ip().to_canonical().is_loopback() {
        response.extensions_mut().insert(Plain);
    }
    response
}

/// Whether an answer of the port may be compressed.
#[cfg_attr(not(feature = "api"), allow(dead_code))] // without it nothing is compressed
pub(super) fn may_compress(
    _: StatusCode,
    _: Version,
    _: &HeaderMap,
    extensions: &Extensions,
) -> bool {
    extensions.get::<Plain>().is_none()
}

/// All families of a status, with so many accounts by name at most.
fn text(status: Arc<Status>, accounts: usize) -> Result<String, Problem> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(StatusCollector { status, accounts }));
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|_| Problem::unavailable("metrics", "they cannot be written"))?;
    Ok(text)
}

/// A status that is written out once.
struct StatusCollector {
    status: Arc<Status>,
    accounts: usize,
}

impl fmt::Debug for StatusCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusCollector").finish_non_exhaustive()
    }
}

impl Collector for StatusCollector {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            let mut values = Values::new(self.accounts);
            (family.values)(&self.status, &mut values);
            if !values.list.is_empty() {
                write(family, &values, &mut to)?;
            }
        }
        Ok(())
    }
}

fn write(family: &Family, values: &Values, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let unit = family.unit.map(|unit| match unit {
        "bytes" => Unit::Bytes,
        "seconds" => Unit::Seconds,
        other => Unit::Other(other.to_owned()),
    });
    let kind = match family.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Info => MetricType::Info,
    };
    let mut to = to.encode_descriptor(family.name, family.what, unit.as_ref(), kind)?;
    for (labels, number) in &values.list {
        let labels: Vec<(&str, &str)> =
            family.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
        if family.kind == MetricKind::Info {
            to.encode_info(&labels)?;
            continue;
        }
        if labels.is_empty() {
            number.write(family.kind, &mut to)?;
        } else {
            number.write(family.kind, &mut to.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

impl MetricValue {
    fn write(self, kind: MetricKind, to: &mut MetricEncoder<'_>) -> fmt::Result {
        match (kind, self) {
            (MetricKind::Counter, Self::Whole(n)) => {
                to.encode_counter::<NoLabelSet, _, u64>(&n, None)
            }
            (MetricKind::Counter, Self::Real(x)) => {
                to.encode_counter::<NoLabelSet, _, u64>(&x, None)
            }
            (_, Self::Whole(n)) => to.encode_gauge(&n),
            (_, Self::Real(x)) => to.encode_gauge(&x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::{
        AccountStatus, AccountsStatus, AcmeStatus, AlertReceiverStatus, AlertStatus, AlertsStatus,
        CacheStatus, CertificateStatus, DnsServerStatus, DnsStatus, EvictedStatus, FleetStatus,
        GatewayStatus, HeldStatus, LevelStatus, MemoryStatus, SharingStatus, TracesStatus,
        TunnelStatus, WireguardPeerStatus, WireguardStatus,
    };
    use std::collections::BTreeSet;

    /// A status in which there is something of everything.
    fn full() -> Status {
        let mut status = crate::sample();
        status.cache = Some(CacheStatus::default());
        status.memory = Some(MemoryStatus::default());
        status.gateway = Some(GatewayStatus::default());
        let peers = vec![WireguardPeerStatus::default()];
        status.wireguard = Some(WireguardStatus { peers, ..WireguardStatus::default() });
        let receivers = vec![AlertReceiverStatus { to: "mail".into(), ..Default::default() }];
        let standing = vec![AlertStatus { alert: "line-down".into(), ..Default::default() }];
        status.alerts = Some(AlertsStatus { standing, receivers });
        status.traces = Some(TracesStatus::default());
        let servers = vec![DnsServerStatus::default()];
        status.dns = Some(DnsStatus { servers, ..DnsStatus::default() });
        status.certificates = vec![CertificateStatus::default()];
        let expires_in_seconds = Some(5e6);
        status.acme = Some(AcmeStatus { expires_in_seconds, ..AcmeStatus::default() });
        status.buffers.budget = Some(1 << 20);
        status.idle.oldest_seconds = Some(3.0);
        let evicted = EvictedStatus { resource: "memory".into(), count: 2 };
        status.pressure.evicted.push(evicted);
        let level = LevelStatus { resource: "memory".into(), used: 1, limit: Some(2), low: true };
        status.pressure.levels.push(level);
        let tunnel = TunnelStatus { peer: "ship".into(), line: Some(1), ..TunnelStatus::default() };
        status.tunnels.push(tunnel);
        status.acme = Some(AcmeStatus { expires_in_seconds: Some(1.0), ..AcmeStatus::default() });
        for leg in &mut status.legs {
            leg.held = Some(HeldStatus::default());
            leg.path.usual_mtu = Some(1500);
            leg.opening.recent_loss = Some(0.1);
        }
        let account = |name: &str| AccountStatus {
            name: name.into(),
            limit_up: Some(1_000),
            limit_down: Some(8_000),
            quota: Some(10),
            quota_left: Some(4),
            period_ends_in_seconds: Some(60.0),
            connections_limit: Some(5),
            ..AccountStatus::default()
        };
        let accounts = vec![account("a \"b\"\\"), account("c")];
        let uplink = Some(1);
        status.sharing =
            Some(SharingStatus { uplink, downlink: uplink, accounts, ..SharingStatus::default() });
        let relays = vec![FleetStatus { name: "one".into(), ..FleetStatus::default() }];
        let heard_seconds_ago = Some(0.5);
        status.accounts =
            Some(AccountsStatus { relays, heard_seconds_ago, ..AccountsStatus::default() });
        status
    }

    /// `docs/book/src/reference/metrics.md`.
    fn page() -> String {
        let mut page = String::from(
            "# Metrics\n\n\
             Written from `crates/admin/src/metrics/families.rs` by `UPDATE=1 cargo test -p ekiden-admin`.\n\n\
             `http://127.0.0.1:9128/metrics` answers in the text form of OpenMetrics, which Prometheus reads:\n\n\
             ```yaml\nscrape_configs:\n  - job_name: ekiden\n    static_configs: [{targets: [\"127.0.0.1:9128\"]}]\n```\n\n\
             Names end with their unit: `_bytes`, `_seconds`, `_bits_per_second`, `_ratio` (0 to 1), and counters with `_total`. Counters\n\
             count since the start. What does not apply is absent. `up` is from clients, `down` towards them. From this machine no token\n\
             is needed; from elsewhere (`[management] cleartext`) the API's. At most `metrics_accounts` accounts are named, the first by\n\
             name; two relays of a fleet with one name are one series.\n\n\
             | name | kind | labels | meaning |\n|---|---|---|---|\n",
        );
        for Family { name, unit, kind, labels, what, .. } in FAMILIES {
            let unit = unit.map_or_else(String::new, |unit| format!("_{unit}"));
            let (end, kind) = match kind {
                MetricKind::Counter => ("_total", "counter"),
                MetricKind::Gauge => ("", "gauge"),
                MetricKind::Info => ("_info", "info"),
            };
            page += &format!(
                "| `ekiden_{name}{unit}{end}` | {kind} | {} | {what} |\n",
                labels.join(", ")
            );
        }
        page
    }

    /// The names as they stand in an answer, without what a kind of metric adds.
    fn names(text: &str) -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    #[test]
    fn each_account_that_is_named_is_one_of_the_first_and_is_quoted() {
        let text = text(Arc::new(full()), 1).unwrap();
        assert!(text.contains(r#"account="a \"b\"\\""#), "{text}");
        assert!(!text.contains("account=\"c\""), "{text}");
        assert!(text.contains("ekiden_sharing_accounts_unnamed 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
        // units and totals where they belong
        for line in [
            "ekiden_payload_bytes_total{direction=\"up\"}",
            "ekiden_uptime_seconds ",
            "ekiden_account_quota_left_bytes{",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    /// The page is a checked-in copy: `UPDATE=1` renews it.
    #[test]
    fn the_page_has_the_names_that_are_answered() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/reference/metrics.md");
        let page = page();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap();
        assert_eq!(kept, page, "UPDATE=1 cargo test -p ekiden-admin");
        let answered = names(&text(Arc::new(full()), 10).unwrap());
        let cells = kept.lines().filter_map(|line| line.strip_prefix("| `"));
        let in_page: BTreeSet<String> = cells
            .filter_map(|line| line.split('`').next())
            .map(|name| {
                name.strip_suffix("_total")
                    .or(name.strip_suffix("_info"))
                    .unwrap_or(name)
                    .to_owned()
            })
            .collect();
        assert_eq!(answered, in_page);
        assert_eq!(in_page.len(), FAMILIES.len());
    }

    #[test]
    fn alerts_and_the_grafana_dashboard_name_metrics_that_are_answered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring");
        let page = page();
        let mut used = BTreeSet::new();
        for file in ["alerts.yml", "grafana.json"] {
            let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
            for (at, _) in text.match_indices("ekiden_") {
                let name =
                    text[at..].split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
                let name = name.unwrap();
                assert!(page.contains(&format!("| `{name}` |")), "{file}: {name}");
                used.insert(name.to_owned());
            }
            if file.ends_with(".json") {
                let board: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert!(board["panels"].as_array().unwrap().len() > 10);
            }
        }
        assert!(used.len() > 20, "{used:?}");
    }
}
