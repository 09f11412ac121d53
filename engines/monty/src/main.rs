//! A worker of ptcd whose programs run in Monty: one program on descriptor 3, and the end.

mod calls;
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
    worker::main()
}
