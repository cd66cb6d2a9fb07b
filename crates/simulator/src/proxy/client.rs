//! A client: a page, its documents one after the other, a pause to think, the next page.

use super::set_up::Far;
use ekiden_model::rng::Rng;
use ekiden_model::units::{Share, Span, Time};
use ekiden_model::workload::distributions::uniform;
use ekiden_model::workload::surge::{Page, Surge};

/// A document that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) bytes: u64,
    pub(super) server: u32,
    /// Whether the cache has it.
    pub(super) hit: bool,
    /// Since when.
    pub(super) since: Time,
}

/// A client while it runs.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) far: Far,
    rng: Rng,
    page: Option<Page>,
    server: u32,
    /// The next of the page.
    next: usize,
    /// Until somebody else comes.
    pages_left: Option<u32>,
    /// Its connection to the proxy.
    pub(super) connection: Option<u32>,
    /// When it has heard that its last connection is closed.
    pub(super) hears: Time,
    /// What it waits for.
    pub(super) wish: Option<Wish>,
    /// When it acts next by itself.
    pub(super) due: Time,
}

impl Client {
    pub(super) fn new(far: Far, surge: &Surge, mut rng: Rng) -> Self {
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

    /// What it asks for next. All that is drawn follows from its own stream, so that the n-th wish is the
    /// same whatever became of those before.
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

    /// Its wish is fulfilled, or refused, which ends the page. Says for how long it pauses, and whether
    /// it is somebody else who comes then.
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
