//! The cache's interface in a build without the feature `cache`: no value of these types exists.

use crate::observe::status::CacheStatus;
use crate::settings;
use crate::transfer::budget::{CountedMemory, TransferShare};
use crate::wire::http::body::Body;
use crate::wire::http::head::{Field, Request, Response, Version};
use ekiden_model::units::Bytes;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Cache(Infallible);

#[derive(Debug)]
pub(crate) struct Visit(Infallible);

#[derive(Debug)]
pub(crate) struct PassingResponse<'a>(&'a Infallible);

pub(crate) struct StoredResponse {
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) body: Vec<u8>,
    never: Infallible,
}

pub(crate) struct CacheHit {
    pub(crate) stored: Arc<StoredResponse>,
    pub(crate) age: u64,
    pub(crate) status_text: String,
    pub(crate) client_has_it: bool,
}

#[expect(dead_code, reason = "nothing makes these values")]
pub(crate) enum CacheLookup {
    Hit(CacheHit),
    Pass(Box<Visit>),
    Nothing,
}

impl Cache {
    /// Fails when the settings ask for a cache.
    pub(crate) fn open(settings: &settings::Cache, _: Bytes) -> Result<Option<Arc<Self>>, String> {
        match settings.memory {
            None => Ok(None),
            Some(_) => Err("this ekiden was built without the HTTP cache; remove cache.memory from the configuration, or build it with the feature `cache`".to_owned()),
        }
    }

    pub(crate) async fn close(&self) {
        match self.0 {}
    }

    pub(crate) async fn consult(
        self: &Arc<Self>,
        _: &str,
        _: String,
        _: &Request,
        _: Body,
        _: &TransferShare,
        _: impl Fn(&StoredResponse) -> bool,
    ) -> CacheLookup {
        match self.0 {}
    }

    pub(crate) fn status(&self) -> CacheStatus {
        match self.0 {}
    }
}

impl StoredResponse {
    pub(crate) fn version(&self) -> Version {
        match self.never {}
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        match self.never {}
    }

    pub(crate) fn head_memory(&self) -> usize {
        match self.never {}
    }
}

impl CacheHit {
    pub(crate) fn on_used(&self) {
        match self.stored.never {}
    }

    pub(crate) fn on_sent(&self, _: usize) {
        match self.stored.never {}
    }
}

impl Visit {
    pub(crate) fn stale(&self) -> Option<&StoredResponse> {
        match self.0 {}
    }

    pub(crate) fn count_stale(&mut self, _: Option<Box<dyn CountedMemory>>) {
        match self.0 {}
    }

    pub(crate) fn conditions(&self) -> &[Field] {
        match self.0 {}
    }

    pub(crate) fn status_text(&self, _: u16, _: bool) -> String {
        match self.0 {}
    }

    pub(crate) fn copy<'a>(
        &'a self,
        _: &'a Response,
        _: Body,
        _: Option<IpAddr>,
        _: TransferShare,
    ) -> Option<PassingResponse<'a>> {
        match self.0 {}
    }

    pub(crate) fn drop_older(&self, _: &Response) {
        match self.0 {}
    }

    pub(crate) fn on_not_modified(&self, _: &Request, _: &Response, _: bool) -> Option<CacheHit> {
        match self.0 {}
    }

    pub(crate) fn on_response(&self, _: &Request, _: &Response) {
        match self.0 {}
    }
}

impl PassingResponse<'_> {
    pub(crate) fn push(&mut self, _: &[u8]) {
        match *self.0 {}
    }

    pub(crate) fn store(&mut self) {
        match *self.0 {}
    }
}

pub(crate) fn only_if_cached(_: &Request) -> bool {
    false
}

pub(crate) fn cache_status(_: &str, _: &str, _: &mut Vec<Field>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_configuration_that_asks_for_the_cache() {
        let none = settings::Cache::default();
        assert!(Cache::open(&none, Bytes::mib(1)).unwrap().is_none());
        let some = settings::Cache { memory: Some(Bytes::mib(1)), ..none };
        assert!(Cache::open(&some, Bytes::mib(1)).unwrap_err().contains("without the HTTP cache"));
    }
}
