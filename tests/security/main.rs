//! What a confined program cannot do, each attempt shown to succeed without confinement first.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unnecessary_wraps,
    reason = "a test ends at the first thing that is not as it should be"
)]

#[cfg(target_os = "linux")]
mod attempt;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod container;
#[cfg(target_os = "linux")]
mod cpython;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod inside;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(target_os = "linux")]
mod life;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod masked;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod need;
#[cfg(target_os = "linux")]
mod needs;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod others;
#[cfg(target_os = "linux")]
mod price;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod races;
#[cfg(target_os = "linux")]
mod recent;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod shown;
#[cfg(target_os = "linux")]
mod sweep;

#[cfg(target_os = "linux")]
use libtest_mimic::Arguments;

/// Tiers of other systems have their tests when they have been built.
#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|mode| mode == "warden")
    {
        // As ptcd does: one program is the daemon and the warden. This one also leaves layers out.
        let ended = ptcd::sandbox::testing::warden(std::env::args());
        std::process::exit(i32::from(ended != std::process::ExitCode::SUCCESS));
    }
    match std::env::var(life::MODE).as_deref() {
        Ok("hold") => return life::hold(),
        Ok("hidden") => return life::hidden(),
        Ok("tell") => return masked::tell(),
        Ok("price") => {
            price::measure();
            return lab::clear();
        }
        Ok("cpython") => std::process::exit(cpython::run()),
        Ok("contain") => return container::hold(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let mut trials = files::all();
    trials.extend(inside::all());
    trials.extend(processes::all());
    trials.extend(kernel::all());
    trials.extend(mounts::all());
    trials.extend(memory::all());
    trials.extend(others::all());
    trials.extend(options::all());
    trials.extend(recent::all());
    trials.extend(limits::all());
    trials.extend(scratch::all());
    trials.extend(races::all());
    trials.extend(masked::all());
    trials.extend(life::all());
    trials.extend(sweep::all());
    trials.extend(shown::all());
    trials.extend(needs::all());
    trials.extend(layers::all());
    trials.extend(container::all());
    let conclusion = libtest_mimic::run(&arguments, trials);
    lab::clear();
    conclusion.exit();
}
