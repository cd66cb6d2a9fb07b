//! Opens the storage: memory, and a disk where the settings ask for one.

use super::Cache;
use super::disk::CacheFolder;
use super::entry::CacheEntry;
use crate::settings;
use foyer::{
    BlockEngineConfig, DefaultHasher, DeviceBuilder, FsDeviceBuilder, HybridCache,
    HybridCacheBuilder, HybridCacheBuilderPhaseMemory, HybridCachePolicy,
};
use std::path::Path;
use std::sync::Arc;

pub(super) fn disk_of(settings: &settings::Cache) -> Option<(&Path, usize)> {
    Some((settings.directory.as_deref()?, settings.disk?.as_usize()))
}

impl Cache {
    pub(super) async fn build(
        &self,
        memory: usize,
    ) -> foyer::Result<HybridCache<String, CacheEntry>> {
        let Some((folder, (_, size))) = self.folder.clone().zip(disk_of(&self.settings)) else {
            return self.builder(memory).storage().build().await;
        };
        let alone = "the cache uses memory only";
        if let Err(why) = off_the_runtime(&folder, move |folder| folder.has_room(size as u64)).await
        {
            tracing::error!("{why}; {alone}");
            return self.builder(memory).storage().build().await;
        }
        match self.build_on_disk(&folder, size, memory).await {
            Ok(store) => {
                for work in [CacheFolder::give, CacheFolder::reserve] {
                    if let Err(why) = off_the_runtime(&folder, work).await {
                        tracing::error!("{why}");
                    }
                }
                Ok(store)
            }
            Err(error) => {
                tracing::error!(
                    "the cache cannot use {}: {error}; {alone}",
                    folder.path().display()
                );
                self.builder(memory).storage().build().await
            }
        }
    }

    fn builder(
        &self,
        memory: usize,
    ) -> HybridCacheBuilderPhaseMemory<String, CacheEntry, DefaultHasher> {
        HybridCacheBuilder::new()
            .with_name("http")
            .with_event_listener(Arc::clone(&self.counts) as _)
            .with_metrics_registry(Box::new(self.lost.clone()))
            // so that a crash loses little
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(memory)
            // one shard, so that the largest body fits
            .with_shards(1)
            .with_weighter(|key: &String, entry: &CacheEntry| key.len() + entry.size())
    }

    async fn build_on_disk(
        &self,
        folder: &CacheFolder,
        size: usize,
        memory: usize,
    ) -> foyer::Result<HybridCache<String, CacheEntry>> {
        let device = FsDeviceBuilder::new(folder.path()).with_capacity(size).build()?;
        // entries wait here for the disk, in a part of the cache's memory; further ones are dropped
        let waiting = self.settings.waiting().as_usize();
        let memory = memory.saturating_sub(self.settings.buffers().as_usize());
        let engine = BlockEngineConfig::new(device)
            .with_block_size(self.settings.block().as_usize())
            .with_buffer_pool_size(waiting)
            .with_submit_queue_size_threshold(waiting)
            // removed entries must not return at the next start
            .with_tombstone_log(true);
        self.builder(memory).storage().with_engine_config(engine).build().await
    }
}

async fn off_the_runtime(
    folder: &Arc<CacheFolder>,
    work: impl FnOnce(&CacheFolder) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let folder = Arc::clone(folder);
    let done = tokio::task::spawn_blocking(move || work(&folder)).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::entry::VaryRule;
    use crate::cache::tests::with_disk;
    use ekiden_model::units::Bytes;

    /// An entry of about 1 MiB in memory and on disk.
    fn large() -> CacheEntry {
        let names = (0..1_000).map(|n| format!("{n:01000}")).collect();
        CacheEntry::Varies(Arc::new(VaryRule { names, mark: 0 }))
    }

    /// On one thread, nothing is written before the last insert.
    #[tokio::test]
    async fn counts_entries_that_the_disk_drops() {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_disk(folder.path(), Bytes::mib(64), Bytes::mib(64)).await;
        let store = cache.store.get().unwrap();
        let entry = large();
        (0..40).for_each(|n| drop(store.insert(n.to_string(), entry.clone())));
        let status = cache.status();
        assert_eq!((status.entries, status.pushed_out), (40, 0));
        assert!(status.not_written > 20, "{status:?}");
        cache.close().await;
    }

    #[tokio::test]
    async fn counts_evictions_but_not_invalidations() {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_disk(folder.path(), Bytes::mib(16), Bytes::mib(64)).await;
        let (store, entry) = (cache.store.get().unwrap(), large());
        (0..10).for_each(|n| drop(store.insert(n.to_string(), entry.clone())));
        assert_eq!(cache.status().pushed_out, 10 - cache.status().entries);
        let pushed_out = cache.status().pushed_out;
        cache.remove("9");
        cache.remove("nothing");
        assert_eq!((cache.status().removed, cache.status().pushed_out), (1, pushed_out));
        cache.close().await;
    }

    #[tokio::test]
    async fn caches_in_memory_without_room_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings::Cache {
            memory: Some(Bytes::mib(16)),
            disk: Some(Bytes::new(1 << 60)),
            directory: Some(folder.path().to_owned()),
            largest: Bytes::mib(1),
        };
        let cache = Cache::open(&settings, Bytes::mib(64)).unwrap().unwrap();
        cache.is_open().await;
        assert_eq!(cache.status().disk_limit, None);
        let store = cache.store.get().unwrap();
        store.insert(
            "a".to_owned(),
            CacheEntry::Varies(Arc::new(VaryRule { names: vec![], mark: 7 })),
        );
        assert!(store.get("a").await.unwrap().is_some());
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "no more than the lock");
    }
}
