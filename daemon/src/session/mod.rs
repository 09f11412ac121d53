//! One MCP session for one client.

mod client;
mod era;
mod executing;
mod guard;
mod halves;
mod incoming;
mod instructions;
mod keys;
mod layer;
mod progress;
mod render;
mod renewal;
mod requests;
mod resources;
mod rounds;
mod run_text;
mod tools;
mod transport;
mod writer;

mod apart;
mod asking;
mod caller;
mod checks;
mod outcome;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ptc_protocol::run::Confinement;
use ptc_protocol::said::Said;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    DiscoverResult, Implementation, InitializeRequestParams, InitializeResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::config::{EnginesConfig, ExposedTool, StructuredContent, SubmitConfig};
use crate::engine::{Engine, Outcome};
use crate::journal::Journal;
use crate::registry::Registry;

use requests::Requests;
use rounds::{Retry, Rounds};

pub use crate::engine::Live;
pub use client::ClientInfo;
pub use layer::{Lines, Offer, carry};
pub use render::json_head;
pub use renewal::Until;
pub use resources::provenance_of;

/// The tools and what belongs to them; a client may be asked about the calls of its programs.
const OFFER: Offer = Offer {
    methods: &[
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "subscriptions/listen",
    ],
    asks: true,
};

/// How long a client may take the definitions and instructions for fresh: they change with a
/// reload only, and nobody is told.
const FRESH: Duration = Duration::from_mins(1);

/// How long a list or a program with tools in it waits for servers at their first connection:
/// right after the daemon's start they are a moment away.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);
/// How long a program waits for such servers that it names, beyond that.
const NAMED_CONNECTION: Duration = Duration::from_secs(7);

/// What every client sees of the configuration in force.
#[derive(Clone, Debug)]
pub struct Face {
    /// The tools offered, in order.
    pub expose: Vec<ExposedTool>,
    /// What the structured form of an answer holds.
    pub structured: StructuredContent,
    /// How often a session may inspect and submit.
    pub submit: SubmitConfig,
    /// Whether answers end with a summary of calls.
    pub trace: bool,
    /// Output given back, in bytes.
    pub max_output_bytes: usize,
    /// Servers and what the operator says they are for.
    pub purposes: Vec<(String, String)>,
    /// The version of Python that runs programs, such as `3.11`; `None` when programs are refused.
    pub python: Option<String>,
    /// The engines programs may run in.
    pub engines: EnginesConfig,
    /// The tier in force; `None` when programs are refused.
    pub confinement: Option<Confinement>,
    /// The faults of the configuration; every program and list is answered with them.
    pub fault: Option<String>,
}

impl Default for Face {
    fn default() -> Self {
        let config = crate::config::Config::default();
        Self {
            expose: config.tools.expose,
            structured: config.execution.structured_content,
            trace: config.execution.trace,
            submit: config.submit,
            max_output_bytes: config.execution.max_output_bytes,
            purposes: Vec::new(),
            python: None,
            engines: config.execution.engines,
            confinement: None,
            fault: None,
        }
    }
}

impl Face {
    /// What a shim says in the daemon's place while it is not there.
    pub fn said(&self, config: String) -> Said {
        Said {
            build: ptc_protocol::BUILD.to_owned(),
            config,
            instructions: instructions::instructions(self),
            ttl_ms: fresh_ms(),
            tools: serde_json::to_value(tools::definitions(self)).unwrap_or_default(),
        }
    }
}

/// What a session works with.
#[derive(Clone, Debug)]
pub struct Host {
    /// Runs programs.
    pub engine: Engine,
    /// Answers lists and inspections.
    pub registry: Registry,
    /// Has the finished runs.
    pub journal: Journal,
    /// What clients see; follows the configuration.
    pub face: watch::Receiver<Arc<Face>>,
}

impl Host {
    /// Runs under way, counted by the digest of their session.
    pub fn live(&self) -> Live {
        self.engine.live()
    }
}

/// Serves MCP on a stream until it ends or is told to. The client's programs end with it.
pub async fn serve<S>(stream: S, client: ClientInfo, host: Host, until: Until)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let host = Host {
        registry: host.registry.seen_by(client.view()),
        ..host
    };
    let end = until.end.clone();
    let span = session_span(&client.session);
    let session = |lines: Lines| {
        tokio::spawn(renewal::renew_when_idle(lines.clone(), until));
        Session {
            host,
            client,
            requests: lines.requests,
            ending: lines.ending,
            gone: lines.gone,
            rounds: Rounds::default(),
        }
    };
    carry(stream, OFFER, end, session).instrument(span).await;
}

/// Marks log lines as a session's; `digest` is no way back to its id.
fn session_span(digest: &str) -> tracing::Span {
    tracing::error_span!("session", session = digest)
}

#[derive(Clone, Debug)]
struct Session {
    host: Host,
    client: ClientInfo,
    requests: Requests,
    /// Ends the subscriptions of the client.
    ending: CancellationToken,
    gone: CancellationToken,
    /// Programs whose questions are with the client.
    rounds: Rounds,
}

impl Session {
    fn face(&self) -> Arc<Face> {
        Arc::clone(&self.host.face.borrow())
    }

    /// Megabytes are rendered off the threads that serve others.
    async fn render(&self, outcome: Outcome, face: Arc<Face>) -> CallToolResult {
        if !render::is_large(&outcome) {
            return render::render(outcome, &face);
        }
        let rendering = tokio::task::spawn_blocking(move || render::render(outcome, &face));
        rendering.await.unwrap_or_else(|error| {
            tracing::error!(%error, "an answer could not be rendered");
            failure("the daemon failed while it wrote this answer; its log has the reason")
        })
    }

