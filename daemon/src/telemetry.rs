//! The daemon's log: one masked line an event, on stderr.

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use crate::config::mask::{KeyError, Masker};

/// What is logged where `PTC_LOG` does not say.
pub const DEFAULT_FILTER: &str = "info,rmcp=warn";

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The process already has a log.
    #[error("the log is already set up")]
    Twice,
}

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Sets the process's log up: text to a terminal, JSON otherwise, filtered by `filter`
/// (the value of `PTC_LOG`). A filter that cannot be read is named in the log and the
/// default holds. A panic is logged as an error, masked like everything else.
pub fn init(masker: &Masker, filter: Option<&str>) -> Result<(), TelemetryError> {
    let form = if io::stderr().is_terminal() {
        Form::Text
    } else {
        Form::Json
    };
    let (parsed, fault) = read_filter(filter);
    let masking = Masking {
        masker: masker.clone(),
        to: io::stderr,
    };
    subscriber(form, parsed, masking)
        .try_init()
        .map_err(|_| TelemetryError::Twice)?;
    if let Some(fault) = fault {
        tracing::warn!("PTC_LOG is not a filter and is ignored: {fault}");
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("without a message");
        tracing::error!(place, "panic: {message}");
    }));
    Ok(())
}

fn read_filter(filter: Option<&str>) -> (EnvFilter, Option<String>) {
    let text = filter.filter(|text| !text.is_empty());
    match EnvFilter::try_new(text.unwrap_or(DEFAULT_FILTER)) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT_FILTER), Some(error.to_string())),
    }
}

fn subscriber<W>(
    form: Form,
    filter: EnvFilter,
    writer: Masking<W>,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .log_internal_errors(false);
    match form {
        Form::Text => Box::new(builder.finish()),
        Form::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

/// Makes writers that mask what they write.
struct Masking<W> {
    masker: Masker,
    to: W,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Masking<W> {
    type Writer = MaskingWriter<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        MaskingWriter {
            masker: self.masker.clone(),
            event: Vec::new(),
            to: self.to.make_writer(),
        }
    }
}

/// Collects one event, and masks and writes it when it is dropped: a value cannot
/// slip through between two writes.
struct MaskingWriter<W: Write> {
    masker: Masker,
    event: Vec<u8>,
    to: W,
}

impl<W: Write> Write for MaskingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.event.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Drop for MaskingWriter<W> {
    fn drop(&mut self) {
        let event = String::from_utf8_lossy(&self.event);
        let masked = self.masker.mask(&event);
        // A log that cannot be written has nowhere to say so.
        let _ = self.to.write_all(masked.as_bytes());
        let _ = self.to.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(form: Form, filter: &str, log: impl FnOnce()) -> String {
        let masker = Masker::with_key([1; 32], &BTreeMap::new());
        masker.register("TOKEN", "se\"cret-value");
        let lines = Lines::default();
        let written = lines.clone();
        let masking = Masking {
            masker,
            to: move || written.clone(),
        };
        let subscriber = subscriber(form, read_filter(Some(filter)).0, masking);
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn secrets_are_masked_in_both_forms_as_text_and_as_fields() {
        for form in [Form::Text, Form::Json] {
            let text = logged(form, "", || {
                let secret = "se\"cret-value";
                tracing::info!(secret, debug = ?secret, display = %secret, "got {secret}");
            });
            assert!(!text.contains("cret-value"), "{text}");
            assert_eq!(text.matches("<TOKEN:").count(), 4, "{text}");
            assert_eq!(text.lines().count(), 1);
        }
    }

    #[test]
    fn json_lines_stay_json() {
        let text = logged(Form::Json, "", || {
            tracing::warn!(server = "se\"cret-value", "lost\nit");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "lost\nit");
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn the_filter_holds_and_a_bad_one_gives_way_to_the_default() {
        let log = || {
            tracing::debug!("fine detail");
            tracing::info!(target: "rmcp::service", "chatter");
            tracing::info!("news");
        };
        assert_eq!(logged(Form::Text, "error", log), "");
        assert!(logged(Form::Text, "debug", log).contains("fine detail"));
        let (_, fault) = read_filter(Some("a=b=c"));
        assert!(fault.is_some());
        let text = logged(Form::Text, "a=b=c", log);
        assert!(text.contains("news") && !text.contains("chatter") && !text.contains("detail"));
    }
}
