//! The switches of the scripted MCP server.

use std::path::PathBuf;
use std::time::Duration;

/// What the server was told to do wrong; without a switch it behaves well.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, and they combine"
)]
pub(super) struct Options {
    /// File the `figures` tool reads at each call: an object, ticker to list of numbers.
    pub(super) figures: Option<PathBuf>,
    /// File with a script: `tools` in place of the server's own, and `answers`, tool to the text
    /// of the members that its answers have beside the id. A tool without one echoes its call.
    pub(super) script: Option<PathBuf>,
    /// The switches that act on a call act only while this file is absent; acting makes it.
    pub(super) once: Option<PathBuf>,
    /// End the process in the middle of a call of `echo`.
    pub(super) die_mid_call: bool,
    /// Never answer a call of `echo`.
    pub(super) hang: bool,
    /// Answer a call of `echo` with result and error both.
    pub(super) lie: bool,
    /// Answer a call of `echo` under id 0.
    pub(super) id_zero: bool,
    /// Answer a call of `echo` with a line of at least this many bytes.
    pub(super) oversize: Option<usize>,
    /// Answer `add` with a value that breaks the declared output schema.
    pub(super) bad_sum: bool,
    /// Answer `raw_result` with the very text it was given, and `echo` with the text of its arguments as it came.
    pub(super) verbatim: bool,
    /// Keep this many answers to calls back, then send them last first.
    pub(super) reorder: Option<usize>,
    /// Never answer `initialize`.
    pub(super) no_init: bool,
    /// Wait this long before answering `initialize`.
    pub(super) slow_init: Option<Duration>,
    /// Write a reason to stderr and end with this code at once.
    pub(super) exit_at_start: Option<u8>,
    /// Write lines that are no protocol to stdout first.
    pub(super) banner: bool,
    /// Write megabytes without a newline to stderr first.
    pub(super) stderr_flood: bool,
    /// List this many tools a page.
    pub(super) paged: Option<usize>,
    /// Send this many `list_changed` after the handshake.
    pub(super) list_changed_storm: usize,
    /// Speak the revision without a handshake only: refuse `initialize` with an error, or end at it.
    pub(super) modern: Option<Modern>,
    /// Keep running after the end of stdin.
    pub(super) stubborn: bool,
}

/// How a server of the newer revision takes `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modern {
    /// With an error, and is of no more use.
    Refuses,
    /// It ends.
    Ends,
}

impl Options {
    /// Reads the command line.
    pub(super) fn parse(mut args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(name) = args.next() {
            let mut value = || {
                args.next()
                    .ok_or_else(|| anyhow::anyhow!("{name} takes a value"))
            };
            match name.as_str() {
                "--figures" => options.figures = Some(value()?.into()),
                "--script" => options.script = Some(value()?.into()),
                "--once" => options.once = Some(value()?.into()),
                "--die-mid-call" => options.die_mid_call = true,
                "--hang" => options.hang = true,
                "--lie" => options.lie = true,
                "--id-zero" => options.id_zero = true,
                "--oversize" => options.oversize = Some(value()?.parse()?),
                "--bad-sum" => options.bad_sum = true,
                "--verbatim" => options.verbatim = true,
                "--reorder" => options.reorder = Some(value()?.parse()?),
                "--no-init" => options.no_init = true,
                "--slow-init" => {
                    options.slow_init = Some(Duration::from_millis(value()?.parse()?));
                }
                "--exit-at-start" => options.exit_at_start = Some(value()?.parse()?),
                "--banner" => options.banner = true,
                "--stderr-flood" => options.stderr_flood = true,
                "--paged" => options.paged = Some(value()?.parse()?),
                "--list-changed-storm" => options.list_changed_storm = value()?.parse()?,
                "--modern" => {
                    options.modern = Some(match value()?.as_str() {
                        "refuses" => Modern::Refuses,
                        "ends" => Modern::Ends,
                        other => anyhow::bail!("no such way to be modern: {other}"),
                    });
                }
                "--stubborn" => options.stubborn = true,
                // A mark by which a test finds the process; it does nothing.
                "--tag" => drop(value()?),
                _ => anyhow::bail!("unknown switch {name}"),
            }
        }
        Ok(options)
    }

    /// Whether a switch that acts on a call is to act on this one.
    pub(super) fn misbehaves_now(&self) -> bool {
        match &self.once {
            None => true,
            Some(file) => std::fs::File::create_new(file).is_ok(),
        }
    }
}
