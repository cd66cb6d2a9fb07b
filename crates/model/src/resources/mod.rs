//! How memory, connections and rates are divided among those that move data.

pub mod associations;
pub mod budget;
pub mod buffers;
pub mod heap_trim;
pub mod idle;
pub mod idle_timeout;
pub mod initial_rate;
pub mod orphan;
pub mod overload;
pub mod quota;
pub mod send_queue;
pub mod socket_memory;
