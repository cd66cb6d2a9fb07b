//! A relay half-way, for accounts that log in with a password over TLS.

use super::certificate::{Certificate, Wish, is_ordered};
use super::session::{Plan, Session};
use super::{Failed, password};
use crate::cli::init::HalfWay;
use crate::commands::record_change;
use crate::exit;
use crate::setup::lan;
use ekiden_accounts::{Account, AccountId, Attributes, NewDevices, Store, StoreError, hash};
use ekiden_proxy::destination::Host;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

const PORT: u16 = 3128;
/// Where the authority of an ordered certificate connects.
const CHALLENGED: u16 = 443;

pub(super) fn set_up(mut session: Session, args: HalfWay) -> Result<u8, Failed> {
    let asker = session.asker;
    let read = |text: &str| match Host::parse(text) {
        Ok(_) if !text.starts_with('[') => Ok(text.to_owned()),
        _ => Err("a host's name or an address, without a port"),
    };
    let question = ("--name", "Name or address of this relay, as clients will write it");
    let name = asker.answer(args.name, question, None, read)?;
    let name = read(&name).map_err(|why| Failed::usage(format!("--name: {why}")))?;
    let read = |text: &str| Account::check_name(text).map(|()| text.to_owned());
    let question = ("--account", "Name of the first account");
    let account = asker.answer(args.account, question, Some("home"), read)?;
    Account::check_user(&account)
        .and(Account::check_name(&account))
        .map_err(|why| Failed::usage(format!("--account: {why}")))?;
    let document = &mut session.document;
    let beyond = |at: &&SocketAddr| !at.ip().to_canonical().is_loopback();
    let configured = document.draft().top.listen.iter().find(beyond).copied();
    let mut listen: Vec<SocketAddr> = match (&args.listen[..], configured) {
        ([], Some(_)) => Vec::new(),
        ([], None) => lan::everywhere().into_iter().map(|ip| SocketAddr::new(ip, PORT)).collect(),
        (given, _) => given.to_vec(),
    };
    let port = listen.first().copied().or(configured).map_or(PORT, |at| at.port());
    let challenged = |at: &SocketAddr| at.port() == CHALLENGED;
    if args.acme && !listen.iter().chain(&document.draft().top.listen).any(challenged) {
        listen.extend(lan::everywhere().into_iter().map(|ip| SocketAddr::new(ip, CHALLENGED)));
    }
    if !listen.is_empty() {
        document.listen(&[], &listen)?;
    }
    session.begin_accounts()?;
    let document = &mut session.document;
    if !document.says("leg.client.congestion") {
        // towards accounts: long, with some loss
        document.set_list(
            &["leg", "client"],
            "congestion",
            &["bbr".to_owned(), "cubic".to_owned()],
        )?;
    }
    let folder = session.place.state(session.document.draft().accounts.state.clone())?;
    let wish = Wish { files: args.certificate.zip(args.key), acme: args.acme, name: name.clone() };
    let certificate = Certificate::choose(&session.document, &wish, (&session.place, &folder))?;
    certificate.configure(&mut session.document, &name)?;

    let known = session.runtime.block_on(is_known(&session.document, &folder, &account))?;
    let new = (!known)
        .then(|| format!("add the account \"{account}\", with a password that is shown once"));
    let steps: Vec<String> =
        certificate.step(&name).into_iter().chain(new).chain(session.restart()).collect();
    let changes = match session.propose(&steps)? {
        Plan::Do(changes) => changes,
        Plan::Nothing => return Ok(exit::FINE),
        Plan::Not => return Ok(exit::FINE),
    };
    session.place.make_state(&folder)?;
    let prepared = session.document.prepare(&changes, &session.place)?;
    let made = certificate.make(&name)?;
    let secret = password::generate().map_err(|error| error.to_string())?;
    let done = session.runtime.block_on(async {
        if !known {
            add(&session, &folder, (&account, &secret)).await?;
        }
        // the certificate first, since the configuration names it
        if let Err(why) = made.commit().and_then(|()| prepared.commit()) {
            if !known {
                let store =
                    store(&session.document, &folder).await.map_err(|error| error.to_string())?;
                // the reason is why it comes to this
                let _ = store.remove(&account).await;
            }
            return Err(why);
        }
        Ok(())
    });
    if !known {
        let config = session.place.config.as_path();
        record_change(Some(config), ("ekiden init half-way", &account), &done, "with a password");
    }
    done?;
    let host = if name.contains(':') { format!("[{name}]") } else { name.clone() };
    let sudo = if session.place.service.is_some() { "sudo " } else { "" };
    let mut remains = vec![format!("open TCP port {port} in the firewall")];
    if let Certificate::SelfSigned { certificate, .. } = &certificate {
        remains.push(format!(
            "clients have to trust {}: curl takes it by --proxy-cacert, browsers and systems by their settings",
            certificate.display()
        ));
        if name.parse::<std::net::IpAddr>().is_err() && name.contains('.') {
            remains.push(format!(
                "with {name} in the DNS and TCP port 443 open, clients need not be told: run this again with --acme --agree-to-terms"
            ));
        }
    }
    if session.document.draft().acme.is_on() && !args.acme && !is_ordered(&session.document, &name)
    {
        remains.push(format!(
            "[acme] orders no certificate for {name}, and clients refuse another: run this again with --acme --agree-to-terms"
        ));
    }
    if certificate == Certificate::Ordered {
        remains.push(format!(
            "open TCP port 443, too: the authority connects there; `{sudo}ekiden status` shows the certificate or what is in its way"
        ));
    }
    let (user, line) = if known {
        remains.push(format!(
            "the account \"{account}\" was there and keeps its password; `{sudo}ekiden account set {account} --user {account} --password-stdin` sets another"
        ));
        (account.clone(), format!("https://{host}:{port}"))
    } else {
        remains.push("the line below is the proxy with the account's user and password; it is not shown again".to_owned());
        (account.clone(), format!("https://{account}:{secret}@{host}:{port}"))
    };
    remains.push(format!(
        "more accounts: {sudo}ekiden account add NAME --user {user}2 --password-stdin"
    ));
    Ok(session.finish(&remains, &line))
}

