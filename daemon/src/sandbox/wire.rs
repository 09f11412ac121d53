//! Messages between ptcd and its warden: one JSON text a packet, with descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::landlock::Reach;
use super::limits::Limits;
use super::root::RootPlan;
use super::step::Step;

/// Longest message; what is longer travels in a file of its own.
const LONGEST: usize = 16 * 1024;
/// Most descriptors beside one message.
const MOST_DESCRIPTORS: usize = 3;

/// What ptcd asks of the warden.
#[derive(Debug, Deserialize)]
pub(super) enum Request {
    /// From now on workers are made by the plan in the file that comes with this.
    Configure,
    /// Start a fork server for workers of these limits, unless there is one.
    Serve {
        /// What each worker may use.
        limits: Limits,
    },
    /// Start a worker; its channel, stdout and stderr come with this.
    Spawn {
        /// The daemon's number for it.
        id: u64,
        /// What it may use.
        limits: Limits,
        /// Where it comes from.
        how: How,
    },
}

/// Where a worker comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// A fresh interpreter.
    Exec,
    /// The fork server.
    Fork,
    /// The fork server, and it is to try to get out.
    Canary,
}

impl How {
    fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Fork => "fork",
            Self::Canary => "canary",
        }
    }
}

impl Request {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Configure => json!("Configure"),
            Self::Serve { limits } => json!({"Serve": {"limits": limits.to_json()}}),
            Self::Spawn { id, limits, how } => {
                json!({"Spawn": {"id": id, "limits": limits.to_json(), "how": how.as_str()}})
            }
        }
    }
}

/// What the warden tells.
#[derive(Debug, Deserialize)]
pub(super) enum Report {
    /// The plan is in force.
    Configured {
        /// seccomp filters a worker will have.
        filters: usize,
    },
    /// The plan cannot be followed.
    Unusable {
        /// What is wrong with it.
        detail: String,
    },
    /// Workers can be forked.
    Serving {
        /// seccomp filters such a worker has.
        filters: usize,
    },
    /// Workers cannot be forked, or no longer.
    NotServing {
        /// Why.
        detail: String,
    },
    /// A worker has become the interpreter; its pidfd comes with this.
    Spawned {
        /// The daemon's number for it.
        id: u64,
    },
    /// A worker could not be made.
    Failed {
        /// The daemon's number for it.
        id: u64,
        /// Where it stopped.
        step: Step,
        /// Why.
        detail: String,
    },
    /// A worker has ended and its scratch folder is gone or set aside.
    Exited {
        /// The daemon's number for it.
        id: u64,
        /// Exit code.
        code: Option<i32>,
        /// Signal that ended it.
        signal: Option<i32>,
        /// Processor time, in microseconds.
        cpu_micros: u64,
        /// Peak resident memory, in bytes.
        peak_memory_bytes: u64,
        /// Whether the warden ended it because its files grew over the limit.
        scratch_exceeded: bool,
    },
}

impl Report {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Configured { filters } => json!({"Configured": {"filters": filters}}),
            Self::Unusable { detail } => json!({"Unusable": {"detail": detail}}),
            Self::Serving { filters } => json!({"Serving": {"filters": filters}}),
            Self::NotServing { detail } => json!({"NotServing": {"detail": detail}}),
            Self::Spawned { id } => json!({"Spawned": {"id": id}}),
            Self::Failed { id, step, detail } => {
                json!({"Failed": {"id": id, "step": step.as_str(), "detail": detail}})
            }
            Self::Exited {
                id,
                code,
                signal,
                cpu_micros,
                peak_memory_bytes,
                scratch_exceeded,
            } => json!({"Exited": {
                "id": id, "code": code, "signal": signal, "cpu_micros": cpu_micros,
                "peak_memory_bytes": peak_memory_bytes, "scratch_exceeded": scratch_exceeded,
            }}),
        }
    }
}

/// How workers are made.
#[derive(Debug, Deserialize)]
pub(super) struct Plan {
    /// The tier's name, or `None` for no confinement.
    pub(super) tier: Option<String>,
    /// The interpreter.
    pub(super) python: PathBuf,
    /// Whether it is a Python; another program takes no options, and nothing of it is forked.
    pub(super) is_python: bool,
    /// The text it starts with; of another program the one argument, or none where this is empty.
    pub(super) boot: String,
    /// What it may reach.
    pub(super) reach: Reach,
    /// Whether Landlock holds it to that.
    pub(super) landlock: bool,
    /// What it sees, in namespaces of its own; `None` sees what the machine has.
    pub(super) root: Option<RootPlan>,
}

impl Plan {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "tier": self.tier,
            "python": self.python.to_str(),
            "is_python": self.is_python,
            "boot": self.boot,
            "reach": self.reach.to_json(),
            "landlock": self.landlock,
            "root": self.root.as_ref().map(RootPlan::to_json),
        })
    }
}

/// Sends one message. Never waits: a peer that does not read its messages is as good as lost.
pub(super) fn send(
    socket: impl AsFd,
    message: &Value,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = message.to_string();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut beside, flags)?;
    Ok(())
}

/// Waits for the next message; `None` when the other side has gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut text = vec![0_u8; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut text)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptors = beside
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    text.truncate(received.bytes);
    Ok(Some((text, descriptors)))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    #[test]
    fn a_message_arrives_with_its_descriptors_and_then_the_end() {
        let (left, right) = pair();
        let limits = Limits {
            memory_bytes: 1,
            scratch_bytes: u64::MAX,
            max_threads: 3,
            cpu_seconds: 4,
        };
        let how = How::Canary;
        let request = Request::Spawn { id: 7, limits, how };
        send(&left, &request.to_json(), &[left.as_fd(), right.as_fd()]).unwrap();
        let (text, descriptors) = receive(&right).unwrap().unwrap();
        let read = serde_json::from_slice(&text).unwrap();
        let Request::Spawn {
            id,
            limits: back,
            how,
        } = read
        else {
            panic!("another request");
        };
        assert_eq!((id, back, how), (7, limits, How::Canary));
        assert_eq!(descriptors.len(), 2);
        drop((left, descriptors));
        assert!(receive(&right).unwrap().is_none());
    }

    #[test]
    fn every_report_is_read_back_as_it_was_written() {
        for report in [
            Report::Configured { filters: 8 },
            Report::Unusable { detail: "x".into() },
            Report::Serving { filters: 16 },
            Report::NotServing { detail: "w".into() },
            Report::Spawned { id: 1 },
            Report::Failed {
                id: 1,
                step: Step::Landlock,
                detail: "y".into(),
            },
            Report::Failed {
                id: 2,
                step: Step::NoNewPrivileges,
                detail: "z".into(),
            },
            Report::Exited {
                id: 1,
                code: None,
                signal: Some(9),
                cpu_micros: 5,
                peak_memory_bytes: 6,
                scratch_exceeded: true,
            },
        ] {
            let text = report.to_json().to_string();
            let back: Report = serde_json::from_str(&text).unwrap();
            assert_eq!(format!("{back:?}"), format!("{report:?}"));
        }
    }
}
