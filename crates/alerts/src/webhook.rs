//! A webhook: a POST of the alerts' document.

use crate::AlertSettings;
use crate::message::AlertMessage;
use crate::post::PostTarget;
use ekiden_config::WebhookUrl;
use ekiden_proxy::Handle;

/// Where a document is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Webhook(PostTarget);

impl Webhook {
    pub(crate) fn of(settings: &AlertSettings) -> Option<Self> {
        let url = WebhookUrl::read(settings.alerts.webhook.as_deref()?).ok()?;
        let authorization = settings.secrets.authorization.clone();
        let authorities = settings.alerts.authorities.clone();
        Some(Self(PostTarget { url, authorization, authorities }))
    }

    /// Sends a document. Returns the answer's status. Errors: in words, without the URL's path.
    pub(crate) async fn post(
        &self,
        handle: &Handle,
        message: &AlertMessage,
    ) -> Result<String, String> {
        let authority = &self.0.url.authority;
        let failed = |why: String| format!("{authority}: {why}");
        let body = serde_json::to_vec(message).map_err(|error| failed(error.to_string()))?;
        let answer = self.0.post(handle, body).await?;
        match answer.status.is_success() {
            true => Ok(format!("{authority} answered {}", answer.status)),
            false => Err(failed(answer.refusal("webhook"))),
        }
    }
}
