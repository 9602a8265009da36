//! Inline verbs are C functions, compiled from the installed header.

/// Implemented for C functions only: a port of a function to Rust has the Rust ABI
/// and does not compile here.
trait CFunction {}

macro_rules! c_functions {
    ($($argument:ident)*) => {
        impl<R, $($argument),*> CFunction for unsafe extern "C" fn($($argument),*) -> R {}
    };
}
c_functions!();
c_functions!(A);
c_functions!(A B);
c_functions!(A B C);
c_functions!(A B C D);
c_functions!(A B C D E);

fn is_c<F: CFunction>(_: F) {}

macro_rules! assert_c {
    ($($name:ident: $arguments:tt),* $(,)?) => { $(assert_c!(@one $name $arguments);)* };
    (@one $name:ident 0) => { is_c(dv_sys::inline::$name as unsafe extern "C" fn() -> _) };
    (@one $name:ident 1) => { is_c(dv_sys::inline::$name as unsafe extern "C" fn(_) -> _) };
    (@one $name:ident 2) => { is_c(dv_sys::inline::$name as unsafe extern "C" fn(_, _) -> _) };
    (@one $name:ident 3) => { is_c(dv_sys::inline::$name as unsafe extern "C" fn(_, _, _) -> _) };
    (@one $name:ident 4) => {
        is_c(dv_sys::inline::$name as unsafe extern "C" fn(_, _, _, _) -> _)
    };
    (@one $name:ident 5) => {
        is_c(dv_sys::inline::$name as unsafe extern "C" fn(_, _, _, _, _) -> _)
    };
}

#[test]
fn inline_verbs_are_the_shims_of_c() {
    // The number of arguments of each.
    assert_c! {
        dv_query_port: 3,
        dv_reg_mr: 4,
        ibv_advise_mr: 5,
        ibv_alloc_mw: 2,
        ibv_alloc_parent_domain: 2,
        ibv_alloc_td: 2,
        ibv_bind_mw: 3,
        ibv_create_cq_ex: 2,
        ibv_create_qp_ex: 2,
        ibv_create_srq_ex: 2,
        ibv_dealloc_mw: 1,
        ibv_dealloc_td: 1,
        ibv_get_srq_num: 2,
        ibv_inc_rkey: 1,
        ibv_poll_cq: 3,
        ibv_post_recv: 3,
        ibv_post_send: 3,
        ibv_post_srq_recv: 3,
        ibv_query_device_ex: 3,
        ibv_query_gid_ex: 5,
        ibv_req_notify_cq: 2,
        ibv_start_poll: 2,
        ibv_wr_start: 1,
    }
}

#[test]
fn a_remote_key_is_incremented_without_overflow() {
    // Only the lowest byte of a key is incremented, and it wraps.
    // SAFETY: the function uses its argument only.
    let next = unsafe { dv_sys::inline::ibv_inc_rkey(0x1234_56ff) };
    assert_eq!(next, 0x1234_5600);
}
