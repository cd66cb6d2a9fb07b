//! One order: account, challenges, key, certificate.

use crate::certificate::Issued;
use crate::folder::{Folder, KeptAccount, together};
use crate::web::Web;
use crate::words;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ekiden_proxy::AcmeState;
use ekiden_proxy::settings::Acme;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often a request is made again whose nonce the authority does not take, beyond the library's
/// own three times. An authority may reject any (RFC 8555 §6.5).
const NONCES: u32 = 8;
/// The longest wait for the authority's decision on the challenges, and for the certificate.
const DECISION: Duration = Duration::from_secs(120);

/// Makes a call again while its nonce is not taken.
macro_rules! patiently {
    ($call:expr) => {{
        let mut tries = NONCES;
        loop {
            match $call.await {
                Err(error) if tries > 0 && words::is_problem(&error, "badNonce") => tries -= 1,
                done => break done,
            }
        }
    }};
}

/// The account at the authority, a new one where there is none; fails in words.
pub(crate) async fn account(
    settings: &Acme,
    folder: &Folder,
    web: &Web,
) -> Result<Account, String> {
    let contact: Vec<_> = settings.contact.iter().map(|mail| format!("mailto:{mail}")).collect();
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    if let Some(mut kept) = folder.account()? {
        let credentials = kept.credentials().map_err(|error| error.to_string())?;
        let builder = Account::builder_with_http(Box::new(web.clone()));
        let restored = builder.from_credentials(credentials).await;
        let account = restored.map_err(|error| words::error(&error))?;
        if kept.contact != settings.contact {
            let changed = patiently!(account.update_contacts(&contact));
            match changed {
                // the one who called makes another
                Err(error) if words::is_problem(&error, "accountDoesNotExist") => {}
                Err(error) => return Err(words::error(&error)),
                Ok(()) => {
                    kept.contact.clone_from(&settings.contact);
                    folder.keep_account(&kept)?;
                }
            }
        }
        return Ok(account);
    }
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: settings.agree_to_terms,
        only_return_existing: false,
    };
    let external = external(settings)?;
    let made = patiently!(Account::builder_with_http(Box::new(web.clone())).create(
        &new,
        settings.directory.clone(),
        external.as_ref(),
    ));
    let (account, credentials) = made.map_err(|error| words::error(&error))?;
    folder.keep_account(&KeptAccount::new(&credentials, &settings.contact)?)?;
    tracing::info!("made an account at {}: {}", settings.directory, account.id());
    Ok(account)
}

/// The key of an external account, as the settings name it; fails in words.
fn external(settings: &Acme) -> Result<Option<ExternalAccountKey>, String> {
    let (Some(id), Some(file)) = (&settings.external_key_id, &settings.external_key_file) else {
        return Ok(None);
    };
    let wrong = |why: String| format!("[acme] external_key_file {}: {why}", file.display());
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("it cannot be read: {error}")))?;
    let text = text.trim().trim_end_matches('=');
    // some authorities print the other alphabet
    let key = URL_SAFE_NO_PAD.decode(text.replace('+', "-").replace('/', "_"));
    let key = key.map_err(|_| wrong("it is not base64url".to_owned()))?;
    Ok(Some(ExternalAccountKey::new(id.clone(), &key)))
}

/// Orders a certificate and keeps it; fails in words. `before`: the one that it replaces.
pub(crate) async fn certificate(
    settings: &Acme,
    folder: &Folder,
    state: &AcmeState,
    account: &Account,
    before: Option<&Issued>,
) -> Result<Issued, Failed> {
    let identifiers: Vec<_> =
        settings.names.iter().map(|name| Identifier::Dns(name.to_ascii_lowercase())).collect();
    let mut order = begin(account, &identifiers, before).await?;
    let _clear = Clear(state);
    answer_challenges(&mut order, state).await?;
    let retries = RetryPolicy::default().timeout(DECISION);
    if order.state().status == OrderStatus::Pending {
        let decided = patiently!(order.poll_ready(&retries));
        match decided {
            Ok(OrderStatus::Ready) => {}
            Ok(_) => return Err(refused(&mut order, None).await),
            Err(error) => return Err(refused(&mut order, Some(error)).await),
        }
    }
    // the key is made anew each time, and written before a certificate is issued for it
    let key = KeyPair::generate().map_err(|error| format!("no key can be made: {error}"))?;
    folder.keep_key(&key.serialize_pem())?;
    let csr =
        request(settings, &key).map_err(|error| format!("no request can be made: {error}"))?;
    patiently!(order.finalize_csr(&csr))?;
    let chain = patiently!(order.poll_certificate(&retries))?;
    let both = together(&key.serialize_pem(), &chain);
    let issued = Issued::read(both.as_bytes())
        .map_err(|why| format!("the authority's certificate is of no use: {why}"))?;
    if !issued.is_for(&settings.names) {
        let names: Vec<_> = issued.names.iter().map(String::as_str).collect();
        return Err(format!("the authority issued a certificate for {}", names.join(", ")).into());
    }
    folder.keep_certificate(&both)?;
    Ok(issued)
}

