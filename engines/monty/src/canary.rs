//! Tries, as a worker, what no program may do, and answers how each attempt ended: it is how a tier is proved for this program.
//!
//! An attempt that is refused gives its error number, one that succeeds gives null.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use monty_types::MONTY_VERSION;
use rustix::process::{Pid, getppid, test_kill_current_process_group, test_kill_process};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::system;

/// The argument that has a worker try in place of waiting for a program.
pub(crate) const WORD: &str = "canary";
/// Longest task, in bytes.
const LONGEST: u64 = 16 * 1024;
/// The descriptors looked for are those up to this one; the sandbox lets a worker have fewer.
const DESCRIPTORS: i32 = 1024;
/// EACCES: what is said of something that is not there to be had.
const REFUSED: i32 = 13;

/// What the daemon has laid out to be reached.
#[derive(Debug, Deserialize)]
struct Task {
    file: PathBuf,
    beside: PathBuf,
    socket: PathBuf,
    port: u16,
    pid: i32,
}

/// Tries everything and stays until the daemon has taken the answer.
pub(crate) fn main(channel: i32) -> ExitCode {
    // Before anything is opened that would be found.
    let others = (channel + 1..DESCRIPTORS).any(|number| system::take_descriptor(number).is_some());
    let Some(channel) = system::take_descriptor(channel).map(UnixStream::from) else {
        return ExitCode::from(64);
    };
    match exchange(channel, others) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn exchange(mut channel: UnixStream, others: bool) -> io::Result<()> {
    let mut text = String::new();
    BufReader::new(channel.try_clone()?.take(LONGEST)).read_line(&mut text)?;
    let task: Task = serde_json::from_str(&text)?;
    let mut answers = tried(&task, others);
    answers.insert(
        "trace its parent".to_owned(),
        told(system::trace(Pid::as_raw(getppid()))),
    );
    // Last: a program that takes this one's place answers nothing.
    let own = std::env::args_os().next().unwrap_or_default();
    let error = Command::new(own).exec();
    answers.insert("run a program".to_owned(), told(Err(error)));
    let answers = Value::Object(answers);
    channel.write_all(format!("{answers}\n").as_bytes())?;
    let _ = channel.read(&mut [0]);
    Ok(())
}

/// What disturbs nobody, even where it succeeds.
fn tried(task: &Task, others: bool) -> Map<String, Value> {
    let proc = PathBuf::from("/proc");
    let see = |path: PathBuf| path.metadata().map(drop);
    let absent = |there: bool| {
        if there {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(REFUSED))
        }
    };
    let of_ptcd = proc.join(task.pid.to_string());
    let mut answers = Map::new();
    let mut tell = |name: &str, outcome: io::Result<()>| {
        answers.insert(name.to_owned(), told(outcome));
    };
    tell("read a file", read(task.file.clone()));
    tell("write a file", write(task.beside.clone()));
    tell(
        "connect to a port",
        TcpStream::connect((Ipv4Addr::LOCALHOST, task.port)).map(drop),
    );
    tell(
        "connect to a socket",
        UnixStream::connect(&task.socket).map(drop),
    );
    tell("start a process", system::start_a_process());
    tell("signal its parent", signal(getppid()));
    tell("signal ptcd", signal(Pid::from_raw(task.pid)));
    tell(
        "read the environment of ptcd",
        read(of_ptcd.join("environ")),
    );
    tell(
        "read its own environment file",
        read(proc.join("self/environ")),
    );
    tell("see a file", see(task.file.clone()));
    tell("see ptcd", see(of_ptcd));
    tell(
        "have a variable",
        absent(std::env::vars_os().next().is_some()),
    );
    tell("have another descriptor", absent(others));
    tell("list the root", std::fs::read_dir("/").map(drop));
    answers.insert(
        "version".to_owned(),
        format!("monty {MONTY_VERSION}").into(),
    );
    answers
}

/// An outcome as the daemon reads it.
fn told(outcome: io::Result<()>) -> Value {
    match outcome {
        Ok(()) => Value::Null,
        Err(error) => match error.raw_os_error() {
            Some(number) => number.into(),
            None => error.to_string().into(),
        },
    }
}

fn read(path: PathBuf) -> io::Result<()> {
    File::open(path)?.read(&mut [0]).map(drop)
}

fn write(path: PathBuf) -> io::Result<()> {
    File::create(path)?.write_all(b"x")
}

/// Asks whether a signal would reach a process. What has no number here is this process's own group to the kernel.
fn signal(process: Option<Pid>) -> io::Result<()> {
    match process {
        Some(process) => Ok(test_kill_process(process)?),
        None => Ok(test_kill_current_process_group()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_confines_succeeds_and_what_is_absent_has_its_number() {
        let folder = std::env::temp_dir().join(format!("monty-canary-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), b"x").unwrap();
        let _unix = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut task = Task {
            file: folder.join("file"),
            beside: folder.join("beside"),
            socket: folder.join("socket"),
            port: port.local_addr().unwrap().port(),
            pid: i32::try_from(std::process::id()).unwrap(),
        };
        let answers = tried(&task, true);
        for (name, answer) in &answers {
            if name != "version" {
                assert_eq!(answer, &Value::Null, "{name}");
            }
        }
        task.file = folder.join("nothing");
        let again = tried(&task, false);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(again.len(), answers.len());
        for (name, number) in [
            ("read a file", 2),
            ("see a file", 2),
            ("have another descriptor", REFUSED),
        ] {
            assert_eq!(again[name], number, "{name}");
        }
    }

    #[test]
    fn a_refusal_is_its_number_and_a_success_is_null() {
        let refused = told(Err(io::Error::from_raw_os_error(1)));
        assert_eq!(refused, Value::from(1));
        assert_eq!(told(Ok(())), Value::Null);
        let odd = told(Err(io::Error::other("no number")));
        assert_eq!(odd, Value::from("no number"));
    }
}
