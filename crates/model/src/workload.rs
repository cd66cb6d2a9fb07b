//! What applications write: generated traffic, and the rule that tells its flows apart.
//!
//! [`flows`] cuts a connection into flows by their pauses, online, for generated and for captured
//! packets alike. [`thin_client`] generates the screen updates of a remote desktop, with the figures
//! published of it as [`thin_client::TABLE_1`]. [`surge`] generates what people at browsers ask for;
//! [`stream`] is plain cross traffic. [`distributions`] are what generators draw from.

pub mod distributions;
pub mod flows;
pub mod stream;
pub mod surge;
pub mod thin_client;
