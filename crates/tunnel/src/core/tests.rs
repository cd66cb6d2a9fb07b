//! Two cores with the model's link between them, on virtual time.

mod flows;
mod measures;
mod trust;
mod world;
