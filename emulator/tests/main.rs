//! `mlx5-emu` as a process, and unmodified programs under it.

mod capture;
mod common;
mod data_in_order;
mod explain;
mod fabric;
mod faults;
mod host;
mod kernel;
mod launcher;
mod life;
mod nasty;
mod other_hosts;
mod port;
mod processes;
mod programs;
mod rdma_cm;
mod registration;
mod restricted;
mod statistics;
mod two_sides;
mod verbs;
