//! The daemon as a service of systemd: its units, its socket, and what the service manager is told.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::status::Status;
use ptc_tests::programs::program;
use ptc_tests::suite::skip;
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, eventually};
use rustix::process::Signal;
use serde_json::Value;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        systemd_takes_the_units_without_a_word,
        a_dry_run_prints_every_file_and_command_and_does_nothing,
        install_is_done_once_and_uninstall_takes_it_back,
        a_unit_that_ptcctl_did_not_write_is_kept,
        nothing_is_written_where_systemd_cannot_be_asked,
        a_service_is_for_the_default_daemon_only,
        a_client_has_the_service_manager_start_the_daemon,
        systemd_hands_its_socket_over_and_keeps_it,
        the_service_manager_is_told_how_the_daemon_is,
    ]
}

/// A home whose configuration stands at the default place, and a stand-in for systemctl.
struct Party {
    home: Home,
}

impl Party {
    /// With a systemctl that writes down what it is asked for, then does this.
    fn new(script: &str) -> Self {
        let home = Home::new(&Plan::new());
        for folder in ["home/.config/ptc", "bin"] {
            std::fs::create_dir_all(home.path(folder)).expect("a folder");
        }
        let config = home.path("home/.config/ptc/config.yaml");
        std::fs::copy(home.config(), config).expect("the configuration");
        let text = format!(
            "#!/bin/sh\necho \"$@\" >> '{}'\n{script}\n",
            home.path("asked").display()
        );
        let systemctl = home.write("bin/systemctl", &text);
        std::fs::set_permissions(systemctl, std::fs::Permissions::from_mode(0o700))
            .expect("its mode");
        Self { home }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.home.command(name);
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.home.path("bin");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    /// Runs `ptcctl` on the default daemon: exit code, stdout, stderr.
    fn ctl(&self, args: &[&str]) -> (i32, String, String) {
        let (out, err) = (self.home.path("ctl.out"), self.home.path("ctl.err"));
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let mut child = self
            .command("ptcctl")
            .args(args)
            .stdout(file(&out))
            .stderr(file(&err))
            .spawn()
            .expect("ptcctl to start");
        let status = eventually("ptcctl ends", Duration::from_mins(2), || {
            child.try_wait().expect("its state")
        });
        let read = |path| std::fs::read_to_string(path).expect("its output");
        (status.code().unwrap_or(-1), read(out), read(err))
    }

    /// What systemctl was asked for since the last look.
    fn asked(&self) -> Vec<String> {
        let path = self.home.path("asked");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }

    fn unit(&self, name: &str) -> PathBuf {
        self.home.path("home/.config/systemd/user").join(name)
    }

    /// A text with what differs from machine to machine taken out.
    fn general(&self, text: &str) -> String {
        let folder = program("ptcd").parent().expect("its folder").canonicalize();
        let folder = folder.expect("its real path").display().to_string();
        text.replace(&folder, "BIN")
            .replace(&self.home.path("home").display().to_string(), "HOME")
    }
}

fn needs(tool: &str) -> TestResult {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|path| path.join(tool).is_file()));
    if found {
        Ok(())
    } else {
        skip(format!("{tool} is not on PATH"))
    }
}

fn needs_linux() -> TestResult {
    if cfg!(target_os = "linux") {
        Ok(())
    } else {
        skip("systemd is of Linux")
    }
}

