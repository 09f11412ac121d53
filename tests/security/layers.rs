//! Each layer of the confinement is seen to be there: a worker that lacks it is refused, or reaches what it kept.

use libtest_mimic::{Failed, Trial};
use ptc_protocol::run::Confinement;
use ptcd::sandbox::testing::{LAYERS, Layer, Weak, Without};
use serde_json::Value;

use crate::attempt::Expect;
use crate::lab::{RUNTIME, ask, end, eventually, ground, lack_of_full};
use crate::life::{LATER, kill, lives};

const SECURITY: &str = include_str!("../../docs/security.md");

/// Who sees that a layer is missing.
#[derive(Clone, Copy, Debug)]
enum Sight {
    /// The start of the sandbox, with a text that has this in it.
    Refused(&'static str),
    /// Nobody: another layer does the same, and the documents name it as redundant by these words.
    Redundant(&'static str),
}

use Layer::{
    BoundingSet, Capabilities, Descriptors, Environment, Identity, Landlock, Limits, Memory,
    NoNewPrivileges, ParentDeath, Root, Seccomp, WardenIpc, WardenMount, WardenNetwork, WardenPid,
    WardenUser, WardenUts, WorkerIpc, WorkerMount, WorkerPid, WorkerUser,
};
use Sight::{Redundant, Refused};

/// What is left out, and who notices.
type Row = (&'static [Layer], Sight);

/// What is left out of the tier landlock.
const LANDLOCK: &[Row] = &[
    (&[Landlock], Refused("could read a file")),
    (&[Seccomp], Refused("Seccomp is 0 and not 2")),
    (&[Limits], Refused("Max data size is")),
    (&[NoNewPrivileges], Redundant("no new privileges")),
    // What else would set it is left out as well; without privileges no filter can be installed then.
    (&[NoNewPrivileges, Landlock], Refused("step seccomp failed")),
    (&[Capabilities], Redundant("capabilities")),
    (&[Descriptors], Refused("could have another descriptor")),
    (&[Environment], Refused("could have a variable")),
    (&[Memory], Redundant("no executable memory")),
];

/// What only root does in that tier: an ordinary user may not narrow the set and has no other user to become.
const LANDLOCK_AS_ROOT: &[Row] = &[
    (&[BoundingSet], Refused("CapBnd is")),
    (&[Identity], Refused("Uid is")),
];

/// What is left out of the tier full.
const FULL: &[Row] = &[
    (
        &[WardenUser],
        Refused("namespaces: Operation not permitted"),
    ),
    (&[WardenPid], Refused("its pid namespace is that of ptcd")),
    (
        &[WardenMount],
        Refused("namespaces: Operation not permitted"),
    ),
    (
        &[WardenNetwork],
        Refused("its net namespace is that of ptcd"),
    ),
    (&[WardenIpc], Refused("its ipc namespace is that of ptcd")),
    (&[WardenUts], Refused("namespaces: Operation not permitted")),
    (
        &[WorkerUser],
        Refused("its user namespace is that of its warden"),
    ),
    (
        &[WorkerPid],
        Refused("its pid namespace is that of its warden"),
    ),
    (&[WorkerMount], Refused("step scratch failed")),
    (
        &[WorkerIpc],
        Refused("its ipc namespace is that of its warden"),
    ),
    (&[Root], Refused("could see ptcd")),
    (&[Landlock], Refused("could list the root")),
    (&[Seccomp], Refused("Seccomp is 0 and not 2")),
    (&[Limits], Refused("Max data size is")),
    (&[NoNewPrivileges], Redundant("no new privileges")),
    (&[NoNewPrivileges, Landlock], Refused("step seccomp failed")),
    (&[Capabilities], Redundant("capabilities")),
    (&[BoundingSet], Refused("CapBnd is")),
    (&[Descriptors], Refused("could have another descriptor")),
    (&[Environment], Refused("could have a variable")),
    (&[Memory], Redundant("no executable memory")),
    (&[ParentDeath], Redundant("death of the parent")),
];

/// What is left out where workers of the tier landlock are forked. What they get from their server is left out there.
const LANDLOCK_FORKS: &[Row] = &[
    (&[Landlock], Refused("could read a file")),
    (&[Seccomp], Refused("Seccomp is 0 and not 2")),
    (&[Limits], Refused("Max data size is")),
    (&[NoNewPrivileges], Redundant("no new privileges")),
    (&[NoNewPrivileges, Landlock], Refused("step seccomp failed")),
    (&[Capabilities], Redundant("capabilities")),
    // The places that the server holds open leave no room for files.
    (&[Descriptors], Refused("to read a file proved nothing: 24")),
    (&[Environment], Refused("it has a variable")),
    (&[Memory], Redundant("no executable memory")),
];

const LANDLOCK_FORKS_AS_ROOT: &[Row] = &[
    (&[BoundingSet], Refused("CapBnd is")),
    // A user without rights does not get into another's scratch.
    (&[Identity], Refused("step session failed: [Errno 13]")),
];

/// What is left out where workers of the tier full are forked. They start no program after they have got every right
/// in their own namespaces, so nothing takes these but the steps that do.
const FULL_FORKS: &[Row] = &[
    (&[WardenPid], Refused("its pid namespace is that of ptcd")),
    (
        &[WardenNetwork],
        Refused("its net namespace is that of ptcd"),
    ),
    (&[WardenIpc], Refused("its ipc namespace is that of ptcd")),
    (&[WorkerUser], Refused("step namespaces failed")),
    (&[WorkerPid], Refused("step namespaces failed")),
    (&[WorkerMount], Refused("step namespaces failed")),
    (&[WorkerIpc], Refused("step namespaces failed")),
    (&[Root], Refused("could see ptcd")),
    (&[Landlock], Refused("could list the root")),
    (&[Seccomp], Refused("Seccomp is 0 and not 2")),
    (&[Limits], Refused("Max data size is")),
    (&[NoNewPrivileges], Refused("step seccomp failed")),
    (&[Capabilities], Refused("CapPrm is")),
    (&[BoundingSet], Refused("CapBnd is")),
    // The places that the server holds open leave no room for files.
    (&[Descriptors], Refused("to read a file proved nothing: 24")),
    (&[Environment], Refused("it has a variable")),
    (&[Memory], Redundant("no executable memory")),
    (&[ParentDeath], Redundant("death of the parent")),
];

const FULL_AS_ROOT: &[Row] = &[(&[Identity], Refused("Uid is"))];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Leaves out what the rows say, and those for root where this is root. Workers are `forked` or not.
fn check(
    tier: Confinement,
    forked: bool,
    rows: &[Row],
    rows_of_root: &[Row],
) -> Result<(), Failed> {
    let of_root = if is_root() { rows_of_root } else { &[] };
    for (layers, sight) in rows.iter().chain(of_root) {
        let without = Without::layers(layers);
        let proved = if forked {
            RUNTIME.block_on(ground().prove_forks(tier, &without))
        } else {
            RUNTIME.block_on(ground().prove(tier, &without))
        };
        match (sight, proved) {
            (Refused(text), Err(error)) if error.contains(text) => {}
            (Redundant(words), Ok(_)) if names(words) => {}
            (sight, proved) => {
                return Err(format!("{tier:?} without {layers:?}: {sight:?}, {proved:?}").into());
            }
        }
    }
    Ok(())
}

/// Whether the documents name a redundant layer by these words.
fn names(words: &str) -> bool {
    let part = SECURITY
        .split("\n## ")
        .find(|part| part.starts_with("Redundant layers"));
    part.is_some_and(|part| part.contains(&format!("**{words}**")))
}

fn in_landlock() -> Result<(), Failed> {
    check(Confinement::Landlock, false, LANDLOCK, LANDLOCK_AS_ROOT)
}

fn in_full() -> Result<(), Failed> {
    check(Confinement::Full, false, FULL, FULL_AS_ROOT)
}

fn in_forks_of_landlock() -> Result<(), Failed> {
    check(
        Confinement::Landlock,
        true,
        LANDLOCK_FORKS,
        LANDLOCK_FORKS_AS_ROOT,
    )
}

fn in_forks_of_full() -> Result<(), Failed> {
    check(Confinement::Full, true, FULL_FORKS, FULL_AS_ROOT)
}

/// With nothing left out the same door gives a sandbox like any other.
fn whole() -> Result<(), Failed> {
    let tiers = [
        Some(Confinement::Landlock),
        lack_of_full().is_none().then_some(Confinement::Full),
    ];
    for tier in tiers.into_iter().flatten() {
        let nothing = Without::default();
        let fresh = RUNTIME.block_on(ground().prove(tier, &nothing))?;
        let forked = RUNTIME.block_on(ground().prove_forks(tier, &nothing))?;
        for weak in [fresh, forked] {
            let worker = RUNTIME.block_on(weak.spawn_verified())?;
            let answer = ask(&worker, "result = open(facts['file']).read()");
            let answer = answer.ok_or("no answer")?;
            assert!(
                [1, 2, 13].map(Value::from).contains(&answer["errno"]),
                "{answer}"
            );
        }
    }
    Ok(())
}

fn every_layer_is_left_out_somewhere() -> Result<(), Failed> {
    let rows = [LANDLOCK, LANDLOCK_AS_ROOT, FULL, FULL_AS_ROOT];
    let tried: Vec<Layer> = rows
        .iter()
        .copied()
        .flatten()
        .flat_map(|(layers, _)| layers.iter().copied())
        .collect();
    let forgotten: Vec<Layer> = LAYERS
        .into_iter()
        .filter(|layer| !tried.contains(layer))
        .collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
    Ok(())
}

/// A worker that nobody has looked at, and what it was started by.
fn held(
    tier: Confinement,
    layers: &[Layer],
) -> Result<(Weak, ptcd::sandbox::WorkerProcess), Failed> {
    let weak = RUNTIME.block_on(ground().unproved(tier, &Without::layers(layers)))?;
    let worker = RUNTIME
        .block_on(weak.spawn())
        .map_err(|error| error.to_string())?;
    Ok((weak, worker))
}

/// The answer of a program in a worker that nobody has looked at.
fn answer_without(tier: Confinement, layers: &[Layer], program: &str) -> Result<Value, Failed> {
    let (_weak, worker) = held(tier, layers)?;
    let answer = ask(&worker, program);
    let outcome = end(worker, answer);
    outcome
        .answer
        .ok_or_else(|| format!("{:?}", outcome.exit).into())
}

/// The kernel's own refusal of new code shows where the filters, which refuse the same, are left out.
fn memory_is_refused_twice() -> Result<(), Failed> {
    let program = "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
        syscall(facts['sys']['SYS_mprotect'], a, 4096, 5)";
    let tier = Confinement::Landlock;
    Expect::Errno(&[libc::EACCES]).check(&answer_without(tier, &[Seccomp], program)?)?;
    Expect::Succeeds.check(&answer_without(tier, &[Seccomp, Memory], program)?)
}

/// Without capabilities dropped the kernel drops them when the interpreter starts, as its user is not root.
fn capabilities_go_with_the_interpreter() -> Result<(), Failed> {
    let (_weak, worker) = held(Confinement::Landlock, &[Capabilities])?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid()))?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(
            status.contains(&format!("{set}:\t0000000000000000")),
            "{status}"
        );
    }
    Ok(())
}

