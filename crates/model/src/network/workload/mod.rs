//! Traffic of applications: [`thin_client`] (screen updates of a remote desktop), [`surge`] (people
//! at browsers), [`stream`] (cross traffic), drawn from [`distributions`]; and [`flows`], which
//! cuts generated and captured connections by their pauses.

pub mod distributions;
pub mod flows;
pub mod stream;
pub mod surge;
pub mod thin_client;
