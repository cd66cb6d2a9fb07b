//! The doctor's look by the daemon itself, for the operator's page: without a relay to measure, and without changes.

use super::{DoctorOptions, Finding, look};
use ekiden_admin::Doctor;
use ekiden_linux::host::facts::Facts;
use ekiden_proxy::Handle;
use ekiden_proxy::observe::status::Status;
use ekiden_proxy::settings::Settings;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a daemon with these settings finds, the most important first.
fn findings(status: &Status, settings: &Settings) -> Vec<Finding> {
    let tls = if settings.acme.is_on() { Default::default() } else { settings.tls.clone() };
    let options = DoctorOptions {
        running: Some(status.clone()),
        tls,
        gateway: super::super::kernel::gateway::plan_to_judge(settings),
        dns: settings.dns.listen.clone(),
        ..DoctorOptions::default()
    };
    look(&options, &Facts::gather())
}

/// The same as the operator's page reads it.
fn document(status: &Status, settings: &Settings) -> Value {
    json!({ "findings": findings(status, settings) })
}

/// The doctor of a daemon that runs.
pub(crate) fn of(handle: &Handle) -> Doctor {
    let handle = handle.clone();
    Doctor(Arc::new(move |status| document(status, &handle.settings())))
}
