//! `ptcctl names`: steers which callable names tools have.

use clap::Subcommand;
use ptc_protocol::route;

use super::{Context, Exit, reload};

#[derive(Debug, Subcommand)]
pub(super) enum Arguments {
    /// Forget every name given so far, so that each tool gets the one the rule gives it now
    Reset,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments {
        Arguments::Reset => reload::tell(context, route::NAMES_RESET).await,
    }
}
