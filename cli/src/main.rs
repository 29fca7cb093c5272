//! The command `oplus`: compiles kernels ahead of time and explains them.

mod bake;
mod explain;
mod generate;
mod library;
mod models;
mod output;
mod picture;
mod pressure;
mod programs;
mod receipts;
mod survey;
mod tile;
mod tiles;
mod tune;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;

/// Compiles the kernels of `scan!` blocks to PTX, and explains them.
#[derive(Parser)]
#[command(name = "oplus", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Generate(generate::Args),
    Bake(bake::Args),
    Explain(explain::Args),
    Receipts(receipts::Args),
    Survey(survey::Args),
    Tile(tile::Args),
    Tune(tune::Args),
}

/// The outcome of a command: nothing, or why it failed.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
        Command::Bake(args) => bake::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Receipts(args) => receipts::run(&args),
        Command::Survey(args) => survey::run(&args),
        Command::Tile(args) => tile::run(&args),
        Command::Tune(args) => tune::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
