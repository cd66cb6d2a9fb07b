//! `ekiden peer invite`, and the invitation of `ekiden init shore`.

use super::{Done, qr, store};
use crate::cli::peer::{Invite, Invited};
use crate::print::{out, warn};
use crate::setup::clock;
use ekiden_admin::peers::{Invitation, check_terms, invite};
use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::Token;

/// As the options say. Errors: one is missing.
pub(super) fn invitation(invited: &Invited) -> Result<Invitation, String> {
    let Invited { name, address, send, receive, dedicated, renew } = invited;
    let (Some(name), Some(address), Some(send), Some(receive)) = (name, address, send, receive)
    else {
        return Err("--name, --address, --send and --receive are needed".to_owned());
    };
    let terms = Terms { send: *send, receive: *receive, dedicated: *dedicated };
    Ok(Invitation { name: name.clone(), address: address.clone(), terms, renew: *renew })
}

pub(super) fn command(args: &Invite, invitation: Invitation) -> Done {
    let (name, terms) = (invitation.name.clone(), invitation.terms);
    check_terms(&terms)?;
    let (store, listens) = store(&args.config)?;
    if let Some(why) = clock::behind() {
        warn(&format!("{why}\n"));
    }
    let (token, _) = invite(&store, invitation)?;
    if !listens {
        warn(
            "this relay does not listen for tunnels yet: set [tunnel] listen = [\"0.0.0.0:4433\"], and restart it\n",
        );
    }
    if args.json {
        let document = serde_json::json!({
            "name": name, "invitation": token.to_string(), "link": token.link(),
            "address": token.address,
            "send": terms.send.as_bits_per_second(), "receive": terms.receive.as_bits_per_second(),
            "dedicated": terms.dedicated.map(Rate::as_bits_per_second),
        });
        return Ok(out(&format!("{document:#}\n")));
    }
    warn(&format!(
        "peer \"{name}\" is invited; the next line works once, for anyone who has it:  ekiden peer join …\n"
    ));
    let code = out(&format!("{token}\n"));
    if !args.no_qr {
        show(&token, args.qr);
    }
    Ok(code)
}

/// The invitation as a link and a QR code, on standard error.
pub(crate) fn show(token: &Token, asked: bool) {
    warn(&format!("the same as a link: {}\n", token.link()));
    qr::show(&token.link(), asked);
}
