//! Container images, and the bill of materials.

use super::{root, run, script};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The blob that a descriptor names, with its size and hash compared.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let content = fs::read(layout.join("blobs/sha256").join(digest)).unwrap();
    assert_eq!(descriptor["size"], content.len());
    assert_eq!(hash(&content), digest);
    content
}

fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_image_is_whole_and_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [first, second] = ["first.tar", "second.tar"].map(|name| {
        run(&mut script("image.py", ["/bin/true", "arm64", "1.2.3", &at(name)]));
        fs::read(at(name)).unwrap()
    });
    assert!(first == second, "two runs differ");
    run(Command::new("tar").args(["-xf", "first.tar"]).current_dir(&folder));
    let layout = folder.path();
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&layout.join("index.json"));
    assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
    let manifest: Value = serde_json::from_slice(&blob(layout, &index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(layout, &manifest["config"])).unwrap();
    assert_eq!(config["architecture"], "arm64");
    let run_with = &config["config"];
    assert_eq!(run_with["Entrypoint"][0], "/usr/bin/ekiden");
    assert_eq!(run_with["User"], "65532:65532");
    assert!(run_with["Volumes"]["/var/lib/ekiden"].is_object());
    assert_eq!(run_with["Labels"]["org.opencontainers.image.version"], "1.2.3");
    for port in ["3128/tcp", "4433/tcp", "4433/udp"] {
        assert!(run_with["ExposedPorts"][port].is_object(), "{port}");
    }
    blob(layout, &manifest["layers"][0]);
    // what Docker reads names the same blobs
    let docker = json(&layout.join("manifest.json"));
    let layer = docker[0]["Layers"][0].as_str().unwrap();
    let plain = Command::new("gzip").args(["-dc", layer]).current_dir(layout).output().unwrap();
    let id = format!("sha256:{}", hash(&plain.stdout));
    assert_eq!(config["rootfs"]["diff_ids"][0], id.as_str());
    let list = run(Command::new("tar").args(["-tvzf", layer]).current_dir(layout));
    let line = |path: &str| {
        let found = list.lines().find(|line| line.ends_with(path));
        found.unwrap_or_else(|| panic!("{path}: {list}")).to_owned()
    };
    assert!(line(" usr/bin/ekiden").starts_with("-rwxr-xr-x 0/0 "), "{list}");
    for path in [" var/lib/ekiden/", " run/ekiden/", " var/log/ekiden/"] {
        assert!(line(path).starts_with("drwx------ 65532/65532 "), "{list}");
    }
}

#[test]
fn a_bill_of_materials_names_what_is_linked() {
    let bill = |kind: &str| -> Value {
        let args = ["sbom", "aarch64-unknown-linux-musl", kind];
        let text = run(script("bill.py", args).current_dir(root()));
        serde_json::from_str(&text).unwrap()
    };
    let has = |bill: &Value, name: &str| {
        bill["components"].as_array().unwrap().iter().any(|part| part["name"] == name)
    };
    let (full, lean) = (bill("full"), bill("lean"));
    assert_eq!((&full["bomFormat"], &full["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(full["metadata"]["component"]["name"], "ekiden");
    for name in ["tokio", "libbpf", "libelf (elfutils)", "zlib", "SQLite", "ekiden-lab"] {
        assert!(has(&full, name), "{name}");
    }
    for name in ["libbpf", "ekiden-lab", "ratatui", "sqlx-postgres", "utoipa"] {
        assert!(!has(&lean, name), "{name}");
    }
    assert!(has(&lean, "tokio") && has(&lean, "SQLite"));
    // neither what builds nor what tests
    for name in ["cc", "trycmd", "serde_derive"] {
        assert!(!has(&full, name), "{name}");
    }
    let licences = full["components"].as_array().unwrap();
    assert!(licences.iter().all(|part| part["licenses"][0]["expression"].is_string()));
}
