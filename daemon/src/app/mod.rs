//! The composition root: makes every room, joins them, ends them in order.

mod answers;
mod checks;
mod clients;
mod commands;
mod connect;
mod doctor;
mod door;
pub mod environment;
mod files;
mod idle;
mod log_file;
mod monty;
mod orphans;
mod policies;
mod reload;
mod retired;
mod runs;
mod servers;
pub mod service;
mod signals;
mod turns;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ptc_protocol::BUILD;
use ptc_protocol::paths::{Places, variable};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::service::{Manager, Service};
use crate::config::expand::{self, Variables};
use crate::config::mask::{KeyError, Masker};
use crate::config::{self, Config};
use crate::control::socket::{Lock, Socket, SocketError, private_folder};
use crate::control::{Roster, Shortage};
use crate::downstream::Downstream;
use crate::engine::Engine;
use crate::journal::{Journal, JournalError};
use crate::metrics::{Metrics, MetricsError};
use crate::policy::risk::Keys;
use crate::policy::{Gate, Pins, Policy, PolicyError};
use crate::pool::Pool;
use crate::registry::Registry;
use crate::sandbox::Sandbox;
use crate::session::{self, ClientInfo, Face, Until};
use crate::telemetry;

use self::clients::Clients;
pub use self::doctor::examine;
use self::reload::Faults;
use self::retired::Retired;
pub use self::signals::Signals;
use self::signals::follow_signals;
use self::turns::Turns;

