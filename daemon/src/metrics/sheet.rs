//! The daemon's state at one moment as metrics.

use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};
use ptc_protocol::status::{ProcessFigures, ServerState, Status};

use super::{Extra, MetricsError};

/// Metrics that are made for one scrape.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    registry: Registry,
}

/// Values with their labels' values.
type Rows<'a> = Vec<(Vec<&'a str>, u64)>;

const STATES: [ServerState; 5] = [
    ServerState::Connecting,
    ServerState::Ready,
    ServerState::Reconnecting,
    ServerState::Failed,
    ServerState::Disabled,
];

impl Sheet {
    pub(super) fn of(status: &Status, extra: &Extra) -> Result<Self, MetricsError> {
        let sheet = Self::default();
        sheet.daemon(status)?;
        sheet.work(status, extra)?;
        sheet.servers(status)?;
        Ok(sheet)
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    fn daemon(&self, status: &Status) -> Result<(), MetricsError> {
        let one = |value: u64| vec![(Vec::new(), value)];
        let build = vec![(vec![status.build.as_str()], 1)];
        self.gauge(
            "ptcd_build_info",
            "The daemon's build.",
            &["version"],
            build,
        )?;
        self.gauge(
            "ptcd_uptime_seconds",
            "Seconds since the daemon started.",
            &[],
            one(status.uptime_seconds),
        )?;
        self.gauge(
            "ptcd_clients",
            "Connected clients.",
            &[],
            one(status.clients.len() as u64),
        )?;
        self.gauge(
            "ptcd_config_faults",
            "Faults of the configuration file as it was read last.",
            &[],
            one(status.config.faults.len() as u64),
        )?;
        let daemon = Some(status.processes.daemon);
        let warden = status.processes.warden;
        let rows = |of: &dyn Fn(ProcessFigures) -> Option<u64>| -> Rows<'static> {
            [("daemon", daemon), ("warden", warden)]
                .into_iter()
                .filter_map(|(name, figures)| Some((vec![name], of(figures?)?)))
                .collect()
        };
        self.gauge(
            "ptcd_process_open_fds",
            "Open descriptors.",
            &["process"],
            rows(&|figures| figures.open_fds),
        )?;
        self.gauge(
            "ptcd_process_resident_memory_bytes",
            "Resident memory.",
            &["process"],
            rows(&|figures| figures.rss_bytes),
        )?;
        self.gauge(
            "ptcd_process_proportional_memory_bytes",
            "Resident memory, shared pages divided among those that share them.",
            &["process"],
            rows(&|figures| figures.pss_bytes),
        )
    }

    fn work(&self, status: &Status, extra: &Extra) -> Result<(), MetricsError> {
        let one = |value: u64| vec![(Vec::new(), value)];
        let pool = &status.programs.pool;
        let workers = vec![
            (vec!["warm"], pool.warm as u64),
            (vec!["busy"], pool.busy as u64),
        ];
        self.gauge("ptcd_workers", "Workers now.", &["state"], workers)?;
        self.counter(
            "ptcd_workers_started_total",
            "Workers that became ready since the pool was made.",
            &[],
            one(extra.workers_started),
        )?;
        self.counter(
            "ptcd_workers_failed_total",
            "Workers that did not become ready since the pool was made.",
            &[],
            one(extra.workers_failed),
        )?;
        self.gauge(
            "ptcd_runs_waiting",
            "Programs that wait for a place.",
            &[],
            one(pool.queued as u64),
        )?;
        self.counter(
            "ptcd_result_bytes_total",
            "Bytes of tool results that programs were given.",
            &[],
            one(status.totals.result_bytes),
        )?;
        self.counter(
            "ptcd_output_bytes_total",
            "Bytes of output that clients were given.",
            &[],
            one(status.totals.output_bytes),
        )?;
        self.gauge(
            "ptcd_journal_bytes",
            "Bytes on disk that the journal counts as its own.",
            &[],
            one(extra.journal_bytes),
        )?;
        self.counter(
            "ptcd_journal_failures_total",
            "Lines and files that the journal could not write.",
            &[],
            one(extra.journal_failures),
        )
    }

    fn servers(&self, status: &Status) -> Result<(), MetricsError> {
        let servers = &status.servers;
        let by_state = STATES.map(|state| {
            let count = servers.iter().filter(|server| server.state == state);
            (vec![state.as_str()], count.count() as u64)
        });
        self.gauge(
            "ptcd_servers",
            "Configured servers by state.",
            &["state"],
            by_state.into(),
        )?;
        let ready = servers.iter().map(|server| {
            let ready = server.state == ServerState::Ready;
            (vec![server.name.as_str()], u64::from(ready))
        });
        self.gauge(
            "ptcd_server_ready",
            "1 where the server's tools can be called.",
            &["server"],
            ready.collect(),
        )?;
        let restarts = servers
            .iter()
            .map(|server| (vec![server.name.as_str()], server.restarts));
        self.counter(
            "ptcd_server_restarts_total",
            "Connections to the server after the first one.",
            &["server"],
            restarts.collect(),
        )
    }

    fn gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: Rows<'_>,
    ) -> Result<(), MetricsError> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        for (values, value) in rows {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the format knows only floats; figures are below 2^53"
            )]
            family.with_label_values(&values).set(value as f64);
        }
        Ok(self.registry.register(Box::new(family))?)
    }

    fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        rows: Rows<'_>,
    ) -> Result<(), MetricsError> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        for (values, value) in rows {
            family.with_label_values(&values).inc_by(value);
        }
        Ok(self.registry.register(Box::new(family))?)
    }
}
