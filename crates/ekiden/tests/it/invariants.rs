//! The invariants of `ARCHITECTURE.md`, by their names there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Each crate of the workspace, and what it depends on outside its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let used = all.filter(|dependency| dependency["kind"] != "dev");
        used.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
    };
    packages.iter().map(|p| (p["name"].as_str().unwrap().to_owned(), names(p))).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn dependencies_point_one_way() {
    // crate → the crates of ours it may use; one that is not here yet has to be added with its place
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("ekiden-model", &[][..]),
        ("ekiden-record", &["ekiden-model"]),
        ("ekiden-linux", &["ekiden-model"]),
        ("ekiden-simulator", &["ekiden-model", "ekiden-record"]),
        ("ekiden-tunnel", &["ekiden-model", "ekiden-linux"]),
        // storage and hashing need nothing of the proxy, and the proxy nothing of a database
        ("ekiden-accounts", &["ekiden-model", "ekiden-linux"]),
        // moves packets: who may go where is the proxy's
        ("ekiden-wireguard", &["ekiden-model", "ekiden-linux"]),
        ("ekiden-proxy", &["ekiden-model", "ekiden-linux", "ekiden-tunnel", "ekiden-wireguard"]),
        // orders certificates: of the proxy it needs the way out and the listener's answers
        ("ekiden-acme", &["ekiden-model", "ekiden-linux", "ekiden-proxy"]),
        // tells people: of the proxy it needs the status and the way out
        ("ekiden-alerts", &["ekiden-model", "ekiden-linux", "ekiden-config", "ekiden-proxy"]),
        // sends traces: of the alerts it needs how a document is posted
        (
            "ekiden-traces",
            &["ekiden-model", "ekiden-linux", "ekiden-config", "ekiden-proxy", "ekiden-alerts"],
        ),
        (
            "ekiden-admin",
            &[
                "ekiden-model",
                "ekiden-linux",
                "ekiden-accounts",
                "ekiden-config",
                "ekiden-proxy",
                "ekiden-tunnel",
                "ekiden-wireguard",
            ],
        ),
        ("ekiden-config", &["ekiden-model", "ekiden-linux", "ekiden-proxy"]),
        ("ekiden-emulator", &["ekiden-model", "ekiden-linux", "ekiden-record"]),
        ("ekiden-testbed", &["ekiden-model", "ekiden-linux"]),
        // for integration tests: knows the command's name and nothing else of it
        ("ekiden-testkit", &[]),
        // a program of its own, which no other uses: it drives the daemon as the integration tests do
        (
            "ekiden-soak",
            &[
                "ekiden-model",
                "ekiden-linux",
                // reads the journal that a killed relay left
                "ekiden-accounts",
                "ekiden-emulator",
                "ekiden-testbed",
                "ekiden-testkit",
            ],
        ),
        // the framework knows no study and starts no program
        ("ekiden-lab", &["ekiden-model", "ekiden-record", "ekiden-simulator"]),
        (
            "ekiden-studies",
            &[
                "ekiden-model",
                "ekiden-linux",
                "ekiden-record",
                "ekiden-simulator",
                "ekiden-emulator",
                "ekiden-tunnel",
                "ekiden-testbed",
                "ekiden-lab",
            ],
        ),
        (
            "ekiden",
            &[
                "ekiden-model",
                "ekiden-linux",
                "ekiden-record",
                "ekiden-simulator",
                "ekiden-proxy",
                "ekiden-tunnel",
                "ekiden-accounts",
                "ekiden-acme",
                "ekiden-admin",
                "ekiden-alerts",
                "ekiden-traces",
                "ekiden-config",
                "ekiden-emulator",
                "ekiden-lab",
                "ekiden-studies",
            ],
        ),
    ]);
    for (name, uses) in dependencies() {
        let ours: Vec<_> = uses.iter().filter(|used| used.starts_with("ekiden")).collect();
        let Some(may) = allowed.get(name.as_str()) else {
            panic!(
                "{name} is not in this test: say here and in docs/book/src/design/architecture.md what it may use"
            );
        };
        for used in ours {
            assert!(may.contains(&used.as_str()), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn model_builds_without_std() {
    let manifest = dependencies();
    let outside: Vec<_> = manifest["ekiden-model"].iter().map(String::as_str).collect();
    let permitted = ["libm", "hashbrown", "serde", "siphasher"];
    assert!(outside.iter().all(|name| permitted.contains(name)), "{outside:?}");
    let lib = fs::read_to_string(root().join("crates/model/src/lib.rs")).unwrap();
    assert!(lib.contains("\n#![no_std]\n") && lib.contains("\n#![forbid(unsafe_code)]\n"));
    // std comes in for the tests alone
    let std = lib.find("extern crate std;").unwrap();
    assert!(lib[..std].ends_with("#[cfg(test)]\n"));
}

#[test]
fn unsafe_stands_in_linux_alone() {
    let root = root();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""));
    for package in fs::read_dir(root.join("crates")).unwrap() {
        let package = package.unwrap().path();
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.display());
        if package.ends_with("linux") {
            continue;
        }
        let lint = concat!("unsafe", "_code");
        for source in sources(&package) {
            let text = fs::read_to_string(&source).unwrap();
            // in an attribute, however it is laid out
            let lifts = |line: &str| {
                let line = line.trim();
                let within = line.starts_with('#') && line.contains(lint);
                (within || line.starts_with(lint)) && line != concat!("#![forbid(", "unsafe_code)]")
            };
            assert!(!text.lines().any(lifts), "{} lifts the ban", source.display());
        }
    }
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    // clippy's undocumented_unsafe_blocks does it; this holds that the lint stays on
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("undocumented_unsafe_blocks = \"warn\""));
}

#[test]
fn no_stubs() {
    let folders = ["crates"].map(|folder| root().join(folder));
    let marks = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("dbg", "!(")];
    for source in folders.iter().flat_map(|folder| sources(folder)) {
        let text = fs::read_to_string(&source).unwrap();
        for mark in marks {
            assert!(!text.contains(mark), "{} contains {mark}", source.display());
        }
    }
}
