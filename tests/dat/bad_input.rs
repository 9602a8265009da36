//! Misuse of the API. The only consequence must be an error that names the cause.

#[path = "bad_input/arguments.rs"]
mod arguments;
#[path = "bad_input/careless.rs"]
mod careless;
#[path = "bad_input/configuration.rs"]
mod configuration;
#[path = "bad_input/fork.rs"]
mod fork;
#[path = "bad_input/leaving.rs"]
mod leaving;
#[path = "bad_input/other_adapter.rs"]
mod other_adapter;
#[path = "bad_input/private_data.rs"]
mod private_data;
