//! The real ptcd as a child of the test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ptc_protocol::route;
use ptc_protocol::status::{ServerState, ServerStatus, Status};
use rustix::process::Signal;

use crate::home::Home;
use crate::http;
use crate::process::{self, Process};
use crate::wait::{PATIENCE, eventually, until};

/// A running daemon; dropped, it is killed.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts `ptcd serve` in `home` and waits until it answers.
    #[track_caller]
    pub(crate) fn start(home: &Home) -> Self {
        let mut daemon = Self::spawn(home, |_| {});
        daemon.wait_until_it_answers();
        daemon
    }

    /// Starts `ptcd serve` with changes to its command line, and does not wait.
    #[track_caller]
    pub fn spawn(home: &Home, change: impl FnOnce(&mut Command)) -> Self {
        Self::spawn_as(home, home.command("ptcd"), change)
    }

    /// Starts `ptcd serve` from a shell that does something `first`; `within` is a program that starts the shell
    /// and becomes it, where there is one.
    #[track_caller]
    pub fn under_shell(home: &Home, within: &[&str], first: &str) -> Self {
        Self::spawn_as(home, home.under_shell("ptcd", within, first), |_| {})
    }

    #[track_caller]
    fn spawn_as(home: &Home, mut command: Command, change: impl FnOnce(&mut Command)) -> Self {
        let socket = home.socket();
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(home.daemon_log())
            .expect("a file for the daemon's stderr");
        command
            .arg("serve")
            .arg("--config")
            .arg(home.config())
            .arg("--socket")
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(stderr);
        change(&mut command);
        let child = command.spawn().expect("ptcd to start");
        Self { child, socket }
    }

    /// Waits for the first answer on the socket.
    #[track_caller]
    pub fn wait_until_it_answers(&mut self) {
        eventually("ptcd answers on its socket", PATIENCE, || {
            if let Some(status) = self.child.try_wait().expect("its state") {
                panic!("ptcd ended at its start: {status}");
            }
            http::ask(&self.socket, "GET", route::HEALTH)
                .is_ok_and(|answer| answer.status == 200)
                .then_some(())
        });
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// What `GET /v1/status` says.
    #[track_caller]
    pub fn status(&self) -> Status {
        let answer = http::ask(&self.socket, "GET", route::STATUS).expect("the status");
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).expect("a status")
    }

    /// What the status says of one server.
    #[track_caller]
    pub fn server(&self, name: &str) -> ServerStatus {
        let servers = self.status().servers;
        let found = servers.iter().find(|server| server.name == name);
        found
            .unwrap_or_else(|| panic!("no server {name} among {servers:?}"))
            .clone()
    }

    /// Waits until a server is in a state.
    #[track_caller]
    pub fn wait_for(&self, name: &str, state: ServerState) -> ServerStatus {
        eventually(
            &format!("server {name} is {}", state.as_str()),
            PATIENCE,
            || Some(self.server(name)).filter(|server| server.state == state),
        )
    }

    /// Every process below it.
    pub fn tree(&self) -> Vec<Process> {
        process::descendants(self.pid())
    }

    /// Stops it (STOP) and waits until all its threads stand still: until the kernel has told them, some go on. Without
    /// /proc it cannot be seen, and is not waited for.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid()));
        if !tasks.exists() {
            return;
        }
        let stands = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("stat"))
                .is_ok_and(|stat| stat.contains(") T "))
        };
        until("it stands still", PATIENCE, || {
            std::fs::read_dir(&tasks)
                .is_ok_and(|mut tasks| tasks.all(|task| task.is_ok_and(stands)))
        });
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = Process::of(self.pid()) {
            process.signal(signal);
        }
    }

    /// Kills it and waits until the system has it no more; says what it had started.
    pub fn kill(mut self) -> Vec<Process> {
        let tree = self.tree();
        let _ = self.child.kill();
        let _ = self.child.wait();
        tree
    }

    /// Tells it to end, and asserts that it does and leaves nothing running.
    #[track_caller]
    pub fn stop(mut self) {
        let tree = self.tree();
        self.signal(Signal::TERM);
        let status = self.wait(Duration::from_mins(1));
        assert!(status.success(), "ptcd ended with {status}");
        gone(&tree, Duration::from_secs(5));
        assert!(
            !self.socket.exists(),
            "{} is still there",
            self.socket.display()
        );
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> std::process::ExitStatus {
        eventually("ptcd ends", limit, || {
            self.child.try_wait().expect("its state")
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let tree = self.tree();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in tree {
            process.kill();
        }
    }
}

/// Asserts that none of these processes runs after `limit`.
#[track_caller]
pub fn gone(processes: &[Process], limit: Duration) {
    until("every process of the daemon is gone", limit, || {
        let left: Vec<_> = processes.iter().filter(|process| process.runs()).collect();
        left.is_empty()
    });
}
