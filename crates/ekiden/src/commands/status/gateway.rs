//! Connections that are diverted to the relay.

use crate::print::clean;
use ekiden_proxy::observe::status::GatewayStatus;

/// A line or two.
pub(crate) fn render(gateway: &GatewayStatus) -> String {
    let device = |device: &ekiden_proxy::observe::status::GatewayDevice| {
        let absent = if device.present { "" } else { " (not there)" };
        format!("{}{absent}", clean(&device.name))
    };
    let mut of: Vec<String> = gateway.devices.iter().map(device).collect();
    if gateway.own_traffic {
        of.push("this machine".to_owned());
    }
    let state = match (&gateway.error, gateway.in_effect) {
        (Some(why), _) => {
            let again = gateway.retry_in_seconds.map(|left| format!("; tried again in {left} s"));
            format!("not in effect: {}{}", clean(why), again.unwrap_or_default())
        }
        (None, true) => format!("diverts TCP of {}", of.join(", ")),
        (None, false) => "takes no new connections".to_owned(),
    };
    let quic = match gateway.listen_quic.is_empty() {
        true => String::new(),
        false => format!(
            "  QUIC: {} flows through tunnels, {} direct, {} blocked; {} named\n",
            gateway.quic_tunneled, gateway.quic_direct, gateway.quic_blocked, gateway.quic_named,
        ),
    };
    format!(
        "gateway: {state}\n  {} diverted, {} own, {} live; names: {} in TLS, {} in HTTP, {} without; {} stray\n{quic}",
        gateway.diverted,
        gateway.own,
        gateway.live,
        gateway.named_tls,
        gateway.named_http,
        gateway.unnamed,
        gateway.stray,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::GatewayDevice;

    #[test]
    fn says_what_is_diverted_or_why_nothing_is() {
        let device = |name: &str, present| GatewayDevice { name: name.to_owned(), present };
        let fine = GatewayStatus {
            in_effect: true,
            devices: vec![device("eth1", true), device("wlan0", false)],
            own_traffic: true,
            diverted: 12,
            own: 3,
            live: 2,
            named_tls: 10,
            named_http: 2,
            unnamed: 3,
            stray: 1,
            listen_quic: vec![([127, 0, 0, 1], 40_003).into()],
            quic_tunneled: 7,
            quic_direct: 1,
            quic_named: 8,
            quic_blocked: 2,
            ..GatewayStatus::default()
        };
        let broken = GatewayStatus {
            in_effect: false,
            error: Some("it needs nft".to_owned()),
            ..GatewayStatus::default()
        };
        let leaving = GatewayStatus { live: 1, ..GatewayStatus::default() };
        let text = [fine, broken, leaving].map(|status| render(&status));
        insta::assert_snapshot!(text.concat());
    }
}
