//! Servers that run once for each project folder.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::projects::MAX_INSTANCES;
use super::super::testing::{eventually, options, server};
use super::super::*;
use super::{alive, structured_of, text_of};

const LIMIT: Duration = Duration::from_secs(20);
/// The one tool gives the working directory, after as long as its argument says.
const WHERE: &str = r#"
def call(m):
    time.sleep(m["params"]["arguments"].get("for", 0))
    reply(m, text(os.getcwd()))
"#;

struct Bench {
    downstream: Downstream,
    config: ServerConfig,
    folder: TempDir,
}

impl Bench {
    fn new(mode: &str, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = scoped(mode, &folder);
        let mut options = options(folder.path());
        change(&mut options);
        let downstream = Downstream::start(vec![config.clone()], options).unwrap();
        Self {
            downstream,
            config,
            folder,
        }
    }

    /// A client in the folder of a project, which is made.
    fn client(&self, project: &str) -> View {
        let path = self.folder.path().join(project);
        std::fs::create_dir_all(&path).unwrap();
        View {
            client: Arc::from(project),
            project: Some(Arc::from(path.canonicalize().unwrap())),
            ..View::default()
        }
    }

    fn call(
        &self,
        view: &View,
        tool: &str,
        arguments: &str,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let (downstream, view) = (self.downstream.clone(), view.clone());
        let (tool, arguments): (String, Arc<str>) = (tool.to_owned(), Arc::from(arguments));
        async move {
            let cancel = CancellationToken::new();
            let call = downstream.call(&view, "s", &tool, arguments, LIMIT, &cancel);
            call.await
        }
    }

    async fn pid(&self, view: &View) -> String {
        let answer = self.call(view, "stats", "{}").await.unwrap();
        structured_of(&answer)["pid"].to_string()
    }

    fn seen(&self, view: &View) -> Server {
        self.downstream.servers_for(view).remove(0)
    }

    fn overview(&self) -> ServerStatus {
        self.downstream.servers().remove(0).state
    }
}

fn scoped(mode: &str, folder: &TempDir) -> ServerConfig {
    let mut config = server("s", mode, folder.path());
    config.scope = Scope::Project;
    if let Transport::Stdio { cwd, .. } = &mut config.transport {
        *cwd = Some("${project}".to_owned());
    }
    config
}

#[tokio::test]
async fn each_project_has_a_process_in_its_folder_which_its_clients_share() {
    let bench = Bench::new(WHERE, |_| {});
    let (a, b) = (bench.client("a"), bench.client("b"));
    for view in [&a, &b] {
        let answer = bench.call(view, "t", "{}").await.unwrap();
        let folder = view.project.as_ref().unwrap().display().to_string();
        assert_eq!(text_of(&answer), folder);
    }
    let other = View {
        client: Arc::from("other"),
        ..a.clone()
    };
    let (first, second) = (bench.pid(&a).await, bench.pid(&b).await);
    assert_eq!(bench.pid(&other).await, first);
    assert_ne!(first, second);
    let shown = bench.overview();
    assert_eq!(
        (shown.state, shown.tools, shown.calls),
        (ServerState::Ready, Some(2), 5)
    );
    assert_eq!(shown.detail.as_deref(), Some("for 2 projects, ready for 2"));
    let notes = shown.notes.join("\n");
    assert!(
        notes.contains(&format!("pid {first}")) && notes.contains("s.2.log"),
        "{notes}"
    );
    bench.downstream.stop().await;
    assert!(!alive(&first) && !alive(&second));
}