fn systemd_takes_the_units_without_a_word() -> TestResult {
    needs("systemd-analyze")?;
    let party = Party::new("");
    let (code, out, err) = party.ctl(&["service", "install", "--dry-run", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out)?;
    let folder = party.home.path("units");
    std::fs::create_dir(&folder)?;
    let mut files = Vec::new();
    for file in value["files"].as_array().expect("files") {
        let path = Path::new(file["path"].as_str().expect("a path"));
        let path = folder.join(path.file_name().expect("a name"));
        std::fs::write(&path, file["text"].as_str().expect("a text"))?;
        files.push(path);
    }
    assert_eq!(files.len(), 2);
    let runtime = party.home.path("fresh");
    std::fs::create_dir(&runtime)?;
    std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700))?;
    let verify = |files: &[PathBuf]| {
        Command::new("systemd-analyze")
            .args(["verify", "--user"])
            .args(files)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("HOME", party.home.path("home"))
            .output()
            .expect("systemd-analyze to run")
    };
    let output = verify(&files);
    let said = |output: &std::process::Output| {
        let both = [output.stdout.clone(), output.stderr.clone()].concat();
        String::from_utf8_lossy(&both).into_owned()
    };
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(0), String::new())
    );
    // It says so about a key that it does not know, and ends well all the same.
    let service = files.iter().find(|path| path.ends_with("ptcd.service"));
    let service = service.expect("a service");
    let text = std::fs::read_to_string(service)?;
    std::fs::write(service, text.replace("KillMode=", "KillModus="))?;
    assert!(said(&verify(&files)).contains("KillModus"));
    Ok(())
}

