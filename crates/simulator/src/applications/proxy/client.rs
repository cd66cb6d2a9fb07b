//! A client: a page, its documents one after the other, a pause to think, the next page.

use super::set_up::FarHost;
use ekiden_model::network::workload::distributions::uniform;
use ekiden_model::network::workload::surge::{Page, Surge};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Share, Span, Time};

/// A document that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) bytes: u64,
    pub(super) server: u32,
    pub(super) hit: bool,
    pub(super) since: Time,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) far: FarHost,
    rng: Rng,
    page: Option<Page>,
    server: u32,
    next: usize,
    /// Until somebody else comes.
    pages_left: Option<u32>,
    pub(super) connection: Option<u32>,
    /// When it has heard that its last connection is closed.
    pub(super) hears: Time,
    /// What it waits for.
    pub(super) wish: Option<Wish>,
    /// When it acts next by itself.
    pub(super) due: Time,
}

impl Client {
    pub(super) fn new(far: FarHost, surge: &Surge, mut rng: Rng) -> Self {
        // in the middle of a pause, so that not all come at once
        let pause = surge.page(&mut rng).inactive;
        let first = Span::from_nanos(rng.below(pause.as_nanos().max(1)));
        Self {
            far,
            page: None,
            server: 0,
            next: 0,
            pages_left: surge.pages(&mut rng),
            connection: None,
            hears: Time::ZERO,
            wish: None,
            due: Time::ZERO + first,
            rng,
        }
    }

    /// Its next request, drawn from its own stream: the n-th is the same whatever came before.
    pub(super) fn next_wish(
        &mut self,
        now: Time,
        surge: &Surge,
        servers: u32,
        hits: Share,
    ) -> Wish {
        let rng = &mut self.rng;
        let page = self.page.get_or_insert_with(|| {
            self.next = 0;
            self.server = rng.below(u64::from(servers)) as u32;
            surge.page(rng)
        });
        let bytes = page.documents.get(self.next).map_or(1, |size| size.as_u64());
        let hit = uniform(rng) * 1e9 < hits.as_parts_per_billion() as f64;
        let wish = Wish { bytes, server: self.server, hit, since: now };
        self.wish = Some(wish);
        wish
    }

    /// Its wish is fulfilled, or refused, which ends the page. Returns the pause, and whether
    /// another client comes then.
    pub(super) fn pause(&mut self, surge: &Surge, refused: bool) -> (Span, bool) {
        self.wish = None;
        let Some(page) = &self.page else { return (Span::from_secs(1), false) };
        if let Some(pause) = page.active.get(self.next).filter(|_| !refused) {
            self.next += 1;
            return (*pause, false);
        }
        let pause = page.inactive;
        self.page = None;
        let leaves = self.pages_left.as_mut().is_some_and(|left| {
            *left -= 1;
            *left == 0
        });
        if leaves {
            self.pages_left = surge.pages(&mut self.rng);
        }
        (pause, leaves)
    }
}