    fn inspect(&self, name: &str) -> CallToolResult {
        match self.host.registry.inspect(name) {
            Ok(description) => {
                let text = serde_json::to_string_pretty(&description).unwrap_or_default();
                CallToolResult::success(vec![ContentBlock::text(text)])
            }
            Err(unknown) => failure(&unknown.to_string()),
        }
    }

    async fn list(&self) -> CallToolResult {
        self.host.registry.settled(FIRST_CONNECTION).await;
        let listing = self.host.registry.list();
        let mut blocks = vec![ContentBlock::text(json!(listing.tools).to_string())];
        if !listing.unavailable.is_empty() {
            let servers: Vec<String> = listing
                .unavailable
                .iter()
                .map(|(name, why)| format!("{name}: {why}"))
                .collect();
            blocks.push(ContentBlock::text(format!(
                "UNAVAILABLE SERVERS (their tools are missing from the list now): {}",
                servers.join("; ")
            )));
        }
        let mut result = CallToolResult::success(blocks);
        if self.face().structured != StructuredContent::Off {
            result.structured_content =
                Some(json!({"tools": listing.tools, "unavailable": listing.unavailable}));
        }
        result
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources();
        let mut capabilities = capabilities.build();
        if let Some(tools) = &mut capabilities.tools {
            tools.list_changed = Some(false);
        }
        if let Some(resources) = &mut capabilities.resources {
            resources.list_changed = Some(false);
            resources.subscribe = Some(false);
        }
        let mut info = InitializeResult::new(capabilities);
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info.server_info = Implementation::new("ptcd", ptc_protocol::BUILD);
        info.instructions = Some(instructions::instructions(&self.face()));
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Owned(vec![
            ProtocolVersion::V_2024_11_05,
            ProtocolVersion::V_2025_03_26,
            ProtocolVersion::V_2025_06_18,
            ProtocolVersion::V_2025_11_25,
            ProtocolVersion::V_2026_07_28,
        ])
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.note_client(&request.client_info);
        let answer = self.negotiate_initialize(&request)?;
        // A second `initialize` starts anew, and what follows goes by what it agreed on.
        let mut agreed = request;
        agreed.protocol_version = answer.protocol_version.clone();
        context.peer.set_peer_info(agreed);
        Ok(answer)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        if let Some(info) = context.meta.client_info() {
            self.note_client(&info);
        }
        // The revisions with a handshake are not for clients that begin with this.
        let versions = vec![ProtocolVersion::V_2026_07_28];
        let mut answer = DiscoverResult::from_server_info(versions, self.get_info());
        answer.ttl_ms = fresh_ms();
        answer.cache_scope = CacheScope::Private;
        Ok(answer)
    }

    /// Nothing that is offered changes under a client, so an empty filter is what is accepted.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::new())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        tokio::select! {
            () = subscription.cancelled() => {}
            () = self.ending.cancelled() => {}
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|page| page.cursor);
        if cursor.is_some_and(|cursor| !cursor.is_empty()) {
            let text = "params.cursor: the list has one page, so no cursor was given out";
            return Err(ErrorData::invalid_params(text, None));
        }
        let mut list = ListToolsResult::with_all_items(tools::definitions(&self.face()));
        if is_modern(&context) {
            list.ttl_ms = Some(fresh_ms());
            list.cache_scope = Some(CacheScope::Private);
        }
        Ok(list)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|page| page.cursor);
        let mut list = self.shelf().list(cursor.as_deref())?;
        if is_modern(&context) {
            resources::held(&mut list.ttl_ms, &mut list.cache_scope);
        }
        Ok(list)
    }

    /// There are none: every resource is listed.
    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut list = ListResourceTemplatesResult::default();
        if is_modern(&context) {
            resources::held(&mut list.ttl_ms, &mut list.cache_scope);
        }
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mut read = self.read(request.uri, &context).await?;
        if is_modern(&context) {
            resources::held(&mut read.ttl_ms, &mut read.cache_scope);
        }
        Ok(read.into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if is_modern(&context)
            && let Some(info) = context.meta.client_info()
        {
            self.note_client(&info);
        }
        let face = self.face();
        let Some(tool) = face
            .expose
            .iter()
            .copied()
            .find(|tool| tool.name() == request.name)
        else {
            let meant = self.host.registry.call_of(&request.name);
            return Err(ErrorData::invalid_params(
                tools::unknown(&face, meant.as_deref()),
                None,
            ));
        };
        let given = match tools::given(tool, request.arguments.clone(), &face.engines) {
            Ok(given) => given,
            Err(fault) => return Ok(failure(&fault).into()),
        };
        if let Some(fault) = &face.fault
            && tool != ExposedTool::ExecuteProgram
        {
            return Ok(failure(fault).into());
        }
        let result = match tool {
            ExposedTool::ExecuteProgram => {
                let retry = Retry {
                    state: request.request_state,
                    responses: request.input_responses,
                };
                return Ok(self.execute(given, retry, &context).await);
            }
            ExposedTool::InspectTool => self.inspect(&given.text),
            ExposedTool::ListCallableTools => self.list().await,
            ExposedTool::RunPython => self.run_python(given.text, &context).await,
            ExposedTool::SubmitExecuteUnconfirmed | ExposedTool::SubmitOutcome => {
                self.submit(request.arguments, &context).await
            }
        };
        Ok(result.into())
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| !version.has_initialize())
}

fn fresh_ms() -> u64 {
    u64::try_from(FRESH.as_millis()).unwrap_or(u64::MAX)
}

fn failure(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