/// Without it a worker of the tier landlock outlives its warden; in the tier full the pid namespace ends it.
fn a_worker_outlives_its_warden_without_the_death_of_the_parent() -> Result<(), Failed> {
    let (weak, worker) = held(Confinement::Landlock, &[ParentDeath])?;
    let warden = weak.warden_pid();
    kill(warden);
    eventually(LATER, "the warden is gone", || !lives(warden.cast_signed()));
    let answer = ask(&worker, "result = 'alive'").ok_or("it is gone")?;
    assert_eq!(answer["ok"], "alive");
    kill(worker.pid().cast_unsigned());
    if lack_of_full().is_none() {
        let (weak, worker) = held(Confinement::Full, &[ParentDeath])?;
        kill(weak.warden_pid());
        eventually(LATER, "the worker is gone", || !lives(worker.pid()));
    }
    Ok(())
}

/// The warden that ptcd starts follows no plan that leaves something out, and takes no word for it.
fn ptcd_itself_leaves_nothing_out() -> Result<(), Failed> {
    let ground = crate::lab::ground_of_ptcd();
    let refusal = |without: &Without| {
        let started = RUNTIME.block_on(ground.unproved(Confinement::Landlock, without));
        started.map(|_| ()).unwrap_err()
    };
    for without in [
        Without::layers(&[Seccomp]),
        Without {
            profile: Some("{}".to_owned()),
            ..Without::default()
        },
        Without {
            shown: vec!["/".into()],
            ..Without::default()
        },
    ] {
        let error = refusal(&without);
        assert!(error.contains("the plan leaves something out"), "{error}");
    }
    let word = std::process::Command::new(ptc_tests::programs::program("ptcd"))
        .args(["warden", "--inside", "--without=warden_network"])
        .output()?;
    assert_eq!(word.status.code(), Some(2), "{word:?}");
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let inside = Trial::test("layers::each_missing_layer_of_full_is_seen", in_full);
    let forks = Trial::test(
        "layers::each_missing_layer_of_forks_in_full_is_seen",
        in_forks_of_full,
    );
    let or_ignored = |trial: Trial| match lack_of_full() {
        None => trial,
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
    };
    vec![
        Trial::test("layers::with_every_layer_nothing_is_refused", whole),
        Trial::test(
            "layers::each_missing_layer_of_landlock_is_seen",
            in_landlock,
        ),
        Trial::test(
            "layers::each_missing_layer_of_forks_in_landlock_is_seen",
            in_forks_of_landlock,
        ),
        or_ignored(inside),
        or_ignored(forks),
        Trial::test(
            "layers::every_layer_is_left_out_somewhere",
            every_layer_is_left_out_somewhere,
        ),
        Trial::test("layers::memory_is_refused_twice", memory_is_refused_twice),
        Trial::test(
            "layers::capabilities_go_with_the_interpreter",
            capabilities_go_with_the_interpreter,
        ),
        Trial::test(
            "layers::a_worker_outlives_its_warden_without_the_death_of_the_parent",
            a_worker_outlives_its_warden_without_the_death_of_the_parent,
        ),
        Trial::test(
            "layers::ptcd_itself_leaves_nothing_out",
            ptcd_itself_leaves_nothing_out,
        ),
    ]
}