/// Between two looks at a lock that is waited for.
const LOCK_PAUSE: Duration = Duration::from_millis(200);
/// How long the sessions may take to end, all together; a little more than each may.
const SESSIONS_END: Duration = Duration::from_millis(1500);
/// How long the downstream servers may take to end, all together.
const SERVERS_END: Duration = Duration::from_secs(15);

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lock of this configuration is held.
    #[error("another ptcd serves this configuration already")]
    AlreadyRunning,
    /// The socket or a folder cannot be had.
    #[error("the daemon cannot start")]
    Socket(#[from] SocketError),
    /// The masking key cannot be had, so nothing may be logged.
    #[error("the daemon cannot start without its masking key")]
    Key(#[from] KeyError),
    /// The journal cannot be opened, so nothing may run.
    #[error("the daemon cannot start without its journal")]
    Journal(#[from] JournalError),
    /// The filter of tools cannot be built.
    #[error("the daemon cannot start: tools.allow or tools.block cannot be used")]
    Policy(#[from] PolicyError),
    /// What the daemon does cannot be counted.
    #[error("the daemon cannot start: its metrics cannot be made")]
    Metrics(#[from] MetricsError),
    /// The system refused something else.
    #[error("the daemon cannot start: {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What is said of the configuration that `places` chose, which may be absent where it is the default one.
///
/// # Errors
/// Its faults and those of its policies, one a line.
pub fn check(places: &Places) -> Result<String, String> {
    let config = config::load_choice(&places.config);
    // The daemon's variables are not known here.
    let (config, _) = reload::with_policy(config, &|_| Ok("unknown".to_owned()))
        .map_err(|faults| faults.lines().join("\n"))?;
    let path = places.config.path().display().to_string();
    Ok(reload::sound(&path, &config))
}

/// The hidden mode of ptcd that ends what servers leave behind when their daemon is killed.
pub fn end_survivors() {
    crate::downstream::survivors::main();
}

/// A whole daemon.
#[derive(Debug)]
pub struct App {
    inner: Arc<Inner>,
    listener: Mutex<Option<UnixListener>>,
    socket: Mutex<Option<Socket>>,
    lock: Mutex<Option<Lock>>,
}

/// What lives as long as the daemon.
#[derive(Debug)]
struct Inner {
    places: Places,
    started: Instant,
    started_ms: u64,
    masker: Masker,
    variables: Arc<Variables>,
    me: Weak<Inner>,
    /// Held by whoever changes what follows from it, so that all of it is of one configuration.
    loaded: Mutex<Loaded>,
    /// Changed only while `loaded` is held.
    workshop: Mutex<Workshop>,
    turns: Turns,
    retired: Retired,
    clients: Clients,
    downstream: Downstream,
    registry: Registry,
    journal: Journal,
    engine: Engine,
    metrics: Metrics,
    face: watch::Sender<Arc<Face>>,
    roster: Roster,
    shortage: Shortage,
    /// Servers that the operator turned on or off, whatever the configuration says.
    by_hand: Mutex<BTreeMap<String, bool>>,
    /// Told to end.
    stop: CancellationToken,
    /// By whom: `signal` or `stop`.
    told_by: OnceLock<&'static str>,
    manager: Manager,
    /// Ends every session.
    end: CancellationToken,
}

/// The configuration in force and what is known of the file.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<Config>,
    /// Set when no configuration is in force because the file has faults.
    fault: Option<String>,
    /// The faults of the file as it was read last.
    faults: Vec<String>,
    read_at: Instant,
    modified: Option<SystemTime>,
}

/// Where programs run.
#[derive(Clone, Debug)]
struct Workshop {
    sandbox: Sandbox,
    pool: Pool,
    checks: Option<checks::CheckShop>,
    monty: monty::Shop,
}

impl App {
    /// Makes everything up to a socket that takes connections.
    /// `umask` is what servers get, since the daemon's own is strict.
    pub async fn start(
        places: Places,
        environment: BTreeMap<String, String>,
        umask: rustix::fs::Mode,
    ) -> Result<Self, StartError> {
        Self::start_as(places, environment, umask, Service::default()).await
    }

    /// The same, with what a service manager gives.
    pub async fn start_as(
        mut places: Places,
        environment: BTreeMap<String, String>,
        umask: rustix::fs::Mode,
        service: Service,
    ) -> Result<Self, StartError> {
        private_folder(&places.state_root)?;
        private_folder(&places.state_dir)?;
        let lock = take_lock(&places, service.patience).await?;
        let masker = Masker::open(&places.state_root, &environment)?;
        // In the demo and in tests the process may have a log already.
        let _ = telemetry::init(&masker, environment.get(variable::LOG).map(String::as_str));
        let variables = Arc::new(Variables::new(environment));
        let keys = |text: &str| variables.expand_own(text, &masker);
        let (config, policy, loaded) = load(&places, &keys)?;
        expand::register_headers(&config, &masker);
        let journal = Journal::open(&config.journal, &places.state_dir, masker.clone())?;
        let (listener, socket) = service::listen(service.listener, &mut places, &lock)?;
        let workshop = Workshop::open(&config, &variables, &places.state_dir).await;
        if let Err(error) = crate::sandbox::hide_process() {
            return Err(StartError::Io {
                action: "hiding this process's memory from others",
                source: error,
            });
        }
        let downstream = connect::connect(&config, &places, &variables, &masker, umask)?;
        let registry = Registry::new(
            downstream.clone(),
            policy.clone(),
            places.state_dir.join("names.json"),
            config.execution.check_arguments,
        );
        let pins = Pins::open(places.state_dir.join("pins.json"));
        let parts = reload::parts(&loaded, &workshop, &registry, Gate::new(policy, pins));
        let metrics = Metrics::new()?;
        let (face, _) = watch::channel(Arc::new(reload::face(&loaded, &workshop)));
        let inner = Arc::new_cyclic(|me| Inner {
            places,
            started: Instant::now(),
            started_ms: epoch_ms(),
            masker,
            variables,
            me: me.clone(),
            loaded: Mutex::new(loaded),
            workshop: Mutex::new(workshop),
            turns: Turns::default(),
            retired: Retired::default(),
            clients: Clients::default(),
            downstream,
            registry,
            engine: Engine::new(parts, journal.clone(), metrics.clone()),
            metrics,
            journal,
            face,
            roster: Roster::default(),
            shortage: Shortage::default(),
            by_hand: Mutex::default(),
            stop: CancellationToken::new(),
            told_by: OnceLock::new(),
            manager: service.manager,
            end: CancellationToken::new(),
        });
        inner.write_said();
        inner.write_daemon_file()?;
        let listener = UnixListener::from_std(listener).map_err(|source| StartError::Io {
            action: "taking the socket into use",
            source,
        })?;
        tracing::info!(socket = %inner.places.socket.display(), build = BUILD, "ptcd started");
        Ok(Self {
            inner,
            listener: Mutex::new(Some(listener)),
            socket: Mutex::new(socket),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Serves the socket until a signal or `POST /v1/stop`, then ends everything in order.
    pub async fn serve(&self, signals: Signals) {
        let Some(listener) = lock(&self.listener).take() else {
            return;
        };
        let serving = format!("serving {}", self.socket());
        self.inner.manager.ready(&serving);
        self.inner.manager.keep_watchdog();
        let signals = tokio::spawn(follow_signals(Arc::clone(&self.inner), signals));
        let idle = tokio::spawn(idle::end_when_unused(Arc::clone(&self.inner)));
        let accepting = self.attend(listener).await;
        idle.abort();
        signals.abort();
        self.stop().await;
        accepting.abort();
    }

    /// Ends clients, runs, workers, servers and the journal, in this order.
    pub async fn stop(&self) {
        let inner = &self.inner;
        inner.stop.cancel();
        inner.manager.stopping();
        // From here on a new daemon may take the socket's path: it waits for the lock.
        drop(lock(&self.socket).take());
        let drain = lock(&inner.loaded).config.daemon.drain;
        inner.engine.drain(drain).await;
        inner.end.cancel();
        // Each has a moment to tell its client what it still owes.
        let _ = tokio::time::timeout(SESSIONS_END, inner.roster.empty()).await;
        if !inner.turns.close().await {
            tracing::error!("a reload did not end in time");
        }
        let (_, shop) = inner.in_force();
        shop.pool.stop();
        shop.sandbox.stop().await;
        checks::stop(shop.checks).await;
        shop.monty.stop().await;
        inner.retired.stop().await;
        if tokio::time::timeout(SERVERS_END, inner.downstream.stop())
            .await
            .is_err()
        {
            tracing::error!("not every server ended in time");
        }
        inner.registry.keep_names();
        inner.write_last_end();
        drop(lock(&self.lock).take());
        tracing::info!("ptcd ended");
    }

    /// Serves one MCP session on a stream that needs no handshake.
    pub fn session<S>(&self, stream: S, label: &str) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let client = ClientInfo {
            session: label.to_owned(),
            label: Some(label.to_owned()),
            name: Arc::new(Mutex::new(label.to_owned())),
            version: Arc::default(),
            project: None,
            barred: self.inner.grant(&[], &BTreeMap::new()).barred,
        };
        session::serve(
            stream,
            client,
            self.inner.host(),
            Until {
                end: self.inner.end.child_token(),
                ..Until::default()
            },
        )
    }
}

impl Workshop {
    async fn open(config: &Config, variables: &Variables, state: &std::path::Path) -> Self {
        let execution = &config.execution;
        let sandbox = Sandbox::start(reload::sandbox_config(execution, variables, state)).await;
        match sandbox.state() {
            Ok(ready) => tracing::info!(
                confinement = ready.confinement.as_str(),
                python = ready.version,
                notes = ?ready.notes,
                "programs can run"
            ),
            Err(refusal) => tracing::error!(reason = refusal.message, "programs are refused"),
        }
        let pool = Pool::start(sandbox.clone(), execution.pool, execution.max_output_bytes);
        let checks = checks::open(config, variables, state).await;
        let monty = monty::Shop::open(execution, &sandbox).await;
        Self {
            sandbox,
            pool,
            checks,
            monty,
        }
    }
}

impl Inner {
    /// The configuration in force and where its programs run, both of one time.
    fn in_force(&self) -> (Loaded, Workshop) {
        let loaded = lock(&self.loaded);
        let workshop = lock(&self.workshop).clone();
        (loaded.clone(), workshop)
    }
}

/// The configuration as it stands with its policies, or none of it when either has faults.
fn load(places: &Places, keys: &Keys<'_>) -> Result<(Arc<Config>, Policy, Loaded), PolicyError> {
    let before = modified(places, None);
    let read = reload::with_policy(config::load_choice(&places.config), keys);
    let (config, policy, faults) = match read {
        Ok((config, policy)) => (config, policy, None),
        Err(faults) => {
            let config = Config::default();
            let policy = Policy::load(&config, keys)?;
            (config, policy, Some(faults))
        }
    };
    let config = Arc::new(config);
    let loaded = Loaded {
        config: Arc::clone(&config),
        fault: faults.as_ref().map(Faults::told),
        faults: faults.as_ref().map(Faults::lines).unwrap_or_default(),
        read_at: Instant::now(),
        modified: modified(places, config.policy.cedar.as_deref()).max(before),
    };
    Ok((config, policy, loaded))
}

/// When the configuration was changed last, or a policy that it names: the newest of its files and their folder.
fn modified(places: &Places, policies: Option<&Path>) -> Option<SystemTime> {
    let time = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|found| found.modified())
            .ok()
    };
    let inner = policies.and_then(|path| std::fs::read_dir(path).ok());
    let inner = inner.into_iter().flatten().flatten();
    inner
        .map(|entry| entry.path())
        .chain(policies.map(Path::to_owned))
        .chain([places.config.path().to_owned()])
        .filter_map(|path| time(&path))
        .max()
}

/// Takes the lock of this configuration, for which a service waits a while.
async fn take_lock(places: &Places, patience: Duration) -> Result<Lock, StartError> {
    let until = Instant::now() + patience;
    loop {
        if let Some(lock) = Lock::take(&places.lock_file())? {
            return Ok(lock);
        }
        if Instant::now() >= until {
            return Err(StartError::AlreadyRunning);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

fn epoch_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
