//! The words a container engine's program is called with.

use std::path::Path;

use super::engine::Kind;
use crate::sandbox::Limits;

/// What both processes of a container take beside the program's own memory.
const INTERPRETERS: u64 = 64 << 20;
/// Under this an engine's own starter, which is held to the same number, does not start.
const LEAST_TASKS: u64 = 16;
/// The supervisor, and what lies between one program's end and the next look.
const OTHER_TASKS: u64 = 2;

/// Folders that engines make, which everybody in the container may write to: the one with queues of messages, and the
/// one with terminals. An empty folder that nobody may enter takes their place.
const HIDDEN: [&str; 2] = ["/dev/mqueue", "/dev/pts"];

/// What docker would otherwise take from its own configuration, which may hold a password.
const PROXIES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// One container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) owner: &'a str,
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) profile: &'a Path,
    /// The interpreter inside the image.
    pub(super) python: &'a str,
    pub(super) limits: Limits,
    /// Processes this user may have, the wall behind the container's own limit.
    pub(super) processes: u64,
    pub(super) text: &'a str,
}

impl Run<'_> {
    /// The arguments of `docker run` or `podman run`.
    pub(super) fn arguments(&self, kind: Kind) -> Vec<String> {
        let scratch_bytes = self.limits.scratch_bytes;
        let memory = memory(self.limits);
        let tasks = tasks(self.limits);
        let mut words: Vec<String> = [
            "run",
            "--rm",
            "--interactive",
            "--pull",
            "never",
            "--network",
            "none",
            "--read-only",
            "--tmpfs",
        ]
        .map(str::to_owned)
        .to_vec();
        words.push(format!(
            "/tmp:rw,noexec,nosuid,nodev,size={scratch_bytes},mode=1777"
        ));
        let mut pair = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        for folder in HIDDEN {
            let value = format!("{folder}:ro,noexec,nosuid,nodev,size=4096,mode=0");
            pair("--tmpfs", value);
        }
        pair("--workdir", "/tmp".to_owned());
        pair("--cap-drop", "ALL".to_owned());
        pair("--security-opt", "no-new-privileges".to_owned());
        pair(
            "--security-opt",
            format!("seccomp={}", self.profile.display()),
        );
        pair("--pids-limit", tasks.to_string());
        pair("--memory", memory.to_string());
        pair("--memory-swap", memory.to_string());
        pair("--cpus", "1".to_owned());
        pair("--ulimit", "nofile=128".to_owned());
        pair("--ulimit", "core=0".to_owned());
        pair("--ulimit", format!("nproc={}", self.processes));
        pair("--user", "65534:65534".to_owned());
        pair("--ipc", "none".to_owned());
        pair("--cgroupns", "private".to_owned());
        pair("--hostname", "sandbox".to_owned());
        pair("--log-driver", "none".to_owned());
        pair("--stop-timeout", "0".to_owned());
        pair("--label", format!("ptcd={}", self.owner));
        pair("--name", self.name.to_owned());
        pair("--entrypoint", self.python.to_owned());
        words.extend(own_words(kind));
        words.push("--no-healthcheck".to_owned());
        words.push(self.image.to_owned());
        words.extend(["-I", "-S", "-B", "-X", "utf8", "-c"].map(str::to_owned));
        words.push(self.text.to_owned());
        words
    }
}

/// Memory of a container as a whole. Scratch lies in memory and counts as such.
pub(super) fn memory(limits: Limits) -> u64 {
    limits
        .memory_bytes
        .saturating_add(limits.scratch_bytes)
        .saturating_add(INTERPRETERS)
}

/// Processes and threads of a container as a whole.
pub(super) fn tasks(limits: Limits) -> u64 {
    limits
        .max_threads
        .saturating_add(OTHER_TASKS)
        .max(LEAST_TASKS)
}

/// What only one of the engines needs to be told, or knows.
fn own_words(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Docker => PROXIES
            .iter()
            .flat_map(|name| ["--env".to_owned(), format!("{name}=")])
            .collect(),
        Kind::Podman => [
            "--read-only-tmpfs=false",
            "--http-proxy=false",
            "--no-hosts",
            "--systemd=false",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "run --rm --interactive --pull never --network none --read-only --tmpfs \
        /tmp:rw,noexec,nosuid,nodev,size=67108864,mode=1777 --tmpfs \
        /dev/mqueue:ro,noexec,nosuid,nodev,size=4096,mode=0 --tmpfs \
        /dev/pts:ro,noexec,nosuid,nodev,size=4096,mode=0 --workdir /tmp --cap-drop ALL --security-opt \
        no-new-privileges --security-opt seccomp=/state/seccomp.json --pids-limit 66 --memory 671088640 \
        --memory-swap 671088640 --cpus 1 --ulimit nofile=128 --ulimit core=0 --ulimit nproc=4096 --user \
        65534:65534 --ipc none --cgroupns private --hostname sandbox --log-driver none --stop-timeout 0 --label \
        ptcd=owner --name ptcd-owner-1 --entrypoint python3";
    const END: &str = "--no-healthcheck image@sha256:00 -I -S -B -X utf8 -c TEXT";

    fn run() -> Run<'static> {
        Run {
            owner: "owner",
            name: "ptcd-owner-1",
            image: "image@sha256:00",
            profile: Path::new("/state/seccomp.json"),
            python: "python3",
            limits: Limits {
                memory_bytes: 512 << 20,
                scratch_bytes: 64 << 20,
                max_threads: 64,
                cpu_seconds: 121,
            },
            processes: 4096,
            text: "TEXT",
        }
    }

    #[test]
    fn docker_is_called_with_exactly_these_words() {
        let proxies = PROXIES.map(|name| format!("--env {name}=")).join(" ");
        assert_eq!(
            run().arguments(Kind::Docker).join(" "),
            format!("{COMMON} {proxies} {END}")
        );
    }

    #[test]
    fn podman_is_called_with_exactly_these_words() {
        assert_eq!(
            run().arguments(Kind::Podman).join(" "),
            format!(
                "{COMMON} --read-only-tmpfs=false --http-proxy=false --no-hosts --systemd=false {END}"
            )
        );
    }

    #[test]
    fn few_threads_leave_room_for_the_engines_own() {
        let mut run = run();
        run.limits.max_threads = 1;
        let words = run.arguments(Kind::Podman);
        let at = words
            .iter()
            .position(|word| word == "--pids-limit")
            .unwrap();
        assert_eq!(words[at + 1], "16");
    }

    #[test]
    fn nothing_of_the_machine_is_shown_to_the_container() {
        for kind in [Kind::Docker, Kind::Podman] {
            let words = run().arguments(kind);
            for word in [
                "--volume",
                "-v",
                "--mount",
                "--privileged",
                "--device",
                "--env-file",
                "-e",
            ] {
                assert!(!words.iter().any(|found| found == word), "{word}");
            }
        }
    }
}
