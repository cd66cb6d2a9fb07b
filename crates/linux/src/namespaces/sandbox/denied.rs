//! Why there is no sandbox, and the remedy.

use crate::host::sysctl;
use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Proc,
    Pipe,
    Clone { user: bool },
    Map,
    Capabilities,
    Mounts,
    Loopback,
    Fork,
}

/// The steps that the new process reports by number.
const REPORTED: [Step; 5] =
    [Step::Map, Step::Capabilities, Step::Mounts, Step::Loopback, Step::Fork];

impl Step {
    pub(super) fn number(self) -> u8 {
        REPORTED.iter().zip(0..).find_map(|(step, n)| (*step == self).then_some(n)).unwrap_or(4)
    }

    pub(super) fn from_number(number: u8) -> Self {
        REPORTED.get(usize::from(number)).copied().unwrap_or(Self::Fork)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Proc => "finding the present network namespace in /proc",
            Self::Pipe => "making a pipe",
            Self::Clone { user: true } => "making a user namespace",
            Self::Clone { user: false } => "making a network namespace",
            Self::Map => "keeping the user's name in the new user namespace",
            Self::Capabilities => "keeping the capabilities of the new user namespace",
            Self::Mounts => "separating the mounts",
            Self::Loopback => "bringing up the loopback device",
            Self::Fork => "starting a process",
        }
    }
}

/// No sandbox: the cause and what to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no namespaces of our own: {what}; {remedy}")]
pub struct Denied {
    what: String,
    remedy: String,
    refusal: bool,
}

impl Denied {
    pub(super) fn threads() -> Self {
        Self {
            what: "this program already has more than one thread, and namespaces cannot be \
                   entered by all at once"
                .into(),
            remedy: "a fault of this program: it must enter its sandbox first of all".into(),
            refusal: false,
        }
    }

    pub(super) fn at(step: Step, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        let remedy = remedy(step, errno, &Machine::now());
        let refusal = matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS);
        Self { what: format!("{}: {error}", step.words()), remedy, refusal }
    }

    /// Whether it was refused, rather than short of means.
    pub(super) fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// What to try.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Machine {
    /// `kernel.unprivileged_userns_clone`: Debian's.
    userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`: Ubuntu's.
    apparmor: Option<u64>,
    /// `user.max_user_namespaces`.
    max_user: Option<u64>,
    /// `user.max_net_namespaces`.
    max_net: Option<u64>,
    /// Whether system calls are filtered, as container engines do.
    filtered: bool,
}

impl Machine {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            userns_clone: sysctl::number("kernel.unprivileged_userns_clone"),
            apparmor: sysctl::number("kernel.apparmor_restrict_unprivileged_userns"),
            max_user: sysctl::number("user.max_user_namespaces"),
            max_net: sysctl::number("user.max_net_namespaces"),
            filtered: seccomp.is_some_and(|mode| mode.trim() == "2"),
        }
    }
}

fn remedy(step: Step, errno: i32, machine: &Machine) -> String {
    let setting = |name: &str, value: u64, why: &str| {
        format!("{why}: try sudo sysctl -w {name}={value}, or run this as root")
    };
    let refused = matches!(errno, libc::EPERM | libc::EACCES);
    let user = step == Step::Clone { user: true };
    if refused && user && machine.userns_clone == Some(0) {
        let why = "this machine lets root alone make user namespaces";
        return setting("kernel.unprivileged_userns_clone", 1, why);
    }
    if user && machine.max_user == Some(0) {
        let why = "this machine permits no user namespaces";
        return setting("user.max_user_namespaces", 10_000, why);
    }
    if matches!(step, Step::Clone { .. }) && machine.max_net == Some(0) {
        let why = "this machine permits no network namespaces";
        return setting("user.max_net_namespaces", 10_000, why);
    }
    if refused && machine.apparmor == Some(1) {
        let why = "AppArmor takes the capabilities of user namespaces away from ordinary programs";
        return setting("kernel.apparmor_restrict_unprivileged_userns", 0, why);
    }
    match errno {
        libc::EPERM | libc::EACCES | libc::ENOSYS if machine.filtered => {
            "system calls are filtered here, as in a container: start it with --cap-add SYS_ADMIN \
             --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt \
             apparmor=unconfined"
                .into()
        }
        libc::EPERM | libc::EACCES => {
            "this machine does not permit it to this user, nor a container or chroot may: try it \
             as root, or outside"
                .into()
        }
        libc::ENOSPC | libc::EUSERS => {
            "there are as many namespaces as are permitted, or they are nested too deeply: see \
             sysctl user.max_user_namespaces user.max_net_namespaces user.max_pid_namespaces"
                .into()
        }
        libc::EINVAL | libc::ENOSYS => {
            "this kernel was built without these namespaces; run this as root, or on another kernel"
                .into()
        }
        libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE => {
            "processes, descriptors or memory have run out: see ulimit -a".into()
        }
        _ if step == Step::Proc => "mount /proc: sudo mount -t proc proc /proc".into(),
        _ => "try it as root".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_remedy() {
        let user = Step::Clone { user: true };
        let no = Machine::default();
        let debian = Machine { userns_clone: Some(0), ..no };
        let ubuntu = Machine { apparmor: Some(1), ..no };
        let none = Machine { max_user: Some(0), ..no };
        let container = Machine { filtered: true, ..no };
        for (step, errno, machine, expected) in [
            (user, libc::EPERM, debian, "kernel.unprivileged_userns_clone=1"),
            (Step::Map, libc::EACCES, ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (Step::Mounts, libc::EPERM, ubuntu, "apparmor_restrict_unprivileged_userns=0"),
            (user, libc::ENOSPC, none, "user.max_user_namespaces=10000"),
            (user, libc::EPERM, container, "seccomp=unconfined"),
            (user, libc::ENOSPC, no, "nested too deeply"),
            (user, libc::EINVAL, no, "built without"),
        ] {
            let said = remedy(step, errno, &machine);
            assert!(said.contains(expected), "{step:?} {errno}: {said}");
        }
    }

    #[test]
    fn steps_survive_the_pipe() {
        for step in REPORTED {
            assert_eq!(Step::from_number(step.number()), step);
        }
    }
}
