//! The defaults, and what they promise.

use super::*;
use ekiden_model::units::Share;

#[test]
fn the_default_listens_on_loopback_alone_and_goes_direct() {
    let settings = Settings::default();
    assert!(settings.listen.iter().all(|address| address.ip().is_loopback()));
    assert!(settings.routes.is_empty() && settings.upstreams.is_empty());
    assert_eq!(settings.legs.keys().collect::<Vec<_>>(), ["client", "direct"]);
    assert_eq!(settings.access, Access::default());
    assert!(settings.tunnel.listen.is_empty() && settings.tunnel.state.is_none());
}

#[test]
fn the_default_keeps_optional_features_off() {
    let settings = Settings::default();
    assert_eq!((settings.cache.memory, settings.tls.certificate.clone()), (None, None));
    assert!(!settings.accounts.enabled && !settings.accounts.cleartext);
    assert_eq!((settings.sharing.uplink, settings.sharing.downlink), (None, None));
    assert_eq!(settings.sharing.unclaimed, Unclaimed::Allow);
    assert_eq!(settings.access_log, AccessLog::Off);
    // accounts, once enabled, are required
    assert!(settings.accounts.required);
}

#[test]
fn default_limits_fit_each_other() {
    let settings = Settings::default();
    let Pressure { high, low, .. } = settings.pressure;
    assert!(low < high && high <= Share::ALL);
    assert!(settings.buffers.initial <= settings.buffers.ceiling);
    assert!(settings.pool.per_destination <= settings.pool.connections);
    assert!(settings.pool.idle < settings.timeouts.keep_alive);
    assert!(settings.dns.min_ttl <= settings.dns.max_ttl);
    for leg in settings.legs.values() {
        assert!(leg.half_closed_timeout <= leg.idle_timeout);
        // a relay must not delay small writes
        assert_eq!(leg.socket.no_delay, Some(true));
    }
}

#[test]
fn debug_output_hides_passwords() {
    let credentials = Credentials { user: "ann".into(), password: "secret".into() };
    let upstream = Upstream {
        credentials: Some(credentials),
        ..Upstream::new(UpstreamProtocol::Http, "proxy.example", 3128)
    };
    let text = format!("{upstream:?}");
    assert!(text.contains("ann") && !text.contains("secret"), "{text}");
}
