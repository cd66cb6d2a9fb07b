//! The day of the build, by which a clock that is far behind is noticed. `SOURCE_DATE_EPOCH` makes it reproducible.

use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=Cargo.toml");
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds: u64 = given.unwrap_or_else(now);
    // whole days, so that two builds of a day are alike
    println!("cargo:rustc-env=EKIDEN_BUILT={}", seconds / 86_400 * 86_400);
}