#[tokio::test]
async fn a_client_without_a_project_is_told_what_to_do() {
    let bench = Bench::new(WHERE, |_| {});
    let view = View::default();
    bench.downstream.look(&view);
    let seen = bench.seen(&view).state;
    assert_eq!(seen.state, ServerState::Failed);
    let remedy = "set CLAUDE_PROJECT_DIR";
    assert!(seen.detail.unwrap().contains(remedy));
    let error = bench.call(&view, "t", "{}").await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unavailable { why, transient: false, .. } if why.contains(remedy))
    );
    assert_eq!(bench.overview().pid, None);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn roots_are_those_of_the_project_and_others_have_none() {
    let asking = "declared = []\n\
                  real = initialize\n\
                  def initialize(m):\n    declared.append('roots' in m['params']['capabilities'])\n    real(m)\n\
                  def call(m): reply(m, text(json.dumps([declared, ask('roots/list')])))";
    let bench = Bench::new(asking, |_| {});
    let view = bench.client("a project");
    let answer = bench.call(&view, "t", "{}").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(text_of(&answer)).unwrap();
    let uri = told[1]["result"]["roots"][0]["uri"].as_str().unwrap();
    assert_eq!(told[0], json!([true]));
    assert!(
        uri.starts_with("file:///") && uri.ends_with("/a%20project"),
        "{uri}"
    );
    let mut shared = bench.config.clone();
    shared.scope = Scope::Shared;
    if let Transport::Stdio { cwd, .. } = &mut shared.transport {
        *cwd = None;
    }
    bench.downstream.reload(vec![shared]);
    let answer = bench.call(&view, "t", "{}").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(text_of(&answer)).unwrap();
    assert_eq!(
        (&told[0], &told[1]["error"]["code"]),
        (&json!([false]), &json!(-32601))
    );
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_look_starts_only_what_nobody_has_seen_and_the_list_outlives_the_daemon() {
    let bench = Bench::new(WHERE, |_| {});
    let (a, b) = (bench.client("a"), bench.client("b"));
    assert_eq!(bench.seen(&a).state.state, ServerState::Connecting);
    bench.downstream.look(&a);
    eventually(|| bench.seen(&a).tools.len() == 2).await;
    bench.downstream.look(&b);
    let seen = bench.seen(&b);
    assert_eq!(
        (seen.state.state, seen.tools.len()),
        (ServerState::Ready, 2)
    );
    assert!(
        bench.overview().detail.unwrap().starts_with("for "),
        "one runs"
    );
    let file = bench.folder.path().join("s.json");
    eventually(|| file.exists()).await;
    bench.downstream.stop().await;

    let again =
        Downstream::start(vec![bench.config.clone()], options(bench.folder.path())).unwrap();
    again.look(&b);
    let seen = again.servers_for(&b).remove(0);
    assert_eq!(
        (seen.state.state, seen.tools.len()),
        (ServerState::Ready, 2)
    );
    let shown = again.servers().remove(0).state;
    assert_eq!(
        (shown.state, shown.pid, shown.tools),
        (ServerState::Ready, None, Some(2))
    );
    again.stop().await;
}

#[tokio::test]
async fn past_the_bound_the_one_idle_for_longest_ends_and_none_in_use() {
    let bench = Bench::new(WHERE, |_| {});
    let views: Vec<View> = (0..=MAX_INSTANCES)
        .map(|number| bench.client(&format!("p{number}")))
        .collect();
    let first = bench.pid(&views[0]).await;
    let busy = tokio::spawn(bench.call(&views[0], "t", r#"{"for": 60}"#));
    let second = bench.pid(&views[1]).await;
    let mut others = Vec::new();
    for view in &views[2..] {
        others.push(bench.pid(view).await);
    }
    eventually(|| !alive(&second)).await;
    assert!(alive(&first) && others.iter().all(|pid| alive(pid)));
    busy.abort();
    let again = bench.pid(&views[1]).await;
    assert_ne!(again, second);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn where_all_are_in_use_a_call_waits_for_one_to_be_free() {
    let bench = Bench::new(WHERE, |_| {});
    let mut busy = Vec::new();
    for number in 0..MAX_INSTANCES {
        let view = bench.client(&format!("p{number}"));
        bench.pid(&view).await;
        busy.push(tokio::spawn(bench.call(&view, "t", r#"{"for": 60}"#)));
    }
    eventually(|| bench.overview().calls == 2 * MAX_INSTANCES as u64).await;
    let late = bench.client("late");
    let view = late.clone();
    let waits = bench.call(&view, "t", "{}");
    let downstream = bench.downstream.clone();
    let short = async move {
        let cancel = CancellationToken::new();
        let limit = Duration::from_millis(50);
        downstream
            .call(&late, "s", "t", Arc::from("{}"), limit, &cancel)
            .await
    };
    let error = short.await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unavailable { why, transient: true, .. } if why.contains("all are in use"))
    );
    let waits = tokio::spawn(waits);
    tokio::task::yield_now().await;
    busy.remove(3).abort();
    let answer = waits.await.unwrap().unwrap();
    assert!(text_of(&answer).ends_with("late"));
    for call in busy {
        call.abort();
    }
    bench.downstream.stop().await;
}

#[tokio::test]
async fn an_idle_instance_ends_and_the_next_call_wakes_it() {
    let bench = Bench::new(WHERE, |options| options.idle = Duration::from_millis(300));
    let view = bench.client("a");
    let first = bench.pid(&view).await;
    // A call under way is use, however long it takes.
    let answer = bench.call(&view, "t", r#"{"for": 1}"#).await;
    assert!(answer.is_ok() && alive(&first));
    eventually(|| !alive(&first)).await;
    let seen = bench.seen(&view);
    assert_eq!(
        (seen.state.state, seen.tools.len()),
        (ServerState::Ready, 2)
    );
    let shown = bench.overview();
    assert_eq!(
        shown.detail.as_deref(),
        Some("runs for no project now; a call starts it")
    );
    assert_ne!(bench.pid(&view).await, first);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_restart_is_of_all_instances_and_a_reload_ends_only_what_has_changed() {
    let bench = Bench::new(WHERE, |_| {});
    let (a, b) = (bench.client("a"), bench.client("b"));
    let before = [bench.pid(&a).await, bench.pid(&b).await];
    assert_eq!(bench.downstream.restart("s"), Some(2));
    eventually(|| before.iter().all(|pid| !alive(pid))).await;
    let after = [bench.pid(&a).await, bench.pid(&b).await];
    bench.downstream.reload(vec![bench.config.clone()]);
    assert_eq!([bench.pid(&a).await, bench.pid(&b).await], after);
    let mut changed = bench.config.clone();
    changed.max_concurrent_calls = 3;
    bench.downstream.reload(vec![changed.clone()]);
    eventually(|| after.iter().all(|pid| !alive(pid))).await;
    let last = bench.pid(&a).await;
    changed.enabled = false;
    bench.downstream.reload(vec![changed]);
    eventually(|| !alive(&last)).await;
    assert_eq!(bench.seen(&a).state.state, ServerState::Disabled);
    assert!(bench.call(&a, "t", "{}").await.is_err());
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_project_whose_folder_is_gone_fails_alone() {
    let bench = Bench::new(WHERE, |_| {});
    let (a, gone) = (bench.client("a"), bench.client("gone"));
    std::fs::remove_dir(gone.project.as_ref().unwrap()).unwrap();
    let error = bench.call(&gone, "t", "{}").await.unwrap_err();
    assert!(error.to_string().contains("is not there"), "{error}");
    assert!(bench.call(&a, "t", "{}").await.is_ok());
    assert_eq!(bench.overview().state, ServerState::Ready);
    assert_eq!(bench.seen(&gone).state.state, ServerState::Failed);
    bench.downstream.stop().await;
}
