//! A gateway: axum, with the layer in front of its handlers.
//!
//! `cargo run --example gateway --features axum`; README.md beside it shows what to ask it.

mod app;

use std::error::Error;
use std::{env, fs};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let policy = match env::args().nth(1) {
        Some(file) => fs::read_to_string(file)?,
        None => include_str!("policy.toml").to_owned(),
    };
    let gateway = app::bind(&setting("LISTEN", "127.0.0.1:8080"), &setting("STORE", "memory:"), &policy).await?;
    println!("http://{}", gateway.addr);
    gateway.run().await?;
    Ok(())
}
