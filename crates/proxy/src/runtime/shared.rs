//! State that all connections share and that reloads keep.

use crate::cache::Cache;
use crate::error::{Failure, FailureKind};
use crate::observe::gateway_counts::GatewayCounts;
use crate::observe::log_throttle::RefusalLines;
use crate::observe::traces::TraceQueue;
use crate::observe::udp_counts::UdpCounts;
use crate::observe::waiting::WaitCount;
use crate::outbound::dns::state::DnsState;
use crate::outbound::name_places::NamePlaces;
use crate::outbound::resolve::system_names::SystemNames;
use crate::outbound::tunnel::Tunnels;
use crate::policy::quota::{Quotas, SpentReaders};
use crate::policy::speed_tests::SpeedTests;
use crate::resources::Resources;
use crate::runtime::acme::AcmeState;
use crate::runtime::alerts::AlertState;
use crate::settings::Settings;
use crate::transfer::budget::{TransferBudget, TransferShare};
use ekiden_model::connect::syn_race::Guard;
use ekiden_model::resources::overload::Source;
use ipnet::IpNet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

/// Destinations that may be sent an extra SYN in the same second.
const GUARDED: usize = 4096;

/// Shared by every connection.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) transfer: Arc<TransferBudget>,
    /// Limits the extra SYNs of all legs.
    pub(crate) syn_guard: Mutex<Guard>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) cache: Option<Arc<Cache>>,
    /// Tunnels to peers, once the settings ask for some.
    pub(crate) tunnels: OnceLock<Tunnels>,
    pub(crate) udp: Arc<UdpCounts>,
    pub(crate) gateway: Arc<GatewayCounts>,
    /// Networks whose addresses WireGuard devices alone have: the gateway's rules that see to it are held.
    pub(crate) guarded: Mutex<Vec<IpNet>>,
    /// Names for clients.
    pub(crate) dns: Arc<DnsState>,
    /// Places of lookups of destinations' names.
    pub(crate) name_places: Arc<NamePlaces>,
    pub(crate) system_names: Arc<SystemNames>,
    /// Orders of certificates.
    pub(crate) acme: Arc<AcmeState>,
    pub(crate) alerts: Arc<AlertState>,
    pub(crate) spent_readers: SpentReaders,
    /// Speed tests of the page for users.
    pub(crate) speed_tests: SpeedTests,
    /// Which connections are traced.
    pub(crate) traces: Arc<TraceQueue>,
    /// Log-ins that are answered late.
    pub(crate) log_ins_held_back: WaitCount,
    /// When refusals were in the log.
    pub(crate) refusals: RefusalLines,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        resources: Arc<Resources>,
        cache: Option<Arc<Cache>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            transfer: TransferBudget::new(&settings.budgets, settings.relay.copy_mode),
            syn_guard: Mutex::new(Guard::new(GUARDED)),
            resources,
            quotas: Quotas::new(&settings.sharing),
            cache,
            tunnels: OnceLock::new(),
            udp: Arc::default(),
            gateway: Arc::default(),
            guarded: Mutex::default(),
            dns: Arc::new(DnsState::new(&settings.dns)),
            name_places: Arc::new(NamePlaces::new(&settings.budgets)),
            system_names: {
                let [conf, hosts] = ["/etc/resolv.conf", "/etc/hosts"].map(Path::new);
                Arc::new(SystemNames::new(conf, hosts, settings.dns.hosts_file))
            },
            acme: Arc::default(),
            alerts: Arc::default(),
            spent_readers: SpentReaders::default(),
            speed_tests: SpeedTests::default(),
            traces: Arc::default(),
            log_ins_held_back: WaitCount::new(),
            refusals: RefusalLines::default(),
        })
    }

    /// Memory for bytes in transit, of which a source has a share.
    pub(crate) fn transfer_of(&self, source: Source) -> TransferShare {
        TransferShare::new(&self.transfer, self.resources.in_transit(source), source.of_free())
    }

    pub(crate) fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.get()
    }

    pub(crate) fn tunnel_is_up(&self, peer: &str) -> bool {
        self.tunnels().is_some_and(|tunnels| tunnels.is_up(peer))
    }

    pub(crate) fn tunnels_to(&self, peer: &str) -> Result<&Tunnels, Failure> {
        let text = || format!("the tunnel to peer \"{peer}\" has not begun");
        self.tunnels().ok_or_else(|| Failure::new(FailureKind::NoTunnel, text()))
    }
}
