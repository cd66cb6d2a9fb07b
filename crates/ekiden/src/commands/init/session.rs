//! What all arrangements have in common: the place, the questions, the plan, and what remains to be done.

use super::Failed;
use crate::cli::init::InitHow;
use crate::commands::peer::join;
use crate::exit;
use crate::print::{out, warn};
use crate::setup::document::{Changes, Document};
use crate::setup::lan;
use crate::setup::place::Place;
use crate::setup::ports::{self, Obstacle, Transport};
use crate::setup::running;
use crate::setup::terminal::Asker;
use ipnet::IpNet;
use std::net::SocketAddr;
use tokio::runtime::Runtime;

/// The port for clients.
const PORT: u16 = 3128;

/// One run.
pub(super) struct Session {
    pub(super) place: Place,
    pub(super) document: Document,
    pub(super) asker: Asker,
    pub(super) runtime: Runtime,
    /// The service is restarted and not reloaded.
    restarts: bool,
    dry_run: bool,
    /// The options for the addresses on which it listens: for clients, and for tunnels.
    listen_options: [Option<&'static str>; 2],
    /// The addresses that the configuration had, which options add to.
    listened: Vec<SocketAddr>,
    /// The configuration was named, and `serve` does not find it by itself.
    named: bool,
}

/// What became of a plan.
pub(super) enum Plan {
    /// It is to be done.
    Do(Changes),
    /// There is nothing to do.
    Nothing,
    /// It is not to be done.
    Not,
}

impl Session {
    pub(super) fn open(
        how: InitHow,
        listen_options: [Option<&'static str>; 2],
    ) -> Result<Self, Failed> {
        let place = Place::of(how.config.as_deref())?;
        let document = Document::open(&place)?;
        let runtime = join::runtime().map_err(|error| error.to_string())?;
        let asker = Asker::new(how.yes);
        let (dry_run, named) = (how.dry_run, how.config.is_some());
        let restarts = false;
        let mut listened = document.draft().tunnel.listen.clone();
        if document.says("listen") {
            listened.extend(&document.draft().top.listen);
        }
        Ok(Self {
            place,
            document,
            asker,
            runtime,
            restarts,
            dry_run,
            listen_options,
            listened,
            named,
        })
    }

    /// Shows what is to be done, and asks. `steps`: what is done beside the configuration.
    pub(super) fn propose(&self, steps: &[String]) -> Result<Plan, Failed> {
        let changes = self.document.changes()?;
        self.check_ports(&changes)?;
        let config = self.place.config.display();
        if steps.is_empty() && changes.is_nothing() {
            warn(&format!("nothing to do: {config} and its state are as asked\n"));
            return Ok(Plan::Nothing);
        }
        warn("This will\n");
        for step in steps {
            warn(&format!("- {step}\n"));
        }
        if changes.is_nothing() {
            warn(&format!("- leave {config} as it is\n"));
        } else {
            let verb = if self.document.exists() { "change" } else { "write" };
            warn(&format!("- {verb} {config}:\n{}", indented(&changes.lines)));
        }
        if !changes.warnings.is_empty() {
            warn(&format!("\n{}", changes.warnings));
        }
        if self.dry_run {
            warn("nothing was written (--dry-run)\n");
            return Ok(Plan::Not);
        }
        if !self.asker.agrees("Do it?")? {
            warn("nothing was written\n");
            return Ok(Plan::Not);
        }
        Ok(Plan::Do(changes))
    }

    /// Accounts are to be there. A service that runs is restarted where they begin. Returns whether they do.
    pub(super) fn begin_accounts(&mut self) -> Result<bool, Failed> {
        let begins = !self.document.draft().accounts.enabled;
        self.document.set(&["accounts"], "enabled", true)?;
        self.restarts = begins && running::is_service(&self.runtime, &self.place);
        Ok(begins)
    }

    /// The restart, as one of the steps to propose.
    pub(super) fn restart(&self) -> Option<String> {
        self.restarts.then(|| "restart the service, since accounts begin at its start".to_owned())
    }

    /// Refuses ports that other programs hold, those that the running daemon holds aside.
    fn check_ports(&self, changes: &Changes) -> Result<(), Failed> {
        let running = running::status(&self.runtime);
        let own = running.as_ref().map(|status| status.pid);
        let listens = running.map_or_else(Vec::new, |status| status.listen);
        let settings = &changes.reading.settings;
        let [for_clients, for_tunnels] = self.listen_options;
        let clients = settings.listen.iter().map(|at| (*at, Transport::Tcp, "listen", for_clients));
        let tunnels = settings.tunnel.listen.iter().flat_map(|at| {
            [Transport::Udp, Transport::Tcp]
                .map(|transport| (*at, transport, "listen of [tunnel]", for_tunnels))
        });
        for (at, transport, key, option) in clients.chain(tunnels) {
            if listens.contains(&at) && transport == Transport::Tcp {
                continue;
            }
            if let Some(Obstacle { why, is_taken }) = ports::taken(at, transport, own) {
                let stop = if is_taken { "stop that program, or " } else { "" };
                let config = self.place.config.display();
                let option = option.filter(|_| !self.listened.contains(&at));
                let with = option.map_or_else(String::new, |option| format!("with {option}, or "));
                return Err(format!(
                    "{why}\n{stop}choose another address {with}by `{key}` in {config}; nothing was written"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Where clients connect, and their networks: asked, or found. An address beyond loopback that the configuration
    /// has stays, unless another is given.
    pub(super) fn clients(
        &mut self,
        listen: Option<SocketAddr>,
        from: &[IpNet],
    ) -> Result<SocketAddr, Failed> {
        let beyond = |at: &&SocketAddr| !at.ip().to_canonical().is_loopback();
        let configured = self.document.draft().top.listen.iter().find(beyond).copied();
        if let Some(at) = configured.filter(|_| listen.is_none() && from.is_empty()) {
            return Ok(at);
        }
        let guess = match (configured, lan::guess()) {
            (Some(at), _) => at,
            (None, Some(lan)) => SocketAddr::new(lan.address, PORT),
            (None, None) => SocketAddr::from(([127, 0, 0, 1], PORT)),
        };
        let read = |text: &str| {
            text.parse::<SocketAddr>()
                .map_err(|_| "write it like 192.168.1.1:3128 or [fd00::1]:3128")
        };
        let question = ("--listen", "Address and port for clients");
        let at = self.asker.answer(listen, question, Some(&guess.to_string()), read)?;
        if at.ip().to_canonical().is_loopback() {
            let default = self.document.draft().top.listen.contains(&at);
            if !default {
                self.document.listen(&[], &[at])?;
            }
            return Ok(at);
        }
        let networks = match from {
            [] => self.networks(at)?,
            given => given.to_vec(),
        };
        self.document.listen(&[], &[at])?;
        self.document.admit(&networks)?;
        Ok(at)
    }

    fn networks(&self, at: SocketAddr) -> Result<Vec<IpNet>, Failed> {
        self.ask_networks(lan::networks(at.ip()))
    }

    /// The networks of clients; those that were found are the default.
    pub(super) fn ask_networks(&self, found: Vec<IpNet>) -> Result<Vec<IpNet>, Failed> {
        let default = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let read = |text: &str| {
            let nets: Result<Vec<IpNet>, String> = text
                .split([' ', ','])
                .filter(|net| !net.is_empty())
                .map(ekiden_config::pattern::net)
                .collect();
            nets.map(Networks)
        };
        let default = (!default.is_empty()).then_some(default);
        let question = ("--from", "Addresses of clients, such as 192.168.1.0/24");
        Ok(self.asker.answer(None, question, default.as_deref(), read)?.0)
    }

    /// What remains: a running daemon takes it over, or one is to be started. `line` is what is to be used elsewhere.
    /// The exit code is of a failure where a running daemon refuses it.
    pub(super) fn finish(&self, remains: &[String], line: &str) -> u8 {
        warn("\n");
        let told = match self.restarts {
            true => Some(running::restart_service()),
            false => running::reload(&self.runtime, &self.place),
        };
        match &told {
            Some(told) => warn(&format!("- {}\n", told.said)),
            None => {
                let command = running::start(&self.place, !self.named);
                warn(&format!("- start it here: {command}\n"));
            }
        }
        for remark in remains {
            warn(&format!("- {remark}\n"));
        }
        let code = if told.is_some_and(|told| told.refused) { exit::NOT_FINE } else { exit::FINE };
        if line.is_empty() { code } else { out(&format!("{line}\n")).max(code) }
    }
}

/// A list of networks that prints as it is typed.
struct Networks(Vec<IpNet>);

impl std::fmt::Display for Networks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|net| write!(f, "{net} "))
    }
}

fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("    {line}\n")).collect()
}

/// An address as clients write it.
pub(super) fn shown(at: SocketAddr) -> String {
    format!("http://{at}")
}
