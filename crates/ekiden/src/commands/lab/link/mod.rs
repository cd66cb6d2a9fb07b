//! `ekiden link`: a command behind an emulated link.

mod command;
mod report;
mod shell;

use crate::cli::link::LinkArgs;
use crate::exit;
use crate::print::{out, warn};
use command::Ended;
use ekiden_emulator::engine::Record;
use ekiden_emulator::fidelity::Verdict;
use ekiden_emulator::pair::{Far, Pair};
use ekiden_emulator::recording::Rows;
use ekiden_emulator::report::{LinkReport, describe};
use ekiden_emulator::topology::{BuildError, Host, LinkPlan, Topology, TopologyPlan};
use ekiden_linux::host::signals::Held;
use ekiden_linux::links::forwarding::Forwarding;
use ekiden_linux::links::nat::Nat;
use ekiden_linux::namespaces::sandbox::{self, Sandbox};
use report::Report;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

/// Runs the command. Exits with the command's code, or one of [`exit`] when it could not be run.
pub(crate) fn run(args: &LinkArgs) -> u8 {
    // everything that can be wrong with the arguments is said before anything is made
    let prepared = match prepare(args) {
        Ok(prepared) => prepared,
        Err(why) => return fail(&why, exit::USAGE),
    };
    // held until the end, by the processes that `enter` leaves behind, too
    let forwarding = args.machine_is_far().then(Forwarding::start);
    let sandbox = match sandbox::enter() {
        Ok(sandbox) => sandbox,
        Err(denied) => return fail(&denied.to_string(), exit::NOT_FINE),
    };
    match behind(args, prepared, sandbox, forwarding) {
        Ok(code) => code,
        Err(why) => fail(&why, exit::NOT_FINE),
    }
}

fn fail(why: &str, code: u8) -> u8 {
    warn(&format!("ekiden link: {why}\n"));
    code
}

/// What the arguments ask for, found to be possible.
enum Prepared {
    Pair(Box<LinkPlan>),
    Topology { plan: TopologyPlan, at: String },
}

fn prepare(args: &LinkArgs) -> Result<Prepared, String> {
    let Some(file) = &args.topology else {
        return args.plan().map(|plan| Prepared::Pair(Box::new(plan)));
    };
    let text = fs::read_to_string(file)
        .map_err(|error| format!("the plan {} cannot be read: {error}", file.display()))?;
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let plan = TopologyPlan::read(&text, folder)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let at = match &args.at {
        Some(at) => at.clone(),
        None => plan.hosts.first().map(|host| host.name.clone()).ok_or_else(|| {
            format!("{}: there is no [[host]] in it to run a command on", file.display())
        })?,
    };
    if !plan.hosts.iter().any(|host| host.name == at) {
        let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("{}: there is no host \"{at}\"; there are: {names}", file.display()));
    }
    Ok(Prepared::Topology { plan, at })
}

fn behind(
    args: &LinkArgs,
    prepared: Prepared,
    sandbox: Sandbox,
    forwarding: Option<io::Result<Option<Forwarding>>>,
) -> Result<u8, String> {
    // before any thread starts: from here on they are the command's
    let signals = Held::hold();
    let record = record(args)?;
    if let Some(to) = args.json.as_ref().filter(|to| to.as_os_str() != "-") {
        // said now, and not after an hour's run
        create(to)?;
    }
    let text = |error: BuildError| error.to_string();
    match prepared {
        Prepared::Pair(plan) => {
            let machine = !sandbox.user_namespace && args.far.is_none();
            let outer = sandbox.outer.try_clone().map_err(|error| error.to_string())?;
            let far = if machine { Far::Machine(outer) } else { Far::Command(args.far.clone()) };
            let mut pair =
                Pair::build(&plan, far, args.congestion.as_deref(), record).map_err(text)?;
            let mut notes = Vec::new();
            pair.wait_for_far(|| signals.pending()).map_err(text)?;
            let _nat =
                if machine { reach_beyond(&sandbox, &pair, forwarding, &mut notes) } else { None };
            if !machine && args.far.is_none() {
                notes.push(
                    "nothing runs at the far end: --far COMMAND starts something there".to_owned(),
                );
            }
            let far = if machine { "this machine" } else { "a machine of its own" };
            let heading = heading(args, &plan, &pair, far)?;
            announce(args, &heading, &notes);
            let label = args.label();
            let ended =
                command::run(&args.command, pair.near(), Some(pair.far()), &label, &signals)?;
            let report = pair.finish().map_err(|error| error.to_string())?;
            conclude(args, heading, notes, report.into_iter().collect(), ended)
        }
        Prepared::Topology { plan, at } => {
            let topology = Topology::build_recorded(&plan, record).map_err(text)?;
            let host = topology.host(&at).ok_or("the host has gone")?;
            let heading = heading_of_topology(&plan, host, &topology)?;
            announce(args, &heading, &[]);
            let ended = command::run(&args.command, host, None, &format!("at {at}"), &signals)?;
            let reports = topology.finish().map_err(|error| error.to_string())?;
            conclude(args, heading, Vec::new(), reports, ended)
        }
    }
}

