//! The congestion controls of our own in the running kernel: registered, chosen, grouped; nothing left behind. And
//! their arithmetic beside the model's.
//!
//! It takes root. One thread at a time, since names are the kernel's and for everybody.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod arithmetic;
mod groups;
mod loading;
mod pair;
mod privilege;

use ekiden_linux::bpf::{self, Missing};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

type Test = fn(&Path);

const TESTS: &[(&str, Test)] = &[
    ("judged_as_the_model_judges", arithmetic::judged_as_the_model_judges),
    ("filtered_as_the_model_filters", arithmetic::filtered_as_the_model_filters),
    ("registered_chosen_and_gone", loading::registered_chosen_and_gone),
    ("a_rate_is_divided_among_the_busy", groups::a_rate_is_divided_among_the_busy),
    (
        "a_group_is_given_back_by_the_last_that_has_it",
        groups::a_group_is_given_back_by_the_last_that_has_it,
    ),
    (
        "the_next_of_the_list_where_no_rate_can_be_held",
        loading::the_next_of_the_list_where_no_rate_can_be_held,
    ),
    ("silent_peers_take_no_share_of_the_rate", groups::silent_peers_take_no_share_of_the_rate),
    ("a_socket_alone_holds_its_own_rate", groups::a_socket_alone_holds_its_own_rate),
    ("two_instances_do_not_meet", loading::two_instances_do_not_meet),
    (
        "nothing_is_left_of_a_process_that_was_killed",
        loading::nothing_is_left_of_a_process_that_was_killed,
    ),
    (
        "without_privilege_it_is_chosen_and_not_loaded",
        privilege::without_privilege_it_is_chosen_and_not_loaded,
    ),
    ("pinned_for_a_user_without_privilege", privilege::pinned_for_a_user_without_privilege),
    (
        "permission_denied_is_not_reported_as_missing",
        privilege::permission_denied_is_not_reported_as_missing,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--trial") => return privilege::inside(&arguments[2..]),
        Some(flag) if flag.starts_with("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        assert!(env::var_os("CI").is_none(), "programs in the kernel take root");
        println!("SKIPPED: programs in the kernel take root");
        return ExitCode::SUCCESS;
    }
    if let Err(missing @ (Missing::Types | Missing::Kernel(..))) = bpf::Needs::look().met() {
        assert!(env::var_os("CI").is_none(), "{missing}");
        println!("SKIPPED: {missing}");
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    // where anybody can run it
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("programs-trial");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let only = arguments.iter().skip(1).find(|word| !word.starts_with('-'));
    for (name, test) in TESTS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only)))
    {
        test(&program);
        println!("{name} ... ok");
    }
    ExitCode::SUCCESS
}
