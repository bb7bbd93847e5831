//! `locker._native`: the runtime for the Python package.
//!
//! Everything that may wait is a `Call`, a boxed future. A caller without an event loop blocks on it without
//! the GIL. An event loop polls it on its own thread, and a `Bridge` wakes the loop through a file descriptor:
//! no thread of the runtime ever takes the GIL. There is no logic of locks here: the module calls `locker-runtime`,
//! partly through `private/bindings.rs`.
//!
//! The path of one call, in `python/locker/` and here:
//!
//! 1. `_decorators.py`, `_wrapping.py`, `_binding.py`: check options and parts at the decoration, and bind arguments to
//!    parts at a call.
//! 2. `key.rs`: the key, with the same code as the attributes of Rust.
//! 3. `locker.rs`, `options.rs`: a `Call`, one Rust future. The store is opened at the first use in each process.
//! 4. `_waiting.py`: a thread waits in `Call.wait` without the GIL; a loop polls on its own thread.
//! 5. `bridge.rs`: a waker notes the call at the bridge of its loop, and writes to a descriptor that the loop watches.
//! 6. `_guards.py`, `_loss.py`: the guard; a lost hold cancels the task as `asyncio.timeout` does.
//!
//! `errors.rs` chooses among the classes of `_errors.py` by the kind of the Rust error. `_process.py` handles forks and
//! the end of the process.

mod testing;

mod locker;

mod election;
mod once;

mod handles;
mod settings;

mod options;

mod guard;
mod inspection;

mod call;
mod key;

mod bridge;
mod reference;
mod seconds;
mod text;

mod errors;
mod events;

mod holder;

use pyo3::{exceptions::PyImportError, prelude::*};

/// Tells the runtime that this process was forked. Harmless in any other.
#[pyfunction]
fn forked() {
    locker_runtime::forked();
}

/// Refuses any interpreter but the main one: the classes of errors are those of one interpreter.
fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    // The name from Python 3.13 on, and the one before.
    let found = ["_interpreters", "_xxsubinterpreters"].into_iter().find_map(|name| py.import(name).ok());
    let Some(interpreters) = found else { return Ok(()) };
    if interpreters.call_method0("get_current")?.eq(interpreters.call_method0("get_main")?)? {
        return Ok(());
    }
    Err(PyImportError::new_err("locker works in the main interpreter only, not in subinterpreters"))
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PENDING", call::pending(module.py())?)?;
    module.add_class::<bridge::Bridge>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<call::Pending>()?;
    module.add_class::<election::Election>()?;
    module.add_class::<election::Leader>()?;
    module.add_class::<election::Observer>()?;
    module.add_class::<once::Done>()?;
    module.add_class::<once::Once>()?;
    module.add_class::<once::OnceKeep>()?;
    module.add_class::<once::OncePer>()?;
    module.add_class::<guard::Guard>()?;
    module.add_class::<guard::Guards>()?;
    module.add_class::<handles::Admission>()?;
    module.add_class::<handles::Barrier>()?;
    module.add_class::<handles::Counter>()?;
    module.add_class::<handles::Event>()?;
    module.add_class::<handles::Latch>()?;
    module.add_class::<handles::RateLimiter>()?;
    module.add_class::<handles::Watchdog>()?;
    module.add_class::<holder::Holder>()?;
    module.add_class::<inspection::Inspection>()?;
    module.add_class::<key::Function>()?;
    module.add_class::<key::Key>()?;
    module.add_class::<locker::Locker>()?;
    module.add_class::<testing::Control>()?;
    module.add_class::<testing::Outage>()?;
    module.add_function(wrap_pyfunction!(testing::controlled, module)?)?;
    module.add_function(wrap_pyfunction!(events::events, module)?)?;
    module.add_function(wrap_pyfunction!(events::keep_events, module)?)?;
    module.add_function(wrap_pyfunction!(forked, module)?)?;
    module.add_function(wrap_pyfunction!(key::part_text, module)?)
}