fn a_dry_run_prints_every_file_and_command_and_does_nothing() -> TestResult {
    needs_linux()?;
    let party = Party::new("");
    let (code, out, err) = party.ctl(&["service", "install", "--dry-run"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let golden = include_str!("golden/service-install.txt");
    let out = party.general(&out);
    assert_eq!(out, golden, "{out}");
    let (code, out, err) = party.ctl(&["service", "uninstall", "--dry-run"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    assert_eq!(party.asked(), [""; 0]);
    assert!(!party.unit("").exists());
    assert!(!party.home.path("home/.local").exists());
    Ok(())
}

fn install_is_done_once_and_uninstall_takes_it_back() -> TestResult {
    needs_linux()?;
    let party = Party::new("case \"$*\" in *is-active*) echo active ;; esac");
    let install = [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable --now ptcd.socket",
    ];
    let (code, out, err) = party.ctl(&["service", "install"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let want = "ptcctl: HOME/.config/systemd/user/ptcd.socket written\n\
                ptcctl: HOME/.config/systemd/user/ptcd.service written\n\
                ptcctl: systemd starts ptcd at the next connection\n";
    assert_eq!(party.general(&err), want);
    assert_eq!(party.asked(), install);
    let text = std::fs::read_to_string(party.unit("ptcd.service"))?;
    assert!(
        party
            .general(&text)
            .contains("\nExecStart=BIN/ptcd serve --service\n"),
        "{text}"
    );
    // A service finds an environment that was recorded for it.
    let recorded = party
        .home
        .path("home/.local/state/ptc/default/environment.json");
    assert_eq!(recorded.metadata()?.permissions().mode() & 0o777, 0o600);
    let (code, _, err) = party.ctl(&["service", "install"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("ptcd.socket is as it should be\n"), "{err}");
    assert_eq!(party.asked(), install);
    std::fs::write(party.unit("ptcd.service"), text + "\n")?;
    let (_, out, err) = party.ctl(&["service", "status"]);
    let want = "HOME/.config/systemd/user/ptcd.socket  installed, active\n\
                HOME/.config/systemd/user/ptcd.service  outdated, active\n";
    assert_eq!(party.general(&out), want);
    assert!(err.contains("next: `ptcctl service install`"), "{err}");
    let (code, _, err) = party.ctl(&["service", "install"]);
    assert_eq!(code, 0, "{err}");
    let want = "ptcd.service written anew in place of one that ptcctl wrote\n";
    assert!(err.contains(want), "{err}");
    party.asked();
    let (code, out, err) = party.ctl(&["service", "uninstall"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let last = err.lines().last().unwrap_or_default();
    let want = "ptcctl: ptcd is no service any more: clients start it themselves";
    assert_eq!(last, want);
    let asked = party.asked();
    let want = [
        "--user disable --now ptcd.socket ptcd.service",
        "--user daemon-reload",
    ];
    assert_eq!(asked, want);
    assert!(!party.unit("ptcd.socket").exists() && !party.unit("ptcd.service").exists());
    let (code, _, err) = party.ctl(&["service", "uninstall"]);
    assert_eq!((code, party.asked().len()), (0, 0));
    assert_eq!(err, "ptcctl: nothing of ptcctl's was installed\n");
    Ok(())
}

fn a_unit_that_ptcctl_did_not_write_is_kept() -> TestResult {
    needs_linux()?;
    let party = Party::new("");
    std::fs::create_dir_all(party.unit(""))?;
    std::fs::write(party.unit("ptcd.service"), "[Service]\nExecStart=/mine\n")?;
    let (code, out, err) = party.ctl(&["service", "install"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("ptcd.service is there, and ptcctl did not write it"),
        "{err}"
    );
    assert_eq!(party.asked(), [""; 0]);
    assert!(!party.unit("ptcd.socket").exists());
    let (_, _, err) = party.ctl(&["service", "uninstall"]);
    assert!(err.contains("left as it is"), "{err}");
    let (code, _, err) = party.ctl(&["service", "install", "--force"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("in place of another's"), "{err}");
    let before = std::fs::read_to_string(party.unit("ptcd.service.before"))?;
    assert_eq!(before, "[Service]\nExecStart=/mine\n");
    assert!(std::fs::read_to_string(party.unit("ptcd.service"))?.contains("Type=notify"));
    Ok(())
}

fn nothing_is_written_where_systemd_cannot_be_asked() -> TestResult {
    needs_linux()?;
    let party = Party::new("echo 'Failed to connect to bus: No medium found' >&2; exit 1");
    let (code, out, err) = party.ctl(&["service", "install"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("so nothing was changed"), "{err}");
    assert!(err.contains("No medium found"), "{err}");
    assert!(!party.unit("").exists());
    Ok(())
}

fn a_service_is_for_the_default_daemon_only() -> TestResult {
    let home = Home::new(&Plan::new());
    for args in [&["service", "install"][..], &["service", "status"]] {
        let (code, out, err) = home.ctl(args);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("for the default daemon only"), "{err}");
    }
    Ok(())
}

fn a_client_has_the_service_manager_start_the_daemon() -> TestResult {
    needs_linux()?;
    let party = Party::new("");
    let home = &party.home;
    let (ptcd, socket) = (program("ptcd"), home.path("run/ptcd/ptcd.sock"));
    let config = home.path("home/.config/ptc/config.yaml");
    // The path of the configuration lets the process be found should the test fail.
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\ncase \"$*\" in '--user start '*)\n\
         '{}' serve --service --config '{}' </dev/null >/dev/null 2>&1 &\n\
         while ! [ -S '{}' ]; do sleep 0.05; done ;; esac\n",
        home.path("asked").display(),
        ptcd.display(),
        config.display(),
        socket.display(),
    );
    home.write("bin/systemctl", &script);
    assert_eq!(party.ctl(&["service", "install"]).0, 0);
    party.asked();
    let (code, out, err) = party.ctl(&["status"]);
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("none has run yet"), "{err}");
    let (code, _, err) = party.ctl(&["start"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(party.asked(), ["--user start ptcd.socket ptcd.service"]);
    let (_, out, err) = party.ctl(&["status", "--json"]);
    assert_eq!(err, "");
    let status: Status = serde_json::from_str(&out)?;
    let process = ptc_tests::process::Process::of(status.pid);
    let line = process.map(ptc_tests::process::Process::command_line);
    assert!(line.is_some_and(|line| line.iter().any(|word| word == "--service")));
    let (code, _, err) = party.ctl(&["stop"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("systemd starts it again at the next connection"),
        "{err}"
    );
    // Without systemd it is started all the same, and the reason said.
    home.write("bin/systemctl", "#!/bin/sh\necho 'no bus' >&2\nexit 1\n");
    let (code, _, err) = party.ctl(&["start"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("systemd does not start ptcd") && err.contains("no bus"),
        "{err}"
    );
    assert_eq!(party.ctl(&["stop"]).0, 0);
    Ok(())
}

/// Killed when dropped, however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn systemd_hands_its_socket_over_and_keeps_it() -> TestResult {
    needs("systemd-socket-activate")?;
    let party = Party::new("");
    let home = &party.home;
    let folder = home.path("run/ptcd");
    std::fs::create_dir(&folder)?;
    let socket = folder.join("ptcd.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&socket);
    for (name, value) in home.environment() {
        let mut setting = std::ffi::OsString::from(name);
        setting.push("=");
        setting.push(value);
        command.arg("--setenv").arg(setting);
    }
    command
        .arg(program("ptcd"))
        .args(["serve", "--service"])
        .envs(home.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(home.daemon_log())?);
    let mut daemon = Killed(command.spawn()?);
    until("the socket is there", PATIENCE, || socket.exists());
    // As systemd would make it; the daemon itself closes what is open.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    let (code, out, err) = party.ctl(&["status", "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    let status: Status = serde_json::from_str(&out)?;
    assert_eq!(status.socket, socket.display().to_string());
    assert_eq!(
        status.pid,
        daemon.0.id(),
        "the same process goes on as ptcd"
    );
    assert_eq!(socket.metadata()?.permissions().mode() & 0o777, 0o600);
    let file = home.write("p.py", "print(6 * 7)");
    let (code, out, err) = party.ctl(&["run", &file.display().to_string()]);
    assert_eq!((code, out.as_str()), (0, "42\n"), "{err}");
    // The log is where a client's start puts it.
    let log = home.path("home/.local/state/ptc/default/ptcd.log");
    assert_eq!(log.metadata()?.permissions().mode() & 0o777, 0o600);
    let (code, out, _) = party.ctl(&["logs"]);
    assert_eq!(code, 0);
    assert!(out.contains("ptcd started"), "{out}");
    let (code, _, err) = party.ctl(&["stop"]);
    assert_eq!(code, 0, "{err}");
    let ended = eventually("the daemon ends", PATIENCE, || {
        daemon.0.try_wait().expect("its state")
    });
    assert!(ended.success(), "{ended}");
    assert!(socket.symlink_metadata()?.file_type().is_socket());
    Ok(())
}

fn the_service_manager_is_told_how_the_daemon_is() -> TestResult {
    needs_linux()?;
    let home = Home::new(&Plan::new());
    let path = home.path("notify");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut daemon = Daemon::spawn(&home, |command| {
        command
            .arg("--service")
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "400000");
    });
    let mut told = String::new();
    let mut buffer = [0_u8; 4096];
    let mut wait_for = |what: &str| {
        until(what, PATIENCE, || {
            if let Ok(read) = manager.recv(&mut buffer) {
                told.push_str(&String::from_utf8_lossy(&buffer[..read]));
                told.push('\n');
            }
            let found = told.find(what);
            if let Some(at) = found {
                told.drain(..at + what.len());
            }
            found.is_some()
        });
    };
    let socket = home.socket().display().to_string();
    wait_for("READY=1");
    wait_for(&format!("STATUS=serving {socket}"));
    wait_for("WATCHDOG=1");
    wait_for("WATCHDOG=1");
    daemon.wait_until_it_answers();
    home.write_config("servers: {}\n");
    daemon.signal(Signal::HUP);
    wait_for("RELOADING=1");
    wait_for("READY=1");
    wait_for("the file has faults and is not in force");
    daemon.signal(Signal::TERM);
    wait_for("STOPPING=1");
    assert!(daemon.wait(PATIENCE).success());
    Ok(())
}
