//! The API as its own description has it, tried by schemathesis: examples, edge cases, random documents, and calls
//! that build on each other.

use super::{CONFIG, Managed};
use std::path::Path;
use std::process::Command;

/// How long it tries, at most, in seconds.
const SECONDS: &str = "45";
/// The same in each run, so that a change breaks it and not luck; others find more.
const SEED: &str = "9";

#[test]
fn the_api_does_what_its_description_says() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = here.join("target/schemathesis/bin/st");
    if !program.exists() {
        let missing = "SKIPPED: no schemathesis; scripts/peers.sh installs it";
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        eprintln!("{missing}");
        return;
    }
    let daemon = Managed::start(CONFIG);
    let tried = Command::new(program)
        .arg("--config-file")
        .arg(here.join("crates/ekiden/tests/it/management/schemathesis.toml"))
        // a call may hash 64 passwords, which takes a busy machine and a debug build long
        .args(["run", "--request-timeout", "120", "--url", &format!("http://{}", daemon.port)])
        .args(["--max-time", SECONDS, "--seed", SEED, "--no-color", "--report-dir"])
        .arg(daemon.path().join("report"))
        .arg(here.join("docs/book/src/reference/openapi.json"))
        .env("EKIDEN_TOKEN", daemon.token())
        .current_dir(daemon.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    println!("{said}");
    assert!(tried.status.success(), "{said}{}", String::from_utf8_lossy(&tried.stderr));
    // it is still there, and nobody's password is in what it wrote
    assert_eq!(daemon.get("/readyz").0, 200);
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}
