//! One relay beside the modem: the kernel holds a rate towards the clients.

use super::Failed;
use super::session::{Plan, Session, shown};
use crate::cli::init::Modem;
use crate::exit;
use ekiden_linux::bpf::{Missing, Needs};
use ekiden_model::units::{Rate, UnitError};

pub(super) fn set_up(mut session: Session, args: Modem) -> Result<u8, Failed> {
    let rate = |text: &str| text.parse::<Rate>().map_err(|error: UnitError| error.to_string());
    let question = "Rate towards the clients, counted as IP packets, such as 4 Mbit/s";
    let rate = session.asker.answer(args.rate, ("--rate", question), None, rate)?;
    let at = session.clients(args.listen, &args.from)?;
    let document = &mut session.document;
    // bbr where hold cannot be loaded
    let wanted = ["hold".to_owned(), "bbr".to_owned()];
    let has_hold = document.draft().legs.get("client").is_some_and(|leg| {
        leg.leg.socket.congestion.first().is_some_and(|first| *first == wanted[0])
    });
    if !has_hold {
        document.set_list(&["leg", "client"], "congestion", &wanted)?;
    }
    document.set(&["leg", "client"], "rate", rate.to_string())?;
    if let Some(line) = args.line {
        document.set(&["leg", "client"], "line", line.to_string())?;
    }
    let changes = match session.propose(&[])? {
        Plan::Do(changes) => changes,
        Plan::Nothing | Plan::Not => return Ok(exit::FINE),
    };
    session.document.prepare(&changes, &session.place)?.commit()?;
    let mut remains = vec![
        format!("open TCP port {} in the firewall, towards the clients alone", at.port()),
        "the line below is this relay's address: clients use it as their HTTP or SOCKS proxy"
            .to_owned(),
    ];
    if let Some(said) = in_the_way(&Needs::look(), session.place.service.is_some()) {
        remains.insert(0, said);
    }
    Ok(session.finish(&remains, &shown(at)))
}

/// What this machine lacks to hold a rate, or what the daemon needs for it.
fn in_the_way(needs: &Needs, is_service: bool) -> Option<String> {
    match needs.met() {
        Ok(()) | Err(Missing::Privilege) => {
            // for the service, the unit loads it
            (!is_service).then(|| "the daemon needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN to hold a rate in the kernel, or root loads it once: `sudo ekiden bpf load --user \"$(id -un)\"`; `ekiden doctor` says what is missing".to_owned())
        }
        Err(missing) => Some(format!(
            "no rate is held on this machine, and the leg uses the next of its `congestion`: {missing}"
        )),
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_named_and_the_command_names_this_user() {
        let needs = Needs { types: true, kernel: (6, 18), permitted: false, compiled: true };
        let said = in_the_way(&needs, false).unwrap();
        assert!(said.contains("`sudo ekiden bpf load --user \"$(id -un)\"`"), "{said}");
        assert_eq!(in_the_way(&Needs { permitted: true, ..needs }, true), None);
        // Debian 12's own
        for is_service in [false, true] {
            let said = in_the_way(&Needs { kernel: (6, 1), ..needs }, is_service).unwrap();
            assert!(said.ends_with("this is Linux 6.1, and it takes 6.4 or later"), "{said}");
        }
    }
}
