//! `ekiden operator`: people who may use the management port. It changes a file that a running daemon reads for each call.

use crate::cli::{OperatorCommand, TokenArgs};
use crate::commands::account::read_password;
use crate::commands::{finished, own, record_change};
use crate::daemon::start::admin_config;
use crate::print::{clean, out, table};
use ekiden_admin::operators::{Operator, Operators, Role};
use std::error::Error;

/// Runs it. Returns the exit code.
pub(crate) fn run(command: &OperatorCommand) -> u8 {
    let done = match command {
        OperatorCommand::Add { name, viewer, config } => {
            let role = if *viewer { Role::Viewer } else { Role::Full };
            let done = add(name, role, config);
            let said = format!("{}, a {} operator", clean(name), role.word());
            record(config, ("ekiden operator add", name), &done, role.word());
            done.map(|()| format!("added {said}; a running daemon lets the operator in at once\n"))
        }
        OperatorCommand::Remove { name, config } => {
            let done = operators(config).and_then(|operators| Ok(operators.remove(name)?));
            record(config, ("ekiden operator remove", name), &done, "removed");
            done.map(|()| format!("removed operator \"{}\"\n", clean(name)))
        }
        OperatorCommand::List { json, config } => operators(config)
            .and_then(|operators| Ok(operators.read()?))
            .map(|all| if *json { document(&all) } else { list(&all) }),
    };
    finished("operator", done.map(|text| out(&text)))
}

fn operators(config: &TokenArgs) -> Result<Operators, Box<dyn Error>> {
    let folder = admin_config(&own(config.config.as_deref())?).folder?;
    Ok(Operators::in_folder(&folder))
}

fn add(name: &str, role: Role, config: &TokenArgs) -> Result<(), Box<dyn Error>> {
    Ok(operators(config)?.add(name, role, &read_password()?)?)
}

fn record(
    config: &TokenArgs,
    command: (&str, &str),
    done: &Result<(), Box<dyn Error>>,
    what: &str,
) {
    record_change(config.config.as_deref(), command, done, what);
}

fn list(all: &[Operator]) -> String {
    if all.is_empty() {
        return "no operators: the token alone opens the management port\n".to_owned();
    }
    let head = ["OPERATOR", "ROLE"].map(str::to_owned).to_vec();
    let row = |one: &Operator| vec![clean(&one.name), one.role.word().to_owned()];
    table(head, all.iter().map(row).collect(), &[false; 2], None)
}

fn document(all: &[Operator]) -> String {
    let one = |one: &Operator| serde_json::json!({ "name": one.name, "role": one.role.word() });
    let all: Vec<_> = all.iter().map(one).collect();
    format!("{:#}\n", serde_json::json!({ "operators": all }))
}
