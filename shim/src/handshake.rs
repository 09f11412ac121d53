//! Says who the client is, in the three lines before the first MCP message.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use ptc_protocol::paths::{Places, variable};
use ptc_protocol::{
    BUILD, HANDSHAKE_TIMEOUT, Hello, MAX_HANDSHAKE_BYTES, MAX_LINE_BYTES, MAX_VARIABLE_BYTES,
    MAX_WANTED_VARIABLES, PROTOCOL, PROTOCOL_MIN, SessionId, Unsendable, Vars, Welcome,
    is_variable_name,
};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::connect::Stream;
use crate::lines::Frame;

/// Why the stream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The daemon will not serve this client.
    #[error("{message}")]
    Refused {
        /// The daemon's sentence.
        message: String,
    },
    /// The daemon chose a protocol number that was not offered.
    #[error(
        "the daemon (build {build}) speaks protocol {protocol}, this build {BUILD} speaks {PROTOCOL_MIN} to {PROTOCOL}: install both from one build and run `ptcctl restart`"
    )]
    OtherProtocol {
        /// The daemon's build.
        build: String,
        /// Its number.
        protocol: u32,
    },
    /// The daemon did not say its line in time.
    #[error("the daemon did not finish the handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Silent,
    /// The daemon's line is no welcome.
    #[error("the daemon's welcome cannot be read: {reason}")]
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// The stream broke.
    #[error("the daemon ended the connection during the handshake: {source}")]
    Broken {
        /// The system's reason.
        #[from]
        source: io::Error,
    },
    /// The system has no random bits for the session's id.
    #[error("no random bits for the session's id: {source}")]
    NoRandom {
        /// The system's reason.
        source: getrandom::Error,
    },
}

impl HandshakeError {
    /// Whether trying again by itself is of no use.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::OtherProtocol { .. })
    }
}

/// A new session's id.
pub fn new_session() -> Result<SessionId, HandshakeError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|source| HandshakeError::NoRandom { source })?;
    Ok(SessionId::from_random(bytes))
}

/// The hello of this process.
pub fn hello(places: &Places, session: SessionId, client: Option<String>) -> Hello {
    let fits = |value: &String| !value.is_empty() && value.len() <= MAX_VARIABLE_BYTES;
    let text = |name| std::env::var(name).ok().filter(fits);
    Hello {
        protocol: [PROTOCOL_MIN, PROTOCOL],
        build: BUILD.to_owned(),
        session,
        client,
        cwd: std::env::current_dir().ok().as_deref().and_then(as_text),
        project_dir: text(variable::CLAUDE_PROJECT_DIR),
        client_session: text(variable::CLAUDE_CODE_SESSION_ID),
        pid: std::process::id(),
        config: places.hello_config(),
        renews: true,
    }
}

fn as_text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

