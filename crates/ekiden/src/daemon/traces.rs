//! Traces of the daemon: where the configuration sends them.

use ekiden_config::Reading;
use ekiden_proxy::settings::Settings;
use ekiden_traces::TraceSettings;

/// The traces' settings. `settings` have the name that this relay goes by.
pub(crate) fn settings(reading: &Reading, settings: &Settings) -> TraceSettings {
    let (traces, authorization) = (reading.traces.clone(), reading.collector_secret.clone());
    TraceSettings { traces, authorization, relay: settings.name.clone() }
}

/// Says in the log where traces are sent.
pub(crate) fn announce(settings: &TraceSettings) {
    if let Some(collector) = settings.collector() {
        tracing::info!(
            "{} of requests and tunnels are traced, to {collector}",
            settings.traces.sample
        );
    }
}
