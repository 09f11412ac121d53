//! `ptcctl restart`: has the daemon end, then starts it anew.

use super::output::print_json;
use super::stop::{self, Arguments, End};
use super::{Context, Exit, start};

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match stop::end(context, arguments.timeout()).await {
        Ok(End { ended: true, .. }) => {}
        Ok(end) => {
            if context.output.json {
                print_json(&end.json())?;
            }
            return Ok(Exit::Failure);
        }
        Err(error) if super::exit_of(&error) == Exit::NotRunning => {}
        Err(error) => return Err(error),
    }
    start::run(context).await
}
