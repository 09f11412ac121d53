//! Other users of the machine: nobody is served but the daemon's own user, and nobody else is taken for it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use ptc_tests::machine::is_root;
use ptc_tests::suite::skip;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_folder_of_another_user_is_refused,
        a_client_of_another_user_is_not_served,
        a_listener_of_another_user_is_not_spoken_to,
    ]
}

/// A user id that nobody here has.
const STRANGER: u32 = 3_141_593;

/// Asks for the status as this user, and prints what comes.
const ASKS: &str = "\
import os, socket, sys
os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'GET /v1/status HTTP/1.1\\r\\nhost: ptcd\\r\\nconnection: close\\r\\n\\r\\n')
said = b''
try:
    while part := s.recv(65536):
        said += part
except ConnectionError:
    pass
print(said.decode())
";

/// Listens as another user, in a folder that only root can write; prints what it is told.
const LISTENS: &str = "\
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.setuid(int(sys.argv[2]))
s.listen()
print('listening', flush=True)
while True:
    peer, _ = s.accept()
    print('told', peer.recv(100), flush=True)
    peer.close()
";

fn needs_root() -> anyhow::Result<()> {
    if is_root() {
        return Ok(());
    }
    skip("only root can be another user")
}

/// The folder of the socket.
fn folder_of(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/nowhere")).to_owned()
}

/// A Python that is root when it starts, and becomes this user.
fn python(code: &str, socket: &Path, user: u32) -> Command {
    let mut command = Command::new("python3");
    command.args(["-I", "-S", "-c", code]).arg(socket);
    command.arg(user.to_string()).current_dir("/");
    command
}

fn a_folder_of_another_user_is_refused() -> TestResult {
    needs_root()?;
    let home = Home::new(&Plan::new());
    let folder = folder_of(&home.socket());
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder)?;
    std::fs::write(folder.join("theirs"), "precious")?;
    chown(&folder, Some(STRANGER), Some(STRANGER))?;
    let mut daemon = Daemon::spawn(&home, |_| {});
    assert!(!daemon.wait(PATIENCE).success());
    let said = std::fs::read_to_string(home.daemon_log())?;
    assert!(said.contains("belongs to another user"), "{said}");
    let mut client = home.client();
    let run = client.call("execute_program", &json!({"code": "print('ran')"}));
    assert!(run.is_error, "{}", run.text);
    assert!(
        run.text.contains("belongs to someone else") && run.text.contains("Nothing ran"),
        "{}",
        run.text
    );
    assert_eq!(std::fs::read_to_string(folder.join("theirs"))?, "precious");
    assert!(!home.socket().exists());
    Ok(())
}

fn a_client_of_another_user_is_not_served() -> TestResult {
    needs_root()?;
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    // What keeps others out first is taken away, so that only the look at the peer is left.
    let socket = home.socket();
    let folder = folder_of(&socket);
    for (path, mode) in [
        (&home.path("run"), 0o711),
        (&folder, 0o711),
        (&socket, 0o666),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    let ask = |user: u32| {
        let output = python(ASKS, &socket, user).output().expect("python to run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let own = ask(0);
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let theirs = ask(STRANGER);
    assert!(
        theirs.starts_with("HTTP/1.1 403") && theirs.contains("its own user only"),
        "{theirs}"
    );
    let log = std::fs::read_to_string(home.daemon_log())?;
    assert!(
        log.contains("a connection of another user was refused"),
        "{log}"
    );
    for path in [&home.path("run"), &folder] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    assert_eq!(home.client().run("print('on')").printed(), "on");
    daemon.stop();
    Ok(())
}

/// A process that is ended with the test.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_listener_of_another_user_is_not_spoken_to() -> TestResult {
    needs_root()?;
    let home = Home::new(&Plan::new());
    let socket = home.socket();
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(folder_of(&socket))?;
    let mut command = python(LISTENS, &socket, STRANGER);
    command.stdout(Stdio::piped());
    let mut listener = Listener(command.spawn()?);
    let mut lines = BufReader::new(listener.0.stdout.take().expect("its stdout")).lines();
    assert_eq!(lines.next().transpose()?.as_deref(), Some("listening"));
    let mut client = home.client();
    let run = client.call("execute_program", &json!({"code": "print('ran')"}));
    assert!(run.is_error, "{}", run.text);
    assert!(
        run.text.contains(&STRANGER.to_string()) && run.text.contains("Nothing ran"),
        "{}",
        run.text
    );
    let (code, _, said) = home.ctl(&["status"]);
    assert!(code != 0 && said.contains(&STRANGER.to_string()), "{said}");
    drop(client);
    drop(listener);
    // Connections came, and not a word on any of them.
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(!told.is_empty(), "nobody looked who listens");
    assert!(told.iter().all(|line| line == "told b''"), "{told:?}");
    Ok(())
}