async fn begin(
    account: &Account,
    identifiers: &[Identifier],
    before: Option<&Issued>,
) -> Result<Order, Error> {
    if let Some(id) = before.and_then(|before| before.id.clone()) {
        let new = NewOrder::new(identifiers).replaces(id);
        match patiently!(account.new_order(&new)) {
            // it does not know that certificate, has replaced it, or takes no such advice
            Err(Error::Unsupported(_) | Error::Other(_)) => {}
            Err(Error::Api(problem))
                if ["malformed", "alreadyReplaced", "conflict", "unauthorized"]
                    .contains(&words::kind(&problem)) => {}
            ordered => return ordered,
        }
    }
    patiently!(account.new_order(&NewOrder::new(identifiers)))
}

/// Shows the challenges' certificates to the authority, and says that they are there.
async fn answer_challenges(order: &mut Order, state: &AcmeState) -> Result<(), Failed> {
    let mut ready = BTreeSet::new();
    let mut tries = NONCES;
    loop {
        match answer_each(order, state, &mut ready).await {
            Err(Failed { error: Some(error), .. })
                if tries > 0 && words::is_problem(&error, "badNonce") =>
            {
                tries -= 1;
            }
            done => return done,
        }
    }
}

async fn answer_each(
    order: &mut Order,
    state: &AcmeState,
    ready: &mut BTreeSet<String>,
) -> Result<(), Failed> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let name = authorization.identifier().to_string();
        if authorization.status == AuthorizationStatus::Valid || ready.contains(&name) {
            continue;
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(format!("the authority offers no TLS-ALPN-01 for {name}").into());
        };
        let digest = challenge.key_authorization();
        let (certificate, key) = shown(&name, digest.digest().as_ref())
            .map_err(|error| format!("no certificate for the challenge can be made: {error}"))?;
        state.set_challenge(&name, &certificate, &key)?;
        // an authority that is quick has tried it already
        challenge.set_ready().await.map_err(|error| match &error {
            Error::Api(problem) => {
                Failed { words: words::problem(problem, Some(&name)), error: Some(error) }
            }
            _ => error.into(),
        })?;
        ready.insert(name);
    }
    Ok(())
}

/// A certificate for the challenge of a name, and its key (RFC 8737 §3), both in DER.
fn shown(name: &str, digest: &[u8]) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().to_vec(), key.serialize_der()))
}

fn request(settings: &Acme, key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let names: Vec<_> = settings.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

/// Why the authority refuses an order: what it said of each challenge, else of the order.
async fn refused(order: &mut Order, error: Option<Error>) -> Failed {
    let mut tries = NONCES;
    let (mut said, mut names) = (Vec::new(), BTreeSet::new());
    let mut authorizations = order.authorizations();
    loop {
        match authorizations.next().await {
            Some(Ok(authorization)) => {
                let name = authorization.identifier().to_string();
                let challenges = authorization.challenges.iter();
                let problems = challenges.filter_map(|challenge| challenge.error.as_ref());
                if !names.contains(&name) {
                    said.extend(problems.map(|problem| words::problem(problem, Some(&name))));
                }
                names.insert(name);
            }
            // from the beginning: what has been read is kept
            Some(Err(error)) if tries > 0 && words::is_problem(&error, "badNonce") => {
                tries -= 1;
                authorizations = order.authorizations();
            }
            Some(Err(_)) | None => break,
        }
    }
    let words = match (said.as_slice(), &error) {
        ([], Some(Error::Api(problem))) if names.len() == 1 => {
            words::problem(problem, names.first().map(String::as_str))
        }
        ([], Some(error)) => words::error(error),
        ([], None) => "the authority refused the order without a reason".to_owned(),
        (said, _) => said.join("; "),
    };
    Failed { words, error }
}

/// A failed order in words, with the library's error where there is one.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) words: String,
    pub(crate) error: Option<Error>,
}

impl From<String> for Failed {
    fn from(words: String) -> Self {
        Self { words, error: None }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { words: words::error(&error), error: Some(error) }
    }
}

/// Challenges are answered while their order is under way, and no longer.
struct Clear<'a>(&'a AcmeState);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.0.clear_challenges();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_key_is_read_in_either_alphabet() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let settings = Acme {
            external_key_id: Some("kid-1".to_owned()),
            external_key_file: Some(file.clone()),
            ..Acme::default()
        };
        for text in ["zWNDZM6e-_Q\n", "zWNDZM6e+/Q=", "zWNDZM6e+/Q"] {
            std::fs::write(&file, text).unwrap();
            assert!(external(&settings).unwrap().is_some(), "{text}");
        }
        std::fs::write(&file, "not base64!").unwrap();
        let error = external(&settings).err().unwrap();
        assert!(error.contains("external_key_file") && error.contains("not base64url"), "{error}");
        assert!(external(&Acme::default()).unwrap().is_none());
    }
}