/// Lets the near end reach what this machine reaches, or notes why it does not.
fn reach_beyond(
    sandbox: &Sandbox,
    pair: &Pair,
    forwarding: Option<io::Result<Option<Forwarding>>>,
    notes: &mut Vec<String>,
) -> Option<Nat> {
    if let Some(Err(error)) = forwarding {
        notes.push(format!("the far end reaches this machine only: {error}"));
        return None;
    }
    match Nat::start(&sandbox.outer, pair.near().address(), pair.near().address_v6()) {
        Ok(nat) => {
            notes.extend(nat.notes().iter().cloned());
            Some(nat)
        }
        Err(why) => {
            notes.push(why.to_string());
            None
        }
    }
}

fn create(file: &Path) -> Result<BufWriter<File>, String> {
    File::create(file)
        .map(BufWriter::new)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

fn record(args: &LinkArgs) -> Result<Record, String> {
    let mut record = Record::default();
    if let Some(file) = &args.pcap {
        record.capture = Some(Box::new(create(file)?));
    }
    if let Some(file) = &args.packets {
        let mut table = report::packet_table(create(file)?).map_err(|error| error.to_string())?;
        let rows: Rows = Box::new(move |row| report::packet_row(&mut table, &row));
        record.rows = Some(rows);
    }
    Ok(record)
}

fn heading(args: &LinkArgs, plan: &LinkPlan, pair: &Pair, far: &str) -> Result<Report, String> {
    let mut report = Report::of_machine(&args.command);
    report.near = Some(pair.near().into());
    report.far = Some(pair.far().into());
    report.far_is = Some(far.to_owned());
    let used =
        |from: &Host, to: &Host| from.congestion_towards(to).map_err(|error| error.to_string());
    report.congestion.near = used(pair.near(), pair.far())?;
    report.congestion.far = used(pair.far(), pair.near())?;
    report.settings = vec![
        format!("up: {}", describe(&plan.forward)),
        format!("down: {}", describe(&plan.backward)),
    ];
    report.mtu = Some(plan.mtu);
    report.mode = Some(plan.mode().name());
    Ok(report)
}

fn heading_of_topology(
    plan: &TopologyPlan,
    at: &Host,
    topology: &Topology,
) -> Result<Report, String> {
    let mut report = Report::of_machine(&[]);
    report.near = Some(at.into());
    report.settings = plan
        .links
        .iter()
        .flat_map(|link| {
            let [first, second] = &link.between;
            [(first, second, &link.forward), (second, first, &link.backward)]
        })
        .map(|(from, to, config)| format!("{from} → {to}: {}", describe(config)))
        .collect();
    let others = topology.hosts().iter().filter(|host| host.name() != at.name());
    for other in others {
        let used = at.congestion_towards(other).map_err(|error| error.to_string())?;
        report.congestion.near = report.congestion.near.take().or(used);
    }
    Ok(report)
}

fn announce(args: &LinkArgs, heading: &Report, notes: &[String]) {
    if !args.quiet {
        warn(&heading.heading());
        notes.iter().for_each(|note| warn(&format!("link: {note}\n")));
    }
}

fn conclude(
    args: &LinkArgs,
    mut report: Report,
    notes: Vec<String>,
    links: Vec<LinkReport>,
    ended: Ended,
) -> Result<u8, String> {
    let verdict = links.iter().map(|link| link.verdict).max().unwrap_or(Verdict::Clean);
    if !args.quiet {
        for link in &links {
            if links.len() > 1 {
                warn(&format!("link {}:\n", link.name));
            }
            warn(&link.text());
        }
    }
    report.notes = notes;
    report.exit = Some(ended.code());
    report.verdict = Some(verdict);
    report.links = links;
    if let Some(to) = &args.json {
        let text = report.json();
        if to.as_os_str() == "-" {
            if out(&text) != exit::FINE {
                return Ok(exit::NOT_FINE);
            }
        } else {
            fs::write(to, text).map_err(|error| format!("{}: {error}", to.display()))?;
        }
    }
    if args.strict && verdict != Verdict::Clean && ended.code() == 0 {
        warn(&format!("ekiden link: --strict: the run is {verdict}\n"));
        return Ok(exit::NOT_FINE);
    }
    Ok(ended.code())
}