/// Does the handshake on a fresh stream; `lookup` answers for the variables the daemon wants. Gives
/// the daemon's build.
pub async fn shake(
    stream: &mut Stream,
    hello: &Hello,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<String, HandshakeError> {
    let work = async {
        write_line(stream, &serde_json::to_vec(hello).map_err(io::Error::from)?).await?;
        let line = match stream.lines.next().await? {
            Some(Frame::Line(line)) => line,
            Some(Frame::TooLong(_)) => {
                return Err(HandshakeError::Unreadable {
                    reason: format!("it has more than {MAX_HANDSHAKE_BYTES} bytes"),
                });
            }
            None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        };
        let (build, wants) = read_welcome(&line)?;
        let vars = wanted(&wants, lookup);
        write_line(stream, &serde_json::to_vec(&vars).map_err(io::Error::from)?).await?;
        stream.lines.set_limit(MAX_LINE_BYTES);
        Ok(build)
    };
    timeout(HANDSHAKE_TIMEOUT, work)
        .await
        .map_err(|_| HandshakeError::Silent)?
}

async fn write_line(stream: &mut Stream, line: &[u8]) -> io::Result<()> {
    stream.writer.write_all(&[line, b"\n"].concat()).await
}

/// The daemon's build, and the names it asks for.
fn read_welcome(line: &[u8]) -> Result<(String, Vec<String>), HandshakeError> {
    let welcome = serde_json::from_slice(line).map_err(|source| HandshakeError::Unreadable {
        reason: source.to_string(),
    })?;
    match welcome {
        Welcome::Refused { message } => Err(HandshakeError::Refused { message }),
        Welcome::Welcome {
            protocol, build, ..
        } if !(PROTOCOL_MIN..=PROTOCOL).contains(&protocol) => {
            Err(HandshakeError::OtherProtocol { build, protocol })
        }
        Welcome::Welcome { build, wants, .. } => Ok((build, wants)),
    }
}

/// The values for the wanted names, within every limit of the handshake, and why those that are left out are.
fn wanted(names: &[String], lookup: impl Fn(&str) -> Option<OsString>) -> Vars {
    let names = names.iter().filter(|name| is_variable_name(name));
    let had = names
        .take(MAX_WANTED_VARIABLES)
        .filter_map(|name| Some((name, fitting(lookup(name)?))));
    let had: Vec<_> = had.collect();
    // The braces of the whole, and room to say of each that it is left out.
    let words: usize = had.iter().map(|(name, _)| left_out(name)).sum();
    let mut room = MAX_HANDSHAKE_BYTES.saturating_sub(2 + words);
    let mut vars = Vars::new();
    for (name, value) in had {
        let value = value.and_then(|value| {
            let written = serde_json::Value::from(value.as_str()).to_string().len();
            // Quotes, colon and comma of a pair.
            room = room
                .checked_sub(name.len() + written + 4)
                .ok_or(Unsendable::NoRoom)?;
            Ok(value)
        });
        match value {
            Ok(value) => vars.insert(name.clone(), value),
            Err(why) => vars.insert(Unsendable::key(name), why.word().to_owned()),
        };
    }
    vars
}

fn fitting(value: OsString) -> Result<String, Unsendable> {
    if value.len() > MAX_VARIABLE_BYTES {
        return Err(Unsendable::TooLong);
    }
    value.into_string().map_err(|_| Unsendable::NotText)
}

/// Bytes that it takes to say that a variable is left out: the key with its mark, a word, and what is around them.
fn left_out(name: &str) -> usize {
    name.len() + 1 + "\"\":\"too_long\",".len()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn only_wanted_variables_of_the_right_form_and_size_are_sent_and_of_others_is_said_why() {
        let names = ["TOKEN", "A-B", "ABSENT", "HUGE", "EMPTY", "BYTES"].map(str::to_owned);
        let vars = wanted(&names, |name| match name {
            "ABSENT" => None,
            "HUGE" => Some("x".repeat(MAX_VARIABLE_BYTES + 1).into()),
            "EMPTY" => Some(OsString::new()),
            "BYTES" => Some(OsStringExt::from_vec(vec![0xff, 0xfe])),
            _ => Some("value".into()),
        });
        let want = [
            ("!BYTES", "not_text"),
            ("!HUGE", "too_long"),
            ("EMPTY", ""),
            ("TOKEN", "value"),
        ];
        assert_eq!(vars, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn the_line_of_variables_stays_within_its_limit() {
        let names: Vec<String> = (0..200).map(|n| format!("N{n:0>100}")).collect();
        let vars = wanted(&names, |_| {
            Some("\u{1}".repeat(MAX_VARIABLE_BYTES / 4).into())
        });
        assert_eq!(vars.len(), MAX_WANTED_VARIABLES);
        let (left_out, sent): (Vec<_>, Vec<_>) =
            vars.iter().partition(|(name, _)| name.starts_with('!'));
        assert!(!sent.is_empty());
        assert!(left_out.iter().all(|(_, why)| *why == "no_room"));
        assert!(serde_json::to_vec(&vars).unwrap().len() <= MAX_HANDSHAKE_BYTES);
    }

    #[test]
    fn a_refusal_and_another_protocol_are_final() {
        let error = read_welcome(br#"{"refused":{"message":"not here"}}"#).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.is_refusal()),
            ("not here", true)
        );
        let line = br#"{"welcome":{"protocol":99,"build":"9.0","wants":[]}}"#;
        assert!(read_welcome(line).unwrap_err().is_refusal());
        assert!(!read_welcome(b"hm").unwrap_err().is_refusal());
        let line = br#"{"welcome":{"protocol":1,"build":"9.0","wants":["A"]}}"#;
        let read = read_welcome(line).unwrap();
        assert_eq!(read, ("9.0".to_owned(), vec!["A".to_owned()]));
    }
}
