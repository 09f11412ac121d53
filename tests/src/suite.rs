//! One test as libtest-mimic runs it, and the way it says that this machine lacks something.

use std::fmt;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// What a test gives back; an error that is a [`Skip`] counts as ignored.
pub type TestResult = anyhow::Result<()>;

/// What this machine lacks for a test, as one sentence.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a test as ignored, for this reason.
pub fn skip<T>(reason: impl Into<String>) -> anyhow::Result<T> {
    Err(Skip(reason.into()).into())
}

/// Wraps one test.
pub fn trial<F>(area: &str, name: &str, test: F) -> Trial
where
    F: FnOnce() -> TestResult + Send + 'static,
{
    trial_of(&format!("{area}::{name}"), test)
}

/// Wraps one test under its whole name.
pub fn trial_of<F>(name: &str, test: F) -> Trial
where
    F: FnOnce() -> TestResult + Send + 'static,
{
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast::<Skip>() {
            Ok(Skip(reason)) => Ok(Completion::ignored_with(reason)),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
    })
}

/// Runs the tests as the command line says, and ends the process. Most of them wait most of the time, so that twice as
/// many run at once as there are processors, unless another number is asked for.
pub fn run(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * processors);
    libtest_mimic::run(&arguments, trials).exit()
}

/// The named functions as tests of the module they stand in.
#[macro_export]
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::suite::trial(
            module_path!().rsplit("::").next().unwrap_or_default(),
            stringify!($name),
            $name,
        )),*]
    };
}
