//! This program was built without mail.

use crate::AlertSettings;
use crate::message::AlertMessage;

/// Nobody gets mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mail {}

impl Mail {
    pub(crate) const fn of(_: &AlertSettings) -> Option<Self> {
        None
    }

    pub(crate) async fn send(&self, _: &AlertMessage) -> Result<String, String> {
        match *self {}
    }
}
