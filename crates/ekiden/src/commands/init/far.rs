//! The end of a tunnel behind the long link: joins with one line.

use super::Failed;
use super::session::{Plan, Session, shown};
use crate::cli::init::Far;
use crate::commands::peer::join::{self, Joining, Told, told};
use crate::commands::record_change;
use crate::exit;
use crate::print::warn;
use crate::setup::document::Routed;
use crate::setup::running;
use ekiden_config::name as check_name;
use ekiden_tunnel::driver::probe;
use ekiden_tunnel::trust::{BadToken, Store, Token};

pub(super) fn set_up(mut session: Session, args: Far, token: Option<Token>) -> Result<u8, Failed> {
    let asker = session.asker;
    let read = |text: &str| text.parse::<Token>().map_err(|error: BadToken| error.to_string());
    let question = ("INVITATION", "The line that `ekiden init shore` printed on the other machine");
    let token = match token {
        Some(token) => token,
        None => asker.answer(None, question, None, |text| {
            read(text.trim_start_matches("ekiden init far "))
        })?,
    };
    let read = |text: &str| check_name(text).map(|()| text.to_owned());
    let name =
        asker.answer(args.name, ("--name", "Name of the other relay"), Some("shore"), read)?;
    let at = session.clients(args.listen, &args.from)?;
    let routed = join::use_upstream(&mut session.document, &name)?;
    if let Routed::Other(chains) = &routed {
        return Err(format!(
            "{} sends everything through {chains}; add \"{name}\" to that route, then run this again; nothing was written",
            session.place.config.display()
        )
        .into());
    }
    let mut peer = token.peer(name.clone());
    peer.terms.dedicated = args.dedicated;
    let folder = session.place.state(session.document.draft().tunnel.state.clone())?;
    let joining = Joining::new(Store::new(folder.clone()), peer)?;
    join::say_clocks(&token);
    let credentials = joining.credentials()?;
    if !args.offline {
        joining.check(&session.runtime, &credentials)?;
    }
    let steps: Vec<String> = (!joining.is_done())
        .then(|| {
            format!(
                "join the relay at {} as \"{name}\": this relay sends {}, receives {}",
                token.address, token.send, token.receive
            )
        })
        .into_iter()
        .collect();
    let changes = match session.propose(&steps)? {
        Plan::Do(changes) => changes,
        Plan::Nothing | Plan::Not => return Ok(exit::FINE),
    };
    let prepared = session.document.prepare(&changes, &session.place)?;
    session.place.make_state(&folder)?;
    let credentials = joining.keep_credentials(&credentials)?;
    if !args.offline && joining.is_new() {
        let seen = session.runtime.block_on(probe(&credentials, &joining.peer));
        match told(&seen, &token.address) {
            Told::Reached(said) => warn(&said),
            Told::Refused(why) => return Err(why.into()),
            Told::Unreached(why) => {
                let why = format!(
                    "{why}\nno peer was kept, and the configuration is as it was; --offline writes them without trying"
                );
                return Err(why.into());
            }
        }
    }
    let done = joining.keep().and_then(|kept| kept.or_undo(prepared.commit()).map_err(Into::into));
    let (config, what) = (session.place.config.as_path(), format!("at {}", token.address));
    record_change(Some(config), ("ekiden init far", &name), &done, &what);
    done?;
    let remains = [
        format!("try it: curl -x {} https://example.org/", shown(at)),
        "the line below is this relay's address: clients use it as their HTTP or SOCKS proxy"
            .to_owned(),
    ];
    let code = session.finish(&remains, &shown(at));
    if running::status(&session.runtime).is_some()
        && !running::tunnel_is_up(&session.runtime, &name)
    {
        warn("the tunnel is not up yet; `ekiden status` says why\n");
    }
    Ok(code)
}
