//! A worker of ptcd whose programs run in Monty: one program on descriptor 3, and the end.

mod calls;
mod canary;
mod channel;
mod check;
mod frame;
mod last_words;
mod output;
mod reading;
mod remedy;
mod report;
mod session;
mod source;
mod system;
mod value;
mod words;
mod worker;

#[global_allocator]
static ALLOCATOR: monty_alloc::LimitedAllocator = monty_alloc::LimitedAllocator;

fn main() -> std::process::ExitCode {
    // The daemon starts one so before it trusts a sandbox, and gives it no program.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == canary::WORD)
    {
        return canary::main(channel::NUMBER);
    }
    worker::main()
}
