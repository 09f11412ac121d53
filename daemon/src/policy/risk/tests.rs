//! Rubrics against a stand-in that answers, hangs, lies, fails and breaks off.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::RiskKind;

/// What the stand-in does with one question, which it is told as the model would be.
type Script = dyn Fn(&Value) -> Does + Send + Sync;

enum Does {
    /// Answers with this verdict.
    Says(&'static str),
    /// Writes these bytes and closes the connection.
    Writes(String),
    /// Says nothing and keeps the connection.
    Hangs,
}

struct StandIn {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl StandIn {
    async fn start(script: impl Fn(&Value) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            heads: Arc::default(),
            open: Arc::default(),
            most: Arc::default(),
        };
        let script: Arc<Script> = Arc::new(script);
        let (heads, open, most) = (this.heads.clone(), this.open.clone(), this.most.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, heads) = (Arc::clone(&script), Arc::clone(&heads));
                let (open, most) = (Arc::clone(&open), Arc::clone(&most));
                tokio::spawn(async move {
                    let _ = serve(stream, &script, &heads, (&open, &most)).await;
                });
            }
        });
        this
    }

    fn asked(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &Arc<Script>,
    heads: &Mutex<Vec<String>>,
    (open, most): (&AtomicUsize, &AtomicUsize),
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let body = loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        if body.len() >= length {
            heads.lock().unwrap().push(head);
            break body.to_owned();
        }
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let told = messages.last().unwrap()["content"].as_str().unwrap();
    let told: Value = serde_json::from_str(told).unwrap();
    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let answer = match script(&told) {
        Does::Says(word) => Some(whole(&said(&body, word))),
        Does::Writes(bytes) => Some(bytes),
        Does::Hangs => None,
    };
    // Others that are let in come in meanwhile.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    open.fetch_sub(1, Ordering::SeqCst);
    match answer {
        Some(bytes) => stream.write_all(bytes.as_bytes()).await,
        None => std::future::pending().await,
    }
}

/// A verdict in the protocol of the request.
fn said(request: &Value, word: &str) -> String {
    let said = json!({"verdict": word, "reason": format!("because of {word}")});
    let answer = if request.get("tool_choice").is_some() {
        json!({
            "content": [{"type": "tool_use", "name": "verdict", "input": said}],
            "stop_reason": "tool_use",
        })
    } else {
        json!({"choices": [{"message": {"content": said.to_string()}, "finish_reason": "stop"}]})
    };
    answer.to_string()
}

fn whole(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn config(stand_in: &StandIn, change: impl FnOnce(&mut RiskConfig)) -> RiskConfig {
    let mut config = RiskConfig {
        name: "careful".to_owned(),
        rubric: "no strangers".to_owned(),
        kind: RiskKind::Anthropic,
        base_url: format!("http://127.0.0.1:{}/base", stand_in.port)
            .parse()
            .unwrap(),
        model: "m1".to_owned(),
        api_key: Some("${KEY}".to_owned()),
        tools: vec!["mcp__mail__*".to_owned()],
        // Nothing here is to depend on how fast this machine is.
        timeout: Duration::from_mins(1),
        on_error: OnError::Deny,
        max_per_program: 50,
        temperature: true,
    };
    change(&mut config);
    config
}

fn risk(stand_in: &StandIn, change: impl FnOnce(&mut RiskConfig)) -> Risk {
    let keys = |_: &str| Ok("sk-hunter2".to_owned());
    Risk::open(&[config(stand_in, change)], &keys).unwrap()
}

fn asked(arguments: &str) -> Asked<'_> {
    Asked {
        tool: ToolFacts {
            callable: "mcp__mail__send",
            plain: "mcp__mail__send",
            server: "mail",
            tool: "send",
            description: Some("sends a message"),
            annotations: None,
            input_schema: None,
            output_schema: None,
        },
        effect: Effect::Write,
        hints: Hints {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: true,
        },
        arguments,
        session: "s1",
    }
}

