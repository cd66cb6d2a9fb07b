//! `ekiden init`: sets this machine up for one of five arrangements. It asks for what no option says, shows what it
//! will do, and writes everything or nothing; without a terminal, only with `--yes`.

mod access;
mod certificate;
mod far;
mod gateway;
mod half_way;
mod modem;
mod password;
mod session;
mod shore;

use crate::cli::init::{Arrangement, Far, Gateway, HalfWay, Init, InitHow, Modem, Shore};
use crate::exit;
use crate::print::warn;
use crate::setup::clock;
use crate::setup::terminal::{Asker, Unanswered};
use session::Session;
use std::error::Error;

/// Why it was not done, and the exit code.
#[derive(Debug)]
struct Failed {
    why: String,
    code: u8,
}

impl Failed {
    /// An option is missing or wrong.
    fn usage(why: impl Into<String>) -> Self {
        Self { why: why.into(), code: exit::USAGE }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self { why, code: exit::NOT_FINE }
    }
}

impl From<&str> for Failed {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl From<Unanswered> for Failed {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Missing(why) => Self::usage(why),
            Unanswered::Closed(why) => why.into(),
        }
    }
}

impl From<Box<dyn Error>> for Failed {
    fn from(error: Box<dyn Error>) -> Self {
        error.to_string().into()
    }
}

/// Runs it. Returns the exit code.
pub(crate) fn run(args: Init) -> u8 {
    set_up(args).unwrap_or_else(|Failed { why, code }| {
        warn(&format!("ekiden init: {}\n", why.trim_end()));
        code
    })
}

fn set_up(args: Init) -> Result<u8, Failed> {
    let Init { arrangement, how } = args;
    let arrangement = match arrangement {
        Some(arrangement) => arrangement,
        None => choose(&how)?,
    };
    if let Some(why) = clock::behind() {
        // a certificate would be valid at the wrong time, and quotas begin at it
        if matches!(arrangement, Arrangement::HalfWay(_)) {
            return Err(why.into());
        }
        // the far side says it with what the invitation tells of clocks
        if !matches!(arrangement, Arrangement::Far(_)) {
            warn(&format!("{why}\n"));
        }
    }
    // an invitation that is none needs no further question
    let token = match &arrangement {
        Arrangement::Far(args) if !args.token.is_empty() => {
            Some(super::peer::join::read_token(&args.token).map_err(Failed::usage)?)
        }
        _ => None,
    };
    let session = Session::open(how, arrangement.listen_options())?;
    match arrangement {
        Arrangement::HalfWay(args) => half_way::set_up(session, args),
        Arrangement::Shore(args) => shore::set_up(session, args),
        Arrangement::Far(args) => far::set_up(session, args, token),
        Arrangement::Modem(args) => modem::set_up(session, args),
        Arrangement::Gateway(args) => gateway::set_up(session, args),
    }
}

const ARRANGEMENTS: &str = "Which arrangement?\n  \
    1  half-way  one relay with a public address, for accounts that log in\n  \
    2  shore     the end of a tunnel that the other relay can reach\n  \
    3  far       the end of a tunnel behind the long link; you have the line from shore\n  \
    4  modem     one relay beside the modem of a long, lossy link\n  \
    5  gateway   the router of a network whose devices know no proxy\n";

fn choose(how: &InitHow) -> Result<Arrangement, Failed> {
    let asker = Asker::new(how.yes);
    if asker != Asker::Person {
        return Err(Failed::usage(
            "which arrangement? One of half-way, shore, far, modem, gateway; see `ekiden init --help`",
        ));
    }
    warn(ARRANGEMENTS);
    let read = |text: &str| match text {
        "1" | "half-way" => Ok(1),
        "2" | "shore" => Ok(2),
        "3" | "far" => Ok(3),
        "4" | "modem" => Ok(4),
        "5" | "gateway" => Ok(5),
        _ => Err("1, 2, 3, 4 or 5"),
    };
    Ok(match asker.answer(None, ("ARRANGEMENT", "1 to 5"), None, read)? {
        1 => Arrangement::HalfWay(HalfWay::default()),
        2 => Arrangement::Shore(Shore::default()),
        3 => Arrangement::Far(Far::default()),
        4 => Arrangement::Modem(Modem::default()),
        _ => Arrangement::Gateway(Gateway::default()),
    })
}
