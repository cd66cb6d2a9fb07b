//! Alerts: those that stand, who is told of them, and `ekiden alerts test`.

use super::client;
use crate::cli::AlertsCommand;
use crate::commands::with_runtime;
use crate::exit;
use crate::print::{self, clean, count, seconds};
use ekiden_alerts::Trial;
use ekiden_proxy::observe::status::{AlertReceiverStatus, AlertsStatus, Status, TracesStatus};

/// `ekiden alerts`. Returns the exit code.
pub(crate) fn run(command: &AlertsCommand) -> u8 {
    let AlertsCommand::Test { socket } = command;
    with_runtime("alerts test", |runtime| {
        let tried = runtime.block_on(client::try_alerts(socket.as_deref()))?;
        let tried = tried.unwrap_or_default();
        let fine = !tried.is_empty() && tried.iter().all(|trial| trial.error.is_none());
        let code = if fine { exit::FINE } else { exit::NOT_FINE };
        Ok::<_, client::AskError>(print::out(&tell(&tried)).max(code))
    })
}

/// What became of a trial.
fn tell(tried: &[Trial]) -> String {
    if tried.is_empty() {
        return "nobody is told of alerts: set `webhook` or `mail_to` in [alerts], and reload the daemon\n"
            .to_owned();
    }
    let line = |trial: &Trial| {
        let to = clean(&trial.to);
        match (&trial.answer, &trial.error) {
            (_, Some(error)) => format!("{to}: not delivered: {}\n", clean(error)),
            (Some(answer), None) => format!("{to}: delivered: {}\n", clean(answer)),
            (None, None) => format!("{to}: delivered\n"),
        }
    };
    tried.iter().map(line).collect()
}

/// The last reload, where it was refused.
pub(crate) fn refused_reload(status: &Status) -> String {
    let Some(refused) = &status.refused_reload else { return String::new() };
    let error = |error: &String| format!("  {}\n", clean(error));
    let errors: String = refused.errors.iter().map(error).collect();
    format!(
        "the last reload, {} ago, was refused; the configuration before it is in effect:\n{errors}",
        seconds(refused.for_seconds)
    )
}

/// Alerts, and what could not be sent.
pub(crate) fn lines(status: &Status) -> String {
    render(status.alerts.as_ref()) + &render_traces(status.traces.as_ref())
}

/// A line for each alert, and for each receiver that was not reached.
fn render(alerts: Option<&AlertsStatus>) -> String {
    let Some(alerts) = alerts else { return String::new() };
    let mut out = String::new();
    for alert in &alerts.standing {
        out.push_str(&format!(
            "alert {} for {}: {}\n",
            clean(&alert.alert),
            seconds(alert.for_seconds),
            clean(&alert.text)
        ));
    }
    for AlertReceiverStatus { to, failed, waiting, last_error, .. } in &alerts.receivers {
        if let Some(why) = last_error {
            out.push_str(&format!(
                "alerts by {}: {} failed, {waiting} waiting: {}\n",
                clean(to),
                count(*failed, "message"),
                clean(why)
            ));
        }
    }
    out
}

/// A line where traces do not reach their collector.
fn render_traces(traces: Option<&TracesStatus>) -> String {
    let Some(TracesStatus { last_error: Some(why), dropped, waiting, .. }) = traces else {
        return String::new();
    };
    format!("traces: {waiting} waiting, {dropped} dropped: {}\n", clean(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::{AlertStatus, RefusedReload};

    #[test]
    fn traces_are_named_where_they_do_not_arrive() {
        let fine = TracesStatus { sent: 5, ..TracesStatus::default() };
        assert_eq!(render_traces(Some(&fine)) + &render_traces(None), "");
        let away = TracesStatus { last_error: Some("c: away".to_owned()), dropped: 2, ..fine };
        assert_eq!(render_traces(Some(&away)), "traces: 0 waiting, 2 dropped: c: away\n");
    }

    #[test]
    fn a_reload_that_was_refused_is_told_with_its_errors() {
        let mut status = crate::commands::sample();
        assert_eq!(refused_reload(&status), "");
        let errors = vec!["f:2:1: unknown key `colour`".to_owned(), "other\u{1b}".to_owned()];
        status.refused_reload = Some(RefusedReload { for_seconds: 185.0, errors });
        let text = refused_reload(&status);
        assert!(text.starts_with("the last reload, 3 min 5 s ago, was refused; "), "{text}");
        assert!(text.contains("in effect:\n  f:2:1: unknown key `colour`\n  other"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn says_what_stands_and_what_came_back() {
        let standing = vec![AlertStatus {
            alert: "line-down".to_owned(),
            subject: "ship".to_owned(),
            text: "no tunnel to ship".to_owned(),
            for_seconds: 300.0,
        }];
        let receiver = AlertReceiverStatus { to: "mail".to_owned(), ..Default::default() };
        let last_error = Some("refused".to_owned());
        let broken = AlertReceiverStatus { last_error, failed: 3, waiting: 1, ..receiver.clone() };
        let text = render(Some(&AlertsStatus { standing, receivers: vec![receiver, broken] }));
        assert_eq!(
            text,
            "alert line-down for 5 min 0 s: no tunnel to ship\nalerts by mail: 3 messages failed, 1 waiting: refused\n"
        );
        let trial = |answer: Option<&str>, error: Option<&str>| Trial {
            to: "webhook".to_owned(),
            answer: answer.map(str::to_owned),
            error: error.map(str::to_owned),
        };
        let told = tell(&[trial(Some("200 OK"), None), trial(None, Some("no\u{1b}"))]);
        assert!(
            told.starts_with("webhook: delivered: 200 OK\nwebhook: not delivered: no"),
            "{told}"
        );
        assert!(!told.contains('\u{1b}') && tell(&[]).contains("set `webhook` or `mail_to`"));
    }
}