async fn judged(risk: &Risk, arguments: &str, tab: &Tab) -> Opinion {
    let rubrics = ["careful".to_owned()];
    let opinions = risk.judge(&rubrics, &asked(arguments), tab).await;
    assert_eq!(opinions.len(), 1);
    opinions.into_iter().next().unwrap()
}

fn word(opinion: &Opinion) -> &'static str {
    opinion.verdict.as_str()
}

fn by_argument(told: &Value) -> Does {
    match told["arguments"]["case"].as_str() {
        Some("allow") => Does::Says("allow"),
        Some("ask") => Does::Says("ask"),
        Some("deny") => Does::Says("deny"),
        Some("lie") => Does::Says("certainly"),
        Some("nonsense") => Does::Writes(whole("<html>allow</html>")),
        Some("500") => Does::Writes(
            "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        ),
        Some("moved") => Does::Writes(
            "HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        // A whole verdict, of which a part was not sent.
        Some("half") => {
            let body = said(&json!({"tool_choice": 1}), "allow");
            Does::Writes(whole(&body).replace("Content-Length: ", "Content-Length: 9"))
        }
        Some("cut") => Does::Writes("HTTP/1.1 200 OK\r\nContent-".to_owned()),
        Some("long") => Does::Writes(whole(&" ".repeat(MAX_ARGUMENTS * 10))),
        _ => Does::Hangs,
    }
}

#[tokio::test]
async fn each_verdict_counts_in_both_protocols_and_the_call_is_all_that_is_told() {
    for kind in [RiskKind::Anthropic, RiskKind::OpenAi] {
        let stand_in = StandIn::start(|told| {
            let keys: Vec<&String> = told.as_object().unwrap().keys().collect();
            assert_eq!(
                keys,
                [
                    "server",
                    "tool",
                    "description",
                    "effect",
                    "hints",
                    "arguments"
                ]
            );
            by_argument(told)
        })
        .await;
        let risk = risk(&stand_in, |config| config.kind = kind);
        let tab = Tab::default();
        let allow = judged(&risk, r#"{"case":"allow"}"#, &tab).await;
        assert_eq!(
            (allow.verdict, allow.why.as_str()),
            (Verdict::Allow, "because of allow")
        );
        let ask = judged(&risk, r#"{"case":"ask"}"#, &tab).await;
        let reason = "risk policy \"careful\": because of ask".to_owned();
        assert_eq!(ask.verdict, Verdict::Ask { reason });
        let deny = judged(&risk, r#"{"case":"deny"}"#, &tab).await;
        // The model's words are for the journal only.
        let reason = "risk policy \"careful\" denies this call".to_owned();
        assert_eq!(
            (deny.verdict, deny.why.as_str()),
            (Verdict::Deny { reason }, "because of deny")
        );
        let head = stand_in.heads.lock().unwrap()[0].clone();
        let wants = match kind {
            RiskKind::Anthropic => ["post /base/v1/messages ", "x-api-key: sk-hunter2\r\n"],
            RiskKind::OpenAi => [
                "post /base/chat/completions ",
                "authorization: bearer sk-hunter2\r\n",
            ],
        };
        for want in wants {
            assert!(format!("{head}\r\n").contains(want), "{head}");
        }
        assert!(!format!("{risk:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn whatever_is_no_verdict_is_a_no_or_a_question_as_configured() {
    let stand_in = StandIn::start(by_argument).await;
    for (on_error, want) in [(OnError::Deny, "deny"), (OnError::Ask, "ask")] {
        let risk = risk(&stand_in, |config| config.on_error = on_error);
        for (case, words) in [
            ("lie", "cannot be read"),
            ("nonsense", "cannot be read"),
            ("500", "HTTP 500"),
            ("moved", "HTTP 307"),
            ("half", "broke off"),
            ("cut", "it cannot be asked"),
            ("long", "more than 65536 bytes"),
        ] {
            let arguments = format!(r#"{{"case":"{case}"}}"#);
            let opinion = judged(&risk, &arguments, &Tab::default()).await;
            assert_eq!(word(&opinion), want, "{case}: {opinion:?}");
            assert!(opinion.why.contains(words), "{case}: {opinion:?}");
            assert!(!format!("{opinion:?}").contains("hunter2"));
        }
    }
    let nobody = risk(&stand_in, |config| {
        // Nobody listens there: it is the port of a listener that is gone.
        let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = gone.local_addr().unwrap().port();
        config.base_url.set_port(Some(port)).unwrap();
    });
    let opinion = judged(&nobody, r#"{"case":"allow"}"#, &Tab::default()).await;
    assert_eq!(word(&opinion), "deny");
    let hangs = risk(&stand_in, |config| {
        config.timeout = Duration::from_millis(50);
    });
    let opinion = judged(&hangs, r#"{"case":"hang"}"#, &Tab::default()).await;
    assert_eq!(word(&opinion), "deny");
    assert!(
        opinion.why.contains("no answer within 0.05 s"),
        "{opinion:?}"
    );
}

#[tokio::test]
async fn a_yes_is_remembered_for_its_session_and_nothing_else_is() {
    let stand_in = StandIn::start(by_argument).await;
    let risk = risk(&stand_in, |_| {});
    let tab = Tab::default();
    let allow = r#"{"case":"allow"}"#;
    for _ in 0..3 {
        assert_eq!(word(&judged(&risk, allow, &tab).await), "allow");
    }
    assert_eq!(stand_in.asked(), 1);
    let rubrics = ["careful".to_owned()];
    let other = Asked {
        session: "s2",
        ..asked(allow)
    };
    risk.judge(&rubrics, &other, &tab).await;
    assert_eq!(stand_in.asked(), 2);
    for (case, asked) in [
        ("ask", 3),
        ("ask", 4),
        ("500", 5),
        ("500", 6),
        ("deny", 7),
        ("deny", 8),
    ] {
        judged(&risk, &format!(r#"{{"case":"{case}"}}"#), &tab).await;
        assert_eq!(stand_in.asked(), asked, "{case}");
    }
}

#[tokio::test]
async fn the_same_call_at_once_is_asked_once_and_others_four_at_a_time() {
    let stand_in = StandIn::start(|_| Does::Says("allow")).await;
    let risk = risk(&stand_in, |_| {});
    let tab = Tab::default();
    let same = judged(&risk, "{}", &tab);
    let (first, second) = tokio::join!(same, judged(&risk, "{}", &tab));
    assert_eq!((word(&first), word(&second)), ("allow", "allow"));
    assert_eq!(stand_in.asked(), 1);
    let risk = Arc::new(risk);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..24 {
        let risk = Arc::clone(&risk);
        all.spawn(
            async move { judged(&risk, &format!(r#"{{"n":{number}}}"#), &Tab::default()).await },
        );
    }
    for opinion in all.join_all().await {
        assert_eq!(word(&opinion), "allow");
    }
    assert_eq!(stand_in.asked(), 25);
    assert!(stand_in.most.load(Ordering::SeqCst) <= AT_ONCE);
}

#[tokio::test]
async fn who_tries_is_stopped_and_who_asks_much_is_put_to_a_person() {
    let stand_in = StandIn::start(by_argument).await;
    let risk = risk(&stand_in, |config| config.max_per_program = 4);
    let tab = Tab::default();
    let deny = |number: usize| format!(r#"{{"case":"deny","n":{number}}}"#);
    for number in 0..3 {
        judged(&risk, &deny(number), &tab).await;
    }
    // Not even what would be fine is asked about any more.
    let stopped = judged(&risk, r#"{"case":"allow"}"#, &tab).await;
    assert_eq!(word(&stopped), "deny");
    assert!(
        stopped.why.contains("3 calls of this program in a row"),
        "{stopped:?}"
    );
    assert_eq!(stand_in.asked(), 3);
    let tab = Tab::default();
    for number in 0..4 {
        let allow = format!(r#"{{"case":"allow","n":{number}}}"#);
        assert_eq!(word(&judged(&risk, &allow, &tab).await), "allow");
    }
    assert_eq!(
        word(&judged(&risk, r#"{"case":"allow","n":9}"#, &tab).await),
        "ask"
    );
    // What is remembered needs no request.
    assert_eq!(
        word(&judged(&risk, r#"{"case":"allow","n":0}"#, &tab).await),
        "allow"
    );
    assert_eq!(stand_in.asked(), 7);
    for number in 3..20 {
        judged(&risk, &deny(number), &Tab::default()).await;
    }
    let stopped = judged(&risk, &deny(20), &Tab::default()).await;
    assert!(
        stopped.why.contains("20 calls of this client"),
        "{stopped:?}"
    );
    assert_eq!(stand_in.asked(), 24);
}

#[tokio::test]
async fn arguments_that_are_not_told_whole_are_never_just_allowed() {
    let stand_in = StandIn::start(|told| {
        assert_eq!(told["arguments"]["bytes"], 9012);
        assert_eq!(told["arguments"]["sha256"].as_str().unwrap().len(), 64);
        Does::Says("allow")
    })
    .await;
    let risk = risk(&stand_in, |_| {});
    let long = format!(r#"{{"text":"é{}é"}}"#, "x".repeat(8997));
    let opinion = judged(&risk, &long, &Tab::default()).await;
    assert_eq!(word(&opinion), "ask", "{opinion:?}");
}

#[test]
fn a_key_that_is_not_to_be_had_is_an_error_that_does_not_tell_it() {
    let config = RiskConfig {
        name: "careful".to_owned(),
        rubric: "x".to_owned(),
        kind: RiskKind::OpenAi,
        base_url: "https://h/v1".parse().unwrap(),
        model: "m".to_owned(),
        api_key: Some("${KEY}".to_owned()),
        tools: Vec::new(),
        timeout: Duration::from_secs(1),
        on_error: OnError::Ask,
        max_per_program: 1,
        temperature: false,
    };
    for (key, words) in [
        (
            Err("the variable KEY has no value".to_owned()),
            "the variable KEY has no value",
        ),
        (Ok(String::new()), "is empty"),
        (Ok("hunter2\nX: y".to_owned()), "holds what no header can"),
    ] {
        let keys = |_: &str| key.clone();
        let error = Risk::open(std::slice::from_ref(&config), &keys).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("policy.risk careful: ") && error.contains(words),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn opinions_only_tighten() {
    let ask = |reason: &str| Verdict::Ask {
        reason: reason.to_owned(),
    };
    let deny = |reason: &str| Verdict::Deny {
        reason: reason.to_owned(),
    };
    for (before, opinions, want, once_only) in [
        (Verdict::Allow, vec![Verdict::Allow], Verdict::Allow, false),
        (Verdict::Allow, vec![ask("r")], ask("r"), true),
        (Verdict::Allow, vec![ask("r"), deny("d")], deny("d"), true),
        (ask("a"), vec![Verdict::Allow], ask("a"), false),
        (ask("a"), vec![ask("r"), Verdict::Allow], ask("a; r"), true),
        (ask(""), vec![ask("r")], ask("r"), true),
        (ask("a"), vec![deny("d")], deny("d"), false),
        (deny("b"), vec![Verdict::Allow, ask("r")], deny("b"), false),
    ] {
        let opinions = opinions.into_iter().map(|verdict| Opinion {
            rubric: "careful".to_owned(),
            verdict,
            why: String::new(),
        });
        let decision = Decision::new(before.clone(), Step::Cedar, Effect::Write);
        let after = tightened(decision, opinions.collect());
        assert_eq!(
            (&after.verdict, after.once_only),
            (&want, once_only),
            "{before:?}"
        );
    }
}
