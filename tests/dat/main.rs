//! uDAPL 1.2 as C programs use it: on the emulated NIC in the test process,
//! stepped by the test, or on the device that `DAT_TEST_DEVICE` names. The name of
//! each test begins with the statement that it proves: W `dat_evd_wait`, L
//! `dat_srq_set_lw`, Q `dat_ep_recv_query`, R `dat_ep_post_recv`, E
//! `dat_ep_create_with_srq`.

#![allow(unreachable_pub, reason = "a test binary has no interface")]

mod adapter;
mod bad_input;
mod cno;
mod connections;
mod counters;
mod ep_create_with_srq;
mod ep_post_recv;
mod ep_recv_query;
mod evd;
mod habits;
mod knobs;
mod memory;
mod posting;
mod profiles;
mod rdma_cm;
mod resources;
mod support;
mod threads;
mod timestamps;

mod evd_wait;
mod safe;
mod small_devices;
mod smoke;
mod srq_set_lw;
