//! Commands of root beside a daemon of another user, as on a machine with a service.

use crate::daemons::{NOBODY, as_nobody, free_port, home, tunnel_is_up};
use ekiden_testkit::wait_for;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

const NEAR: &str = "[upstream.far]\nurl = \"tunnel://far\"\n[[route]]\nthrough = [\"far\"]\n\
     [tunnel]\nstate = \"DIR/state\"\n";

/// The state of a service: `StateDirectory=` makes the folder for the daemon's user.
fn give_state_to_nobody(home: &Path) {
    let state = home.join("state");
    fs::create_dir(&state).unwrap();
    chown(state, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn all_belong_to_nobody(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!(metadata.uid(), NOBODY, "{}", path.display());
        if metadata.is_dir() {
            all_belong_to_nobody(&path);
        }
    }
}

#[test]
fn a_daemon_of_root_leaves_files_that_the_service_can_use() {
    let home = home(
        "[management]\nlisten = \"off\"\n[log]\naccess = \"DIR/logs/access.log\"\n\
         [cache]\nmemory = \"32 MiB\"\ndisk = \"64 MiB\"\ndirectory = \"DIR/cache\"\n",
    );
    let Some(serve) = as_nobody(&home, &["serve", "--listen", "127.0.0.1:0"]) else { return };
    give_state_to_nobody(home.path());
    let folders = ["logs", "cache"].map(|name| home.path().join(name));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // by hand, once
    let root = home.serve();
    wait_for("the disk", || root.status()["cache"]["open"] == true);
    root.stop();
    folders.iter().for_each(|folder| all_belong_to_nobody(folder));
    assert!(folders[0].join("access.log").exists() && folders[1].join("lock").exists());
    let service = home.serve_by(serve);
    wait_for("the disk", || service.status()["cache"]["disk_limit"].is_u64());
}

#[test]
fn a_daemon_of_another_user_reads_what_root_changes() {
    let address = format!("127.0.0.1:{}", free_port());
    let far = home(&format!(
        "[accounts]\nenabled = true\n\
         [tunnel]\nlisten = [\"{address}\"]\nstate = \"DIR/state/tunnel\"\n"
    ));
    let Some(serve) = as_nobody(&far, &["serve", "--listen", "127.0.0.1:0"]) else { return };
    give_state_to_nobody(far.path());
    // root comes first, and again once the daemon runs
    far.printed(&["account", "add", "sato", "--address", "10.0.0.0/24"]);
    let invite = |name| {
        let args = ["peer", "invite", "--name", name, "--address", &address];
        far.printed(&[&args[..], &["--send", "50 Mbit/s", "--receive", "50 Mbit/s"]].concat())
    };
    invite("other");
    let far_daemon = far.serve_by(serve);
    let token = invite("near");
    far.printed(&["account", "add", "anna", "--address", "10.0.1.0/24"]);
    all_belong_to_nobody(&far.path().join("state"));

    let near = home(NEAR);
    let Some(serve) = as_nobody(&near, &["serve", "--listen", "127.0.0.1:0"]) else { return };
    give_state_to_nobody(near.path());
    near.printed(&["peer", "join", token.trim(), "--name", "far"]);
    let near_daemon = near.serve_by(serve);
    wait_for("the tunnel", || tunnel_is_up(&near_daemon));
    all_belong_to_nobody(&near.path().join("state"));
    let accounts = far.printed(&["account", "list"]);
    assert!(accounts.contains("sato") && accounts.contains("anna"), "{accounts}");
    let log = far_daemon.log();
    assert!(!log.contains("ermission denied"), "{log}");
}
