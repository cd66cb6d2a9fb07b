//! Alerts of the daemon: whom the configuration names, and where they are kept.

use super::accounts::shared_use;
use super::state;
use ekiden_accounts::AccountSync;
use ekiden_admin::{TrialAlerts, TrialOutcome};
use ekiden_alerts::{AlertSettings, Alerting, AskShared, Trial, Trials};
use ekiden_config::Reading;
use ekiden_proxy::Handle;
use ekiden_proxy::settings::Settings;
use std::sync::Arc;

/// The alerts' settings. `settings` have the name that this relay goes by. Errors: in words, where this program cannot
/// tell all whom they name.
pub(crate) fn settings(reading: &Reading, settings: &Settings) -> Result<AlertSettings, String> {
    AlertSettings::are_possible(&reading.alerts)?;
    let (alerts, secrets) = (reading.alerts.clone(), reading.alert_secrets.clone());
    Ok(AlertSettings { alerts, secrets, relay: settings.name.clone() })
}

/// Begins to look, also at quotas that relays share by a database. Says in the log who is told.
pub(crate) fn start(
    alerts: AlertSettings,
    handle: &Handle,
    sync: Option<Arc<AccountSync>>,
    reading: &Reading,
) -> Alerting {
    let webhook = reading.draft.alerts.webhook.iter().map(|url| format!("the webhook {url}"));
    let mail = alerts.alerts.mail_to.iter().map(|to| format!("mail to {to}"));
    let told: Vec<String> = webhook.chain(mail).collect();
    if !told.is_empty() {
        tracing::info!("alerts are sent by {}", told.join(", "));
    }
    let folder = reading.draft.accounts.state.clone().or_else(state::directory);
    let sync = sync.filter(|_| reading.settings.accounts.database.is_some());
    let shared = sync.map(|sync| -> AskShared {
        Arc::new(move || {
            let sync = Arc::clone(&sync);
            Box::pin(async move { shared_use(&sync).await })
        })
    });
    Alerting::start(alerts, handle.clone(), folder, shared)
}

/// Trial alerts for the operator's page.
pub(crate) fn of_page(trials: Trials) -> TrialAlerts {
    TrialAlerts(Arc::new(move || {
        let trials = trials.clone();
        let outcome = |Trial { to, answer, error }| TrialOutcome { to, answer, error };
        Box::pin(async move { trials.send().await.into_iter().map(outcome).collect() })
    }))
}
