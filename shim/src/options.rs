//! The flags of `ptc-mcp`, read by hand because the shim stays small.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` prints.
pub const HELP: &str = "\
ptc-mcp: carries one MCP client's messages to ptcd, over stdin and stdout

Usage: ptc-mcp [--config FILE] [--socket PATH] [--client NAME] [--eof-wait SECONDS]

  --config FILE       configuration file of the daemon to use (also PTC_MCP_CONFIG)
  --socket PATH       its socket (also PTC_SOCKET)
  --client NAME       label of this client in `ptcctl status` and in the records
  --eof-wait SECONDS  how long answers are waited for after the end of stdin (default 5)
  --version, --help   print that and end
";

/// Longest `--client` label, in bytes.
const MAX_CLIENT_BYTES: usize = 128;
/// Longest `--eof-wait`, in seconds.
const MAX_EOF_WAIT: f64 = 86_400.0;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Serve the client.
    Serve(Options),
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
}

/// How the client is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `--client`.
    pub client: Option<String>,
    /// `--eof-wait`.
    pub eof_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: None,
            socket: None,
            client: None,
            eof_wait: Duration::from_secs(5),
        }
    }
}

/// Why a command line is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No such flag.
    #[error("unknown argument {argument:?}; see ptc-mcp --help")]
    Unknown {
        /// As written.
        argument: OsString,
    },
    /// A flag at the end that needs a value.
    #[error("{flag} needs a value")]
    NoValue {
        /// The flag.
        flag: &'static str,
    },
    /// A value that does not fit.
    #[error("{flag} cannot be {value:?}: {want}")]
    BadValue {
        /// The flag.
        flag: &'static str,
        /// As written.
        value: OsString,
        /// What fits.
        want: &'static str,
    },
}

/// Reads the arguments, the program's name not among them; `--flag=value` works too.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, OptionsError> {
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        let mut value = |flag| {
            inline
                .clone()
                .or_else(|| arguments.next())
                .ok_or(OptionsError::NoValue { flag })
        };
        match name {
            "--config" => options.config = Some(value("--config")?.into()),
            "--socket" => options.socket = Some(value("--socket")?.into()),
            "--client" => options.client = Some(label(value("--client")?)?),
            "--eof-wait" => options.eof_wait = seconds(value("--eof-wait")?)?,
            "--help" | "-h" if inline.is_none() => return Ok(Request::Help),
            "--version" | "-V" if inline.is_none() => return Ok(Request::Version),
            _ => return Err(OptionsError::Unknown { argument }),
        }
    }
    Ok(Request::Serve(options))
}

fn label(value: OsString) -> Result<String, OptionsError> {
    let fits = |text: &&str| {
        !text.is_empty() && text.len() <= MAX_CLIENT_BYTES && !text.chars().any(char::is_control)
    };
    match value.to_str().filter(fits) {
        Some(text) => Ok(text.to_owned()),
        None => Err(OptionsError::BadValue {
            flag: "--client",
            value,
            want: "a label is 1 to 128 bytes of printable text",
        }),
    }
}

fn seconds(value: OsString) -> Result<Duration, OptionsError> {
    let number = value.to_str().and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| (0.0..=MAX_EOF_WAIT).contains(number)) {
        Some(number) => Ok(Duration::from_secs_f64(number)),
        None => Err(OptionsError::BadValue {
            flag: "--eof-wait",
            value,
            want: "seconds from 0 to 86400",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Request, OptionsError> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn every_flag_is_read_in_both_forms() {
        let want = Request::Serve(Options {
            config: Some("c".into()),
            socket: Some("s".into()),
            client: Some("cursor".into()),
            eof_wait: Duration::from_millis(500),
        });
        let words = [
            "--config",
            "c",
            "--socket=s",
            "--client",
            "cursor",
            "--eof-wait=0.5",
        ];
        assert_eq!(parse_words(&words), Ok(want));
        assert_eq!(parse_words(&[]), Ok(Request::Serve(Options::default())));
        assert_eq!(parse_words(&["--client", "x", "-h"]), Ok(Request::Help));
        assert_eq!(parse_words(&["--version"]), Ok(Request::Version));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (words, want) in [
            (
                &["serve"][..],
                "unknown argument \"serve\"; see ptc-mcp --help",
            ),
            (&["--config"], "--config needs a value"),
            (
                &["--eof-wait", "soon"],
                "--eof-wait cannot be \"soon\": seconds from 0 to 86400",
            ),
            (
                &["--eof-wait", "-1"],
                "--eof-wait cannot be \"-1\": seconds from 0 to 86400",
            ),
            (
                &["--client="],
                "--client cannot be \"\": a label is 1 to 128 bytes of printable text",
            ),
            (
                &["--help=x"],
                "unknown argument \"--help=x\"; see ptc-mcp --help",
            ),
        ] {
            assert_eq!(parse_words(words).unwrap_err().to_string(), want);
        }
    }
}
