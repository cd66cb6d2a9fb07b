//! The studies: each experiment is a folder with its plan, its runs on both engines and its figures. [`kernel`]
//! is the engine on this machine's kernel, [`comparison`] what benchmarks beside other relays share, `download` has
//! downloads over legs, `long_link` a long link with a tunnel.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

/// The plan in a study's folder.
macro_rules! plan_file {
    ($folder:literal) => {
        ekiden_lab::study::PlanFile {
            path: concat!("crates/studies/src/", $folder, "/plan.toml"),
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $folder, "/plan.toml")),
        }
    };
}

mod asymmetric;
pub mod comparison;
mod download;
mod island;
pub mod kernel;
mod long_link;
mod pages;
mod proxy_pressure;
mod satellite;
mod thin_client;

use ekiden_lab::study::Study;

/// Every study that comes with the program.
pub const STUDIES: &[&dyn Study] = &[
    &island::AGREEMENT,
    &asymmetric::Asymmetric,
    &island::DEMO,
    &island::ISLAND,
    &pages::Pages,
    &proxy_pressure::ProxyPressure,
    &satellite::Satellite,
    &thin_client::ThinClient,
];

/// Makes them known to plans.
pub fn register() {
    ekiden_lab::study::register(STUDIES);
}

#[cfg(test)]
mod tests;
