//! `ekiden lab run` with the kernel engine: the smallest experiment, from the command to the report.
//! No timing is asserted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Two that measure would refuse each other.
static ALONE: Mutex<()> = Mutex::new(());

/// The rows and what was said of a plan that was run whole; `None`, loudly, where it cannot be.
fn run(plan: &str, folder: &Path) -> Option<(PathBuf, String, String)> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(plan);
    let output = Command::new(env!("CARGO_BIN_EXE_ekiden"))
        .args(["lab", "run"])
        .arg(plan)
        .args(["--engine", "kernel", "--out"])
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let results = folder.join("smallest/kernel");
    let rows = std::fs::read_to_string(results.join("rows.jsonl")).unwrap_or_default();
    // the links of a machine that is busy with other tests may be too far off, or namespaces forbidden
    let excuses = ["namespace", "is not installed", "off by more than"];
    if let Some(excuse) =
        excuses.iter().find(|excuse| said.contains(*excuse) || rows.contains(*excuse))
    {
        println!("SKIPPED: the kernel engine cannot be tried here ({excuse}): {said}");
        let busy = *excuse == "off by more than"; // no fault of this program's
        assert!(busy || std::env::var_os("CI").is_none(), "with CI set nothing is skipped");
        return None;
    }
    assert!(output.status.success(), "{said}\n{rows}");
    Some((results, rows, said))
}

#[test]
fn one_file_through_one_relay() {
    let folder = tempfile::tempdir().unwrap();
    let Some((results, rows, said)) = run("kernel.toml", folder.path()) else { return };
    assert!(rows.contains("\"bytes\":1048576.0"), "{said}\n{rows}");
    for file in ["summary.json", "report.html"] {
        assert!(results.join(file).metadata().is_ok_and(|file| file.len() > 0), "{file}: {said}");
    }
}

/// A tunnel and a TCP over links of their own at the same time: every kind of load once, for seconds.
#[test]
fn every_load_over_a_long_link() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_, rows, said)) = run("long.toml", folder.path()) else { return };
    let good: Vec<serde_json::Value> = rows
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["row"].take())
        .filter(|row| row["outcome"]["value"].as_f64().is_some())
        .collect();
    for load in ["download", "upload", "echo", "file", "first byte", "page", "stream"] {
        for way in ["cubic", "ekiden"] {
            let of = |row: &&serde_json::Value| {
                let values = &row["cell"]["values"];
                values["load"] == load && values["way"] == way
            };
            assert!(good.iter().any(|row| of(&row)), "{load} by {way}: {said}\n{rows}");
        }
    }
    let figure = |name: &str| good.iter().any(|row| row["outcome"]["figures"][name].is_number());
    for name in ["of_ceiling", "echo_p99_ms", "dropped_percent", "copied_percent", "cpu_s_per_gb"] {
        assert!(figure(name), "{name}: {rows}");
    }
}

/// A browser's page beside a download, and the steps of a connection, over a short link.
#[test]
fn page_and_steps_over_a_long_link() {
    let folder = tempfile::tempdir().unwrap();
    let Some((results, rows, said)) = run("pages.toml", folder.path()) else { return };
    let by_http3 = ekiden_testbed::peers::http3::caddy::find().is_ok();
    if !by_http3 {
        println!(
            "SKIPPED: pages and a download by HTTP/3: Caddy is not here (scripts/peers.sh --caddy)"
        );
    }
    let of_http3 = [
        ("page", "http3", "first_byte_s"),
        ("fetch", "gateway-quic", "repairs_percent"),
        ("blocked", "gateway-block", "tcp_alone_s"),
    ];
    for (load, way, figure) in [
        ("page", "ekiden", "first_paint_s"),
        // with nothing configured at the browser's machine
        ("page", "gateway", "first_paint_s"),
        ("page", "ekiden", "beside_mbit"),
        ("fetch", "bbr", "of_ceiling"),
        ("names", "gateway", "far_names_s"),
        ("steps", "ekiden", "first_byte_trips"),
        ("steps", "bbr", "10_mib_s"),
    ]
    .into_iter()
    .chain(of_http3.into_iter().filter(|_| by_http3))
    {
        let has = |row: &str| {
            let row = serde_json::from_str::<serde_json::Value>(row).unwrap()["row"].take();
            let values = &row["cell"]["values"];
            let is_it = values["load"] == load && values["way"] == way;
            is_it && row["outcome"]["figures"][figure].as_f64().is_some_and(|value| value >= 0.0)
        };
        assert!(rows.lines().any(has), "{load} by {way}, {figure}: {said}\n{rows}");
    }
    let figure = std::fs::read_to_string(results.join("waterfall.svg")).unwrap();
    assert!(figure.contains("ekiden: last response"), "{figure}");
}