async fn store(
    document: &crate::setup::document::Document,
    folder: &Path,
) -> Result<Store, StoreError> {
    match document.database() {
        Some(address) => Store::at(&address).await,
        None => Store::in_folder(folder).await,
    }
}

/// Whether there is such an account. A database that is not there yet is not made.
async fn is_known(
    document: &crate::setup::document::Document,
    folder: &Path,
    account: &str,
) -> Result<bool, String> {
    // a link that leads nowhere is there, and is refused with the database
    let is_missing = || fs::symlink_metadata(folder.join("accounts.db")).is_err();
    if document.database().is_none() && is_missing() {
        return Ok(false);
    }
    let known = async {
        let store = store(document, folder).await?;
        let table = store.accounts().await?;
        store.close().await;
        let is_known = table.accounts.iter().any(|known| known.name == account);
        Ok::<_, StoreError>(is_known || table.unreadable.iter().any(|known| known.name == account))
    };
    known.await.map_err(|error| error.to_string())
}

async fn add(session: &Session, folder: &Path, (name, secret): (&str, &str)) -> Result<(), String> {
    let add = async {
        let hash = hash(secret).map_err(|error| StoreError::Refused(error.to_string()))?;
        let mut account = Account {
            id: AccountId(0),
            name: name.to_owned(),
            devices: Vec::new(),
            attributes: Attributes::default(),
        };
        let devices = NewDevices { user: Some((name.to_owned(), hash)), ..NewDevices::default() };
        devices.apply(&mut account)?;
        let store = store(&session.document, folder).await?;
        let added = store.add(&account).await;
        store.close().await;
        added
    };
    add.await.map(drop).map_err(|error| format!("the account \"{name}\" was not added: {error}"))
}
